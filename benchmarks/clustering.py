"""Point lookups in a clustered table, before and after its blocks are reclustered."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import fuse_stream as fuse
from benchmarks.flights import copies
from benchmarks.measure import Result, in_turn, percentile, seconds

BLOCK_ROWS = 2000
_KEYS = 20


def point_lookups(flights: pa.Table, work: Path, *, commits: int, runs: int) -> list[Result]:
    """Find the flights of one plane in commits that each hold all planes; without Spark."""
    folder = work / "reclustered"
    table = _shuffled(folder, flights, commits)
    planes = pc.unique(flights["tailnum"].drop_null()).to_pylist()
    keys = random.Random(7).sample(planes, min(_KEYS, len(planes)))
    scan = partial(table.to_arrow, columns=["tailnum"])
    name = f"point lookup in {commits:,} blocks of {BLOCK_ROWS:,} rows"
    results = [_lookups(table, keys, f"{name}, as written", scan, runs=runs)]
    depth = table.clustering().average_depth
    took = seconds(table.recluster)
    left = table.clustering()
    after = _lookups(table, keys, f"{name}, reclustered", scan, runs=runs)
    return [
        *results,
        after,
        Result(
            work=f"{name}, reclustered",
            against="as written",
            ours=after.ours,
            theirs=results[0].ours,
            note=f"depth {depth:,.1f} -> {left.average_depth:,.1f} in {took:,.1f} s",
        ),
    ]


def _lookups(
    table: fuse.Table, keys: list[str], work: str, scan: partial[pa.Table], *, runs: int
) -> Result:
    pairs = [
        in_turn(partial(table.to_arrow, where=f"tailnum = '{key}'"), scan, runs=runs)
        for key in keys
    ]
    ours = [sample for ours, _ in pairs for sample in ours]
    return Result(
        work=work,
        against="a full scan of the key's column",
        ours=ours,
        theirs=[sample for _, theirs in pairs for sample in theirs],
        note=f"p99 {percentile(ours, 99) * 1000:.1f} ms",
    )


def _shuffled(folder: Path, flights: pa.Table, commits: int) -> fuse.Table:
    shutil.rmtree(folder, ignore_errors=True)
    table = fuse.Table.create(
        folder,
        flights.schema,
        cluster_by=["tailnum"],
        properties={"fuse.block.rows": str(BLOCK_ROWS)},
    )
    rows = copies(flights, -(-commits * BLOCK_ROWS // len(flights)))
    order = list(range(len(rows)))
    random.Random(7).shuffle(order)
    for start in range(0, commits * BLOCK_ROWS, BLOCK_ROWS):
        table.append(rows.take(order[start : start + BLOCK_ROWS]))
    return table
