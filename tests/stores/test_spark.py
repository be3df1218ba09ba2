"""Spark with tables on real servers, for which it has no file system: s3fs and adlfs read alone."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.format.layout import block_key
from fuse_stream.spark.jvm import file_systems
from tests.kit.servers import Place
from tests.spark import streams
from tests.spark.conftest import spark as spark_of_tests

pytestmark = pytest.mark.long

spark = spark_of_tests
"""The session of `tests/spark`, which has no jar for S3 or Azure."""

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
_names = (f"lake{number}" for number in itertools.count())

Rows = list[tuple[object, ...]]

SECRETS = {"key", "secret", "connection_string"}
PICKLED = "gASV"
"""How the base64 of a pickle begins, such as that of work for tasks, which has the options."""


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table([[k for k, _ in pairs], [v for _, v in pairs]], schema=SCHEMA)


def shown(found: DataFrame) -> Rows:
    return sorted(tuple(row) for row in found.collect())


@pytest.fixture
def options(place: Place) -> dict[str, object]:
    return dict(place.options)


@pytest.fixture
def table(url: str, options: dict[str, object]) -> fuse.Table:
    """Two blocks; a row of the first is hidden."""
    made = fuse.Table.create(f"{url}/t", SCHEMA, storage_options=options)
    made.append(rows((1, "a"), (2, "b"), (3, "c")))
    made.append(rows((10, "x"), (11, "y")))
    made.delete("k = 2")
    return made


@pytest.fixture
def lake(
    spark: SparkSession, table: fuse.Table, url: str, options: dict[str, object]
) -> Iterator[str]:
    """A catalog with the table `t`."""
    catalog = fuse.attach(spark, next(_names), url, storage_options=options)
    yield catalog.name
    catalog.detach()


def run(stream: DataFrame, sink: fuse.FuseSink, checkpoint: Path) -> None:
    """Run a query until it has written all that is there."""
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_pipeline_of_a_sink_a_source_and_a_follower(
    spark: SparkSession, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    bronze, silver, gold = (f"{url}/{name}" for name in ("bronze", "silver", "gold"))
    fuse.write(spark.range(20).withColumnRenamed("id", "k"), bronze, storage_options=options)

    def step(number: int) -> None:
        source = spark.readStream.format("fuse").options(feed="append", maxRowsPerTrigger=12)
        source = source.options(storageOptions=json.dumps(options))
        silver_sink = fuse.fuse_sink(silver, app_id="silver", storage_options=options)
        run(source.load(bronze).where("k % 2 = 0"), silver_sink, tmp_path / "silver")
        changes = fuse.read_stream(spark, silver, storage_options=options)
        gold_sink = fuse.fuse_sink(gold, mode="replicate", app_id="gold", storage_options=options)
        run(changes, gold_sink, tmp_path / "gold")
        expected = [(k,) for k in range(0, 20 + 10 * number, 2)]
        assert shown(fuse.read(spark, silver, storage_options=options)) == expected
        assert shown(fuse.read(spark, gold, storage_options=options)) == expected

    step(0)
    more = spark.range(20, 30).withColumnRenamed("id", "k")
    fuse.write(more, bronze, storage_options=options)
    step(1)
    fuse.Table.open(silver, storage_options=options).delete("k < 10")
    run(
        fuse.read_stream(spark, silver, storage_options=options),
        fuse.fuse_sink(gold, mode="replicate", app_id="gold", storage_options=options),
        tmp_path / "gold",
    )
    assert shown(fuse.read(spark, gold, storage_options=options)) == [
        (k,) for k in range(10, 30, 2)
    ]


def test_a_rewind_forks_a_checkpoint_on_the_store(
    spark: SparkSession, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    """Spark writes the checkpoint to a disk here, and it is copied: Spark has no file system."""
    streams.deliver(tmp_path, range(4))
    fs, root = fsspec.url_to_fs(url, **options, skip_instance_cache=True)
    sink = fuse.fuse_sink(f"{url}/t", app_id="app", storage_options=options)
    source = streams.read_stream(spark, tmp_path).dropDuplicates(["id"])
    run(source.selectExpr("id + 1000 AS id", "key"), sink, tmp_path / "old")
    fs.put(f"{tmp_path}/old", f"{root}/old", recursive=True)

    done = fuse.rewind(
        f"{url}/t",
        app_id="app",
        after_batch=1,
        checkpoints={f"{url}/old": f"{url}/new"},
        storage_options=options,
    )
    assert len(done.forks) == 1
    for path in fs.find(f"{root}/new"):
        copy = tmp_path / "new" / path.removeprefix(f"{root}/new/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(fs.cat_file(path))
    run(source, sink, tmp_path / "new")
    kept, ids = streams.ids_delivered(2), streams.ids_delivered(4)
    rows = fuse.Table.open(f"{url}/t", storage_options=options).to_arrow()
    assert sorted(rows["id"].to_pylist()) == [*ids[len(kept) :], *(each + 1000 for each in kept)]


def test_a_snapshot_is_read_by_its_version_columns_and_predicate(
    spark: SparkSession, table: fuse.Table, options: dict[str, object]
) -> None:
    path = table.location.path
    assert shown(fuse.read(spark, path, storage_options=options)) == [
        (1, "a"),
        (3, "c"),
        (10, "x"),
        (11, "y"),
    ]
    found = fuse.read(
        spark, path, version=1, columns=["v"], where="k >= 2", storage_options=options
    )
    assert shown(found) == [("b",), ("c",)]
    by_format = spark.read.format("fuse").option("storageOptions", json.dumps(options)).load(path)
    assert by_format.count() == 4


def test_one_line_of_the_log_says_that_spark_has_no_file_system(
    spark: SparkSession,
    table: fuse.Table,
    options: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(file_systems, "_found", {})
    with caplog.at_level(logging.WARNING, "fuse_stream"):
        for _ in range(2):
            fuse.read(spark, table.location.path, storage_options=options)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "Spark has no file system for" in lines[0]
    assert re.search(r"org\.apache\.hadoop:hadoop-a|gcs-connector", lines[0])  # the jar
    secrets = [str(value) for name, value in options.items() if name in SECRETS]
    assert not [secret for secret in secrets if secret in lines[0]]


def test_statements_that_read(spark: SparkSession, table: fuse.Table, lake: str) -> None:
    assert shown(spark.sql(f"SELECT * FROM {lake}.t WHERE k > 1")) == [
        (3, "c"),
        (10, "x"),
        (11, "y"),
    ]
    assert shown(spark.sql(f"SELECT count(*) FROM {lake}.t")) == [(4,)]
    assert shown(spark.sql(f"SELECT v FROM {lake}.t VERSION AS OF 1")) == [("a",), ("b",), ("c",)]
    assert shown(spark.sql(f"SELECT count(*) FROM {lake}.t VERSION AS OF 2")) == [(5,)]
    assert shown(
        spark.sql(f"SELECT k, _change_type FROM {lake}.t CHANGES FROM VERSION 2 TO VERSION 3")
    ) == [(2, "delete"), (10, "insert"), (11, "insert")]
    assert shown(spark.sql(f"SHOW TABLES IN {lake}"))[0][1] == "t"
    assert shown(spark.sql(f"SELECT count(*) FROM {lake}.t.history")) == [(4,)]


def test_a_plan_shows_no_credentials(
    spark: SparkSession, table: fuse.Table, lake: str, options: dict[str, object]
) -> None:
    frames = [
        fuse.read(spark, table.location.path, storage_options=options),
        fuse.read(spark, table.location.path, where="k > 1", storage_options=options),
        spark.sql(f"SELECT * FROM {lake}.t"),
        spark.sql(f"SELECT * FROM {lake}.t CHANGES FROM VERSION 1"),
    ]
    secrets = [str(value) for name, value in options.items() if name in SECRETS]
    for frame in frames:  # Google's emulator has no secret
        plan = str(frame._jdf.queryExecution().toString())  # noqa: SLF001 - pyspark has no public way
        assert not [secret for secret in secrets if secret in plan]
        assert PICKLED not in plan


def test_a_query_reads_only_the_blocks_that_its_filter_needs(
    spark: SparkSession, table: fuse.Table, lake: str
) -> None:
    (gone,) = (block for block in table.blocks(2) if block.row_count == 2)
    table.metadata.store.delete(block_key(gone.id))
    assert shown(spark.sql(f"SELECT v FROM {lake}.t VERSION AS OF 2 WHERE k < 3")) == [
        ("a",),
        ("b",),
    ]
    assert shown(spark.sql(f"SELECT v FROM {lake}.t WHERE k < 3")) == [("a",)]  # one is hidden
    with pytest.raises(Exception, match="a block is missing"):
        spark.sql(f"SELECT v FROM {lake}.t VERSION AS OF 2").collect()


def test_statements_that_write(spark: SparkSession, table: fuse.Table, lake: str) -> None:
    spark.sql(f"INSERT INTO {lake}.t VALUES (20, 'new')")
    spark.sql(f"UPDATE {lake}.t SET v = upper(v) WHERE k % 2 = 1")
    spark.sql(f"DELETE FROM {lake}.t WHERE length(v) = 1 AND v = 'x'")
    source = "(SELECT * FROM VALUES (1, 'one'), (30, 'more') AS new(k, v)) s"
    spark.sql(
        f"MERGE INTO {lake}.t t USING {source} ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    assert shown(spark.table(f"{lake}.t")) == [
        (1, "one"),
        (3, "C"),
        (11, "Y"),
        (20, "new"),
        (30, "more"),
    ]
    spark.sql(f"CREATE TABLE {lake}.made AS SELECT k FROM {lake}.t WHERE k > 10")
    assert shown(spark.table(f"{lake}.made")) == [(11,), (20,), (30,)]
    spark.sql(f"CALL {lake}.system.create_tag('t', 'good')").collect()
    assert [tag.name for tag in table.tags()] == ["good"]


def test_a_stream_of_a_table_by_its_name(
    spark: SparkSession, table: fuse.Table, lake: str, tmp_path: Path
) -> None:
    target = f"{table.location.path} copy"
    sink = fuse.fuse_sink(target, app_id="copy", **_opening(table))
    run(spark.readStream.table(f"{lake}.t"), sink, tmp_path / "ckpt")
    assert shown(fuse.read(spark, target, **_opening(table))) == shown(spark.table(f"{lake}.t"))


def test_a_dataframe_of_a_name_leaves_out_rows_that_are_hidden_later(
    spark: SparkSession, table: fuse.Table, lake: str
) -> None:
    table.compact()
    before = spark.table(f"{lake}.t")
    assert before.count() == 4
    table.delete("k = 10")
    assert shown(before) == [(1, "a"), (3, "c"), (11, "y")]


def test_rows_are_changed_by_functions(spark: SparkSession, table: fuse.Table) -> None:
    path, opening = table.location.path, _opening(table)
    fuse.update(spark, path, "upper(v) = 'C'", {"v": "upper(v)"}, **opening)
    fuse.delete(spark, path, "reverse(v) = 'y'", **opening)
    source = spark.createDataFrame([(1, "merged"), (40, "new")], "k long, v string")
    merge = fuse.merge(source, path, on="t.k = s.k", **opening)
    merge.when_matched().update_all().when_not_matched().insert_all().execute()
    expected = [(1, "merged"), (3, "C"), (10, "x"), (40, "new")]
    assert shown(fuse.read(spark, path, **opening)) == expected


def test_a_statement_that_rewrites_blocks_says_what_to_do(
    spark: SparkSession, table: fuse.Table, url: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.fuse.rewriteBlocks", "true")
    catalog = fuse.attach(session, next(_names), url, **_opening(table))
    with pytest.raises(Exception, match=r"no file system for this store.*fuse\.merge"):
        session.sql(f"UPDATE {catalog.name}.t SET v = upper(v) WHERE k = 1")
    assert table.head().version == 3


def _opening(table: fuse.Table) -> dict[str, Any]:
    return {"storage_options": dict(table.location.storage_options)}
