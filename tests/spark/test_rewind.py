"""Rewinds of real queries: the table, the checkpoint and the followers together."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.table.handle import Table
from tests.kit.strides import NIGHT
from tests.spark.streams import (
    DOORS,
    EACH_DOOR,
    SCHEMA,
    deliver,
    drop_log,
    follow_table,
    ids_delivered,
    ids_of,
    read_stream,
    run,
)

PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
POISON = "poison"


def poisoned(frame: DataFrame) -> DataFrame:
    """Return what a bad deploy made of the stream."""
    return frame.selectExpr("id + 1000000 AS id", f"'{POISON}' AS key")


class Follower:
    """A query that folds the feed of a table into a multiset, by one door after the other."""

    def __init__(self, spark: SparkSession, table: Path, checkpoint: Path) -> None:
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self._spark, self._table, self._checkpoint = spark, table, checkpoint
        self._doors = cycle(DOORS)

    def catch_up(self) -> list[tuple[int, str]]:
        """Read all available commits; return the number of rows of each kind by commit."""
        source = follow_table(self._spark, self._table, next(self._doors))
        found: Counter[tuple[int, str]] = Counter()

        def fold(batch: DataFrame, _batch_id: int) -> None:
            names = [name for name in batch.columns if not name.startswith("_")]
            for row in batch.collect():
                sign = 1 if row["_change_type"] == "insert" else -1
                self.rows[tuple(row[name] for name in names)] += sign
                found[row["_commit_version"], row["_change_type"]] += 1

        run(source, fold, self._checkpoint)
        self.rows = Counter({key: count for key, count in self.rows.items() if count})
        return [(version, kind) for version, kind in sorted(found)]


def rows_of(table: Path) -> Counter[tuple[Any, ...]]:
    found = Table.open(table).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").agg({"id": "sum", "*": "count"}).toDF("key", "sum", "rows")


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Counter[tuple[Any, ...]]:
    """Return the rows of a query over nine files that was never rewound."""
    folder = tmp_path_factory.mktemp("undisturbed")
    deliver(folder, range(9))
    sink = fuse.fuse_sink(str(folder / "table"), mode="overwrite")
    whole = counts(read_stream(spark, folder))
    run(whole, sink, folder / "checkpoint", output_mode="complete")
    return rows_of(folder / "table")


@pytest.mark.long
@pytest.mark.parametrize("provider", ["hdfs", pytest.param("rocksdb", marks=NIGHT)])
def test_a_rewound_stateful_query_continues_with_the_right_counts(
    spark: SparkSession, tmp_path: Path, undisturbed: Counter[tuple[Any, ...]], provider: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[provider])
    table, old, new = (tmp_path / name for name in ("table", "checkpoint", "fork"))
    deliver(tmp_path, range(5))

    def go(frame: DataFrame, checkpoint: Path) -> None:
        sink = fuse.fuse_sink(str(table), mode="overwrite")
        run(counts(frame), sink, checkpoint, output_mode="complete")

    source = read_stream(session, tmp_path)
    go(source, old)
    good = rows_of(table)
    follower = Follower(session, table, tmp_path / "followed")
    follower.catch_up()
    deliver(tmp_path, range(5, 8))
    go(poisoned(source), old)
    follower.catch_up()
    assert POISON in {row[0] for row in rows_of(table)}

    done = fuse.rewind(table, after_batch=4, checkpoints={str(old): str(new)})
    assert rows_of(table) == good
    deliver(tmp_path, range(8, 9))
    with pytest.raises(StreamingQueryException, match="retired"):
        go(source, old)
    follower.catch_up()
    assert follower.rows == good
    go(source, new)  # the fixed code

    assert rows_of(table) == undisturbed
    follower.catch_up()
    assert follower.rows == rows_of(table)
    assert [fork.state for fork in done.forks] == ["kept"]


@pytest.mark.long
def test_followers_see_a_rewind_that_forks_one_application_and_retires_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    day, night = tmp_path / "day", tmp_path / "night"
    deliver(day, range(6))
    deliver(night, range(100, 103))
    sinks = {name: fuse.fuse_sink(str(table), app_id=name) for name in ("day", "night")}
    run(read_stream(spark, day), sinks["day"], day / "checkpoint")
    stopped = Follower(spark, table, tmp_path / "stopped")
    stopped.catch_up()
    run(read_stream(spark, night), sinks["night"], night / "checkpoint")
    live = Follower(spark, table, tmp_path / "live")
    live.catch_up()

    with pytest.raises(fuse.StreamIdentityError, match="would go back") as caught:
        fuse.rewind(table, app_id="day", after_batch=2)
    assert caught.value.context["applications"] == ["day", "night"]
    fork = tmp_path / "fork"
    done = fuse.rewind(
        table,
        app_id="day",
        after_batch=2,
        checkpoints={str(day / "checkpoint"): str(fork)},
        retire=["night"],
    )
    assert done.snapshot is not None
    undo = done.snapshot.version

    assert live.catch_up() == [(undo, "delete")]
    assert live.rows == rows_of(table)
    deliver(day, range(6, 8))
    run(read_stream(spark, day), sinks["day"], fork)
    assert ids_of(table) == ids_delivered(8)
    deliver(night, range(103, 104))
    with pytest.raises(StreamingQueryException, match="retired"):
        run(read_stream(spark, night), sinks["night"], night / "checkpoint")
    for follower in (live, stopped):
        follower.catch_up()
        assert follower.rows == rows_of(table)


def test_a_checkpoint_cut_by_hand_skips_no_batch_of_a_rewound_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    # In other formats, a table restored to batch 2 skips the batches that run again.
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    deliver(tmp_path, range(5))
    sink = fuse.fuse_sink(str(table))
    run(read_stream(spark, tmp_path), sink, checkpoint)
    by_hand = tmp_path / "by-hand"
    shutil.copytree(checkpoint, by_hand)
    for log in ("offsets", "commits"):
        drop_log(by_hand, log, 3)
    fork = tmp_path / "fork"

    fuse.rewind(table, after_batch=2, checkpoints={str(checkpoint): str(fork)})

    assert ids_of(table) == ids_delivered(3)
    with pytest.raises(StreamingQueryException, match="retired"):
        run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), by_hand)
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), fork)
    assert ids_of(table) == ids_delivered(5)


@pytest.mark.long
def test_fixed_code_is_tried_on_a_branch_and_published(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint, fork = (tmp_path / name for name in ("table", "checkpoint", "fork"))
    deliver(tmp_path, range(3))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), checkpoint)
    deliver(tmp_path, range(3, 5))
    run(poisoned(read_stream(spark, tmp_path)), fuse.fuse_sink(str(table)), checkpoint)
    follower = Follower(spark, table, tmp_path / "followed")
    follower.catch_up()
    main = Table.open(table)

    main.create_branch("rehearsal")
    fuse.rewind(table, branch="rehearsal", after_batch=2, checkpoints={str(checkpoint): str(fork)})
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table), branch="rehearsal"), fork)
    net = main.diff("main@", "rehearsal@").read_all()
    assert Counter(net["_change_type"].to_pylist()) == {"delete": 20, "insert": 20}
    branch_rows = fuse.read(spark, str(table), branch="rehearsal")
    assert sorted(row.id for row in branch_rows.collect()) == ids_delivered(5)
    main.publish("rehearsal", expected_head=main.head().version)
    deliver(tmp_path, range(5, 6))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), fork)

    assert ids_of(table) == ids_delivered(6)
    follower.catch_up()
    assert follower.rows == rows_of(table)
    assert spark.read.format("fuse").option("branch", "rehearsal").load(str(table)).count() == 50


def test_tags_and_branches_can_be_read_by_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    deliver(tmp_path, range(2))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), tmp_path / "checkpoint")
    handle = Table.open(table)
    handle.create_branch("try", 1)
    handle.create_tag("good", "try@")
    mine = spark.createDataFrame([(7, "x")], SCHEMA)
    mine.write.format("fuse").mode("append").option("branch", "try").save(str(table))
    fuse.write(mine, str(table), branch="try")

    def load(**options: str) -> int:
        return spark.read.format("fuse").options(**options).load(str(table)).count()

    assert load(versionAsOf="good") == 10
    assert load(versionAsOf="try@") == load(branch="try") == 12
    assert load(versionAsOf="try@2", branch="main") == 11
    assert fuse.read(spark, str(table), version="good").count() == 10
    assert fuse.read(spark, str(table), version="try@").count() == 12
    view = f"CREATE OR REPLACE TEMPORARY VIEW v USING fuse OPTIONS (path '{table}', branch 'try')"
    spark.sql(view)
    assert spark.sql("SELECT count(*) AS n FROM v WHERE key = 'x'").first().n == 2  # type: ignore[union-attr]
    feed = spark.read.format("fuse").option("branch", "try").option("feed", "changes")
    changes = feed.option("startingVersion", 1).load(str(table))
    assert changes.groupBy("_commit_version").count().count() == 3
    blocks = feed.option("feed", "blocks").option("startingVersion", 1).load(str(table))
    assert blocks.count() == 3


@pytest.mark.long
@EACH_DOOR
def test_a_lost_checkpoint_is_rebuilt_from_the_ledger(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    table, copy, checkpoint, again = (tmp_path / name for name in ("a", "b", "lost", "again"))
    deliver(tmp_path, range(3))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), tmp_path / "checkpoint")

    def go(place: Path) -> None:
        source = follow_table(spark, table, door, feed="append", maxCommitsPerTrigger=1)
        run(source, fuse.fuse_sink(str(copy)), place)

    go(checkpoint)
    deliver(tmp_path, range(3, 5))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), tmp_path / "checkpoint")
    go(checkpoint)
    shutil.rmtree(checkpoint)

    made = fuse.rebuild_checkpoint(copy, again)
    deliver(tmp_path, range(5, 6))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), tmp_path / "checkpoint")
    go(again)

    assert made.adopt is None
    assert ids_of(copy) == ids_of(table) == ids_delivered(6)


# ---- a query that writes two tables, and two copies of a checkpoint


def test_two_tables_of_one_query_are_rewound_together_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights, delays = tmp_path / "flights", tmp_path / "delays"
    old, new = tmp_path / "checkpoint", tmp_path / "fork"
    deliver(tmp_path, range(4))

    def both(adopt: str | None = None) -> Any:
        first = fuse.fuse_sink(str(flights))
        second = fuse.fuse_sink(str(delays), adopt=adopt)

        def write(batch: DataFrame, batch_id: int) -> None:
            first(batch, batch_id)
            second(batch.where("id % 2 = 0"), batch_id)

        return write

    run(read_stream(spark, tmp_path), both(), old)
    fuse.rewind(flights, after_batch=1, checkpoints={old: new})
    (entry,) = Table.open(delays).ledger().values()
    with pytest.raises(StreamingQueryException, match=r"fuse\.rewind\(\[") as refused:
        run(read_stream(spark, tmp_path), both(adopt=entry.query_id), new)

    fuse.rewind([flights, delays], after_batch=1, checkpoints={old: new})
    run(read_stream(spark, tmp_path), both(), new)

    assert "was set back, and this table was not" in str(refused.value)
    assert ids_of(flights) == ids_delivered(4)
    assert ids_of(delays) == [one for one in ids_delivered(4) if one % 2 == 0]
    deliver(tmp_path, range(4, 5))
    with pytest.raises(StreamingQueryException, match="retired"):
        run(read_stream(spark, tmp_path), both(), old)


def test_a_copy_of_a_checkpoint_is_refused_once_the_original_has_continued(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, mine, copy = tmp_path / "table", tmp_path / "mine", tmp_path / "copy"
    sink = fuse.fuse_sink(str(table))
    deliver(tmp_path, range(2))
    run(read_stream(spark, tmp_path), sink, mine)
    shutil.copytree(mine, copy)
    deliver(tmp_path, range(2, 3))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), copy)
    run(read_stream(spark, tmp_path).where("id < 0"), sink, mine)  # its batch 2 is empty
    deliver(tmp_path, range(3, 4))
    with pytest.raises(StreamingQueryException, match="checkpoint was copied"):
        run(read_stream(spark, tmp_path), sink, mine)

    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), copy)
    assert ids_of(table) == ids_delivered(4)


def test_the_querys_own_checkpoint_is_used_and_not_the_sinks_argument(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, own, other = tmp_path / "table", tmp_path / "own", tmp_path / "other"
    deliver(tmp_path, range(2))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(tmp_path / "elsewhere")), other)
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table), checkpoint=str(other)), own)

    (entry,) = Table.open(table).ledger().values()
    assert entry.offsets[-1].text == (own / "offsets" / "1").read_text()
