"""SELECT in a catalog: what Spark reads of a table, of its versions, and of what is known of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fuse_stream.format.layout import block_key
from fuse_stream.spark import hidden_rows
from fuse_stream.spark.jvm import table_scan
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from tests.spark.lakes import Lake, attached

COUNT = 1000


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with attached(spark, tmp_path / "lake") as lake:
        yield lake


def rows_of(count: int = COUNT) -> pa.Table:
    random = Random(7)
    item = pa.struct([("x", pa.int64()), ("t", pa.list_(pa.string()))])
    return pa.table(
        {
            "id": range(count),
            "a.b": [random.choice(["a", "b", None]) for _ in range(count)],
            "number": [random.choice([0.0, -0.0, float("nan"), 2.5, None]) for _ in range(count)],
            "item": pa.array(
                [random.choice([None, {"x": n, "t": ["a", None]}]) for n in range(count)], item
            ),
            "Id2": [n % 7 for n in range(count)],
        }
    )


def table_of(lake: Lake, rows: pa.Table, *, block_rows: int = 100) -> Table:
    properties = {"fuse.block.rows": str(block_rows)}
    table = Table.create(lake.root / "t", rows.schema, properties=properties)
    table.append(rows)
    return table


@pytest.mark.parametrize("hides", [False, True], ids=["whole", "with hidden rows"])
@pytest.mark.parametrize(
    "where",
    [
        "true",
        "id >= 500 AND id < 510",
        "id = 3 OR id IS NULL",
        "number = 0",
        "number > 1",
        "number <> 2.5",
        "`a.b` = 'a' AND item.x > 10",
        "`a.b` IS NULL",
        "id2 IN (1, 2)",
        "id % 10 = 3",
        "id IN (SELECT max(id) FROM lake.t)",
        "false",
    ],
)
def test_a_query_returns_the_rows_of_a_plain_parquet_table(
    lake: Lake, tmp_path: Path, where: str, *, hides: bool
) -> None:
    rows = rows_of()
    table_of(lake, rows)
    if hides:
        lake.sql("DELETE FROM lake.t WHERE id < 55 OR id = 505 OR id2 = 5")
    plain = tmp_path / "plain.parquet"
    pq.write_table(rows, plain)
    expected = lake.spark.read.parquet(str(plain))
    if hides:
        expected = expected.where("NOT (id < 55 OR id = 505 OR id2 = 5)")
    expected.createOrReplaceTempView("plain")

    wanted = lake.spark.sql(f"SELECT * FROM plain WHERE {where.replace('lake.t', 'plain')}")
    found = lake.spark.sql(f"SELECT * FROM lake.t WHERE {where}")
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))
    assert found.schema.names == wanted.schema.names
    some = f"WHERE {where}"
    counted = lake.sql(f"SELECT count(*), count(item.t), max(`a.b`) FROM lake.t {some}")
    assert counted == [(wanted.count(), *counted[0][1:])]


@pytest.mark.parametrize("hides", [False, True], ids=["whole", "with hidden rows"])
def test_filters_prune_blocks(lake: Lake, monkeypatch: pytest.MonkeyPatch, *, hides: bool) -> None:
    table_of(lake, rows_of())
    if hides:
        lake.sql("DELETE FROM lake.t WHERE id = 55")
    seen: list[int] = []
    planned = table_scan.parquet_scan

    def counted(spark: SparkSession, scan: Any, filters: Any) -> Any:
        seen.append(len(scan.blocks))
        return planned(spark, scan, filters)

    monkeypatch.setattr(table_scan, "parquet_scan", counted)

    def blocks_of(query: str) -> int:
        rows = lake.spark.sql(query)
        rows.collect()
        if not hides:
            return seen[-1]
        plan: Any = rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 - no other way
        return int(plan.collectLeaves().apply(0).metrics().get("numFiles").get().value())

    assert blocks_of("SELECT * FROM lake.t") == 10
    assert blocks_of("SELECT * FROM lake.t WHERE id = 150") == 1
    assert blocks_of("SELECT id2 FROM lake.t WHERE id BETWEEN 150 AND 250") == 2
    assert blocks_of("SELECT v FROM (SELECT id + 0 AS v, id FROM lake.t) WHERE id > 890") == 2


def test_only_the_columns_that_a_query_needs_are_read(lake: Lake) -> None:
    table_of(lake, rows_of())

    (plan,) = lake.sql("EXPLAIN SELECT item.x FROM lake.t WHERE id > 10")
    assert "ReadSchema: struct<id:bigint,item:struct<x:bigint>>" in plan
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,10)]" in plan


def test_a_query_does_not_write_the_ids_of_columns_into_files(lake: Lake, tmp_path: Path) -> None:
    table_of(lake, rows_of())
    lake.spark.table("lake.t").write.parquet(str(tmp_path / "out"))
    (file, *_) = (tmp_path / "out").glob("*.parquet")

    assert all(field.metadata is None for field in pq.read_schema(file))


def test_hidden_rows_are_no_part_of_any_query(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table_of(lake, rows_of())
    lake.sql("DELETE FROM lake.t WHERE id >= 10 AND id <> 500")
    counts = "SELECT count(*), max(id), sum(id) FROM lake.t"
    expected = [(11, 500, 545)]

    assert lake.sql(counts) == expected
    assert lake.sql("SELECT count(*) FROM lake.t a JOIN lake.t b ON a.id = b.id") == [11]
    assert lake.sql("SELECT 1 / (id - 11) FROM lake.t WHERE id > 9") == [1 / 489]
    monkeypatch.setattr(hidden_rows, "MOST_WORDS", 0)
    assert lake.sql(counts) == expected


def test_a_dataframe_of_before_a_delete_does_not_show_the_rows_that_it_hides(lake: Lake) -> None:
    table_of(lake, rows_of())
    rows = lake.spark.table("lake.t")
    rows.createOrReplaceTempView("frame")
    lake.spark.sql("CREATE TEMPORARY VIEW text AS SELECT id FROM lake.t WHERE id < 100")
    narrow = rows.where("id >= 90").select("id")
    assert (rows.count(), narrow.count()) == (1000, 910)
    lake.sql("DELETE FROM lake.t WHERE id < 95")

    assert (rows.count(), narrow.count()) == (905, 905)
    assert lake.sql("SELECT count(*) FROM frame") == [905]
    assert lake.sql("SELECT count(*) FROM text") == [5]


def test_equal_scans_are_shared_and_those_of_two_versions_are_not(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id % 3 AS v FROM range(10)")
    lake.sql("INSERT INTO lake.t SELECT id, 5 FROM range(10)")
    counted = "(SELECT v, count(*) AS n FROM lake.t {} WHERE id > 2 GROUP BY v)"
    same = f"SELECT * FROM {counted.format('')} a JOIN {counted.format('')} b ON a.v = b.v + 0"
    older = (
        f"SELECT * FROM {counted.format('')} a JOIN {counted.format('VERSION AS OF 1')} b USING (v)"
    )

    def plan_of(query: str) -> str:
        rows = lake.spark.sql(query)
        rows.collect()
        return str(rows._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001

    assert "ReusedExchange" in plan_of(same)
    assert "ReusedExchange" not in plan_of(older)
    assert sorted(lake.sql(older)) == [(0, 3, 3), (1, 2, 2), (2, 2, 2)]


def test_a_cached_table_shows_each_new_version(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(10)")
    lake.sql("CACHE TABLE lake.t")
    assert lake.sql("SELECT count(*) FROM lake.t") == [10]
    lake.sql("INSERT INTO lake.t VALUES (10)")
    assert lake.sql("SELECT count(*) FROM lake.t") == [11]
    lake.sql("DELETE FROM lake.t WHERE id < 3")
    assert lake.sql("SELECT count(*) FROM lake.t") == [8]
    lake.sql("UNCACHE TABLE lake.t")
    assert lake.sql("SELECT count(*) FROM lake.t") == [8]


@pytest.mark.parametrize("hides", [False, True], ids=["whole", "with hidden rows"])
def test_a_cached_table_is_read_from_memory_and_shows_what_the_session_writes(
    lake: Lake, *, hides: bool
) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(10)")
    if hides:
        lake.sql("DELETE FROM lake.t WHERE id = 9")
    lake.sql("CACHE TABLE lake.t")
    rows = 10 - hides

    def is_cached(statement: str) -> bool:
        (plan,) = lake.sql(f"EXPLAIN {statement}")
        return "InMemoryRelation" in plan

    assert is_cached("SELECT sum(id) FROM lake.t WHERE id > 3")
    assert not is_cached("SELECT * FROM lake.t VERSION AS OF 0")
    Table.open(lake.root / "t").append(pa.table({"id": [10]}))  # of this, Spark hears nothing
    lake.sql("REFRESH TABLE lake.t")
    assert lake.sql("SELECT count(*) FROM lake.t") == [rows + 1]
    lake.sql("INSERT INTO lake.t VALUES (11)")
    assert lake.sql("SELECT count(*), max(id) FROM lake.t") == [(rows + 2, 11)]
    assert lake.sql("SELECT count(*) FROM lake.t VERSION AS OF 1") == [10]
    lake.sql("DELETE FROM lake.t WHERE id = 10")
    assert lake.sql("SELECT count(*), max(id) FROM lake.t") == [(rows + 1, 11)]


def test_names_are_found_with_table_and_catalog(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    queries = ["SELECT t.id FROM lake.t", "SELECT lake.t.id FROM lake.t", "SELECT ID FROM lake.t"]
    assert [len(lake.sql(query)) for query in queries] == [5, 5, 5]
    lake.sql("DELETE FROM lake.t WHERE id = 0")

    assert [len(lake.sql(query)) for query in queries] == [4, 4, 4]


def test_a_permanent_view_reads_the_newest_version(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    lake.sql("CREATE OR REPLACE VIEW spark_catalog.default.few AS SELECT id FROM lake.t")
    try:
        assert len(lake.sql("SELECT * FROM spark_catalog.default.few")) == 5
        lake.sql("DELETE FROM lake.t WHERE id = 0")
        assert len(lake.sql("SELECT * FROM spark_catalog.default.few")) == 4
    finally:
        lake.sql("DROP VIEW spark_catalog.default.few")


# ---- versions


def test_versions_are_read_by_number_tag_branch_and_time(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    table = Table.open(lake.root / "t")
    table.create_tag("five")
    table.create_branch("side")
    lake.sql("INSERT INTO lake.t SELECT id FROM range(5, 8)")
    lake.sql("DELETE FROM lake.t WHERE id = 0")
    Table.open(lake.root / "t", branch="side").delete("id < 4")
    second = table.snapshot(2).timestamp_us
    at = dt.datetime.fromtimestamp(second / 1e6, dt.UTC).isoformat()

    def count(version: str) -> int:
        (found,) = lake.sql(f"SELECT count(*) FROM lake.t {version}")
        return int(found)

    assert count("") == 7
    assert count("VERSION AS OF 1") == 5
    assert count("VERSION AS OF 'five'") == 5
    assert count("VERSION AS OF 2") == 8
    assert count("VERSION AS OF 3") == 7
    assert count("VERSION AS OF 'side@'") == 1
    assert count("VERSION AS OF 'side@1'") == 5
    assert count(f"TIMESTAMP AS OF '{at}'") == 8
    assert lake.spark.read.option("versionAsOf", "2").table("lake.t").count() == 8
    lake.refuses("SELECT * FROM lake.t VERSION AS OF 99", "NotFoundError", "past the head")
    lake.refuses("SELECT * FROM lake.t VERSION AS OF 'nope'", "NotFoundError", "no such tag")
    lake.refuses("SELECT * FROM lake.t TIMESTAMP AS OF '2001-01-01'", "before the first snapshot")


@pytest.mark.parametrize("table", ["lake.t", "lake.t.history"])
def test_no_option_of_a_query_is_ignored(lake: Lake, table: str) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    lake.sql("CALL lake.system.create_branch('t', 'fix')")

    lake.refuses(f"SELECT * FROM {table} WITH (branch = 'fix')", "InvalidInputError", "AS OF")
    assert lake.sql("SELECT count(*) FROM lake.t WITH (versionAsOf = 0)") == [0]


@pytest.mark.parametrize("first", [1, 3])
def test_two_versions_in_one_query_are_two(lake: Lake, first: int) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, 1 AS v FROM range(4)")
    lake.sql("INSERT OVERWRITE lake.t SELECT id, 2 AS v FROM range(4)")
    lake.sql("DELETE FROM lake.t WHERE id = 0")
    lake.sql("INSERT INTO lake.t VALUES (0, 3)")

    joined = lake.sql(
        f"SELECT a.id, a.v, b.v FROM lake.t VERSION AS OF {first} a "
        "JOIN lake.t VERSION AS OF 4 b ON a.id = b.id ORDER BY a.id"
    )
    both = lake.sql(
        "SELECT sum(v) FROM (SELECT v FROM lake.t VERSION AS OF 1 UNION ALL "
        "SELECT v FROM lake.t VERSION AS OF 2)"
    )
    assert joined == ([(0, 1, 3)] if first == 1 else []) + [
        (n, 1 if first == 1 else 2, 2) for n in (1, 2, 3)
    ]
    assert both == [12]


# ---- metadata


def test_what_is_known_of_a_table_is_read_as_tables(lake: Lake, spark: SparkSession) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    write(
        lake.spark.range(2),
        str(lake.root / "t"),
        app_id="job",
        batch_id=7,
        message="two more",
        author="me",
    )
    table = Table.open(lake.root / "t")
    table.create_tag("now")

    assert lake.sql("SELECT version, operation, row_count, message FROM lake.t.snapshots") == [
        (2, "append", 7, "two more"),
        (1, "append", 5, ""),
        (0, "create", 0, ""),
    ]
    assert lake.sql("SELECT author, batches FROM lake.t.history WHERE version = 2") == [
        ("me", ["job #7"])
    ]
    at = lake.sql("SELECT timestamp FROM lake.default.t.history WHERE version = 2")[0]
    assert at.timestamp() == pytest.approx(table.head().timestamp_us / 1e6)
    assert lake.sql("SELECT sum(row_count), count(*) FROM lake.t.segments") == [(7, 2)]
    ids = [block.id for block in table.blocks()]
    assert sorted(lake.sql("SELECT block_id FROM lake.t.blocks")) == sorted(ids)
    assert lake.sql("SELECT name, type, version FROM lake.t.refs") == [
        ("main", "branch", None),
        ("now", "tag", 2),
    ]
    assert lake.sql("SELECT app_id, writer, batch_id, rows, version FROM lake.t.ledger") == [
        ("job", "", 7, 2, 2)
    ]
    lake.refuses("SELECT * FROM lake.t.nope", "TABLE_OR_VIEW_NOT_FOUND")
    lake.refuses("SELECT * FROM lake.nope.snapshots", "TABLE_OR_VIEW_NOT_FOUND")


# ---- hidden columns and damage


def test_hidden_columns_are_read_only_by_their_names(lake: Lake) -> None:
    events = lake.spark.sql("SELECT 1 AS k, 'a' AS v, 5L AS seq")
    write(events, str(lake.root / "t"), mode="upsert", keys=["k"], sequence_by="seq",
          except_column_list=["seq"])  # fmt: skip

    assert lake.spark.table("lake.t").columns == ["k", "v"]
    assert lake.sql("SELECT _fuse_seq FROM lake.t") == [5]
    assert lake.sql("SHOW COLUMNS IN lake.t") == ["k", "v"]


def test_a_missing_block_is_an_error_that_names_the_table(lake: Lake) -> None:
    table = table_of(lake, rows_of())
    (first, *_) = table.blocks()
    (lake.root / "t" / block_key(first.id, first.origin)).unlink()

    lake.refuses("SELECT * FROM lake.t", "CorruptObjectError", str(lake.root / "t"), "fsck")
    assert len(lake.sql("SELECT * FROM lake.t WHERE id >= 900")) == 100


def test_columns_that_differ_in_case_are_read_in_a_session_that_distinguishes_it(
    lake: Lake,
) -> None:
    rows = pa.table({"a": [1], "A": [2]})
    table_of(lake, pa.table({"a": [1]}))
    lake.spark.conf.set("spark.sql.caseSensitive", "true")
    write(lake.spark.createDataFrame(rows), str(lake.root / "t"), mode="append", merge_schema=True)

    assert sorted(lake.sql("SELECT a, A FROM lake.t"), key=repr) == [(1, 2), (1, None)]
