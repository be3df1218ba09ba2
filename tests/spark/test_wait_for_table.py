"""A read that waits for a table which is created meanwhile, and one that waits in vain."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fuse_stream.errors import NotFoundError, StorageError
from fuse_stream.format.layout import TABLE_KEY, slot_key
from fuse_stream.spark import wait_for_table as module
from fuse_stream.spark.format_stream import stream_schema
from fuse_stream.spark.options import ReadOptions, parse_read_options
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.spark.wait_for_table import wait_for_table
from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from fuse_stream.testing.clock import ManualClock
from tests.spark.streams import EACH_DOOR, follow_table, ids_of, run

SCHEMA = pa.schema([("id", pa.int64())])


class ClockWithEvent(ManualClock):
    """A clock on which something happens during the third sleep."""

    def __init__(self, event: Callable[[], object]) -> None:
        super().__init__()
        self._event = event

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if len(self.slept) == 3:
            self._event()


def options(path: Path, wait: str | None) -> ReadOptions:
    given = {"path": str(path), **({} if wait is None else {"waitForTable": wait})}
    return parse_read_options(given, streaming=None)


def test_without_the_option_nothing_is_read(tmp_path: Path) -> None:
    clock = ManualClock()
    wait_for_table(options(tmp_path / "none", None), clock)

    assert clock.slept == []


def test_a_table_that_is_there_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Table.create(tmp_path / "t", SCHEMA)
    clock = ManualClock()
    wait_for_table(options(tmp_path / "t", "60s"), clock)

    assert clock.slept == []
    assert caplog.text == ""


def test_the_wait_ends_with_the_table_and_one_line_of_the_log_tells_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ClockWithEvent(lambda: Table.create(tmp_path / "t", SCHEMA))
    with caplog.at_level(logging.WARNING):
        wait_for_table(options(tmp_path / "t", "60s"), clock)

    assert clock.slept == [module.PAUSE_S] * 3
    assert caplog.messages == [
        f"waiting up to 60 s for a table that is not there yet: {tmp_path / 't'}"
    ]


@pytest.mark.parametrize("wait", ["0s", "1s", "7s"])
def test_after_its_time_the_error_names_the_option(tmp_path: Path, wait: str) -> None:
    clock = ManualClock()
    with pytest.raises(NotFoundError, match="waitForTable") as caught:
        wait_for_table(options(tmp_path / "none", wait), clock)

    assert f"{sum(clock.slept):g}s" == wait
    assert caught.value.context["path"] == str(tmp_path / "none")


def test_a_folder_that_holds_something_else_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    clock = ManualClock()
    with pytest.raises(NotFoundError, match="this folder holds a Delta table"):
        wait_for_table(options(tmp_path, "60s"), clock)

    assert clock.slept == []


@pytest.mark.parametrize("feed", ["append", "changes"])
def test_the_error_of_a_stream_without_a_table_names_the_option(tmp_path: Path, feed: str) -> None:
    given = {"path": str(tmp_path / "t"), "feed": feed}
    with pytest.raises(NotFoundError, match=r'option\("waitForTable", "60s"\)'):
        stream_schema(parse_read_options(given, streaming=None))

    Table.create(tmp_path / "t", SCHEMA)
    given["branch"] = "none"
    with pytest.raises(NotFoundError) as caught:
        stream_schema(parse_read_options(given, streaming=None))
    assert "waitForTable" not in caught.value.message


def test_a_table_without_its_first_version_is_waited_for(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", SCHEMA)
    slot = tmp_path / "t" / slot_key("main", 0)
    data = slot.read_bytes()
    slot.unlink()
    clock = ClockWithEvent(lambda: slot.write_bytes(data))
    wait_for_table(options(tmp_path / "t", "60s"), clock)

    assert len(clock.slept) == 3


def test_a_create_that_never_ends_is_left_to_the_read(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", SCHEMA)
    (tmp_path / "t" / slot_key("main", 0)).unlink()
    clock = ManualClock()
    wait_for_table(options(tmp_path / "t", "5s"), clock)

    assert sum(clock.slept) == 5


def test_a_clone_without_its_content_is_waited_for(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", SCHEMA).append(pa.table({"id": [1]}, SCHEMA))
    clone(tmp_path / "t", tmp_path / "clone")
    slot = tmp_path / "clone" / slot_key("main", 1)
    data = slot.read_bytes()
    slot.unlink()
    clock = ClockWithEvent(lambda: slot.write_bytes(data))
    wait_for_table(options(tmp_path / "clone", "60s"), clock)

    assert len(clock.slept) == 3


def test_a_store_that_fails_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "t" / TABLE_KEY).mkdir(parents=True)
    clock = ManualClock()
    with pytest.raises(StorageError):
        wait_for_table(options(tmp_path / "t", "60s"), clock)

    assert clock.slept == []


@pytest.mark.long
@EACH_DOOR
def test_silver_is_loaded_before_bronze_is_created(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    def create() -> None:
        Table.create(tmp_path / "bronze", SCHEMA).append(pa.table({"id": [1, 2]}, SCHEMA))

    writer = threading.Timer(3, create)
    writer.start()
    bronze = tmp_path / "bronze"
    frame = follow_table(spark, bronze, door, feed="append", waitForTable="120s")
    writer.join()
    run(frame, fuse_sink(tmp_path / "silver", optimize="off"), tmp_path / "checkpoint")

    assert ids_of(tmp_path / "silver") == [1, 2]


def test_a_batch_read_waits_too_and_names_the_option(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("fuse").option("waitForTable", "1s")
    with pytest.raises(Exception, match="with the option waitForTable"):
        reader.load(str(tmp_path / "none"))
