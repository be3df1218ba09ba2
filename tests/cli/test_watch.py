"""`optimize --watch`: a separate process that optimizes tables until a signal ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import SCHEMA, Run, rows

BLOCKS = 26
PATIENCE_S = 60.0


def small_blocks(path: Path) -> Table:
    table = Table.create(path, SCHEMA)
    for number in range(BLOCKS):
        table.append(rows(number))
    return table


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_watch_optimizes_its_tables_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    tables = [small_blocks(tmp_path / name) for name in ("a", "b")]
    command = [sys.executable, "-m", "fuse_stream.cli.main", "optimize", "--watch", "--json"]
    paths = [table.metadata.store.url for table in tables]
    process = subprocess.Popen([*command, *paths], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines = [json.loads(process.stdout.readline()) for _ in tables]
    finally:
        process.send_signal(number)
        left, _ = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, left) == (0, "")
    assert [line["path"] for line in lines] == paths
    assert {line["service"] for line in lines} == {"compact"}
    assert [table.head().summary.block_count for table in tables] == [1, 1]


def test_several_tables_are_optimized_only_with_watch(run: Run, path: str) -> None:
    result = run("optimize", path, path)

    assert result.exit_code == 2
    assert "--watch" in result.stderr


def test_watch_limits_its_runs_without_an_option(run: Run, path: str) -> None:
    result = run("optimize", path, "--watch", "--limit", "5")

    assert result.exit_code == 2
    assert "--limit" in result.stderr
