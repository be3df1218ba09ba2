"""`fuse.read_stream` against `format("fuse")`: the same rows in the same batches, as errors too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SchemaChangedError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import block_key
from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from tests.kit.strides import NIGHT
from tests.spark.driver import AFTER, BETWEEN, Driver, Job
from tests.spark.streams import DOORS, drop_log, follow_table, ids_of, run

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("x", pa.float64())])

Batches = list[tuple[int, list[str]]]


def rows(*keys: int) -> pa.Table:
    return pa.table(
        {"k": list(keys), "name": [f"n{key}" for key in keys], "x": [key / 2 for key in keys]},
        SCHEMA,
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "table", SCHEMA, properties={"fuse.grace": "0s"})


def batches_of(frame: DataFrame, checkpoint: Path) -> Batches:
    """Run a query to its end; return the rows of its batches, sorted."""
    found: Batches = []

    def take(batch: DataFrame, batch_id: int) -> None:
        found.append((batch_id, sorted(str(row) for row in batch.collect())))

    run(frame, take, checkpoint)
    return found


def collect(batch: DataFrame, _batch_id: int) -> None:
    batch.collect()


def values_of(frame: DataFrame, checkpoint: Path) -> list[tuple[Any, ...]]:
    """Run a query to its end; return its rows, sorted."""
    found: list[tuple[Any, ...]] = []
    run(frame, lambda batch, _: found.extend(map(tuple, batch.collect())), checkpoint)
    return sorted(found, key=str)


# ---- the oracle


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with every kind of commit, a branch, tags and a clone."""
    folder = tmp_path_factory.mktemp("history")
    table = Table.create(folder / "table", SCHEMA)
    table.append(rows(*range(100)))
    table.append(rows(100, 101))
    table.delete("k < 30")  # of a whole block the most
    table.update("k = 40", {"name": "new"})
    table.create_tag("good")
    table.append(rows(*range(200, 230)))
    table.overwrite(rows(1, 2, 3))
    fuse.rewind(folder / "table", version=5)
    table = Table.open(folder / "table")
    table.compact()
    table.append(rows(300))
    table.create_branch("fix")
    Table.open(folder / "table", branch="fix").append(rows(400))
    table.append(pa.table({"k": [500], "name": ["wide"], "x": [0.0]}, SCHEMA))
    clone(folder / "table", folder / "clone")
    return folder


LONG = pytest.mark.long
OPTIONS: list[Any] = [
    {},
    {"startingVersion": 0, "maxCommitsPerTrigger": 1},
    {"startingVersion": "good", "columns": ["name", "x"], "where": "k > 35 AND x < 200.5"},
    {"branch": "fix", "startingVersion": 3, "columns": ["x", "k"], "where": "name <> 'n50'"},
    pytest.param({"maxRowsPerTrigger": 50}, marks=LONG),
    pytest.param({"feed": "blocks", "startingVersion": 1}, marks=LONG),
    pytest.param({"feed": "blocks", "maxBytesPerTrigger": "1k"}, marks=LONG),
    pytest.param({"startingVersion": 2, "maxBytesPerTrigger": "1k"}, marks=LONG),
    pytest.param({"startingVersion": "latest"}, marks=LONG),
    pytest.param({"startingTimestamp": "2020-01-01T00:00:00Z", "endingVersion": 4}, marks=LONG),
    pytest.param({"startingVersion": 0, "endingTimestamp": "2099-01-01T00:00:00Z"}, marks=LONG),
    pytest.param({"feed": "append"}, marks=LONG),
    pytest.param({"feed": "append", "startingVersion": 0, "skipChangeCommits": True}, marks=LONG),
    pytest.param({"consumer": "c", "maxCommitsPerTrigger": 2}, marks=LONG),
    pytest.param({"where": "name LIKE '%1%' OR x IS NULL"}, marks=LONG),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_doors_deliver_the_same_rows_in_the_same_batches(
    spark: SparkSession, history: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    found = []
    for door in DOORS:
        named = {"consumer": f"c-{door}"} if "consumer" in options else {}
        frame = follow_table(spark, history / "table", door, **{**options, **named})
        found.append((frame.schema, batches_of(frame, tmp_path / door)))

    assert found[1] == found[0]
    assert found[0][1]


def test_both_doors_deliver_the_same_upserts(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1, 2, 3))
    table.set_key(["k"])
    table.upsert(pa.table({"k": [2, 4], "name": ["new", "n4"], "x": [0.0, 1.0]}, SCHEMA))
    table.delete("k = 1")
    options = {"feed": "upserts", "startingVersion": 2}
    found = [
        values_of(follow_table(spark, tmp_path / "table", door, **options), tmp_path / door)
        for door in DOORS
    ]

    assert [(row[0], row[3]) for row in found[0]] == [
        (1, "delete"),
        (2, "update_postimage"),
        (4, "insert"),
    ]
    assert found[1] == found[0]


def test_a_clone_is_read_with_its_origins_and_not_without(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    origins = [str(history / "table")]
    native, by_format = (
        batches_of(follow_table(spark, history / "clone", door, origins=origins), tmp_path / door)
        for door in DOORS
    )

    assert native == by_format
    refused = failure_of(fuse.read_stream(spark, history / "clone"), tmp_path / "refused")
    assert type(fuse.stream_error(refused)) is InvalidInputError
    assert "origins=" in str(refused)


# ---- one checkpoint, two doors


def test_a_checkpoint_continues_with_the_other_door(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    found: dict[int, list[str]] = {}
    for step, door in enumerate([*DOORS, *DOORS]):
        table.append(rows(step, 10 + step))
        table.append(rows(20 + step))
        frame = follow_table(spark, tmp_path / "table", door, maxCommitsPerTrigger=1)
        for batch_id, delivered in batches_of(frame, tmp_path / "checkpoint"):
            assert found.setdefault(batch_id, delivered) == delivered
        drop_log(tmp_path / "checkpoint", "commits", max(found))  # it runs again
        table.delete(f"k = {step}")

    last = batches_of(follow_table(spark, tmp_path / "table"), tmp_path / "checkpoint")
    for batch_id, delivered in last:
        assert found.setdefault(batch_id, delivered) == delivered
    seen = [row for delivered in found.values() for row in delivered]
    assert len(seen) == len(set(seen)) == 4 * 3 + 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "point"),
    [
        ("native", AFTER),
        pytest.param("format", BETWEEN, marks=NIGHT),
        pytest.param("format", AFTER, marks=NIGHT),
        pytest.param("native", BETWEEN, marks=NIGHT),
    ],
)
def test_a_query_that_is_killed_continues_with_the_other_door(
    tmp_path: Path, first: str, point: str
) -> None:
    followed = Table.create(tmp_path / "q" / "followed", pa.schema([("id", pa.int64())]))
    for number in range(5):
        followed.append(pa.table({"id": [2 * number, 2 * number + 1]}))
    doors = [first, *(door for door in DOORS if door != first), first]
    for batch_id, door in zip((1, 3), doors, strict=False):
        job = Job(name="q", plan=door, point=point, batch_id=batch_id)
        with Driver(tmp_path, [job]) as driver:
            driver.wait_for("parked q")
    with Driver(tmp_path, [Job(name="q", plan=doors[2])]) as driver:
        (ended,) = driver.wait_for("ended q")

    assert ended == 'ended q ""'
    assert ids_of(tmp_path / "q" / "table") == list(range(10))


@pytest.mark.parametrize("door", DOORS)
def test_a_restart_with_nothing_new_makes_no_batch(
    spark: SparkSession, table: Table, tmp_path: Path, door: str
) -> None:
    table.append(rows(1))
    other = DOORS[DOORS[0] == door]
    batches_of(follow_table(spark, tmp_path / "table", other), tmp_path / "checkpoint")

    assert batches_of(follow_table(spark, tmp_path / "table", door), tmp_path / "checkpoint") == []


# ---- what a query makes of the stream


def by_sql(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("native_stream")
    return frame.sparkSession.sql("SELECT k + 1, _change_type FROM native_stream WHERE k > 1")


def with_itself(frame: DataFrame) -> DataFrame:
    other = frame.selectExpr("k AS other", "name AS second")
    return frame.join(other, frame.k == other.other).select("k", "second")


PLANS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a filter of the feed's columns": lambda df: df.where("_change_type = 'delete'"),
    "versions": lambda df: df.where("_commit_version > 1").select("k", "_commit_version"),
    "a view": by_sql,
    "a union with itself": lambda df: df.union(df),
    "a join with itself": with_itself,
    "an aggregation": lambda df: (
        df.withWatermark("_commit_timestamp", "1 day")
        .dropDuplicates(["k", "_change_type", "_commit_timestamp"])
        .select("k")
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_over_the_native_stream_gives_the_rows_of_the_format(
    spark: SparkSession, table: Table, tmp_path: Path, plan: str
) -> None:
    for key in range(3):
        table.append(rows(key))
    table.overwrite(rows(7))
    found = [
        values_of(
            PLANS[plan](follow_table(spark, tmp_path / "table", door, startingVersion=1)),
            tmp_path / door,
        )
        for door in DOORS
    ]

    assert found[0]
    assert found[1] == found[0]


def test_two_tables_are_joined_with_a_watermark(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("left", "right"):
        Table.create(tmp_path / name, SCHEMA).append(rows(1, 2, 3))
    left, right = (
        fuse.read_stream(spark, tmp_path / name)
        .withWatermark("_commit_timestamp", "1 minute")
        .selectExpr("k", f"_commit_timestamp AS {name}")
        for name in ("left", "right")
    )
    near = "left BETWEEN right - INTERVAL 1 HOUR AND right + INTERVAL 1 HOUR"
    joined = left.join(right, "k").where(near).select("k")

    assert values_of(joined, tmp_path / "checkpoint") == [(1,), (2,), (3,)]


def test_one_dataframe_is_two_queries_and_is_started_again(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1))
    frame = fuse.read_stream(spark, tmp_path / "table").select("k")
    first = values_of(frame, tmp_path / "a")
    table.append(rows(2))

    assert first == [(1,)]
    assert values_of(frame, tmp_path / "b") == [(1,), (2,)]
    assert values_of(frame, tmp_path / "a") == [(2,)]


def test_two_queries_of_one_dataframe_run_at_once(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1))
    frame = fuse.read_stream(spark, tmp_path / "table").select("k")
    found: dict[str, list[int]] = {"a": [], "b": []}

    def start(name: str) -> StreamingQuery:
        def take(batch: DataFrame, _: int) -> None:
            found[name] += [row.k for row in batch.collect()]

        writer = frame.writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    queries = {name: start(name) for name in found}
    try:
        for query in queries.values():
            query.processAllAvailable()
        queries["a"].stop()
        table.append(rows(2))
        queries["b"].processAllAvailable()
    finally:
        for query in queries.values():
            query.stop()

    assert found == {"a": [1], "b": [1, 2]}


def last_plan(query: StreamingQuery) -> str:
    return str(query._jsq.explainInternal(False))  # noqa: FBT003, SLF001 - as query.explain()


def test_progress_counts_rows_and_names_the_table(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    frame = fuse.read_stream(spark, tmp_path / "table")
    run(frame, collect, tmp_path / "c")
    table.update("k = 1", {"name": "new"})  # computed by Python workers
    table.append(rows(5))
    query = run(frame, collect, tmp_path / "c")
    progress: Any = query.lastProgress

    assert progress["numInputRows"] == 3
    assert progress["sources"][0]["description"] == f"fuse[{tmp_path / 'table'}]"
    assert [one.versions for one in fuse.lag(query)] == [0]


@pytest.mark.parametrize(
    ("view", "columns"), [(["name"], "struct<name:string>"), (["1 AS one"], "struct<>")]
)
def test_only_the_columns_that_a_query_uses_are_read(
    spark: SparkSession, table: Table, tmp_path: Path, view: list[str], columns: str
) -> None:
    table.append(rows(1, 2))
    table.append(rows(3))
    frame = fuse.read_stream(spark, tmp_path / "table", starting_version=1).selectExpr(*view)
    query = run(frame, collect, tmp_path / "c")

    assert f"ReadSchema: {columns}" in last_plan(query)


def test_a_predicate_is_passed_to_parquet(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1, 2))
    frame = fuse.read_stream(spark, tmp_path / "table", where="k = 2")
    query = run(frame, collect, tmp_path / "c")

    assert "EqualTo(k,2)" in last_plan(query)


def test_columns_have_no_ids_that_spark_would_write(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1))
    seen: list[dict[str, Any]] = []
    frame = fuse.read_stream(spark, tmp_path / "table")
    run(frame, lambda batch, _: seen.extend(one.metadata for one in batch.schema), tmp_path / "c")

    assert seen == [{}] * 6


# ---- settings, names


@pytest.mark.long
def test_settings_of_the_start_count_not_later_ones(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("At2", pa.string())])
    table = Table.create(tmp_path / "table", schema)
    table.append(pa.table({"at": [0, 9 * 3_600_000_000], "At2": ["3", "4"]}, schema))
    options = {"where": "at >= TIMESTAMP '1970-01-01 10:00:00' AND at2 > '1'"}
    native = follow_table(session, tmp_path / "table", "native", **options)
    zone = {"timeZone": "Asia/Tokyo"}
    by_format = follow_table(session, tmp_path / "table", "format", **options, **zone)
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    session.conf.set("spark.sql.caseSensitive", "true")
    found = [values_of(native, tmp_path / "a"), values_of(by_format, tmp_path / "b")]

    assert [row[1] for row in found[0]] == ["4"]
    assert found[0] == found[1]


@pytest.mark.parametrize("setting", ["spark.sql.ansi.enabled", "spark.sql.caseSensitive"])
def test_in_a_session_of_other_rules_a_predicate_means_the_same(
    spark: SparkSession, table: Table, tmp_path: Path, setting: str
) -> None:
    session = spark.newSession()
    session.conf.set(setting, str(setting.endswith("Sensitive")).lower())
    table.append(rows(1, 2, 3))
    found = [
        values_of(follow_table(session, tmp_path / "table", door, where="k > '1'"), tmp_path / door)
        for door in DOORS
    ]

    assert [row[0] for row in found[0]] == [2, 3]
    assert found[0] == found[1]


@pytest.mark.long
def test_columns_may_have_any_names_also_those_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ["_metadata", "a.b", "a`b", "${x}", "_fuse", "file_name", " ", "value", "start"]
    table = Table.create(tmp_path / "table", pa.schema([(name, pa.int64()) for name in names]))
    for number in range(3):
        table.append(pa.table({name: list(range(number, 200)) for name in names}))
    table.delete("file_name = 150")
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    for start in (None, 1):
        options = {} if start is None else {"startingVersion": start}
        found = [
            values_of(
                follow_table(session, tmp_path / "table", door, **options),
                tmp_path / f"{door}{start}",
            )
            for door in DOORS
        ]

        assert found[0] == found[1]
        assert len(found[0]) == 597 + (-3 if start is None else 3)


# ---- errors


def failure_of(frame: DataFrame, checkpoint: Path) -> StreamingQueryException:
    with pytest.raises(StreamingQueryException) as caught:
        run(frame, collect, checkpoint)
    return caught.value


@pytest.mark.parametrize("door", DOORS)
def test_an_expired_version_is_an_error_of_its_class(
    spark: SparkSession, table: Table, tmp_path: Path, door: str
) -> None:
    table.append(rows(1))
    frame = follow_table(spark, tmp_path / "table", door)
    batches_of(frame, tmp_path / "c")
    for key in (2, 3):
        table.overwrite(rows(key))
    time.sleep(0.1)
    table.expire(keep_last=1)
    found = fuse.stream_error(failure_of(frame, tmp_path / "c"))

    assert type(found) is SnapshotExpiredError
    assert found.context == {"version": 2, "first": 3}
    assert found.message.startswith("commits that the stream has yet to read have expired; start")


@pytest.mark.parametrize("door", DOORS)
def test_a_changed_schema_is_an_error_of_its_class(
    spark: SparkSession, table: Table, tmp_path: Path, door: str
) -> None:
    frame = follow_table(spark, tmp_path / "table", door)
    table.append(pa.table({"k": [1], "more": [2]}), merge_schema=True)

    assert type(fuse.stream_error(failure_of(frame, tmp_path / "c"))) is SchemaChangedError


def test_a_missing_block_is_an_error_before_any_task(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.append(rows(1))
    frame = fuse.read_stream(spark, tmp_path / "table")
    (block,) = table.blocks()
    table.metadata.store.delete(block_key(block.id))
    failure = failure_of(frame, tmp_path / "c")
    found = fuse.stream_error(failure)

    assert type(found) is CorruptObjectError
    assert found.message.startswith("a block is missing: fuse-stream fsck")
    assert "terminated with exception: CorruptObjectError: a block is missing" in str(failure)
    assert "Traceback" not in str(failure)


def test_a_missing_branch_is_an_error_of_its_class(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.create_branch("fix")
    frame = fuse.read_stream(spark, tmp_path / "table", branch="fix")
    table.delete_branch("fix")

    assert type(fuse.stream_error(failure_of(frame, tmp_path / "c"))) is NotFoundError
    with pytest.raises(NotFoundError):
        fuse.read_stream(spark, tmp_path / "table", branch="fix")
    with pytest.raises(NotFoundError, match="waitForTable"):
        fuse.read_stream(spark, tmp_path / "none")


def test_an_error_of_the_user_is_none_of_ours(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    def fail(_batch: DataFrame, _batch_id: int) -> None:
        raise ValueError("fuse_stream.errors are not mine")

    table.append(rows(1))
    with pytest.raises(StreamingQueryException) as caught:
        run(fuse.read_stream(spark, tmp_path / "table"), fail, tmp_path / "c")

    assert fuse.stream_error(caught.value) is None


def test_a_query_that_has_not_failed_has_no_error(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    query = run(fuse.read_stream(spark, tmp_path / "table"), lambda *_: None, tmp_path / "c")

    assert fuse.stream_error(query) is None


# ---- long runs


def pool_size(spark: SparkSession) -> int:
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the same
    jvm.java.lang.System.gc()  # it then tells which proxies it has dropped
    gc.collect()
    time.sleep(0.5)
    return len(gateway.gateway_property.pool)


@LONG
def test_batches_leave_no_objects_behind(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    count = 80
    for key in range(count):
        table.append(rows(key))
    frame = fuse.read_stream(
        spark, tmp_path / "table", starting_version=1, max_commits_per_trigger=1
    )
    sizes: dict[int, int] = {}

    def take(_batch: DataFrame, batch_id: int) -> None:
        if batch_id in {10, count - 1}:
            sizes[batch_id] = pool_size(spark)

    run(frame, take, tmp_path / "c")

    assert sizes[count - 1] <= sizes[10] + 10


@pytest.mark.long
@pytest.mark.night
def test_a_first_batch_may_have_ten_thousand_blocks(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.set_properties({"fuse.block.rows": "1"})
    for first in range(0, 10_000, 1_000):
        table.append(rows(*range(first, first + 1_000)))
    seen: list[int] = []
    frame = fuse.read_stream(spark, tmp_path / "table").select("k")
    run(frame, lambda batch, _: seen.append(batch.count()), tmp_path / "c")

    assert seen == [10_000]
