"""Named consumers under Spark: starts, restarts, rivals, a kill, and lost leases."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.properties import CONSUMER_LEASE
from fuse_stream.format.records import Operation, Parent
from fuse_stream.table.handle import Table
from tests.spark.streams import DOORS, drop_log, follow_table, refusal_of, run

SCHEMA = pa.schema([("k", pa.int64())])


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys)}, SCHEMA)


def expire(table: Table) -> None:
    """Commit by hand an expiry of all versions but the head."""
    stored = table.committer.head()
    head = stored.snapshot
    snapshot = dataclasses.replace(
        head,
        parent=Parent(branch_id="main", version=head.version, sha256=stored.sha256),
        version=head.version + 1,
        snapshot_id=table.metadata.clock.new_id(),
        prev_snapshot_id=head.snapshot_id,
        timestamp_us=head.timestamp_us + 1,
        operation=Operation.EXPIRE,
        data_change=False,
        added=(),
        floor=head.version,
    )
    table.metadata.store.put(slot_key("main", snapshot.version), encode_snapshot(snapshot))


class Follow:
    """A query that follows a table under a consumer name, and the rows that it got."""

    def __init__(self, spark: SparkSession, folder: Path, door: str) -> None:
        self.spark, self.folder, self.door = spark, folder, door
        self.options: dict[str, object] = {"consumer": "nightly", "maxCommitsPerTrigger": 1}
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.dies_at: int | None = None

    def frame(self) -> DataFrame:
        return follow_table(self.spark, self.folder / "table", self.door, **self.options)

    def take(self, frame: DataFrame, batch_id: int) -> None:
        if batch_id == self.dies_at:
            raise RuntimeError("it dies here")
        self.batches[batch_id] = [
            (row.k, row["_change_type"], row["_commit_version"]) for row in frame.collect()
        ]

    def run(self) -> None:
        run(self.frame(), self.take, self.checkpoint)

    @property
    def delivered(self) -> Counter[tuple[Any, ...]]:
        return Counter(row for batch in self.batches.values() for row in batch)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "table", SCHEMA)
    made.append(rows(1))
    return made


def test_a_consumer_continues_from_its_checkpoint_also_below_the_floor(
    spark: SparkSession, table: Table, tmp_path: Path, door: str
) -> None:
    follow = Follow(spark, tmp_path, door)
    follow.run()
    [state] = table.consumers()
    for key in (2, 3):
        table.overwrite(rows(key))
    expire(table)
    follow.run()
    [after] = table.consumers()

    assert (state.consumer, state.version, state.versions_behind) == ("nightly", 1, 0)
    assert follow.delivered == Counter(
        [(1, "insert", 1), (1, "delete", 2), (2, "insert", 2), (2, "delete", 3), (3, "insert", 3)]
    )
    assert after.owner_id != state.owner_id
    assert after.versions_behind == 0


@pytest.mark.long
@pytest.mark.parametrize("is_committed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_query_that_died_in_a_batch_does_not_block_its_restart(
    spark: SparkSession, table: Table, tmp_path: Path, door: str, *, is_committed: bool
) -> None:
    follow = Follow(spark, tmp_path, door)
    follow.run()
    for key in (2, 3):
        table.overwrite(rows(key))
    follow.dies_at = 2
    with pytest.raises(StreamingQueryException, match="it dies here"):
        follow.run()
    expire(table)
    if is_committed:  # it died before Spark recorded its next batch
        drop_log(follow.checkpoint, "offsets", 2)
    follow.dies_at = None
    follow.run()

    assert follow.delivered == Counter(
        [(1, "insert", 1), (1, "delete", 2), (2, "insert", 2), (2, "delete", 3), (3, "insert", 3)]
    )


def test_a_first_batch_that_died_is_run_again(
    spark: SparkSession, table: Table, tmp_path: Path, door: str
) -> None:
    follow = Follow(spark, tmp_path, door)
    follow.dies_at = 0
    with pytest.raises(StreamingQueryException, match="it dies here"):
        follow.run()
    table.overwrite(rows(2))
    expire(table)
    follow.dies_at = None
    follow.run()

    assert follow.delivered == Counter([(1, "insert", 1), (1, "delete", 2), (2, "insert", 2)])


def test_a_second_query_with_the_same_consumer_name_is_refused(
    spark: SparkSession, table: Table, tmp_path: Path, door: str
) -> None:
    first, second = Follow(spark, tmp_path, door), Follow(spark, tmp_path, door)
    second.checkpoint = tmp_path / "another"
    first.run()

    said = refusal_of(second.frame(), second.take, second.checkpoint)
    assert "ConsumerBusyError" in said
    assert "nightly" in said
    table.append(rows(2))
    first.run()


@pytest.mark.long
def test_a_lost_lease_is_an_error_or_delivers_a_net_commit(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    table = Table.create(tmp_path / "table", SCHEMA, properties={CONSUMER_LEASE: "1s"})
    table.append(rows(1))
    follow = Follow(spark, tmp_path, door)
    follow.run()
    table.overwrite(rows(2))
    table.overwrite(rows(1, 3))
    expire(table)
    while table.consumers()[0].is_live:
        table.metadata.clock.sleep(0.2)

    assert "SnapshotExpiredError" in refusal_of(follow.frame(), follow.take, follow.checkpoint)
    follow.options["onExpired"] = "resync"
    follow.run()
    table.append(rows(4))
    follow.run()
    assert follow.delivered == Counter([(1, "insert", 1), (3, "insert", 4), (4, "insert", 5)])
