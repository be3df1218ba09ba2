"""What users of other catalogs do by habit: it works here, or is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake_tables import PATIENCE_S, create, rows
from tests.spark.lakes import FAILURES, IS_SPARK_4_2, Lake, attached

MERGE = (
    "MERGE INTO lake.t WITH ({}) USING (SELECT 1 k) s ON lake.t.k = s.k WHEN MATCHED THEN DELETE"
)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with attached(spark, tmp_path / "lake") as found:
        made = create(found.root)
        made.append(rows([1, 2, 3]))
        yield found


def keys(lake: Lake, version: str = "") -> list[int]:
    return sorted(lake.sql(f"SELECT k FROM lake.t {version}"))


of_4_3 = pytest.mark.skipif(IS_SPARK_4_2, reason="Spark 4.2 knows no options of UPDATE and DELETE")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lake.t WITH ({}) SET v = 7 WHERE k = 1",
        "UPDATE lake.t WITH ({}) SET v = 7",
        "DELETE FROM lake.t WITH ({}) WHERE k = 1",
        "DELETE FROM lake.t WITH ({}) WHERE k % 2 = 1",
        "DELETE FROM lake.t WITH ({}) WHERE k IN (SELECT 1)",
        MERGE,
    ],
)
@pytest.mark.parametrize("option", ["branch = 'dev'", "nosuch = 'x'"])
def test_a_statement_does_not_ignore_an_option(lake: Lake, statement: str, option: str) -> None:
    lake.sql("CALL lake.system.create_branch('t', 'dev')")
    lake.refuses(statement.format(option))
    assert lake.sql("SELECT * FROM lake.t ORDER BY k") == [(1, 0), (2, 0), (3, 0)]
    assert keys(lake, "VERSION AS OF 'dev@'") == [1, 2, 3]


@of_4_3
def test_the_error_of_an_option_says_how_a_branch_is_changed(lake: Lake) -> None:
    statement = "UPDATE lake.t WITH (branch = 'dev') SET v = 7"
    lake.refuses(statement, "InvalidInputError", "fuse.update", "branch=")


@of_4_3
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lake.t WITH (message = 'a fix', author = 'ada') SET v = 7 WHERE k = 1",
        "DELETE FROM lake.t WITH (message = 'a fix', author = 'ada') WHERE k = 1",
        "DELETE FROM lake.t WITH (message = 'a fix', author = 'ada') WHERE k % 2 = 1",
    ],
)
def test_a_statement_has_a_message_and_an_author(lake: Lake, statement: str) -> None:
    lake.sql(statement)
    last = lake.sql("SELECT message, author FROM lake.t.history ORDER BY version DESC LIMIT 1")
    assert last == [("a fix", "ada")]


@pytest.mark.parametrize(
    "statement",
    [
        "DESCRIBE TABLE {}",
        "SHOW COLUMNS IN {}",
        "SHOW CREATE TABLE {}",
        "SHOW TBLPROPERTIES {}",
        "REFRESH TABLE {}",
        "ALTER TABLE {} ADD COLUMN a INT",
        "COMMENT ON TABLE {} IS 'x'",
        "TRUNCATE TABLE {}",
        "ANALYZE TABLE {} COMPUTE STATISTICS",
    ],
)
@pytest.mark.parametrize("name", ["lake.nosuch", "lake.t.nosuch"])
def test_a_name_that_is_no_tables_is_not_found(lake: Lake, statement: str, name: str) -> None:
    lake.refuses(statement.format(name), "TABLE_OR_VIEW_NOT_FOUND")


def test_spark_says_whether_a_table_exists(lake: Lake) -> None:
    catalog = lake.spark.catalog
    assert catalog.tableExists("lake.t")
    assert not catalog.tableExists("lake.nosuch")


@pytest.mark.parametrize("namespace", ["lake", "lake.default"])
def test_spark_lists_the_tables(lake: Lake, namespace: str) -> None:
    listed = lake.spark.catalog.listTables(namespace)
    assert [(each.catalog, each.namespace, each.name) for each in listed] == [
        ("lake", ["default"], "t")
    ]
    assert [row[:2] for row in lake.sql(f"SHOW TABLES IN {namespace}")] == [("default", "t")]


def test_a_table_is_dropped_after_its_clone(lake: Lake) -> None:
    lake.sql("CALL lake.system.clone('t', 'trial')")
    lake.sql("CALL lake.system.clone('trial', 'second')")
    lake.refuses("DROP TABLE lake.t", "ConflictError", "drop them first")
    assert keys(lake) == [1, 2, 3]
    lake.sql("DROP TABLE lake.second")
    lake.sql("DROP TABLE lake.trial")
    lake.sql("DROP TABLE lake.t")
    assert lake.sql("SHOW TABLES IN lake") == []


@pytest.mark.parametrize("call", ["rewind('t', 1)", "revert('t', '2')", "publish('t', 'dev')"])
def test_a_cached_table_shows_what_a_procedure_did(lake: Lake, call: str) -> None:
    lake.sql("CALL lake.system.create_branch('t', 'dev')")
    lake.sql("INSERT INTO lake.t WITH (branch = 'dev') SELECT 55L, 0L")
    if not call.startswith("publish"):
        lake.sql("INSERT INTO lake.t SELECT 4L, 0L")
    lake.sql("CACHE TABLE lake.t")
    before = keys(lake)
    lake.sql(f"CALL lake.system.{call}")
    after = keys(lake)
    lake.sql("UNCACHE TABLE lake.t")
    assert after == keys(lake)
    assert after != before


def test_a_stream_by_name_has_no_option_feed(lake: Lake) -> None:
    read = lake.spark.readStream.option("feed", "changes").table("lake.t")
    write = read.writeStream.format("noop")
    query = write.option("checkpointLocation", str(lake.root / "checkpoint")).start()
    with pytest.raises(FAILURES, match=r"readStream\.changes"):
        query.awaitTermination(PATIENCE_S)


def test_names_that_differ_in_case_are_columns_of_a_table_that_hides_rows(lake: Lake) -> None:
    lake.spark.conf.set("spark.sql.caseSensitive", "true")
    lake.sql("CREATE TABLE lake.twins (a INT, A INT)")
    lake.sql("INSERT INTO lake.twins VALUES (1, 10), (2, 20), (3, 10)")
    lake.sql("DELETE FROM lake.twins WHERE a = 1")
    lake.sql("DELETE FROM lake.twins WHERE A % 20 = 10 AND a = 3")
    assert lake.sql("SELECT a, A FROM lake.twins") == [(2, 20)]
    lake.sql("UPDATE lake.twins SET A = 21 WHERE a = 2")
    assert lake.sql("SELECT A, a FROM lake.twins WHERE A = 21") == [(21, 2)]
