"""Small real tables, and the command line run on them in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from fuse_stream.cli.main import main
from fuse_stream.table.handle import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("delay", pa.float64())])

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {"id": ids, "name": [f"n{i}" for i in ids], "delay": [i / 2 for i in ids]}, schema=SCHEMA
    )


EVENTS = pa.schema([*SCHEMA, ("op", pa.string()), ("seq", pa.int64())])


def events(*ids: int | None, seq: int = 0) -> pa.Table:
    """Return an upsert for each id, of which those without one are bad."""
    made = [{"id": i, "name": f"n{i}", "delay": 0.5, "op": "u", "seq": seq} for i in ids]
    return pa.Table.from_pylist(made, schema=EVENTS)


def take(table: Table, rows: pa.Table) -> Table:
    """Upsert events."""
    table.upsert(rows, keys=["id"], sequence_by="seq", except_column_list=["op", "seq"])
    return table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Versions: 0 created, 1 batch 0, 2 batch 1 of an application, 3 overwritten."""
    table = Table.create(tmp_path / "flights", SCHEMA, cluster_by=["id"], properties={"team": "a"})
    table.append(rows(1, 2, 3), batch_id=0)
    table.append(rows(4, 5), app_id="night", batch_id=1, writer="w", message="late", author="anna")
    table.overwrite(rows(1, 9), message="again\nsecond line")
    return table


@pytest.fixture
def path(table: Table) -> str:
    return table.metadata.store.url


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line; the lines have `width` columns, or no limit as in a pipe."""

    def run(*arguments: object, width: int | None = None) -> Result:
        monkeypatch.delenv("COLUMNS", raising=False)
        if width is not None:
            monkeypatch.setenv("COLUMNS", str(width))
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def run_json(run: Run) -> RunJson:
    """Run a command line with `--json` that succeeds, and return the document."""

    def run_json(*arguments: object) -> Any:
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run_json
