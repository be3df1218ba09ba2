"""INSERT, DELETE and the writers of DataFrames in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from tests.spark.lakes import IS_SPARK_4_2, Lake, attached

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "name": ["a", "b%", None, "d_", "e"],
        "d": pa.array([0, 1, 2, 3, None], pa.date32()),
        "x": [1.5, None, float("nan"), -0.0, 2.0],
        "s": pa.array([{"y": n} for n in range(5)], pa.struct([("y", pa.int32())])),
    }
)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with attached(spark, tmp_path / "lake") as lake:
        yield lake


def open_table(lake: Lake) -> Table:
    return Table.open(lake.root / "t")


# ---- insert


def test_insert_adds_rows_by_position_by_name_and_from_a_query(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT, name STRING)")
    lake.sql("INSERT INTO lake.t VALUES (1, 'a')")
    lake.sql("INSERT INTO lake.t (name, id) VALUES ('b', 2)")
    lake.sql("INSERT INTO lake.t BY NAME SELECT 'c' AS name, 3 AS id")
    lake.sql("INSERT INTO lake.t SELECT id + 10, name FROM lake.t")
    lake.sql("INSERT INTO lake.t (id) VALUES (99)")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (11, "a"),
        (12, "b"),
        (13, "c"),
        (99, None),
    ]
    assert open_table(lake).head().version == 5


def test_insert_overwrite_replaces_all_rows_as_one_commit(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    lake.sql("DELETE FROM lake.t WHERE id = 0")
    overwrite = "INSERT OVERWRITE lake.t SELECT id * 10 FROM lake.t"
    if IS_SPARK_4_2:
        lake.refuses(overwrite, "EXPECT_TABLE_NOT_VIEW")
        overwrite = "INSERT OVERWRITE lake.t VALUES (10), (20), (30), (40)"
    lake.sql(overwrite)

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [10, 20, 30, 40]
    assert str(open_table(lake).head().operation) == "overwrite"
    assert len(lake.sql("SELECT * FROM lake.t VERSION AS OF 1")) == 5


def test_dataframes_are_written_by_the_name_of_a_table(lake: Lake) -> None:
    rows = lake.spark.range(3)
    rows.writeTo("lake.t").using("fuse").tableProperty("own", "1").create()
    rows.writeTo("lake.t").option("message", "again").option("author", "me").append()
    rows.write.mode("append").saveAsTable("lake.t")
    rows.write.insertInto("lake.t")

    assert lake.sql("SELECT count(*), sum(id) FROM lake.t") == [(12, 12)]
    assert open_table(lake).properties == {"own": "1"}
    assert [(one.message, one.author) for one in open_table(lake).log()][2] == ("again", "me")
    rows.writeTo("lake.t").overwrite(lit(True))  # noqa: FBT003 - a Column
    assert lake.sql("SELECT count(*) FROM lake.t") == [3]
    rows.write.mode("overwrite").insertInto("lake.t")
    rows.write.mode("overwrite").saveAsTable("lake.t")
    assert lake.sql("SELECT count(*) FROM lake.t") == [3]
    with pytest.raises(Exception, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        rows.write.saveAsTable("lake.t")


def test_a_part_of_the_rows_is_not_overwritten(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(5)")

    lake.refuses("INSERT INTO lake.t REPLACE WHERE id = 1 SELECT 1L, 1L", "DELETE FROM")
    lake.refuses("INSERT OVERWRITE lake.t PARTITION (id = 1) SELECT 1L", "id")
    with pytest.raises(Exception, match="INSERT OVERWRITE replaces the whole table"):
        lake.spark.range(1).selectExpr("id", "id v").writeTo("lake.t").overwrite(col("id") == 1)
    assert open_table(lake).head().version == 1


def test_a_failed_task_leaves_the_head_alone(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")

    lake.refuses(
        "INSERT INTO lake.t SELECT IF(id = 40000, raise_error('boom'), id) FROM range(50000)",
        "boom",
    )
    lake.refuses(
        "INSERT OVERWRITE lake.t SELECT IF(id = 7, raise_error('boom'), id) FROM range(9)", "boom"
    )
    assert open_table(lake).head().version == 1
    assert len(lake.sql("SELECT * FROM lake.t")) == 5


def test_a_null_is_not_inserted_into_a_column_that_is_not_null(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT NOT NULL)")

    lake.refuses("INSERT INTO lake.t VALUES (NULL)", "NULL")
    lake.refuses("INSERT INTO lake.t SELECT IF(id > 1, NULL, id) FROM range(4)", "NULL")
    assert open_table(lake).head().version == 0


@pytest.mark.parametrize("hides", [False, True])
def test_rows_of_columns_that_are_not_null_are_inserted_from_a_query(
    lake: Lake, *, hides: bool
) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT NOT NULL, s STRUCT<x: INT NOT NULL> NOT NULL)")
    lake.sql("INSERT INTO lake.t SELECT id, named_struct('x', 1) FROM range(3)")
    insert = "INSERT INTO lake.t SELECT id + 10, s FROM lake.t WHERE id > 0"
    if hides:
        lake.sql("DELETE FROM lake.t WHERE id = 0")
    if hides and IS_SPARK_4_2:
        lake.refuses(insert, "EXPECT_TABLE_NOT_VIEW")
        return
    lake.sql(insert)
    lake.sql("INSERT OVERWRITE lake.t SELECT max(id), s FROM lake.t VERSION AS OF 1 GROUP BY s")

    assert lake.sql("SELECT id, s.x FROM lake.t") == [(2, 1)]
    assert lake.sql("SELECT count(*) FROM lake.t VERSION AS OF 2") == [2 if hides else 5]


# ---- options of a write


def test_a_numbered_insert_is_safe_to_repeat(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT)")
    insert = "INSERT INTO lake.t WITH (appId = 'loader', batchId = 0, message = 'first')"
    lake.sql(f"{insert} VALUES (1), (2)")
    lake.sql(f"{insert} VALUES (2), (1)")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [1, 2]
    assert lake.sql("SELECT batches, message FROM lake.t.history WHERE version > 0") == [
        (["loader #0"], "first")
    ]
    lake.refuses(f"{insert} VALUES (3)", "StreamIdentityError", "next batch_id")


def test_an_insert_writes_to_the_branch_that_it_names(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(2)")
    lake.sql("CALL lake.system.create_branch('t', 'fix')")
    lake.sql("INSERT INTO lake.t WITH (branch = 'fix') VALUES (7)")

    assert lake.sql("SELECT count(*) FROM lake.t") == [2]
    assert lake.sql("SELECT count(*) FROM lake.t VERSION AS OF 'fix@'") == [3]
    lake.sql("INSERT OVERWRITE lake.t WITH (branch = 'fix') VALUES (8)")
    assert lake.sql("SELECT * FROM lake.t VERSION AS OF 'fix@'") == [8]
    lake.refuses("INSERT INTO lake.t WITH (branch = 'nope') VALUES (7)", "NotFoundError", "nope")


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ("mesage = 'x'", "did you mean the nearest one"),
        ("txnAppId = 'x'", "use appId"),
        ("mergeSchema = true", "no meaning where a table is written by its name"),
        ("path = '/elsewhere'", "no meaning where a table is written by its name"),
        ("appId = 'x'", "app_id and batch_id go together"),
        ("batchId = 'one'", "batchId must be"),
    ],
)
def test_no_option_of_a_write_is_ignored(lake: Lake, options: str, remedy: str) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT)")

    lake.refuses(f"INSERT INTO lake.t WITH ({options}) VALUES (1)", "InvalidInputError", remedy)
    assert open_table(lake).head().version == 0


def test_rows_that_do_not_fit_are_refused_by_spark(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id INT)")

    lake.refuses("INSERT INTO lake.t VALUES (1, 2)", "INSERT_COLUMN_ARITY_MISMATCH")
    lake.refuses("INSERT INTO lake.t VALUES ('x')", "INCOMPATIBLE_DATA_FOR_TABLE")
    lake.refuses("INSERT INTO lake.nope VALUES (1)", "TABLE_OR_VIEW_NOT_FOUND")


def test_a_table_with_a_key_and_a_table_of_events_refuse_an_append(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT 1L AS id, 'a' AS v")
    open_table(lake).set_key(["id"])
    message = lake.refuses("INSERT INTO lake.t VALUES (1, 'b')", "SchemaMismatchError", "upsert")
    assert message.startswith("SchemaMismatchError: the rows of this table are unique by a key")

    write(
        lake.spark.sql("SELECT 1 AS k, 5L AS seq"),
        str(lake.root / "events"),
        mode="upsert",
        keys=["k"],
        sequence_by="seq",
    )
    lake.refuses("INSERT INTO lake.events VALUES (2, 6)", "SchemaMismatchError", "events")
    lake.refuses("INSERT OVERWRITE lake.events VALUES (2, 6)", "SchemaMismatchError", "events")


# ---- delete


@pytest.mark.parametrize(
    "where",
    [
        "id = 2",
        "2 < id",
        "id <> 3 AND x IS NOT NULL",
        "id IN (1, 5, NULL)",
        "NOT id IN (1, 5)",
        "name IS NULL",
        "name = 'a' OR d >= DATE '1970-01-03'",
        "name <=> NULL",
        "name LIKE 'b%'",
        "startswith(name, 'b%')",
        "endswith(name, '_')",
        "contains(name, 'e')",
        "x > 1",
        "x = 0",
        "isnan(x) OR x = DOUBLE('NaN')",
        "s.y < 2",
        "id BETWEEN 2 AND 3",
        "true",
        "false",
    ],
)
def test_delete_removes_the_rows_that_spark_finds(lake: Lake, where: str) -> None:
    table = Table.create(lake.root / "t", ROWS.schema)
    table.append(ROWS)
    every = set(lake.sql("SELECT id FROM lake.t"))
    gone = set(lake.sql(f"SELECT id FROM lake.t WHERE {where}"))
    lake.sql(f"DELETE FROM lake.t WHERE {where}")

    assert set(lake.sql("SELECT id FROM lake.t")) == every - gone
    assert len(table.blocks()) == 1  # hidden, not rewritten


def test_delete_and_truncate_without_a_condition_remove_all_rows(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    lake.sql("DELETE FROM lake.t WHERE id = 1")
    lake.sql("TRUNCATE TABLE lake.t")
    assert lake.sql("SELECT * FROM lake.t") == []
    lake.sql("INSERT INTO lake.t VALUES (7)")
    lake.sql("DELETE FROM lake.t")

    assert lake.sql("SELECT * FROM lake.t") == []
    assert len(lake.sql("SELECT * FROM lake.t VERSION AS OF 2")) == 4
