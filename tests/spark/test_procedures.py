"""`CALL lake.system.…`: each procedure does what the function of its name does."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Row, SparkSession

from fuse_stream.spark.jvm.procedure import BoundProcedure, UnboundProcedure, columns_of
from fuse_stream.spark.jvm.procedures import PROCEDURES
from fuse_stream.table.handle import Table
from tests.spark.lake_tables import create, missing_methods, rows
from tests.spark.lakes import attached


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    with attached(spark, tmp_path) as found:
        yield found.spark


@pytest.fixture
def table(tmp_path: Path, lake: SparkSession) -> Table:
    made = create(tmp_path)
    for key in range(3):
        made.append(rows([key]))
    return made


def call(lake: SparkSession, text: str) -> list[Row]:
    return lake.sql(f"CALL lake.system.{text}").collect()


def keys(table: Table) -> list[int]:
    return sorted(table.to_arrow()["k"].to_pylist())


def test_rewind_sets_a_table_back(lake: SparkSession, table: Table) -> None:
    [planned] = call(lake, "rewind('t', 1, dry_run => true)")
    [done] = call(lake, "rewind(version => 1, table => 'lake.default.t', message => 'back')")

    assert planned.asDict() | {"forks": [], "retired": []} == planned.asDict()
    assert (planned.outcome, planned.version, planned.target, planned.before) == (
        "planned",
        None,
        1,
        3,
    )
    assert (done.outcome, done.version, done.target, done.deleted_rows) == ("done", 4, 1, 2)
    assert keys(table) == [0]
    assert table.head().message == "back"


def test_rewind_takes_a_time(lake: SparkSession, table: Table) -> None:
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    time = start + dt.timedelta(microseconds=table.snapshot(2).timestamp_us)

    [done] = call(lake, f"rewind('t', timestamp => TIMESTAMP '{time.isoformat(' ')}')")

    assert done.target == 2


@pytest.mark.long
def test_rewind_forks_the_checkpoints_of_queries(
    lake: SparkSession, table: Table, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    lake.sql("CREATE TABLE lake.sink (k BIGINT, v BIGINT)")

    def copy(checkpoint: Path) -> None:
        writer = lake.readStream.table("lake.t").writeStream
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.toTable("lake.sink").awaitTermination(240)

    copy(old)
    table.append(rows([7]))
    copy(old)
    with pytest.raises(IllegalArgumentException, match=r"^StreamIdentityError: "):
        call(lake, "rewind('sink', 1)")
    [done] = call(lake, f"rewind('sink', 1, checkpoints => map('{old}', '{new}'))")
    copy(new)

    assert done.forks == [f"{old} -> {new}"]
    assert keys(Table.open(tmp_path / "sink")) == [0, 1, 2, 7]


def test_revert_undoes_one_commit(lake: SparkSession, table: Table) -> None:
    [done] = call(lake, "revert('t', '2')")

    assert (done.version, done.row_count) == (4, 2)
    assert keys(table) == [0, 2]


def test_bisect_and_blame_find_the_commits_of_rows(lake: SparkSession, table: Table) -> None:
    table.append(rows([2, 2]), app_id="job", batch_id=7)

    [first] = call(lake, "bisect('t', 'k = 2')")
    blamed = call(lake, "blame('t', 'k > 0')")

    assert (first.version, first.operation, first.row_count, first.batches) == (3, "append", 3, [])
    assert [(each.row_count, each.version, each.batch) for each in blamed] == [
        (2, 4, "job #7"),
        (1, 3, None),
        (1, 2, None),
    ]
    assert call(lake, "bisect('t', 'k = 9')") == []
    assert call(lake, "bisect('t', 'k = 2', first => 4)")[0].batches == ["job #7"]


def test_a_time_without_a_zone_is_that_of_the_session(lake: SparkSession) -> None:
    lake.sql("CREATE TABLE lake.times AS SELECT TIMESTAMP '2026-11-21 09:00:00+00:00' AS at")
    lake.conf.set("spark.sql.session.timeZone", "Europe/Berlin")

    assert len(call(lake, "blame('times', \"at = TIMESTAMP '2026-11-21 10:00:00'\")")) == 1


def test_set_key_makes_rows_unique(lake: SparkSession, table: Table) -> None:
    assert call(lake, "set_key('t', array('k'))") == [Row(version=4, columns=["k"])]
    with pytest.raises(IllegalArgumentException, match="SchemaMismatchError"):
        lake.sql("INSERT INTO lake.t VALUES (1, 1)")
    call(lake, "set_key('t', array())")

    lake.sql("INSERT INTO lake.t VALUES (1, 1)")
    assert keys(table) == [0, 1, 1, 2]


def test_tags_and_branches_are_created_and_deleted(lake: SparkSession, table: Table) -> None:
    [tag] = call(lake, "create_tag('t', 'first', 1, retain => '90d')")
    [branch] = call(lake, "create_branch('t', 'fix', 'first')")

    assert (tag.name, tag.version, tag.snapshot_id) == ("first", 1, table.snapshot(1).snapshot_id)
    assert tag.expires - tag.created == dt.timedelta(days=90)
    assert (branch.name, branch.version) == ("fix", 1)
    assert [each.name for each in table.branches()] == ["main", "fix"]
    assert call(lake, "delete_tag('t', 'first')") == [Row(name="first")]
    assert call(lake, "delete_branch('t', 'fix')") == [Row(name="fix")]
    assert list(table.tags()) == []
    assert [each.name for each in table.branches()] == ["main"]


def test_publish_takes_the_content_of_a_branch(
    lake: SparkSession, table: Table, tmp_path: Path
) -> None:
    call(lake, "create_branch('t', 'fix', 1)")
    Table.open(tmp_path / "t", branch="fix").append(rows([9]))

    with pytest.raises(IllegalArgumentException, match=r"^ConflictError: "):
        call(lake, "publish('t', 'fix')")
    [done] = call(lake, "publish('t', 'fix', expected_head => 3)")

    assert (done.version, done.source, done.row_count, done.lost) == (4, 2, 2, ["3", "2"])
    assert keys(table) == [0, 9]


def test_a_procedure_works_on_a_branch(lake: SparkSession, table: Table, tmp_path: Path) -> None:
    call(lake, "create_branch('t', 'fix')")

    call(lake, "revert('t', 3, branch => 'fix')")

    assert keys(table) == [0, 1, 2]
    assert keys(Table.open(tmp_path / "t", branch="fix")) == [0, 1]


def test_compact_and_optimize_rewrite_blocks(lake: SparkSession, table: Table) -> None:
    [done] = call(lake, "compact('t')")
    table.append(rows([5]))
    table.cluster_by(["k"])
    steps = call(lake, "optimize(`table` => 't')")
    [again] = call(lake, "recluster('t', 10)")

    assert (done.version, done.blocks_before, done.blocks_after, done.row_count) == (4, 3, 1, 3)
    assert [step.step for step in steps] == ["compaction", "reclustering"]
    assert again.depth_after == 1.0
    assert keys(table) == [0, 1, 2, 5]


def test_expire_and_vacuum_report_what_goes(lake: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "u", rows([1]).schema, properties={"fuse.grace": "0s"})
    for _ in range(3):
        table.append(rows([1]))
    table.compact()

    [expired] = call(lake, "expire('u', keep_last => 1)")
    [vacuumed] = call(lake, "vacuum('u', dry_run => true)")

    assert (expired.floor_before, expired.floor, expired.expired_count) == (0, 4, 4)
    assert vacuumed.object_count == 0
    assert vacuumed.waiting_count > 0
    assert isinstance(vacuumed.due, dt.datetime)


def test_a_clone_is_read_by_its_name(lake: SparkSession, table: Table, tmp_path: Path) -> None:
    table.delete("k = 1")

    [done] = call(lake, "clone('t', 'copy')")
    lake.sql("INSERT INTO lake.copy VALUES (7, 0)")

    assert (done.source, done.version, done.row_count) == (4, 1, 2)
    assert done.origins == [str(tmp_path / "t")]
    assert sorted(row.k for row in lake.table("lake.copy").collect()) == [0, 2, 7]
    assert keys(table) == [0, 2]


def test_fsck_has_a_row_for_each_fault(lake: SparkSession, table: Table, tmp_path: Path) -> None:
    assert call(lake, "fsck('t', deep => true)") == []
    block = next(path for path in (tmp_path / "t").rglob("*.parquet"))
    block.unlink()

    [fault] = call(lake, "fsck('t')")

    assert (fault.kind, fault.row_count) == ("missing", 1)
    assert fault.key in str(block)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("revert('t', 9)", "NotFoundError: "),
        ("revert('nope', 1)", "NotFoundError: there is no fuse_stream table here"),
        ("revert(NULL, 1)", "InvalidInputError: this argument must not be null [argument='table']"),
        ("rewind('t')", "InvalidInputError: "),
        ("rewind('t', 1, retire => array('a', NULL))", "InvalidInputError: a text in this array"),
        ("recluster('t')", "InvalidInputError: the table has no cluster key"),
    ],
)
def test_an_error_begins_with_its_class_and_message(
    lake: SparkSession, table: Table, text: str, message: str
) -> None:
    with pytest.raises(IllegalArgumentException) as caught:
        call(lake, text)

    assert str(caught.value).startswith(message)
    assert table.head().version == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("revert('t')", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("revert('t', 1, tabel => 't')", "UNRECOGNIZED_PARAMETER_NAME"),
        ("revert('t', array(1))", "DATATYPE_MISMATCH"),
        ("revrt('t', 1)", "FAILED_TO_LOAD_ROUTINE"),
    ],
)
def test_spark_checks_names_and_types(
    lake: SparkSession, table: Table, text: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        call(lake, text)


def test_sql_lists_and_describes_the_procedures(lake: SparkSession) -> None:
    shown = lake.sql("SHOW PROCEDURES IN lake.system").collect()
    described = lake.sql("DESCRIBE PROCEDURE lake.system.revert").collect()

    assert [row.procedure_name for row in shown] == list(PROCEDURES)
    assert "Undo one commit" in str(described)


def test_each_result_has_the_columns_that_its_procedure_names() -> None:
    for name, procedure in PROCEDURES.items():
        assert columns_of(procedure).names, name
        defaults = [each.default is None for each in procedure.parameters]
        assert defaults == sorted(defaults, reverse=True), name  # Spark wants them last


def test_the_page_lists_each_procedure_with_its_parameters() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    chapter = page.partition("\n## Procedures\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", chapter, re.MULTILINE)

    assert listed == [
        (name, ", ".join(parameter.name for parameter in procedure.parameters))
        for name, procedure in PROCEDURES.items()
    ]


@pytest.mark.parametrize("proxy", [BoundProcedure, UnboundProcedure])
def test_a_proxy_has_all_methods_of_its_interfaces(spark: SparkSession, proxy: object) -> None:
    assert missing_methods(spark, proxy) == set()
