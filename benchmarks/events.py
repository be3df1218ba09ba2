"""Change data capture: a sink of events against one that appends, and a Debezium log."""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from benchmarks.measure import Result, seconds
from benchmarks.streams import Sink, trigger_times
from fuse_stream.table.handle import Table

EVENTS, FEW = 2_000, 100
"""Events of a batch."""
PER_SECOND = 10_000
"""Of the Debezium log, from all partitions of its topic."""
_PARTITIONS = 2
"""Of the topic, one for each core."""
_IN_FILE = 10_000
"""Events of one partition in a batch."""
_LOADED = 1_000_000
"""Rows of one load."""
_RULES: dict[str, Any] = {
    "mode": "upsert",
    "keys": ["id"],
    "sequence_by": "seq",
    "apply_as_deletes": "op = 'd'",
    "except_column_list": ["op", "seq"],
}
_ROW = "id bigint, customer bigint, amount bigint, price double, note string"


def sinks(
    spark: SparkSession, work: Path, *, sizes: list[int], batches: int, runs: int
) -> list[Result]:
    """Batches of events into large tables, and the same rows into a table that only grows."""
    results = []
    for size in sizes:
        events = _filled(work / f"events_{size}", size)
        appended = work / f"appended_{size}"
        shutil.rmtree(appended, ignore_errors=True)
        times: dict[int, list[list[float]]] = {EVENTS: [], FEW: []}
        plain: list[list[float]] = []
        for run in range(1 + runs):
            for count, found in times.items():
                files = _batches(work / "events_arriving", size, batches, count, seed=run)
                sink = fuse.fuse_sink(
                    str(events), app_id=f"{count}-{run}", optimize="off", **_RULES
                )
                found.append(trigger_times(spark, files, sink, work / "ck_events"))
            files = _batches(work / "events_arriving", size, batches, EVENTS, seed=run)
            sink = fuse.fuse_sink(str(appended), app_id=str(run), optimize="off")
            plain.append(trigger_times(spark, files, _data_of(sink), work / "ck_appended"))
        many, few = (list(chain(*times[count][1:])) for count in (EVENTS, FEW))
        work_name = f"{EVENTS:,} events a batch, random keys, {size:,} rows, trigger p50"
        results += [
            Result(
                work=work_name,
                against="the append sink of fuse_stream, the same rows",
                ours=many,
                theirs=list(chain(*plain[1:])),
                limit=2.0,
                unit="ms",
            ),
            Result(
                work=work_name,
                against=f"{FEW} events a batch",
                ours=many,
                theirs=few,
                limit=1.2,
                unit="ms",
            ),
        ]
    return results


def debezium(spark: SparkSession, work: Path, *, batches: int) -> list[Result]:
    """A Debezium log of which half is out of order: events a second, and the rows at the end."""
    log, count = work / "debezium", batches * _PARTITIONS * _IN_FILE
    expected = _log(log, count)
    table, checkpoint = work / "orders", work / "ck_debezium"
    shutil.rmtree(table, ignore_errors=True)
    shutil.rmtree(checkpoint, ignore_errors=True)
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", _PARTITIONS)
    events = fuse.from_debezium(source.parquet(str(log)), _ROW, keys=["id"])
    sink = fuse.fuse_sink(str(table), mode="upsert", keys=["id"], optimize="off")
    query = (
        events.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    took_s = seconds(lambda: query.start().awaitTermination())
    rows = Table.open(table).to_arrow(columns=["id", "amount"])
    assert dict(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == expected
    return [
        Result(
            work=f"a Debezium log of {count:,} events in {batches} batches, half out of order",
            against=f"{PER_SECOND:,} events a second",
            ours=[took_s],
            theirs=[count / PER_SECOND],
            limit=1.0,
            note=f"{count / took_s:,.0f} events a second with the start of Spark's workers; "
            f"{_PARTITIONS} partitions; the table is that of the events in order",
        )
    ]


def _data_of(sink: Sink) -> Sink:
    def append(df: DataFrame, batch_id: int) -> None:
        sink(df.drop("op", "seq"), batch_id)

    return append


def _rows(ids: np.ndarray, draw: np.random.Generator) -> dict[str, pa.Array]:
    count = len(ids)
    return {
        "id": pa.array(ids),
        "customer": pa.array(draw.integers(0, 10_000, count)),
        "amount": pa.array(draw.integers(0, 1_000_000, count)),
        "price": pa.array(draw.random(count)),
        "note": pa.array(draw.integers(0, 5_000, count).astype(str)),
    }


def _events(ids: np.ndarray, seqs: np.ndarray, draw: np.random.Generator) -> pa.Table:
    ops = np.where(draw.random(len(ids)) < 0.1, "d", "u")
    return pa.table({**_rows(ids, draw), "op": pa.array(ops), "seq": pa.array(seqs)})


def _filled(path: Path, size: int) -> Path:
    """Return a table with a row for each key, as events have written them."""
    shutil.rmtree(path, ignore_errors=True)
    draw = np.random.default_rng(0)
    schema = pa.table(_rows(np.arange(1), draw)).schema
    table = Table.create(path, schema)
    rules = {name: value for name, value in _RULES.items() if name != "mode"}
    for first in range(0, size, _LOADED):
        ids = np.arange(first, min(first + _LOADED, size))
        events = _events(ids, ids - size, draw)
        upserts = events.set_column(5, "op", pa.array(["u"] * len(ids)))
        table.upsert(upserts, **rules)
    return path


def _batches(folder: Path, size: int, batches: int, count: int, *, seed: int) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = np.random.default_rng([seed, count])
    for number in range(batches):
        ids = draw.integers(0, size, count)
        seqs = ((seed * batches + number) * count + draw.permutation(count)).astype(np.int64)
        pq.write_table(_events(ids, seqs, draw), folder / f"{number:05}.parquet")
    return folder


def _log(folder: Path, count: int) -> dict[int, int]:
    """Write a log, whose files are of each partition in turn; return the rows' last amounts."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = np.random.default_rng(5)
    ids = draw.integers(0, count // 4, count)
    amounts, deletes = draw.integers(0, 1_000_000, count), draw.random(count) < 0.1
    expected: dict[int, int] = {}
    for key, amount, is_delete in zip(ids.tolist(), amounts.tolist(), deletes, strict=True):
        if is_delete:
            expected.pop(key, None)
        else:
            expected[key] = amount
    order = np.arange(count)
    late = np.flatnonzero(draw.random(count) < 0.5)
    order[late] = draw.permutation(late)
    for number in range(count // _IN_FILE):
        part = order[number * _IN_FILE : (number + 1) * _IN_FILE].tolist()
        values = [_message(at, int(ids[at]), int(amounts[at]), bool(deletes[at])) for at in part]
        first = number // _PARTITIONS * _IN_FILE
        rows = {
            "key": [f'{{"id": {ids[at]}}}'.encode() for at in part],
            "value": values,
            "topic": ["orders"] * len(part),
            "partition": pa.array([number % _PARTITIONS] * len(part), pa.int32()),
            "offset": list(range(first, first + len(part))),
        }
        pq.write_table(pa.table(rows), folder / f"{number:05}.parquet")
    return expected


def _message(at: int, key: int, amount: int, is_delete: bool) -> bytes:  # noqa: FBT001 - a fact
    row = {"id": key, "customer": key % 977, "amount": amount, "price": 0.5, "note": f"n{at}"}
    message = {
        "before": {"id": key} if is_delete else None,
        "after": None if is_delete else row,
        "source": {"connector": "postgresql", "lsn": at, "table": "orders", "ts_ms": at},
        "op": "d" if is_delete else "u",
        "ts_ms": at,
    }
    return json.dumps(message).encode()
