"""The optimizer process of a stream: what it does, and when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.optimizer import sidecar
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.table.handle import Table
from tests.spark.driver import AFTER, Driver, Job
from tests.spark.streams import PATIENCE_S, deliver, ids_delivered, ids_of, read_stream, run

FILES = 40
EARLY = {"fuse.optimize.blocks": "3"}
"""Properties with which a sink starts the optimizer after three batches."""
ROWS = pa.schema([("id", pa.int64()), ("key", pa.string())])
SERVICE = "fuse_stream.optimizer"


@pytest.fixture(autouse=True)
def none_beside() -> Iterator[None]:
    sidecar.stop()
    yield
    sidecar.stop()


def wait_until(is_so: Callable[[], object]) -> None:
    end_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
    while not is_so():
        assert SYSTEM_CLOCK.monotonic_s() < end_s, "it did not come to pass"
        SYSTEM_CLOCK.sleep(0.05)


def services_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if SERVICE in command_of(child)]


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def operations_of(table: Path) -> list[str]:
    return [str(snapshot.operation) for snapshot in Table.open(table).log()]


@pytest.mark.long
def test_a_stream_of_small_batches_ends_up_in_big_blocks(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(tmp_path, range(FILES))
    with caplog.at_level(logging.INFO, "fuse_stream"):
        run(read_stream(spark, tmp_path), fuse_sink(tmp_path / "table"), tmp_path / "checkpoint")
        wait_until(lambda: Table.open(tmp_path / "table").head().summary.block_count < 25)

    table = Table.open(tmp_path / "table")
    assert ids_of(tmp_path / "table") == ids_delivered(FILES)
    assert operations_of(tmp_path / "table").count("append") == FILES
    assert "compact" in operations_of(tmp_path / "table")
    assert table.fsck(deep=True).is_sound
    changes = table.changes(1).read_all()
    assert sorted(changes["id"].to_pylist()) == ids_delivered(FILES)


def test_with_optimize_off_no_process_starts(spark: SparkSession, tmp_path: Path) -> None:
    deliver(tmp_path, range(4))
    Table.create(tmp_path / "table", ROWS, properties=EARLY)
    sink = fuse_sink(tmp_path / "table", optimize="off")
    run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert sidecar.process_id() is None
    assert set(operations_of(tmp_path / "table")) == {"create", "append"}


@pytest.mark.long
def test_the_optimizer_ends_when_its_driver_is_killed(tmp_path: Path) -> None:
    job = Job(name="stream", point=AFTER, batch_id=4)
    deliver(tmp_path / job.name, range(6))
    Table.create(tmp_path / job.name / "table", ROWS, properties=EARLY)
    with Driver(tmp_path, [job]) as driver:
        driver.wait_for(f"parked {job.name}")
        (process,) = (p for p in psutil.process_iter() if is_driver(p, tmp_path))
        services = services_of(process)
        driver.kill()

    assert len(services) == 1
    wait_until(lambda: not any(map(psutil.Process.is_running, services)))


def is_driver(process: psutil.Process, folder: Path) -> bool:
    command = command_of(process)
    return "tests.spark.driver" in command and str(folder) in command
