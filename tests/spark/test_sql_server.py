"""`fuse-stream sql-server`, tried with the JDBC client that Spark has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyspark
import pytest
from impala import dbapi
from impala.error import OperationalError

from fuse_stream.table.handle import Table
from tests.kit.servers import free_port
from tests.spark.lake_tables import create, rows

PATIENCE_S = 240
HOME = Path(pyspark.__file__).parent


@contextmanager
def serving(root: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run the server in `root`; yield it when it says that it serves."""
    command = [sys.executable, "-m", "fuse_stream", "sql-server", str(root), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root.parent) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if "there is no authentication" in line:
                    assert f"jdbc:hive2://127.0.0.1:{port}" in line
                    break
            yield server
        finally:
            server.kill()


def beeline(port: int, statements: str) -> str:
    done = subprocess.run(
        [
            HOME / "bin" / "beeline",
            "-u",
            f"jdbc:hive2://127.0.0.1:{port}",
            "--silent=true",
            "--outputformat=csv2",
            "-e",
            statements,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "SPARK_HOME": str(HOME)},
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_jdbc_clients_read_write_and_call(tmp_path: Path, number: signal.Signals) -> None:
    root, port = tmp_path / "root", free_port()
    root.mkdir()
    table = create(root)
    table.append(rows([1, 2]))

    with serving(root, port) as server:
        shown = beeline(
            port,
            "SELECT k FROM t ORDER BY k; INSERT INTO lake.t VALUES (3, 0); "
            "CALL lake.system.revert('t', 1); "
            "SELECT k, _change_type FROM t CHANGES FROM VERSION 3;",
        )
        server.send_signal(number)
        output = server.communicate(timeout=PATIENCE_S)[1]

    assert shown.split()[:3] == ["k", "1", "2"]
    assert "1,delete" in shown
    assert Table.open(root / "t").to_arrow()["k"].to_pylist() == [3]
    assert "stopping" in output
    assert server.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


@pytest.mark.long
def test_a_client_of_python_reads_and_writes(tmp_path: Path) -> None:
    root, port = tmp_path / "root", free_port()
    create(root).append(rows([1, 2]))

    with (
        serving(root, port),
        closing(dbapi.connect("127.0.0.1", port, auth_mechanism="PLAIN")) as connection,
        closing(connection.cursor()) as cursor,
    ):
        cursor.execute("INSERT INTO lake.t WITH (appId = 'client', batchId = 0) VALUES (3, 9)")
        cursor.execute("DELETE FROM lake.t WHERE k = 1")
        cursor.execute("SELECT k, v FROM t WHERE k > %(least)s ORDER BY k", {"least": 0})
        found = cursor.fetchall()
        names = [column[0] for column in cursor.description]
        cursor.execute("CALL lake.system.revert('t', 3)")
        cursor.execute("SELECT version, operation FROM lake.t.history")
        versions = cursor.fetchall()
        with pytest.raises(OperationalError, match="the change feed uses"):
            cursor.execute("ALTER TABLE lake.t RENAME COLUMN k TO _change_type")
        with closing(connection.cursor()) as other:
            other.execute("SHOW TABLES IN lake")
            assert [name for _, name, _ in other.fetchall()] == ["t"]

    assert (names, found) == (["k", "v"], [(2, 0), (3, 9)])
    assert versions == [(4, "revert"), (3, "delete"), (2, "append"), (1, "append"), (0, "create")]
    assert sorted(Table.open(root / "t").to_arrow()["k"].to_pylist()) == [1, 2, 3]


@pytest.mark.long
def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "fuse_stream", "sql-server", tmp_path, "--port", str(port)],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=tmp_path,
        )

    assert done.returncode == 1
    assert "UnsupportedEnvironmentError" in done.stderr
    assert str(port) in done.stderr
