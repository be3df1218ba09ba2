"""The sink on real Spark: its inputs, its two methods of writing, its errors and its reports."""

from __future__ import annotations

import errno
import logging
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.functions import lit

import fuse_stream.storage.local
from fuse_stream.commit.ledger import judge
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import (
    DuplicateWriterError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    StorageError,
    UnsupportedTypeError,
)
from fuse_stream.format.evolve import resolve
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Operation
from fuse_stream.spark.collect import FetchPolicy, RowMapper
from fuse_stream.spark.frame import FrameRows
from fuse_stream.spark.sink import CommitReport, FuseSink, fuse_sink
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from tests.kit.calls import counted
from tests.spark.streams import (
    ROWS,
    deliver,
    deliver_table,
    ids_delivered,
    ids_of,
    objects_of,
    raised_by,
    read_stream,
    refusal_of,
    run,
    run_batch,
)

FETCH_LOG = "fuse_stream.spark.collect"
SINK_LOG = "fuse_stream.spark.sink"


def reports_of(sink: FuseSink, into: list[CommitReport]) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that keeps the report of each batch."""

    def function(df: DataFrame, batch_id: int) -> None:
        sink(df, batch_id)
        assert sink.last_commit is not None
        into.append(sink.last_commit)

    return function


def stream_into(
    spark: SparkSession, folder: Path, schema: str = "id long, key string", **options: Any
) -> list[CommitReport]:
    """Stream a scenario's source into a sink; return its reports."""
    reports: list[CommitReport] = []
    sink = fuse_sink(str(folder / "table"), **options)
    run(read_stream(spark, folder, schema), reports_of(sink, reports), folder / "checkpoint")
    return reports


# ---- modes and triggers


def test_every_batch_is_one_snapshot_with_its_summary(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(tmp_path, range(3))

    with caplog.at_level(logging.INFO, SINK_LOG):
        reports = stream_into(spark, tmp_path, message="nightly", author="someone")

    table = Table.open(tmp_path / "table")
    first, second, third, created = table.log()
    assert ids_of(tmp_path / "table") == ids_delivered(3)
    assert created.operation is Operation.CREATE
    assert {snapshot.operation for snapshot in (first, second, third)} == {Operation.APPEND}
    assert {(snapshot.message, snapshot.author) for snapshot in (first, second, third)} == {
        ("nightly", "someone")
    }
    assert [report.version for report in reports] == [1, 2, 3]
    assert [report.batch_id for report in reports] == [0, 1, 2]
    for report in reports:
        assert report.outcome == "committed"
        assert (report.application, report.writer) == ("default", "")
        assert (report.rows, report.blocks, report.attempts) == (ROWS, 1, 1)
        assert report.bytes > 0
        assert set(report.milliseconds) == {"examine", "write", "publish"}
    lines = [record for record in caplog.records if record.name == SINK_LOG]
    assert [line.__dict__["fuse"]["version"] for line in lines] == [1, 2, 3]
    for part in (f"path={tmp_path}/table", "rows=10", "blocks=1", "outcome=committed"):
        assert part in lines[0].getMessage()


def test_a_processing_time_trigger_commits_what_arrives_while_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(1))
    sink = fuse_sink(str(tmp_path / "table"))
    writer = read_stream(spark, tmp_path).writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        deliver(tmp_path, range(1, 3))
        query.processAllAvailable()
    finally:
        query.stop()

    assert ids_of(tmp_path / "table") == ids_delivered(3)


def test_a_complete_query_overwrites_the_table(spark: SparkSession, tmp_path: Path) -> None:
    deliver(tmp_path, range(3))
    sink = fuse_sink(str(tmp_path / "table"), mode="overwrite")
    counts = read_stream(spark, tmp_path).groupBy("key").count()

    checkpoint = tmp_path / "checkpoint"
    appending = fuse_sink(str(tmp_path / "table"))
    assert 'mode="overwrite"' in refusal_of(counts, appending, checkpoint, output_mode="complete")
    assert not (tmp_path / "table").exists()

    run(counts, sink, checkpoint, output_mode="complete")

    table = Table.open(tmp_path / "table")
    assert [snapshot.operation for snapshot in table.log(3)] == [Operation.OVERWRITE] * 3
    assert sorted(table.to_arrow().to_pylist(), key=repr) == [
        {"key": f"key {key}", "count": 10} for key in range(3)
    ]


def test_an_empty_batch_of_a_complete_query_empties_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    sink = fuse_sink(str(tmp_path / "table"), mode="overwrite")
    reports: list[CommitReport] = []
    keep = reports_of(sink, reports)

    def first_only(df: DataFrame, batch_id: int) -> None:
        keep(df.where("id < 10"), batch_id)

    run(read_stream(spark, tmp_path), first_only, tmp_path / "checkpoint")

    assert [(report.outcome, report.rows) for report in reports] == [
        ("committed", ROWS),
        ("committed", 0),
    ]
    assert ids_of(tmp_path / "table") == []
    assert ids_of(tmp_path / "table", version=1) == ids_delivered(1)


def test_an_empty_batch_makes_no_snapshot_but_its_plan_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(3))
    seen = spark.sparkContext.accumulator(0)

    def none_of_them(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch.slice(0, 0)

    reports: list[CommitReport] = []
    keep = reports_of(fuse_sink(str(tmp_path / "table")), reports)

    def middle_empty(df: DataFrame, batch_id: int) -> None:
        keep(df.mapInArrow(none_of_them, df.schema) if batch_id == 1 else df, batch_id)

    run(read_stream(spark, tmp_path), middle_empty, tmp_path / "checkpoint")

    assert [(report.outcome, report.version) for report in reports] == [
        ("committed", 1),
        ("empty", 1),
        ("committed", 2),
    ]
    assert seen.value == ROWS


def test_commit_empty_makes_a_snapshot_of_an_empty_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(1))
    reports: list[CommitReport] = []
    keep = reports_of(fuse_sink(str(tmp_path / "table"), commit_empty=True), reports)

    run(
        read_stream(spark, tmp_path),
        lambda df, batch_id: keep(df.where("id < 0"), batch_id),
        tmp_path / "checkpoint",
    )

    assert [(report.outcome, report.version, report.rows) for report in reports] == [
        ("committed", 1, 0)
    ]


# ---- several sinks


def test_sinks_of_one_query_are_distinguished_by_their_writer(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    low = fuse_sink(str(tmp_path / "table"), writer="low")
    high = fuse_sink(str(tmp_path / "table"), writer="high")

    def split(df: DataFrame, batch_id: int) -> None:
        low(df.where("id % 10 < 5"), batch_id)
        high(df.where("id % 10 >= 5"), batch_id)

    run(read_stream(spark, tmp_path), split, tmp_path / "checkpoint")

    ledger = Table.open(tmp_path / "table").ledger()
    assert {key: entry.version for key, entry in ledger.items()} == {
        ("default", "low"): 3,
        ("default", "high"): 4,
    }
    assert ids_of(tmp_path / "table") == ids_delivered(2)


def test_a_second_sink_under_the_same_name_is_refused_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    errors: list[BaseException | None] = []

    def split(df: DataFrame, batch_id: int, *, writer: str) -> None:
        # Made in the function: each batch gets new sinks.
        fuse_sink(str(tmp_path / "table"))(df.where("id % 10 < 5"), batch_id)
        high = fuse_sink(str(tmp_path / "table"), writer=writer)
        error = raised_by(high, df.where("id % 10 >= 5"), batch_id)
        errors.append(error)
        if error is not None:
            raise error

    frame = read_stream(spark, tmp_path)
    refusal = refusal_of(
        frame, lambda df, batch_id: split(df, batch_id, writer=""), tmp_path / "checkpoint"
    )
    assert "Give this sink a writer= of its own" in refusal
    assert isinstance(errors[-1], DuplicateWriterError)
    assert ids_of(tmp_path / "table") == list(range(5))

    run(frame, lambda df, batch_id: split(df, batch_id, writer="b"), tmp_path / "checkpoint")
    assert ids_of(tmp_path / "table") == ids_delivered(2)


def test_a_second_sink_of_the_same_name_is_refused_on_another_branch_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    schema = pa.schema([("id", pa.int64()), ("key", pa.string())])
    Table.create(tmp_path / "table", schema).create_branch("low")
    main = fuse_sink(str(tmp_path / "table"))

    def both(df: DataFrame, batch_id: int, *, writer: str) -> None:
        main(df, batch_id)
        fuse_sink(str(tmp_path / "table"), branch="low", writer=writer)(
            df.where("id < 2"), batch_id
        )

    frame, checkpoint = read_stream(spark, tmp_path), tmp_path / "checkpoint"
    refusal = refusal_of(frame, lambda df, batch_id: both(df, batch_id, writer=""), checkpoint)
    assert "Give this sink a writer= of its own, leave the other sink's as it is" in refusal

    run(frame, lambda df, batch_id: both(df, batch_id, writer="low"), checkpoint)
    assert ids_of(tmp_path / "table") == ids_delivered(2)
    assert sorted(Table.open(tmp_path / "table", branch="low").to_arrow()["id"].to_pylist()) == [
        0,
        1,
    ]


def test_a_batch_is_judged_by_the_newest_schema(spark: SparkSession, tmp_path: Path) -> None:
    deliver(tmp_path, range(2))
    sink = fuse_sink(str(tmp_path / "table"))

    def widened(df: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            other = Table.open(tmp_path / "table")
            other.append(pa.table({"id": [99], "key": ["x"], "d": ["y"]}), merge_schema=True)
        sink(df.withColumn("d", lit("z")) if batch_id else df, batch_id)

    run(read_stream(spark, tmp_path), widened, tmp_path / "checkpoint")

    assert ids_of(tmp_path / "table") == [*ids_delivered(2), 99]


def test_a_sink_called_twice_in_a_batch_is_refused_unless_it_tries_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = fuse_sink(str(tmp_path / "table"))
    errors: list[BaseException | None] = []

    def twice(df: DataFrame, batch_id: int) -> None:
        broken = df.selectExpr("id", "raise_error('try again')::string AS key")
        parts = (broken, df.where("id < 5"), df.where("id >= 5"))
        errors.extend(raised_by(sink, part, batch_id) for part in parts)

    run_batch(spark, tmp_path, twice)

    first, second, third = errors
    assert "try again" in str(first)
    assert second is None
    assert isinstance(third, DuplicateWriterError)
    assert ids_of(tmp_path / "table") == list(range(5))


def test_a_sink_outside_of_a_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"fuse\.write"):
        fuse_sink(str(tmp_path / "table"))(spark.range(3), 0)

    assert not (tmp_path / "table").exists()


def test_a_thread_that_does_not_know_the_query_is_told_how_to_start_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    errors: list[BaseException | None] = []

    def in_a_pool(df: DataFrame, batch_id: int) -> None:
        sink = fuse_sink(str(tmp_path / "table"))
        with ThreadPoolExecutor(1) as pool:
            errors.append(pool.submit(sink, df, batch_id).exception())
            inherits = inheritable_thread_target(df.sparkSession)(sink)
            errors.append(pool.submit(inherits, df, batch_id).exception())

    run_batch(spark, tmp_path, in_a_pool)

    refused, done = errors
    assert isinstance(refused, InvalidInputError)
    assert "inheritable_thread_target" in str(refused)
    assert done is None
    assert ids_of(tmp_path / "table") == ids_delivered(1)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "update"},
        {"mode": []},
        {"optimize": []},
        {"cluster_by": "id"},
        {"cluster_by": None},
        {"app_id": ""},
        {"app_id": []},
    ],
    ids=repr,
)
def test_an_invalid_argument_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        fuse_sink("/nowhere", **options)


def test_a_pickled_sink_works(spark: SparkSession, tmp_path: Path) -> None:
    deliver(tmp_path, range(1))
    sink = fuse_sink(str(tmp_path / "table"), app_id="moved")
    run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")
    deliver(tmp_path, range(1, 2))

    copy = pickle.loads(pickle.dumps(sink))
    run(read_stream(spark, tmp_path), copy, tmp_path / "checkpoint")

    assert repr(copy) == repr(sink)
    assert ids_of(tmp_path / "table") == ids_delivered(2)


# ---- by tasks or fetched


def incompressible(first: int, count: int, width: int) -> pa.Table:
    """Return rows with ids from `first` and distinct texts."""
    texts = [f"{row_id * 2_654_435_761 % 2**64:020}" * (width // 20) for row_id in range(count)]
    return pa.table({"id": range(first, first + count), "key": texts})


def test_the_first_batch_is_written_by_tasks_and_small_ones_after_it_are_fetched(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Too many for tasks to send them over, so two tasks write two blocks, and a fetch one.
    for number in range(2):
        deliver_table(tmp_path, number, incompressible(number * 20_000, 20_000, 120))
    reports: list[CommitReport] = []
    keep = reports_of(fuse_sink(str(tmp_path / "table")), reports)

    run(
        read_stream(spark, tmp_path),
        lambda df, batch_id: keep(df.repartition(2), batch_id),
        tmp_path / "checkpoint",
    )

    assert [(report.rows, report.blocks) for report in reports] == [(20_000, 2), (20_000, 1)]
    assert ids_of(tmp_path / "table") == list(range(40_000))


@pytest.mark.parametrize("is_fetched", [True, False], ids=["fetched", "by tasks"])
def test_a_batch_reads_the_head_once_judges_it_once_and_resolves_its_columns_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_fetched: bool
) -> None:
    deliver(tmp_path, range(3))
    reads: list[str] = []
    calls: list[Counter[str]] = []
    get = LocalStore.get_up_to

    def note(store: LocalStore, key: str, most_bytes: int | None) -> bytes:
        reads.append(key)
        return get(store, key, most_bytes)

    def count(df: DataFrame, batch_id: int) -> None:
        reads.clear()
        with counted(judge, resolve) as calls_of_batch:
            sink(df, batch_id)
        calls.append(calls_of_batch)
        if batch_id:  # the first creates the table
            assert reads == [slot_key("main", batch_id)]

    monkeypatch.setattr(LocalStore, "get_up_to", note)
    if not is_fetched:
        monkeypatch.setattr(FetchPolicy, "allows", lambda *_: False)
    sink = fuse_sink(str(tmp_path / "table"))
    run(read_stream(spark, tmp_path), count, tmp_path / "checkpoint")

    assert calls == [{"judge": 1, "resolve": 1}] * 3
    assert ids_of(tmp_path / "table") == ids_delivered(3)


@pytest.mark.parametrize(
    "backlog",
    [incompressible(1_000, 20_000, 20), incompressible(1_000, 20, 20_000)],
    ids=["tall", "wide"],
)
def test_a_large_batch_after_tiny_ones_is_written_by_tasks(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, backlog: pa.Table
) -> None:
    deliver(tmp_path, range(2))
    deliver_table(tmp_path, 2, backlog)

    with caplog.at_level(logging.INFO, FETCH_LOG):
        reports = stream_into(spark, tmp_path)

    given_up = [
        record.getMessage()
        for record in caplog.records
        if record.name == FETCH_LOG and "tasks write it" in record.getMessage()
    ]
    assert given_up == ["the batch is larger than the ones before it; tasks write it"]
    assert [report.rows for report in reports] == [ROWS, ROWS, len(backlog)]
    assert ids_of(tmp_path / "table") == ids_delivered(2) + backlog["id"].to_pylist()


def test_without_a_limit_on_results_nothing_is_fetched(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        deliver_table(tmp_path, number, incompressible(number * 20_000, 20_000, 120))
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    session.conf.set("spark.driver.maxResultSize", "0")
    reports: list[CommitReport] = []
    keep = reports_of(fuse_sink(str(tmp_path / "table")), reports)

    run(
        read_stream(session, tmp_path),
        lambda df, batch_id: keep(df.repartition(2), batch_id),
        tmp_path / "checkpoint",
    )

    assert [report.blocks for report in reports] == [2, 2]


@pytest.mark.parametrize("batch_id", [0, 1], ids=["by tasks", "fetched"])
def test_an_error_of_the_plan_reaches_the_user_unchanged(
    spark: SparkSession, tmp_path: Path, batch_id: int
) -> None:
    deliver(tmp_path, range(2))
    sink = fuse_sink(str(tmp_path / "table"))
    errors: list[BaseException | None] = []

    def broken(df: DataFrame, batch: int) -> None:
        if batch < batch_id:
            sink(df, batch)
            return
        failing = df.selectExpr("raise_error('the users own words')::bigint AS id", "key")
        errors.append(raised_by(sink, failing, batch))
        assert errors[0] is not None
        raise errors[0]

    refusal_of(read_stream(spark, tmp_path), broken, tmp_path / "checkpoint")

    (error,) = errors
    assert isinstance(error, PySparkException)
    assert "the users own words" in str(error)
    assert "larger than those before" not in str(error)
    assert ids_of(tmp_path / "table") == ids_delivered(batch_id)


# ---- columns

UNSUPPORTED = {
    "an interval": ("INTERVAL '1' DAY", "interval day"),
    "a calendar interval": ("make_interval(1, 2)", "interval"),
    "a variant": ("parse_json('1')", "variant"),
    "a collated string": ("'a' COLLATE UTF8_LCASE", "string collate UTF8_LCASE"),
    "nothing": ("NULL", "void"),
    "nothing in a list": ("array(NULL)", "void"),
}
NESTED_COLUMN = {"nothing in a list": "odd.element"}


def test_a_column_of_an_unsupported_type_is_named_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    errors: dict[str, BaseException | None] = {}

    def probe(df: DataFrame, batch_id: int) -> None:
        for name, (expression, _) in UNSUPPORTED.items():
            odd = df.selectExpr("id", f"{expression} AS odd")
            sink = fuse_sink(str(tmp_path / "table"))
            errors[name] = raised_by(sink, odd, batch_id)

    run_batch(spark, tmp_path, probe)

    for name, (_, type_name) in UNSUPPORTED.items():
        error = errors[name]
        assert isinstance(error, UnsupportedTypeError), (name, error)
        assert error.context == {"column": NESTED_COLUMN.get(name, "odd"), "type": type_name}
    assert not (tmp_path / "table").exists()


def test_invalid_columns_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    refused = {
        "reserved": ["id", "key AS _change_type"],
        "reserved too": ["id", "id AS _commit_version"],
        "twice": ["id", "key AS Id"],
        "within": ["id", "struct(id AS a, id AS A) AS s"],
    }
    errors: dict[str, BaseException | None] = {}

    def probe(df: DataFrame, batch_id: int) -> None:
        for name, expressions in refused.items():
            odd = df.selectExpr(*expressions)
            sink = fuse_sink(str(tmp_path / "table"))
            errors[name] = raised_by(sink, odd, batch_id)
        errors["none"] = raised_by(fuse_sink(str(tmp_path / "table")), df.select(), batch_id)

    run_batch(spark, tmp_path, probe)

    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(
        [*refused, "none"], InvalidInputError
    )
    assert "_change_type" in str(errors["reserved"])
    assert "['id', 'Id']" in str(errors["twice"])
    assert "['s.a', 's.A']" in str(errors["within"])
    assert "the schema is empty" in str(errors["none"])
    assert not (tmp_path / "table").exists()


def test_columns_may_differ_in_case_in_a_case_sensitive_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    for number in range(2):
        deliver_table(tmp_path, number, pa.table({"id": [number], "ID": [number + 10]}))

    stream_into(session, tmp_path, "id long, ID long")

    rows = Table.open(tmp_path / "table").to_arrow().to_pylist()
    assert rows == [{"id": 0, "ID": 10}, {"id": 1, "ID": 11}]


def test_a_table_made_by_a_sink_allows_nulls_and_is_sorted_by_the_cluster_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    def reversed_and_not_null(df: DataFrame, batch_id: int) -> None:
        batch = spark.range(10).selectExpr("10 - id AS id", "struct(id AS inner) AS s")
        assert not batch.schema["s"].nullable
        fuse_sink(str(tmp_path / "table"), cluster_by=["id"])(batch, batch_id)

    run_batch(spark, tmp_path, reversed_and_not_null)

    table = Table.open(tmp_path / "table")
    assert table.schema.field("id").nullable
    assert table.schema.field("s").nullable
    assert table.schema.field("s").type.field("inner").nullable
    assert table.to_arrow()["id"].to_pylist() == list(range(1, 11))
    assert table.head().cluster_key == (1,)


def test_the_error_for_a_batch_that_does_not_fit_shows_both_schemas(
    spark: SparkSession, tmp_path: Path
) -> None:
    Table.create(tmp_path / "table", pa.schema({"id": pa.int64(), "key": pa.string()}))
    before = objects_of(tmp_path / "table")
    errors: list[BaseException | None] = []
    otherwise = fuse_sink(str(tmp_path / "table"), cluster_by=["key"])

    def misfit(df: DataFrame, batch_id: int) -> None:
        batch = df.selectExpr("CAST(id AS STRING) AS id", "1 AS more")
        errors.append(raised_by(fuse_sink(str(tmp_path / "table")), batch, batch_id))
        errors.append(raised_by(otherwise, df, batch_id))

    run_batch(spark, tmp_path, misfit)

    mismatch, clustered = errors
    assert isinstance(mismatch, SchemaMismatchError)
    for part in ("cast", "id", "long", "string", "more", "key"):
        assert part in str(mismatch)
    assert "merge_schema" not in str(mismatch)  # no type holds both
    assert isinstance(clustered, InvalidInputError)
    assert clustered.context == {"cluster_by": ["key"], "table": []}
    assert objects_of(tmp_path / "table") == before


def test_merge_schema_adds_columns_and_widens(spark: SparkSession, tmp_path: Path) -> None:
    deliver(tmp_path, range(3))
    sink = fuse_sink(str(tmp_path / "table"), merge_schema=True)
    last = 2

    def widen(df: DataFrame, batch_id: int) -> None:
        small = df.selectExpr("CAST(id AS INT) AS id", "1.5F AS x")
        wide = df.selectExpr("id + 5000000000 AS id", "2.5D AS x", "key")
        sink(wide if batch_id == last else small, batch_id)

    run(read_stream(spark, tmp_path), widen, tmp_path / "checkpoint")

    table = Table.open(tmp_path / "table")
    assert table.schema.types == [pa.int64(), pa.float64(), pa.string()]
    rows = table.to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == ids_delivered(last) + [
        row_id + 5_000_000_000 for row_id in range(last * ROWS, (last + 1) * ROWS)
    ]
    assert rows["x"].to_pylist() == [1.5] * ROWS * last + [2.5] * ROWS
    assert rows["key"].null_count == ROWS * last


EVERY_TYPE = t.StructType(
    [
        t.StructField("a_boolean", t.BooleanType()),
        t.StructField("a_byte", t.ByteType()),
        t.StructField("a_short", t.ShortType()),
        t.StructField("an_integer", t.IntegerType()),
        t.StructField("a_long", t.LongType()),
        t.StructField("a_float", t.FloatType()),
        t.StructField("a_double", t.DoubleType()),
        t.StructField("a_decimal", t.DecimalType(38, 10)),
        t.StructField("a_string", t.StringType()),
        t.StructField("a_binary", t.BinaryType()),
        t.StructField("a_date", t.DateType()),
        t.StructField("a_timestamp", t.TimestampType()),
        t.StructField("a_timestamp_ntz", t.TimestampNTZType()),
        t.StructField("an_array", t.ArrayType(t.LongType())),
        t.StructField("a_map", t.MapType(t.StringType(), t.ArrayType(t.DateType()))),
        t.StructField(
            "a_struct",
            t.StructType(
                [
                    t.StructField("whole", t.IntegerType()),
                    t.StructField("parts", t.ArrayType(t.StructType().add("x", t.DoubleType()))),
                ]
            ),
        ),
    ]
)
EVERY_VALUE: list[tuple[Any, ...]] = [
    (
        True,
        -128,
        32_767,
        -(2**31),
        2**63 - 1,
        1.5,
        float("-inf"),
        Decimal("-1234567890123456789012345678.0123456789"),
        "Zürich \U0001f600 \x00",
        b"\x00\xff",
        date(1, 1, 1),
        datetime(1582, 10, 4, 1, 2, 3, 456_789, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - a TIMESTAMP_NTZ
        [1, None, 3],
        {"a": [date(2026, 1, 1), None], "b": None},
        (1, [(0.5,), None]),
    ),
    (None,) * 16,
    (False, 0, 0, 0, 0, -0.0, 1e300, Decimal(0), "", b"", *[None] * 3, [], {}, (None, [])),
]


def test_every_type_is_read_back_as_written(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(EVERY_VALUE, EVERY_TYPE)
    expected = rows.toArrow()
    deliver(tmp_path, range(2))
    sink = fuse_sink(str(tmp_path / "table"))

    run(
        read_stream(spark, tmp_path),
        lambda _, batch_id: sink(rows, batch_id),
        tmp_path / "checkpoint",
    )

    table = Table.open(tmp_path / "table")
    by_tasks, fetched = (
        table.changes(version, version).read_all().select(EVERY_TYPE.names) for version in (1, 2)
    )
    assert sorted_rows(by_tasks) == sorted_rows(expected)
    assert sorted_rows(fetched) == sorted_rows(expected)


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


# ---- the ledger


def test_the_ledger_holds_the_source_offsets_of_the_last_two_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(3))

    stream_into(spark, tmp_path)

    (entry,) = Table.open(tmp_path / "table").ledger().values()
    offsets = tmp_path / "checkpoint" / "offsets"
    assert {item.batch_id: item.text for item in entry.offsets} == {
        batch_id: (offsets / str(batch_id)).read_text() for batch_id in (1, 2)
    }
    assert (entry.batch_id, entry.rows, entry.version) == (2, ROWS, 3)


def test_long_source_offsets_are_stored_outside_the_ledger(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuse_stream.objects.source_offsets.MAX_LEDGER_TEXT", 20)
    sink = fuse_sink(str(tmp_path / "table"))

    run_batch(spark, tmp_path, sink)

    text = (tmp_path / "checkpoint" / "offsets" / "0").read_text()
    (entry,) = Table.open(tmp_path / "table").ledger().values()
    (offsets,) = entry.offsets
    (stored,) = (tmp_path / "table" / "_of").iterdir()
    assert offsets.text is None
    assert stored.read_text() == text


# ---- failures


def test_a_query_stops_when_its_table_is_moved_and_creates_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    sink = fuse_sink(str(tmp_path / "table"))
    errors: list[BaseException | None] = []

    def move(df: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            (tmp_path / "table").rename(tmp_path / "moved")
        errors.append(raised_by(sink, df, batch_id))

    run(read_stream(spark, tmp_path), move, tmp_path / "checkpoint")

    first, second = errors
    assert first is None
    assert isinstance(second, StorageError | NotFoundError)
    assert str(tmp_path / "table") in str(second)
    assert not (tmp_path / "table").exists()
    assert ids_of(tmp_path / "moved") == ids_delivered(1)


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "mounted read-only")],
    ids=["full", "read-only"],
)
def test_a_failing_disk_is_named_and_the_batch_is_committed_after_the_repair(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    deliver(tmp_path, range(1))
    sink = fuse_sink(str(tmp_path / "table"))
    run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")
    deliver(tmp_path, range(1, 2))

    def fail(*_: object) -> None:
        raise OSError(number, "no")

    with monkeypatch.context() as broken:
        broken.setattr(fuse_stream.storage.local, "write_through", fail)
        refusal = refusal_of(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")
    run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert said in refusal
    assert f"{tmp_path}/table" in refusal
    assert ids_of(tmp_path / "table") == ids_delivered(2)


def test_all_errors_of_a_sink_can_be_caught_as_fuse_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    caught: list[str] = []

    def careful(df: DataFrame, batch_id: int) -> None:
        try:
            fuse_sink(str(tmp_path / "table"), branch="nowhere")(df, batch_id)
        except FuseError as error:
            caught.append(error.message)

    run_batch(spark, tmp_path, careful)

    assert len(caught) == 1
    assert not (tmp_path / "table").exists()


def test_a_refused_batch_is_one_line_of_the_log_and_of_sparks_text(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(tmp_path, range(1))
    stream_into(spark, tmp_path)
    sink = fuse_sink(tmp_path / "table")

    shown = refusal_of(read_stream(spark, tmp_path), sink, tmp_path / "another checkpoint")

    (line,) = [record for record in caplog.records if record.name == SINK_LOG]
    assert line.levelno == logging.ERROR
    error = line.getMessage().removesuffix(f" batch_id=0 path={tmp_path / 'table'}")
    assert error.startswith("StreamIdentityError: another query has written")
    assert error.endswith("arriving_batch=0]")
    assert line.__dict__["fuse"]["error"] == "StreamIdentityError"
    assert re.findall(r"fuse_stream\.errors\.(\w+: .*)", shown)[-1] == error


def test_an_empty_complete_batch_removes_the_rows_of_another_writer(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    sink = fuse_sink(str(table), mode="overwrite")
    deliver(tmp_path, range(1))

    def emptied(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        if batch_id == 0:  # the sink has cached the empty head
            Table.open(table).append(pa.table({"id": [1], "key": ["x"]}))

    nothing = read_stream(spark, tmp_path).where("id < 0")
    run(nothing, emptied, tmp_path / "checkpoint")
    deliver(tmp_path, range(1, 2))
    run(nothing, emptied, tmp_path / "checkpoint")

    assert Table.open(table).head().summary.row_count == 0


def test_blocks_that_vacuum_deleted_while_tasks_wrote_are_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64())])
    table = Table.create(tmp_path / "table", schema, properties={"fuse.vacuum.age": "0s"})
    frame = FrameRows(
        spark.range(3),
        table,
        RowMapper(),
        merge_schema=False,
        case_sensitive=False,
        operation=Operation.APPEND,
    )
    frame.collect(table.committer.head(), None)
    for _ in range(3):
        time.sleep(0.1)
        Table.open(tmp_path / "table").vacuum()
    table.committer.head()  # the commit begins on a head that is newer than the blocks
    table.committer.commit(Intent(operation=Operation.APPEND), frame.stage)

    assert sorted(Table.open(tmp_path / "table").to_arrow()["id"].to_pylist()) == [0, 1, 2]
