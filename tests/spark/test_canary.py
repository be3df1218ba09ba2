"""A secret in the storage options is in nothing that a query writes, logs or shows."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.spark.attach import attach
from fuse_stream.spark.read import read
from fuse_stream.spark.read_stream import read_stream
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table

CANARY = "c4n4ryWJalrXUtnFEMIbPxRfiCY"
OPTIONS = {"key": CANARY, "client_kwargs": {"token": CANARY}}


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().toString())  # noqa: SLF001 - explain() only prints


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_no_plan_log_line_checkpoint_or_table_holds_the_secret(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, "fuse_stream")
    first, second = str(tmp_path / "lake/first"), str(tmp_path / "lake/second")
    Table.create(first, pa.schema([("k", pa.int64())]), storage_options=OPTIONS)
    write(spark.range(5).selectExpr("id AS k"), first, storage_options=OPTIONS)
    session = spark.newSession()
    attach(session, "lake", str(tmp_path / "lake"), storage_options=OPTIONS)
    stream = read_stream(spark, first, storage_options=OPTIONS, starting_version=0)
    sink = fuse_sink(second, app_id="copy", storage_options=OPTIONS)
    plans = [
        plan_of(read(spark, first, storage_options=OPTIONS, where="k > 1")),
        plan_of(session.sql("SELECT * FROM lake.first WHERE k > 1")),
        plan_of(session.sql("SELECT * FROM lake.first VERSION AS OF 1")),
    ]
    query = (
        stream.select("k")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with pytest.raises(Exception, match="k2") as caught:
        read(spark, first, storage_options=OPTIONS, where="k2 > 1").collect()
    query.explain(extended=True)
    shown = [
        *plans,
        str(query.lastProgress),
        str(caught.value),
        repr(sink),
        str(session.sql("SHOW TABLES IN lake").collect()),
        str(session.sql("DESCRIBE TABLE EXTENDED lake.first").collect()),
        str(spark.sparkContext.getConf().getAll()),
        caplog.text,
        *capfd.readouterr(),
    ]
    files = files_below(tmp_path)

    assert Table.open(second).head().summary.row_count == 5
    assert any(name.startswith("checkpoint/offsets/") for name in files)
    for text in shown:
        assert CANARY not in text
    assert [name for name, data in files.items() if CANARY.encode() in data] == []
