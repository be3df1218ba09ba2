"""A table's metadata in Spark: functions in SQL, the option `metadata`, temporary views."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.spark.format import register
from fuse_stream.spark.metadata_functions import FUNCTIONS
from fuse_stream.spark.view import view
from fuse_stream.table.handle import Table
from fuse_stream.table.metadata_tables import METADATA
from tests.cli.leases import put_lease

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SECRET = "hunter2hunter2"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Versions: 0 created, 1 and 2 batches; a tag, a branch and a consumer."""
    table = Table.create(tmp_path / "t", SCHEMA, cluster_by=["id"])
    table.append(pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA), batch_id=0)
    table.append(pa.table({"id": [2], "name": ["c"]}, schema=SCHEMA), app_id="x", batch_id=0)
    table.create_tag("good", 1)
    table.create_branch("fix", 1)
    put_lease(table, "nightly", 1)
    return table


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    register(made)
    return made


def path_of(table: Table) -> str:
    return table.location.path


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_shows_the_rows_of_its_metadata_table(
    session: SparkSession, table: Table, function: str
) -> None:
    rows = session.sql(f"SELECT * FROM {function}('{path_of(table)}')")

    assert rows.toArrow().to_pylist() == table.metadata_table(FUNCTIONS[function]).to_pylist()


@pytest.mark.parametrize("name", METADATA)
def test_the_format_reads_a_metadata_table(session: SparkSession, table: Table, name: str) -> None:
    rows = session.read.format("fuse").option("metadata", name).load(path_of(table))

    assert rows.toArrow().to_pylist() == table.metadata_table(name).to_pylist()


def test_arguments_have_names(session: SparkSession, table: Table) -> None:
    blocks = f"SELECT count(*) FROM fuse_block(path => '{path_of(table)}'"

    assert session.sql(f"{blocks})").first() == (2,)
    assert session.sql(f"{blocks}, version => 1)").first() == (1,)
    assert session.sql(f"{blocks}, version => 'good')").first() == (1,)
    assert session.sql(f"{blocks}, branch => 'fix')").first() == (1,)


def test_a_function_takes_the_paths_of_a_table_of_tables(
    session: SparkSession, table: Table, tmp_path: Path
) -> None:
    Table.create(tmp_path / "u", SCHEMA)
    session.createDataFrame(
        [(path_of(table),), (str(tmp_path / "u"),)], "path string"
    ).createOrReplaceTempView("places")

    found = session.sql(
        "SELECT p.path, max(s.version) AS head FROM places p, LATERAL fuse_snapshot(p.path) s "
        "GROUP BY p.path ORDER BY head"
    ).collect()

    assert [tuple(row) for row in found] == [(str(tmp_path / "u"), 0), (path_of(table), 2)]


def test_a_function_names_what_is_wrong(session: SparkSession, table: Table) -> None:
    with pytest.raises(PySparkException, match="leave the version out"):
        session.sql(f"SELECT * FROM fuse_tag('{path_of(table)}', version => 1)").collect()
    with pytest.raises(PySparkException, match="are not null"):
        session.sql("SELECT * FROM fuse_tag(NULL)").collect()


def test_the_storage_options_of_functions_are_not_shown(spark: SparkSession) -> None:
    made = spark.newSession()
    register(made, {"secret": SECRET})

    with pytest.raises(PySparkException) as failed:
        made.sql("SELECT * FROM fuse_tag('s3://no-such-bucket-at-all/t')").collect()

    assert SECRET not in str(failed.value)


def test_the_format_reads_the_metadata_of_a_version(session: SparkSession, table: Table) -> None:
    rows = session.read.format("fuse").option("metadata", "blocks").option("versionAsOf", "good")

    assert rows.load(path_of(table)).count() == 1


def test_a_loaded_metadata_table_stays_with_its_version(
    session: SparkSession, table: Table
) -> None:
    rows = session.read.format("fuse").option("metadata", "blocks").load(path_of(table))
    table.append(pa.table({"id": [9], "name": ["z"]}, schema=SCHEMA))

    assert rows.count() == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"metadata": "nope"}, "no such metadata table"),
        ({"metadata": "tags", "versionAsOf": "1"}, "leave the version out"),
        ({"metadata": "tags", "columns": "name"}, "versionAsOf and branch alone"),
        ({"metadata": "blocks", "where": "id = 1"}, "versionAsOf and branch alone"),
    ],
)
def test_options_that_do_not_fit_metadata_are_refused(
    session: SparkSession, table: Table, options: dict[str, str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text):
        session.read.format("fuse").options(**options).load(path_of(table))


def test_a_stream_has_no_metadata(session: SparkSession, table: Table) -> None:
    with pytest.raises(PySparkException, match="read as a batch"):
        session.readStream.format("fuse").option("metadata", "tags").load(
            path_of(table)
        ).writeStream.format("noop").start().processAllAvailable()


def test_a_view_stays_with_its_snapshot_until_it_is_made_again(
    session: SparkSession, table: Table
) -> None:
    view(session, "flights", path_of(table))
    view(session, "before", path_of(table), version="good")
    view(session, "fixed", path_of(table), branch="fix")
    table.append(pa.table({"id": [9], "name": ["z"]}, schema=SCHEMA))

    counts = [session.table(name).count() for name in ("flights", "before", "fixed")]
    assert counts == [3, 2, 2]
    view(session, "flights", path_of(table))
    assert session.sql("SELECT count(*) FROM flights WHERE id > 2").first() == (1,)


def test_a_view_is_refused_with_the_reason(session: SparkSession, table: Table) -> None:
    with pytest.raises(InvalidInputError, match="refuses the name of the view"):
        view(session, "not a name", path_of(table))
    with pytest.raises(NotFoundError):
        view(session, "flights", path_of(table), version=99)
