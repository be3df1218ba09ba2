"""The stream source under Spark: restarts, replays, errors; and its reader without a query."""

from __future__ import annotations

import datetime as dt
import logging
import pickle
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)
from pyspark.sql.streaming.query import StreamingQuery

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Block
from fuse_stream.recovery.target import Goal
from fuse_stream.spark.format_read import FuseBatchReader
from fuse_stream.spark.format_stream import BLOCKS_SCHEMA, FuseStreamReader, stream_schema
from fuse_stream.spark.lag import lag
from fuse_stream.spark.options import ReadOptions, parse_read_options
from fuse_stream.spark.types import spark_schema
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation
from tests.recovery.histories import rewind
from tests.spark.streams import DOORS, follow_table

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
PATIENCE_S = 240

Row = tuple[Any, ...]
JsonOffset = dict[str, str | int]


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "name": [f"n{key}" for key in keys]}, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "table", SCHEMA)


def make_reader(tmp_path: Path, **options: str) -> FuseStreamReader:
    parsed = parse_read_options({"path": str(tmp_path / "table"), **options}, streaming=True)
    return FuseStreamReader(parsed, stream_schema(parsed))


def read_all(reader: FuseStreamReader, start: JsonOffset, end: JsonOffset) -> list[pa.RecordBatch]:
    """Plan and read a batch as Spark does: everything crosses a process boundary."""
    worker = pickle.loads(pickle.dumps(reader))
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [batch for partition in partitions for batch in worker.read(partition)]


# ---- the reader, without a query


def modules_passed(call: Callable[[], object]) -> set[str]:
    """Return the modules of feed/ and spark/ whose functions a call runs."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        room, _, name = frame.f_code.co_filename.rpartition("/fuse_stream/")[2].rpartition("/")
        if event == "call" and room in {"feed", "spark"}:
            found.add(f"{room}/{name}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"consumer": "nightly"},
        {"where": "k > 1"},
        {"feed": "append", "skipChangeCommits": "true"},
        {"feed": "blocks"},
    ],
    ids=str,
)
@pytest.mark.parametrize("rewinds", [False, True])
def test_a_trigger_passes_at_most_ten_modules_of_feed_and_spark(
    table: Table, tmp_path: Path, options: dict[str, str], *, rewinds: bool
) -> None:
    reader = make_reader(tmp_path, **options)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    table.append(rows(1))
    table.overwrite(rows(2, 1, 3))
    if rewinds:
        start = reader.latestOffset(start, ReadAllAvailable())
    table.append(rows(4))
    if rewinds:
        table.compact()
        rewind(table.committer, Goal(version=1))

    def trigger() -> None:
        end = reader.latestOffset(start, ReadAllAvailable())
        for partition in reader.partitions(start, end)[-1:]:
            list(reader.read(partition))

    passed = modules_passed(trigger)

    feed = options.get("feed", "changes")
    is_net = feed == "append" or (rewinds and feed == "changes")
    assert {"feed/follow.py", "feed/offsets.py", "spark/format_stream.py"} <= passed
    assert ("feed/net.py" in passed) is is_net
    assert len(passed) <= 10


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxRowsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxCommitsPerTrigger": "2"}, ReadMaxFiles(2)),
    ],
)
def test_the_default_limit_of_a_trigger_is_announced(
    table: Table, tmp_path: Path, options: dict[str, str], limit: object
) -> None:
    assert make_reader(tmp_path, **options).getDefaultReadLimit() == limit


def test_an_available_now_trigger_overrides_the_limits(table: Table, tmp_path: Path) -> None:
    for key in range(4):
        table.append(rows(key))
    reader = make_reader(tmp_path, startingVersion="1", maxCommitsPerTrigger="1")
    start = reader.initialOffset()

    assert reader.latestOffset(start, reader.getDefaultReadLimit())["version"] == 1
    assert reader.latestOffset(start, ReadAllAvailable())["version"] == 4


def test_small_commits_share_a_task_and_a_batch(table: Table, tmp_path: Path) -> None:
    for key in range(30):
        table.append(rows(key))
    reader = make_reader(tmp_path, startingVersion="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())

    (batch,) = read_all(reader, start, end)

    assert batch["k"].to_pylist() == list(range(30))
    assert batch["_commit_version"].to_pylist() == list(range(1, 31))


def test_partitions_hold_no_statistics(table: Table, tmp_path: Path) -> None:
    table.append(pa.table({"k": [1], "name": ["a name that only statistics hold"]}, SCHEMA))
    reader = make_reader(tmp_path)
    start = reader.initialOffset()

    data = pickle.dumps(reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))

    assert b"only statistics" not in data
    assert len(data) < 3000


def test_batches_have_exactly_sparks_schema(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("items", pa.list_(pa.field("element", inner, nullable=False))),
            pa.field("by_name", pa.map_(pa.string(), pa.decimal128(10, 2))),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("data", pa.binary()),
        ]
    )
    row = {
        "id": 1,
        "items": [{"x": 1, "y": None}],
        "by_name": [("a", None)],
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 1, 1),  # noqa: DTZ001 - a timestamp_ntz
        "data": b"\x00",
    }
    Table.create(tmp_path / "table", schema).append(pa.Table.from_pylist([row], schema))
    reader = make_reader(tmp_path)
    start = reader.initialOffset()

    (batch,) = read_all(reader, start, reader.latestOffset(start, ReadAllAvailable()))

    assert batch.schema.equals(to_arrow_schema(reader.schema, timezone="UTC"))
    assert batch.select(schema.names).to_pylist() == [row]


def test_an_empty_range_has_no_partitions_and_an_empty_partition_no_rows(
    table: Table, tmp_path: Path
) -> None:
    reader = make_reader(tmp_path)
    start = reader.initialOffset()

    assert reader.partitions(start, start) == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("what", ["changes", "blocks", "the table first", "a batch"])
def test_a_worker_that_outlasts_the_grace_raises_that_the_version_has_expired(
    tmp_path: Path, what: str
) -> None:
    properties = {"fuse.grace": "0s", "fuse.vacuum.age": "0s"}
    table = Table.create(tmp_path / "table", SCHEMA, properties=properties)
    table.append(rows(1))
    read = planned(tmp_path, what)
    table.overwrite(rows(2))
    table.overwrite(rows(3))
    for _ in range(3):
        time.sleep(0.1)
        table.expire(keep_last=1)
        table.vacuum()

    with pytest.raises(SnapshotExpiredError, match=r"version=[01], first=\d"):
        read()


def planned(tmp_path: Path, what: str) -> Callable[[], object]:
    """Return a function that reads, as a worker does, a plan of version 1 that is made now."""
    if what == "a batch":
        options = ReadOptions(location=TableLocation(path=str(tmp_path / "table")))
        reader: Any = FuseBatchReader(
            options, spark_schema(open_at(options.location).head().schema)
        )
        partitions = reader.partitions()
    else:
        start = {} if what == "the table first" else {"startingVersion": "1"}
        reader = make_reader(tmp_path, feed="blocks" if what == "blocks" else "changes", **start)
        first = reader.initialOffset()
        partitions = reader.partitions(first, reader.latestOffset(first, ReadAllAvailable()))
    worker, partitions = pickle.loads(pickle.dumps((reader, partitions)))
    return lambda: [list(worker.read(partition)) for partition in partitions]


def resync_of(table: Table, folder: Path) -> tuple[Callable[[], object], Block, Block]:
    """Return a function that reads a resync, planned now, and a block of each side."""
    table.append(rows(1))
    before = make_reader(folder, startingVersion="1")
    start = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    (old,) = table.blocks()
    table.overwrite(rows(2))
    table.overwrite(rows(3))
    (new,) = table.blocks()
    time.sleep(0.1)
    table.expire(keep_last=1)
    reader = make_reader(folder, consumer="nightly", onExpired="resync")
    end = reader.latestOffset(start, ReadAllAvailable())
    worker, partitions = pickle.loads(pickle.dumps((reader, reader.partitions(start, end))))
    return lambda: [list(worker.read(partition)) for partition in partitions], old, new


def test_a_worker_whose_resync_loses_its_old_blocks_raises_the_expiry(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table", SCHEMA, properties={"fuse.grace": "0s"})
    read, old, _ = resync_of(table, tmp_path)
    read()  # while they exist
    table.metadata.store.delete(block_key(old.id))

    with pytest.raises(SnapshotExpiredError, match=r"version=1, first=3"):
        read()


def test_a_worker_whose_resync_finds_damage_raises_corruption(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table", SCHEMA, properties={"fuse.grace": "0s"})
    read, _, new = resync_of(table, tmp_path)
    table.metadata.store.delete(block_key(new.id))

    with pytest.raises(CorruptObjectError, match="a block is missing"):
        read()


def test_a_worker_that_finds_damage_raises_corruption(table: Table, tmp_path: Path) -> None:
    table.append(rows(1))
    read = planned(tmp_path, "changes")
    (block,) = table.blocks()
    table.metadata.store.delete(block_key(block.id))

    with pytest.raises(CorruptObjectError, match="a block is missing: fuse-stream fsck") as caught:
        read()
    assert (caught.value.context["path"], caught.value.context["version"]) == (
        table.location.path,
        1,
    )


def test_a_start_option_is_ignored_on_a_restart_with_one_log_message(
    table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for key in range(3):
        table.append(rows(key))
    first = make_reader(tmp_path, startingVersion="1", maxCommitsPerTrigger="1")
    end = first.latestOffset(first.initialOffset(), ReadMaxFiles(1))
    assert caplog.messages == []
    restarted = make_reader(tmp_path, startingVersion="3")

    with caplog.at_level(logging.WARNING):
        after = restarted.latestOffset(end, ReadAllAvailable())
        batches = read_all(restarted, end, after)

    assert [row for batch in batches for row in batch["k"].to_pylist()] == [1, 2]
    assert len([text for text in caplog.messages if "are ignored" in text]) == 1


def delivered(reader: FuseStreamReader, *, start: JsonOffset | None = None) -> list[int]:
    """Return the versions of the commits that a reader delivers until nothing is new."""
    asked = reader.initialOffset() if start is None else start
    found: list[int] = []
    while (end := reader.latestOffset(asked, ReadAllAvailable())) != asked:
        for batch in read_all(reader, asked, end):
            found += batch["_commit_version"].to_pylist()
        asked = end
    return found


DATE = "20261122"


@pytest.fixture
def tagged(table: Table) -> Table:
    """Versions 1 to 4, each with one row more, and tags of version 2."""
    for key in range(4):
        table.append(rows(key))
    table.create_tag("2026-11-22", 2)
    table.create_tag(DATE, 2)
    return table


@pytest.mark.parametrize(
    ("bounds", "versions"),
    [
        ({"startingVersion": "HEAD"}, [4]),
        ({"startingVersion": "2026-11-22"}, [2, 3, 4]),
        ({"startingVersion": DATE}, [2, 3, 4]),
        ({"startingVersion": "main@3"}, [3, 4]),
        ({"startingVersion": "00000000"}, [1, 2, 3, 4]),
        ({"startingVersion": "1", "endingVersion": DATE}, [1, 2]),
        ({"startingVersion": DATE, "endingVersion": "2026-11-22"}, [2]),
        ({"startingVersion": "3", "endingVersion": "HEAD"}, [3, 4]),
    ],
)
@pytest.mark.parametrize("consumer", [{}, {"consumer": "nightly"}], ids=["", "consumer"])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_stream_starts_and_ends_at_versions_that_are_named(
    tagged: Table,
    tmp_path: Path,
    bounds: dict[str, str],
    versions: list[int],
    consumer: dict[str, str],
    *,
    is_pinned: bool,
) -> None:
    reader = make_reader(tmp_path, **bounds, **consumer)
    if is_pinned:
        reader.prepareForTriggerAvailableNow()

    assert delivered(reader) == versions


def test_a_start_by_id_is_found(tagged: Table, tmp_path: Path) -> None:
    reader = make_reader(tmp_path, startingVersion=tagged.snapshot(3).snapshot_id[:24])

    assert delivered(reader) == [3, 4]


@pytest.mark.parametrize("consumer", [{}, {"consumer": "nightly"}], ids=["", "consumer"])
@pytest.mark.parametrize("name", ["HEAD", "good"])
def test_a_named_start_is_resolved_once_also_if_the_first_batch_runs_again(
    tagged: Table, tmp_path: Path, name: str, consumer: dict[str, str]
) -> None:
    tagged.create_tag("good", 4)
    first = make_reader(tmp_path, startingVersion=name, **consumer)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.partitions(first.initialOffset(), end)
    tagged.append(rows(5))
    tagged.append(rows(6))
    tagged.delete_tag("good")
    tagged.create_tag("good", 6)

    restarted = make_reader(tmp_path, startingVersion=name, **consumer)

    assert read_all(restarted, restarted.initialOffset(), end) == []
    assert delivered(restarted, start=end) == [4, 5, 6]


def test_a_named_start_may_be_newer_than_the_head_that_ends_the_run(
    tagged: Table, tmp_path: Path
) -> None:
    reader = make_reader(tmp_path, startingVersion="HEAD")
    reader.prepareForTriggerAvailableNow()
    for key in range(3):
        tagged.append(rows(key))

    assert delivered(reader) == [7]


def test_a_consumer_keeps_what_follows_a_named_start(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table", SCHEMA, properties={"fuse.grace": "0s"})
    table.append(rows(1))
    reader = make_reader(tmp_path, startingVersion="HEAD", consumer="nightly")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.partitions(reader.initialOffset(), end)
    for key in range(3):
        table.overwrite(rows(10 + key))
    time.sleep(0.1)

    (state,) = table.consumers()
    table.expire(keep_last=1)

    assert state.version == 0
    restarted = make_reader(tmp_path, startingVersion="HEAD", consumer="nightly")
    assert set(delivered(restarted, start=end)) == {1, 2, 3, 4}


def test_a_named_start_may_be_the_oldest_version_that_has_not_expired(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table", SCHEMA, properties={"fuse.grace": "0s"})
    for key in range(3):
        table.append(rows(key))
    time.sleep(0.1)
    table.expire(keep_last=1)

    assert table.head().floor == 3
    assert delivered(make_reader(tmp_path, startingVersion="main@3")) == [3]


def test_a_named_start_where_a_column_has_gone_before_is_no_error(
    table: Table, tmp_path: Path
) -> None:
    table.append(pa.table({"k": [1], "name": ["n"], "more": [1]}), merge_schema=True)
    rewind(table.committer, Goal(version=0))
    table.append(rows(3))

    assert delivered(make_reader(tmp_path, startingVersion="HEAD")) == [3]


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ({"startingVersion": "fix@"}, InvalidInputError, "or the branch that has it"),
        ({"startingVersion": "1", "endingVersion": "fix@"}, InvalidInputError, "not in the histor"),
        ({"startingVersion": "nothing"}, NotFoundError, "tag='nothing'|name='nothing'"),
        ({"startingVersion": "HEAD", "endingVersion": DATE}, InvalidInputError, "ends before"),
    ],
)
def test_a_named_bound_that_does_not_fit_is_refused(
    tagged: Table,
    tmp_path: Path,
    bounds: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    tagged.create_branch("fix")
    Table.open(tmp_path / "table", branch="fix").append(rows(7))
    reader = make_reader(tmp_path, **bounds)

    with pytest.raises(error, match=message):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_the_blocks_feed_is_split_by_limits_like_the_others(table: Table, tmp_path: Path) -> None:
    for key in range(3):
        table.append(rows(key))
    reader = make_reader(tmp_path, feed="blocks", maxRowsPerTrigger="2")
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadMaxRows(2))
    end = reader.latestOffset(middle, ReadMaxRows(2))

    found = [read_all(reader, start, middle), read_all(reader, middle, end)]

    ids = [batch["block_id"].to_pylist() for batches in found for batch in batches]
    assert [len(part) for part in ids] == [2, 1]
    assert [*ids[0], *ids[1]] == [block.id for block in table.blocks()]


def progress(**source: object) -> StreamingQuery:
    return cast("StreamingQuery", SimpleNamespace(lastProgress={"sources": [source]}))


def test_lag_counts_the_versions_that_are_not_completely_read(table: Table, tmp_path: Path) -> None:
    offset = (
        '{"table_id": "t", "branch_id": "main", "version": %d, "snapshot_id": "s", "index": %d}'
    )

    whole, part = (
        lag(progress(endOffset=offset % end, latestOffset=offset % (9, 0)))[0].versions
        for end in ((7, 0), (7, 2))
    )

    assert (whole, part) == (2, 3)


@pytest.mark.parametrize("text", [None, "None", "{}", "7", '{"0": {"1": 2}}'])
def test_lag_ignores_sources_of_other_formats(text: str | None) -> None:
    assert lag(progress(endOffset=text, latestOffset=text)) == []


def test_there_is_no_lag_before_the_first_progress() -> None:
    assert lag(cast("StreamingQuery", SimpleNamespace(lastProgress=None))) == []


# ---- queries


class Follower:
    """A query over the feed of a table, run to the table's head again and again."""

    def __init__(self, spark: SparkSession, folder: Path, door: str, **options: object) -> None:
        self.spark = spark
        self.door = door
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"
        self.options = {"feed": "changes", **options}
        self.batches: dict[int, list[Row]] = {}
        self.replays: list[int] = []

    def load(self) -> DataFrame:
        return follow_table(self.spark, self.table, self.door, **self.options)

    def run(self, *, most: int | None = None) -> StreamingQuery:
        """Run a query to its end; it is made to fail after `most` batches."""
        left = [most]

        def take(frame: DataFrame, batch_id: int) -> None:
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise RuntimeError("stopped on cue")
            found = sorted(tuple(row) for row in frame.collect())
            if batch_id in self.batches:
                self.replays.append(batch_id)
                assert found == self.batches[batch_id]
            self.batches[batch_id] = found

        writer = self.load().writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            assert query.awaitTermination(PATIENCE_S), "the query did not end"
        except StreamingQueryException as error:
            if "stopped on cue" not in str(error):
                raise
        finally:
            query.stop()
        return query

    def lose_last_commit(self) -> None:
        """Remove the entry that marks the last batch as done."""
        folder = self.checkpoint / "commits"
        last = max(
            (path for path in folder.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
        )
        last.unlink()
        (folder / f".{last.name}.crc").unlink(missing_ok=True)

    @property
    def rows(self) -> list[Row]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def total(self) -> Counter[Row]:
        total: Counter[Row] = Counter()
        for row in self.rows:
            total[row[:-3]] += 1 if row[-3] == "insert" else -1
        return total


ONE_DOOR = pytest.mark.parametrize(
    "follow",
    [door if door == "native" else pytest.param(door, marks=pytest.mark.long) for door in DOORS],
    indirect=True,
)
"""In minutes only by the native door: the other one starts a worker for each batch."""


@pytest.fixture(params=DOORS)
def follow(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Callable[..., Follower]:
    return lambda **options: Follower(spark, tmp_path, request.param, **options)


def content(table: Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.to_arrow().to_pylist())


def test_a_stream_delivers_the_table_and_then_its_changes(
    table: Table, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1, 2))
    stream = follow()
    stream.run()
    table.append(rows(3))
    table.overwrite(rows(4))
    query = stream.run()

    assert [(row[0], row[2], row[3]) for row in stream.batches[0]] == [
        (1, "insert", 1),
        (2, "insert", 1),
    ]
    assert sorted((row[3], row[2], row[0]) for row in stream.batches[1]) == [
        (2, "insert", 3),
        (3, "delete", 1),
        (3, "delete", 2),
        (3, "delete", 3),
        (3, "insert", 4),
    ]
    assert stream.total() - Counter() == content(table)
    assert [item.versions for item in lag(query)] == [0]


@ONE_DOOR
def test_a_batch_whose_commit_is_lost_is_run_again_with_the_same_rows(
    table: Table, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1, 2))
    stream = follow(maxCommitsPerTrigger=1)
    for step in range(3):
        stream.run()
        stream.lose_last_commit()
        table.overwrite(rows(10 + step))
        table.append(rows(20 + step))
    stream.run()

    assert stream.replays[0] == 0
    assert len(stream.replays) == 3
    assert +stream.total() == content(table)


@ONE_DOOR
def test_a_query_from_a_named_start_misses_nothing_after_its_first_run(
    tagged: Table, follow: Callable[..., Follower]
) -> None:
    stream = follow(startingVersion="HEAD", maxCommitsPerTrigger=1)
    stream.run()
    stream.lose_last_commit()
    tagged.append(rows(10))
    tagged.append(rows(11))
    stream.run()

    assert stream.replays
    assert sorted(row[0] for row in stream.rows) == [3, 10, 11]


@pytest.mark.long
def test_a_stream_that_fails_in_every_batch_delivers_every_row_once(
    table: Table, follow: Callable[..., Follower]
) -> None:
    for key in range(3):
        table.append(rows(key, key + 100))
    stream = follow(maxRowsPerTrigger=3)
    for step in range(4):
        stream.run(most=1)
        table.append(rows(200 + step))
    stream.run()

    assert stream.total() == content(table)


@pytest.mark.long
@ONE_DOOR
def test_a_restarted_stream_follows_a_table_with_concurrent_writers(
    table: Table, tmp_path: Path, follow: Callable[..., Follower]
) -> None:
    stream = follow(maxCommitsPerTrigger=12)
    is_over = threading.Event()

    def write() -> None:
        writer = Table.open(tmp_path / "table")
        for step in range(400):
            if is_over.is_set():
                return
            (writer.overwrite if step % 20 == 19 else writer.append)(rows(step, step + 1))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3):
            stream.run()
    finally:
        is_over.set()
        thread.join()
    stream.run()

    assert +stream.total() == content(table)
    assert not -stream.total()


def test_a_schema_change_stops_the_stream_and_a_restart_continues(
    table: Table, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1))
    stream = follow()
    old = stream.load()
    table.append(rows(2))
    table.append(pa.table({"k": [3], "name": ["n3"], "more": [1.5]}), merge_schema=True)
    stream.load = lambda: old  # type: ignore[method-assign]
    with pytest.raises(StreamingQueryException, match=r"SchemaChangedError.*more double"):
        stream.run()
    before = [row[:2] for row in stream.rows]
    del stream.load
    stream.run()

    assert before == [(1, "n1"), (2, "n2")]
    assert [row[:3] for row in stream.rows[2:]] == [(3, "n3", 1.5)]


def test_a_column_that_was_dropped_and_added_again_is_read_as_in_each_commit(
    table: Table, follow: Callable[..., Follower]
) -> None:
    def wide(key: int, inner: dict[str, object]) -> pa.Table:
        return pa.table({"k": [key], "name": ["n"], "s": [inner], "more": [inner["x"]]})

    table.append(rows(1))
    table.append(wide(2, {"x": 2, "y": "old"}), merge_schema=True)
    stream = follow(startingVersion=1)
    stream.run()
    rewind(table.committer, Goal(version=1))
    table.append(wide(3, {"x": 3, "y": "new"}), merge_schema=True)
    stream.run()

    found = [(row[-3], row[0], row[2] and tuple(row[2]), row[3]) for row in stream.rows]
    assert sorted(found, key=str) == [
        ("delete", 2, (2, "old"), 2),
        ("insert", 1, None, None),
        ("insert", 2, (2, "old"), 2),
        ("insert", 3, (3, "new"), 3),
    ]


def test_the_append_feed_has_rows_without_change_columns(
    table: Table, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1))
    stream = follow(feed="append")
    stream.run()

    assert stream.rows == [(1, "n1")]


def test_the_blocks_feed_has_one_row_per_block(
    table: Table, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1))
    stream = follow(feed="blocks")
    stream.run()
    table.overwrite(rows(2, 3))
    stream.run()

    assert stream.load().schema == BLOCKS_SCHEMA
    assert sorted((row[5], row[0], row[2]) for row in stream.rows) == [
        (1, "insert", 1),
        (2, "delete", 1),
        (2, "insert", 2),
    ]


def test_columns_and_where_select_the_rows_of_a_stream(
    table: Table, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1, 2, 3))
    stream = follow(columns=["name"], where="k >= 2")
    stream.run()

    assert [row[0] for row in stream.rows] == ["n2", "n3"]


def test_another_table_at_the_same_path_ends_the_stream(
    table: Table, tmp_path: Path, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1))
    stream = follow()
    stream.run()
    shutil.rmtree(tmp_path / "table")
    Table.create(tmp_path / "table", SCHEMA).append(rows(1))

    with pytest.raises(StreamingQueryException, match=r"StreamIdentityError.*another table"):
        stream.run()


def test_a_table_that_is_moved_under_a_running_stream_ends_it(
    table: Table, tmp_path: Path, follow: Callable[..., Follower]
) -> None:
    table.append(rows(1))
    stream = follow()
    writer = stream.load().writeStream.foreachBatch(lambda *_: None)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start()
    try:
        query.processAllAvailable()
        (tmp_path / "table").rename(tmp_path / "elsewhere")

        with pytest.raises(StreamingQueryException, match=r"StorageError.*gone"):
            query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
