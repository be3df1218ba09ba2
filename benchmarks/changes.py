"""Rows that change: upserts by key, the feed of upserts, and compaction beside upserts."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import fuse_stream as fuse
from benchmarks.measure import Result, in_turn, percentile, seconds
from fuse_stream.table.handle import Table

ARRIVING = 10_000
"""Rows of an upsert; half of their keys are new."""
BLOCK_ROWS = 200_000
COLUMNS = 20
FEED_COMMITS = 100
FEED_ARRIVING = 2_000
BESIDE_S = 30
"""For how long a compaction and an upsert a second run beside each other."""


def made_rows(keys: np.ndarray, seed: int) -> pa.Table:
    """Return a row of 20 columns for each key; numbers and short texts."""
    draw = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {"id": pa.array(keys)}
    for at in range(COLUMNS - 1):
        if at % 4 == 3:
            columns[f"c{at}"] = pa.array(draw.integers(0, 5_000, len(keys)).astype(str))
        elif at % 2:
            columns[f"c{at}"] = pa.array(draw.integers(0, 1_000_000, len(keys)))
        else:
            columns[f"c{at}"] = pa.array(draw.random(len(keys)))
    return pa.table(columns)


def upserts(spark: SparkSession, work: Path, *, sizes: list[int], runs: int) -> list[Result]:
    """Upsert 10,000 keys, and rewrite a million rows with Spark so that it has them."""
    rewritten, arriving = work / "rewritten", work / "arriving"
    plain = _plain(work / "million", sizes[0])
    pq.write_table(next(_batches(sizes[0])), arriving)

    def rewrite() -> None:
        old, new = spark.read.parquet(str(plain)), spark.read.parquet(str(arriving))
        kept = old.join(new, "id", "left_anti").unionByName(new)
        kept.write.mode("overwrite").parquet(str(rewritten))

    results = []
    for size in sizes:
        table = _keyed(work / f"keyed_{size}", size)
        batches = _batches(size)
        waiting: list[pa.Table] = []

        def upsert(table: Table = table, waiting: list[pa.Table] = waiting) -> None:
            table.upsert(waiting.pop())

        def arrive(batches: Iterator[pa.Table] = batches, to: list[pa.Table] = waiting) -> None:
            to.append(next(batches))

        ours, theirs = in_turn(upsert, rewrite, runs=runs, before=arrive)
        results.append(
            Result(
                work=f"upsert {ARRIVING:,} keys, half of them new, into {size:,} rows x {COLUMNS}",
                against=f"a rewrite of {sizes[0]:,} rows by Spark: anti join, union, Parquet",
                ours=ours,
                theirs=theirs,
                limit=0.15 if size == sizes[0] else 0.3,
                note="without Spark",
            )
        )
    return results


def feed(spark: SparkSession, work: Path, *, size: int, runs: int) -> list[Result]:
    """Read the changes of upserts, and the blocks that they changed, with Spark."""
    path = work / "fed"
    if not path.exists():
        table = _keyed(path, size)
        for number in range(FEED_COMMITS):
            draw = np.random.default_rng(number)
            table.upsert(made_rows(draw.choice(size, FEED_ARRIVING, replace=False), number))
    table = Table.open(path)
    files = [table.metadata.store.location(f"_b/{block.id}_v1.parquet") for block in table.blocks()]

    def ours() -> None:
        checkpoint = work / "ck_fed"
        shutil.rmtree(checkpoint, ignore_errors=True)
        changes = fuse.read_stream(spark, str(path), starting_version=3)
        writer = changes.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    def theirs() -> None:
        spark.read.parquet(*files).write.format("noop").mode("overwrite").save()

    samples = in_turn(ours, theirs, runs=runs)
    return [
        Result(
            work=f"feed of {FEED_COMMITS} upserts of {FEED_ARRIVING:,} keys, {size:,} rows",
            against="spark.read.parquet of the blocks that they changed",
            ours=samples[0],
            theirs=samples[1],
            limit=1.2,
        )
    ]


def compaction_beside(work: Path, *, size: int) -> list[Result]:
    """Compact a table again and again while another handle upserts into its blocks."""
    path = work / "beside"
    shutil.rmtree(path, ignore_errors=True)
    table, stop = _keyed(path, size), threading.Event()
    table.set_properties({"fuse.block.rows": str(4 * BLOCK_ROWS), "fuse.deletes.rows": "1%"})
    dropped, done, errors = 0, 0, []

    def compact() -> None:
        nonlocal dropped, done
        other = Table.open(path)
        while not stop.is_set():
            try:
                result = other.compact()
            except fuse.FuseError as error:
                errors.append(error)
                return
            done += result.group_count
            dropped += result.dropped_group_count
            stop.wait(0.2)

    worker = threading.Thread(target=compact)
    worker.start()
    samples = []
    for number in range(BESIDE_S):
        draw = np.random.default_rng(number)
        rows = made_rows(draw.choice(size, FEED_ARRIVING, replace=False), number)
        samples.append(seconds(partial(table.upsert, rows)))
        stop.wait(max(0.0, 1 - samples[-1]))
    stop.set()
    worker.join()
    if errors:
        raise errors[0]
    assert len(table.to_arrow(columns=["id"])) == table.head().summary.row_count == size
    return [
        Result(
            work=f"upserts of {FEED_ARRIVING:,} keys, one a second, beside compaction",
            against="",
            ours=samples,
            note=f"p99 {percentile(samples, 99) * 1000:.0f} ms; {done} groups landed, "
            f"{dropped} dropped, no error",
        )
    ]


def _batches(size: int) -> Iterator[pa.Table]:
    """Yield arriving rows, half of whose keys a table of `size` rows has."""
    for number in count():
        draw = np.random.default_rng(number)
        known = draw.choice(size, ARRIVING // 2, replace=False)
        first = size + number * (ARRIVING // 2)
        yield made_rows(np.concatenate([known, np.arange(first, first + ARRIVING // 2)]), number)


def _keyed(path: Path, size: int) -> Table:
    shutil.rmtree(path, ignore_errors=True)
    keys = np.random.default_rng(1).permutation(size)
    table = Table.create(
        path, made_rows(keys[:1], 0).schema, properties={"fuse.block.rows": str(BLOCK_ROWS)}
    )
    parts = (
        made_rows(keys[first : first + 1_000_000], first) for first in range(0, size, 1_000_000)
    )
    table.append(pa.concat_tables(parts))
    table.set_key(["id"])
    return table


def _plain(path: Path, size: int) -> Path:
    if not path.exists():
        path.mkdir(parents=True)
        keys = np.random.default_rng(1).permutation(size)
        for number, first in enumerate(range(0, size, BLOCK_ROWS)):
            pq.write_table(
                made_rows(keys[first : first + BLOCK_ROWS], first),
                path / f"{number}.parquet",
                compression="zstd",
            )
    return path
