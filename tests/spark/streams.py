"""A stream of known rows: files as the source, one a micro-batch, and what a table made of them.

A scenario is a folder: `source/` holds the files, `table/` the table, `checkpoint/` the query's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from fuse_stream.table.handle import Table

ROWS = 10
"""Rows in a file, and so in a micro-batch."""
SCHEMA = "id long, key string"
PATIENCE_S = 240
"""How long a query may take on a machine that others use too."""

BatchFunction = Callable[[DataFrame, int], None]


def deliver(folder: Path, numbers: range) -> None:
    """Put files into the source of a scenario; file n holds the ids from n * ROWS on."""
    for number in numbers:
        ids = list(range(number * ROWS, (number + 1) * ROWS))
        keys = [f"key {row_id % 3}" for row_id in ids]
        deliver_table(folder, number, pa.table({"id": ids, "key": keys}))


def deliver_table(folder: Path, number: int, rows: pa.Table) -> None:
    """Put `rows` as the file `number` into the source of a scenario."""
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    hidden = source / f".{number}"  # Spark sees only whole files
    pq.write_table(rows, hidden)
    second = 1_700_000_000 + number
    os.utime(hidden, (second, second))  # the order in which Spark takes them
    hidden.rename(source / f"{number:05}.parquet")


def read_stream(spark: SparkSession, folder: Path, schema: str = SCHEMA) -> DataFrame:
    """Return the source of a scenario as a stream, one file a micro-batch."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "source"))


DOORS = ("format", "native")
"""The two ways to read a stream: `readStream.format("fuse")`, and `fuse.read_stream`."""
EACH_DOOR = pytest.mark.parametrize(
    "door", ["native", pytest.param("format", marks=pytest.mark.long)]
)


def follow_table(
    spark: SparkSession, path: Path | str, door: str = "format", **options: Any
) -> DataFrame:
    """Return the stream of a table by one of `DOORS`, with the options of `format("fuse")`."""
    if door == "native":
        return fuse.read_stream(spark, path, **{ARGUMENTS[name]: options[name] for name in options})
    texts = {
        name: json.dumps(value) if isinstance(value, (list, dict)) else str(value)
        for name, value in options.items()
    }
    return spark.readStream.format("fuse").options(**{"feed": "changes", **texts}).load(str(path))


ARGUMENTS = {
    "branch": "branch",
    "columns": "columns",
    "consumer": "consumer",
    "endingTimestamp": "ending_timestamp",
    "endingVersion": "ending_version",
    "feed": "feed",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
    "maxCommitsPerTrigger": "max_commits_per_trigger",
    "maxRowsPerTrigger": "max_rows_per_trigger",
    "onExpired": "on_expired",
    "origins": "origins",
    "skipChangeCommits": "skip_change_commits",
    "startingTimestamp": "starting_timestamp",
    "startingVersion": "starting_version",
    "storageOptions": "storage_options",
    "timeZone": "time_zone",
    "waitForTable": "wait_for_table",
    "where": "where",
}
"""The arguments of `read_stream`, by the names of the options."""


STOPPED_BY_RIVAL = (StreamingQueryException, Py4JJavaError)
"""How the slower one of two drivers of a query ends: in a batch, or before its first one, when
both make the checkpoint."""


def start(
    frame: DataFrame, function: BatchFunction, checkpoint: Path, *, output_mode: str = "append"
) -> StreamingQuery:
    """Start a query that reads all available files and ends."""
    writer = frame.writeStream.foreachBatch(function).outputMode(output_mode)
    return writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()


def run(
    frame: DataFrame, function: BatchFunction, checkpoint: Path, *, output_mode: str = "append"
) -> StreamingQuery:
    """Run such a query to its end; raise its error."""
    query = start(frame, function, checkpoint, output_mode=output_mode)
    try:
        assert query.awaitTermination(PATIENCE_S), "the query did not end"
    finally:
        query.stop()
    return query


def refusal_of(
    frame: DataFrame, function: BatchFunction, checkpoint: Path, *, output_mode: str = "append"
) -> str:
    """Run a query that must fail, and return its error."""
    try:
        run(frame, function, checkpoint, output_mode=output_mode)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")


def run_batch(spark: SparkSession, folder: Path, function: BatchFunction) -> None:
    """Run `function` on one micro-batch of one file, in a query of its own."""
    deliver(folder, range(1))
    run(read_stream(spark, folder), function, folder / "checkpoint")


def raised_by(call: BatchFunction, df: DataFrame, batch_id: int) -> BaseException | None:
    """Return the exception of `call`: from inside a micro-batch, Spark passes on its text only."""
    try:
        call(df, batch_id)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return error
    return None


def drop_log(checkpoint: Path, log: str, first: int) -> None:
    """Remove the entries of `offsets` or `commits` from `first` on, as a person would."""
    for entry in (checkpoint / log).iterdir():
        number = entry.name.removeprefix(".").removesuffix(".crc")
        if number.isdigit() and int(number) >= first:
            entry.unlink()


def replace_folder(old: Path, new: Path) -> None:
    """Replace `old` by a copy of `new`."""
    shutil.rmtree(old)
    shutil.copytree(new, old)


def ids_of(table: Path, **options: Any) -> list[int]:
    """Return the ids in a table, sorted, with duplicates."""
    rows = Table.open(table).to_arrow(columns=["id"], **options)
    return sorted(rows["id"].to_pylist())


def ids_delivered(files: int) -> list[int]:
    """Return the ids in the first `files` files."""
    return list(range(files * ROWS))


def versions_of(table: Path) -> list[int]:
    """Return the versions that are in storage, from 0."""
    return sorted(int(slot.name[:20]) for slot in (table / "_ss" / "main").glob("*.json"))


def objects_of(table: Path) -> Mapping[str, int]:
    """Return every object of a table with its size: equal means that nothing was written.

    The probe of a store, which each process writes once, is left out.
    """
    return {
        str(path.relative_to(table)): path.stat().st_size
        for path in sorted(table.rglob("*"))
        if path.is_file() and path.parent.name != "_probe"
    }
