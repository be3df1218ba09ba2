"""The bytes and seconds that a scan of many blocks takes before its first row.

The blocks are simulated: their records are real ones, of 1,000 stretches of the flights, and their
files are not there. Segments have the sizes that roll-ups give them.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa

from benchmarks.measure import Result
from fuse_stream.commit.plan import Content, Intent, Staged
from fuse_stream.commit.rollup import MAX_BLOCKS
from fuse_stream.commit.stage import stage_segment
from fuse_stream.format.block import encode_block
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import (
    Block,
    ClusterStats,
    Operation,
)
from fuse_stream.format.schema import Schema
from fuse_stream.format.stats import key_range, merge_summaries
from fuse_stream.objects.slots import Stored
from fuse_stream.predicate.parse import parse_where
from fuse_stream.reading.scan import prune, select
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table, open_table

MIB = 1024 * 1024
ROWS = 2000
"""Rows of a stretch; neighbours overlap in most of theirs, so that no two segments are equal."""
KEY = "time_hour"
YEAR_US = 365 * 86_400 * 1_000_000


class CountingStore(LocalStore):
    """Adds up the bytes of the objects that are read whole."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_bytes = 0

    def get(self, key: str) -> bytes:
        data = super().get(key)
        self.read_bytes += len(data)
        return data


def plans(flights: pa.Table, work: Path, *, blocks: int, runs: int) -> list[Result]:
    """Plan a scan of all rows, and one of an hour, each with a new handle."""
    folder = work / f"simulated_{blocks}"
    if not folder.exists():
        build(flights, folder, blocks)
    hour = f"{KEY} = TIMESTAMP '2014-05-05 05:00:00+00:00'"
    parse_where(hour)  # loads the SQL parser, once in a process
    return [
        *_plan(folder, None, f"plan a scan of {blocks:,} blocks", runs, mib=64, seconds=2),
        *_plan(folder, hour, "the same with a predicate on the key", runs, mib=2, seconds=0.2),
    ]


def build(flights: pa.Table, folder: Path, blocks: int) -> None:
    """Make a table of `blocks` records, ordered by time except for overlapping neighbours."""
    unfinished = folder.with_name(f"{folder.name}_unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    table = Table.create(unfinished, flights.schema, cluster_by=[KEY])
    head = table.head()
    templates = _templates(flights, head.schema, head.cluster_key)
    random = Random(7)
    staged = []
    for year, first in enumerate(range(0, blocks, MAX_BLOCKS)):
        chosen = templates[: min(MAX_BLOCKS, blocks - first)]
        made = tuple(_moved(block, year, head.schema, head.cluster_key, random) for block in chosen)
        staged.append(stage_segment(table.metadata, head, made, level=3))

    def stage(head: Stored, _: Staged | None) -> Staged:
        return Staged(
            schema=head.snapshot.schema,
            content=Content.of(
                head.snapshot,
                segments=tuple(segment.ref for segment in staged),
                summary=merge_summaries([segment.summary for segment in staged]),
            ),
        )

    table.committer.commit(Intent(operation=Operation.APPEND), stage)
    unfinished.rename(folder)


def _templates(flights: pa.Table, schema: Schema, cluster_key: tuple[int, ...]) -> list[Block]:
    columns = flights.cast(flights.schema)
    step = (len(columns) - ROWS) // (MAX_BLOCKS - 1)
    return [
        encode_block(columns.slice(start, ROWS), schema, cluster_key, block_id="0" * 32)[0]
        for start in range(0, MAX_BLOCKS * step, step)
    ]


def _moved(
    block: Block, years: int, schema: Schema, cluster_key: tuple[int, ...], random: Random
) -> Block:
    """Return a block like this one, some years later and in another file."""
    names = {column.name: column.id for column in schema.columns}
    stats = dict(block.col_stats)
    for name, distance in ((KEY, years * YEAR_US), ("year", years)):
        known = stats[names[name]]
        stats[names[name]] = dataclasses.replace(
            known, min=_sum(known.min, distance), max=_sum(known.max, distance)
        )
    span = key_range(stats, cluster_key)
    assert span is not None
    return dataclasses.replace(
        block,
        id=f"{random.getrandbits(128):032x}",
        sha256=f"{random.getrandbits(256):064x}",
        col_stats=stats,
        cluster_stats=ClusterStats(range=span),
    )


def _sum(bound: object, distance: int) -> int:
    assert isinstance(bound, int)
    return bound + distance


def _plan(
    folder: Path, where: str | None, work: str, runs: int, *, mib: float, seconds: float
) -> Iterator[Result]:
    sizes, times = [], []
    found: list[str] = []
    for _ in range(runs):
        store = CountingStore(folder)
        start = time.perf_counter()
        table = open_table(store, probe_store=False)
        snapshot = table.snapshot()
        blocks = prune(table.metadata, snapshot, select(snapshot.schema, where=where))
        found = [block_key(block.id, block.origin) for block in blocks]  # the parts of a scan
        times.append(time.perf_counter() - start)
        sizes.append(store.read_bytes / MIB)
    note = f"{len(found):,} blocks"
    yield Result(work=work, against="at most", ours=times, theirs=[seconds], limit=1.0, note=note)
    yield Result(
        work=work, against="at most", ours=sizes, theirs=[mib], limit=1.0, unit="MiB", note=note
    )
