"""The service's process, for real: told, watching, hung up on, killed; and what it never shows."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.optimizer import sidecar
from fuse_stream.optimizer.main import GIVEN_UP
from fuse_stream.optimizer.optimizer import Optimizer
from fuse_stream.optimizer.process import NICENESS, OptimizerProcess
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from tests.conftest import SCHEMA

PATIENCE_S = 60.0
BLOCKS = 30


def wait_until(is_so: Callable[[], object]) -> None:
    end_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
    while not is_so():
        assert SYSTEM_CLOCK.monotonic_s() < end_s, "it did not come to pass"
        SYSTEM_CLOCK.sleep(0.02)


def small_blocks(path: Path, count: int = BLOCKS) -> Table:
    table = Table.create(path, SCHEMA)
    for number in range(count):
        table.append(pa.table({"k": [number]}))
    return table


def rows_of(table: Table) -> list[int]:
    return sorted(table.to_arrow()["k"].to_pylist())


def is_compact(table: Table) -> bool:
    return table.head().summary.block_count < BLOCKS


def location_of(table: Table, **options: object) -> TableLocation:
    return TableLocation(path=table.metadata.store.url, storage_options=StorageOptions(options))


@pytest.fixture
def process() -> Iterator[OptimizerProcess]:
    process = OptimizerProcess()
    yield process
    process.stop(PATIENCE_S)


@pytest.fixture
def no_process_beside() -> Iterator[None]:
    sidecar.stop()
    yield
    sidecar.stop()


def test_a_table_that_it_is_notified_of_is_compacted(
    tmp_path: Path, process: OptimizerProcess
) -> None:
    table = small_blocks(tmp_path / "table")
    process.notify(location_of(table))
    wait_until(lambda: is_compact(table))

    assert rows_of(table) == list(range(BLOCKS))
    assert table.head().operation == "compact"


def test_it_has_a_low_priority(process: OptimizerProcess) -> None:
    wait_until(
        lambda: psutil.Process(process.pid).nice() == min(psutil.Process().nice() + NICENESS, 19)
    )


def test_it_ends_when_its_input_is_closed(process: OptimizerProcess) -> None:
    process.stop(PATIENCE_S)

    assert process.exit_code in {0, GIVEN_UP}  # it has a low priority: its end may take seconds
    process.notify(TableLocation(path="/nowhere"))  # nobody hears it, and nobody minds


def test_what_it_logs_is_in_this_processes_log(
    tmp_path: Path, process: OptimizerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    table = small_blocks(tmp_path / "table")

    def reports() -> list[dict[str, object]]:
        return [record.__dict__["fuse"] for record in caplog.records if hasattr(record, "fuse")]

    with caplog.at_level(logging.INFO, "fuse_stream"):
        process.notify(location_of(table))
        wait_until(reports)

    (report,) = reports()
    assert report["service"] == "compact"
    assert (report["blocks_before"], report["blocks_after"]) == (BLOCKS, 1)
    assert report["path"] == table.metadata.store.url


def test_a_secret_is_neither_on_its_command_line_nor_in_the_log(
    tmp_path: Path, process: OptimizerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "s3cr3t-of-the-lake"
    with caplog.at_level(logging.DEBUG, "fuse_stream"):
        process.notify(
            TableLocation(path=str(tmp_path), storage_options=StorageOptions({"key": secret}))
        )
        wait_until(lambda: "NotFoundError" in caplog.text)

    known = psutil.Process(process.pid)
    assert secret not in " ".join([*known.cmdline(), *known.environ().values()])
    assert secret not in caplog.text


@pytest.mark.parametrize("after_s", [0.4, 0.7, 1.0, 1.3])
def test_one_that_is_killed_leaves_a_sound_table_that_the_next_one_compacts(
    tmp_path: Path, process: OptimizerProcess, after_s: float
) -> None:
    table = small_blocks(tmp_path / "table")
    process.notify(location_of(table))
    SYSTEM_CLOCK.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.exit_code is not None)

    assert rows_of(table) == list(range(BLOCKS))
    assert table.fsck(deep=True).is_sound
    table.compact(tiered=True)
    assert rows_of(table) == list(range(BLOCKS))


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from fuse_stream.optimizer.process import OptimizerProcess; "
        "print(OptimizerProcess().pid, flush=True); sys.stdin.read()"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    with driver.stdin, driver.stdout:
        child = psutil.Process(int(driver.stdout.readline()))
        driver.kill()
        driver.wait()

        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.usefixtures("no_process_beside")
def test_a_commit_starts_it_once_enough_blocks_have_gathered(tmp_path: Path) -> None:
    table = small_blocks(tmp_path / "table", 24)
    location = location_of(table)
    sidecar.committed(location, table.head())
    assert sidecar.process_id() is None

    for number in range(24, BLOCKS):
        sidecar.committed(location, table.append(pa.table({"k": [number]})))
    pid = sidecar.process_id()
    wait_until(lambda: is_compact(table))

    assert rows_of(table) == list(range(BLOCKS))
    assert pid == sidecar.process_id()


@pytest.mark.usefixtures("no_process_beside")
def test_one_that_dies_is_not_started_again_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = small_blocks(tmp_path / "table")
    location = TableLocation(path=str(tmp_path / "elsewhere"))
    sidecar.committed(location, table.head())
    pid = sidecar.process_id()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: sidecar.process_id() is None)
    sidecar.committed(location, table.head())
    sidecar.committed(location, table.head())

    assert sidecar.process_id() is None
    assert "died" in caplog.text


@pytest.mark.usefixtures("no_process_beside")
def test_what_goes_wrong_does_not_reach_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(sidecar, "OptimizerProcess", refuse)
    table = small_blocks(tmp_path / "table")
    sidecar.committed(location_of(table), table.head())

    assert "no more processes" in caplog.text


def test_an_optimizer_optimizes_its_tables_until_it_is_stopped(tmp_path: Path) -> None:
    tables = [small_blocks(tmp_path / name) for name in ("a", "b")]
    optimizer = Optimizer([tmp_path / "a", tmp_path / "b"])
    with optimizer:
        optimizer.start()  # nothing more
        wait_until(lambda: all(map(is_compact, tables)))
        was_running = optimizer.is_running

    assert (was_running, optimizer.is_running) == (True, False)
    assert [rows_of(table) for table in tables] == [list(range(BLOCKS))] * 2


def test_history_expires_and_its_files_go_where_the_table_asks_for_it(tmp_path: Path) -> None:
    short = {"fuse.grace": "1s", "fuse.retain": "1s", "fuse.vacuum.age": "1s"}
    table = Table.create(tmp_path / "table", SCHEMA, properties=short)
    for number in range(BLOCKS):
        table.append(pa.table({"k": [number]}))
    with Optimizer([tmp_path / "table"]):
        wait_until(lambda: is_compact(table))
        wait_until(lambda: len(list((tmp_path / "table" / "_b").iterdir())) < BLOCKS)

    assert table.head().floor > 0
    assert rows_of(table) == list(range(BLOCKS))
    assert table.fsck(deep=True).is_sound
