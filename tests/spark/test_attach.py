"""Attach a folder of tables as a catalog, and detach it."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.errors import AlreadyExistsError, InvalidInputError, UnsupportedEnvironmentError
from fuse_stream.spark.attach import attach
from fuse_stream.spark.jvm import doors, self_test
from fuse_stream.table.handle import Table
from tests.spark.lakes import attached

ROWS = pa.table({"k": [1, 2, 3]})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Table.create(tmp_path / "lake" / "t", ROWS.schema).append(ROWS)
    return tmp_path / "lake"


def test_a_table_below_the_root_is_read_by_its_name(spark: SparkSession, root: Path) -> None:
    with attached(spark, root) as lake:
        assert lake.sql("SELECT sum(k) FROM lake.t") == [6]
        assert lake.sql("SELECT sum(k) FROM lake.default.t") == [6]


def test_detach_removes_the_catalog_and_may_be_repeated(spark: SparkSession, root: Path) -> None:
    with attached(spark, root) as lake:
        lake.catalog.detach()
        lake.catalog.detach()

        lake.refuses("SELECT * FROM lake.t", "TABLE_OR_VIEW_NOT_FOUND")
    assert Table.open(root / "t").to_arrow() == ROWS


def test_the_doors_say_what_works_and_why_the_rest_does_not(
    spark: SparkSession, root: Path
) -> None:
    with attached(spark, root) as lake:
        shut = {door: reason for door, reason in lake.catalog.doors.items() if reason}

    assert set(lake.catalog.doors) == {"read", "write", "rows", "changes", "stream", "call"}
    assert lake.catalog.doors["read"] is None
    assert lake.catalog.doors["write"] is None
    assert all("fuse" in reason for reason in shut.values())


@pytest.mark.parametrize("name", ["", "a b", "1a", "spark_catalog", "SYSTEM", "a.b", 3])
def test_a_name_that_sql_cannot_use_is_refused(
    spark: SparkSession, tmp_path: Path, name: object
) -> None:
    with pytest.raises(InvalidInputError, match="letters, digits and underscores"):
        attach(spark, name, tmp_path)  # type: ignore[arg-type]


def test_a_name_that_is_taken_is_refused(spark: SparkSession, root: Path) -> None:
    with attached(spark, root) as lake:
        with pytest.raises(AlreadyExistsError, match="another name"):
            attach(lake.spark, "lake", root.parent)
        with pytest.raises(AlreadyExistsError, match="another name"):
            attach(lake.spark, "lake", root, namespace="main")
        lake.spark.conf.set("spark.sql.catalog.other", "not.loaded.Yet")
        with pytest.raises(AlreadyExistsError, match="another name"):
            attach(lake.spark, "other", root)


def test_attaching_again_is_safe(spark: SparkSession, root: Path) -> None:
    with attached(spark, root) as lake:
        again = attach(lake.spark, "lake", root)

        assert again == lake.catalog
        assert lake.sql("SELECT sum(k) FROM lake.t") == [6]
        again.detach()
        lake.refuses("SELECT * FROM lake.t", "TABLE_OR_VIEW_NOT_FOUND")


def test_a_table_is_no_root(spark: SparkSession, root: Path) -> None:
    with pytest.raises(InvalidInputError, match="attach the folder above it") as refused:
        attach(spark.newSession(), "lake", root / "t")

    assert refused.value.context["above"] == str(root)


def test_a_root_that_is_not_there_comes_with_its_first_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    with attached(spark, tmp_path / "new") as lake:
        assert lake.sql("SHOW TABLES IN lake") == []
        lake.sql("CREATE TABLE lake.t (k INT)")

        assert [name for _, name, _ in lake.sql("SHOW TABLES IN lake")] == ["t"]
    assert (tmp_path / "new" / "t" / "_fuse.json").exists()


def test_another_session_attaches_the_catalog_itself(spark: SparkSession, root: Path) -> None:
    with attached(spark, root) as lake:
        other = lake.spark.newSession()
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            other.sql("SELECT * FROM lake.t").collect()
        attach(other, "lake", root)

        assert other.sql("SELECT sum(k) FROM lake.t").collect()[0][0] == 6


def test_the_session_of_a_micro_batch_attaches_the_catalog_itself(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    seen: list[object] = []

    def write(batch: DataFrame, _number: int) -> None:
        session = batch.sparkSession
        try:
            session.sql("SELECT * FROM lake.t").collect()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            seen.append("TABLE_OR_VIEW_NOT_FOUND" in str(error))
        catalog = attach(session, "lake", root)
        batch.selectExpr("k + 10 AS k").createOrReplaceTempView("arrived")
        session.sql("INSERT INTO lake.t SELECT * FROM arrived")
        seen.append(session.sql("SELECT sum(k) FROM lake.t").collect()[0][0])
        catalog.detach()

    with attached(spark, root) as lake:
        source = tmp_path / "source"
        lake.spark.sql("SELECT 1L AS k").write.parquet(str(source))
        stream = lake.spark.readStream.schema("k BIGINT").parquet(str(source))
        query = (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        assert seen == [True, 17]
        assert lake.sql("SELECT sum(k) FROM lake.t") == [17]


def test_an_unknown_spark_has_no_catalog_and_says_what_to_use(
    spark: SparkSession,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(self_test, "TESTED", ("9.9.",))
    monkeypatch.setattr(self_test, "_found", {})
    session = spark.newSession()

    with pytest.raises(UnsupportedEnvironmentError, match=r"fuse\.read or format") as refused:
        attach(session, "lake", root)

    assert "not one of those tested" in str(refused.value.context["reason"])
    assert len(caplog.records) == 1


def test_a_missing_interface_shuts_every_door_with_one_line_in_the_log(
    spark: SparkSession,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing(_spark: SparkSession) -> None:
        raise ValueError("no class org.example.Gone")

    monkeypatch.setattr(doors, "CHECKS", {**doors.CHECKS, "a scan of Parquet files": missing})
    monkeypatch.setattr(doors, "_found", {})
    session = spark.newSession()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(UnsupportedEnvironmentError, match=r"no class org\.example\.Gone"):
                attach(session, "lake", root)

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert set(doors.find_doors(session).values()) == {
        "a scan of Parquet files is not as in the Spark that was tested: no class org.example.Gone"
    }
