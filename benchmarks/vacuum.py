"""Vacuum against a listing, which is its lower bound: it must look at every object."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Result, seconds
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_blocks
from fuse_stream.format.layout import BLOCKS_PREFIX, block_key
from fuse_stream.format.records import Block, Operation
from fuse_stream.objects.slots import Stored
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table

BLOCKS_OF_SEGMENT = 1000
_AGE_S = 1
_COLUMNS = 19
"""The number of columns of the flights."""


def vacuum(work: Path, *, objects: int, runs: int) -> list[Result]:
    """Vacuum tables of the given object counts, half of them garbage, and list them."""
    folder = work / f"vacuum_{os.getpid()}"
    table = _table(folder, live=objects // 2)
    ours, theirs = [], []
    for _ in range(runs):
        _litter(folder, objects // 2)
        theirs.append(seconds(lambda: _list(folder)))
        ours.append(seconds(table.vacuum))
    left = sum(1 for _ in LocalStore(folder).list(BLOCKS_PREFIX))
    shutil.rmtree(folder)
    if left != objects // 2:
        raise AssertionError(f"vacuum left {left} blocks")
    return [
        Result(
            work=f"vacuum of {objects:,} objects, half of them garbage",
            against="listing them",
            ours=ours,
            theirs=theirs,
            limit=3,
        )
    ]


def _table(folder: Path, *, live: int) -> Table:
    rows = pa.table({f"c{number}": [number, number + 1] for number in range(_COLUMNS)})
    table = Table.create(
        folder, rows.schema, properties={"fuse.vacuum.age": f"{_AGE_S}s", "fuse.grace": "1s"}
    )
    table.append(rows)
    (example,) = table.blocks()
    for _ in range(live // BLOCKS_OF_SEGMENT):
        blocks = tuple(
            dataclasses.replace(example, id=SYSTEM_CLOCK.new_id()) for _ in range(BLOCKS_OF_SEGMENT)
        )
        for block in blocks:
            (folder / block_key(block.id)).touch()
        _append(table, blocks)
    table.metadata.store.delete(block_key(example.id))
    for _ in range(2):
        time.sleep(_AGE_S)
        table.vacuum()
    return table


def _append(table: Table, blocks: tuple[Block, ...]) -> None:
    def stage(head: Stored, _before: Staged | None) -> Staged:
        snapshot = head.snapshot
        return stage_blocks(table.metadata, snapshot, snapshot.schema, blocks, epoch=snapshot.epoch)

    table.committer.commit(Intent(operation=Operation.APPEND), stage)


def _litter(folder: Path, count: int) -> None:
    for _ in range(count):
        path = folder / block_key(SYSTEM_CLOCK.new_id())
        path.touch()
        os.utime(path, (0, 0))


def _list(folder: Path) -> None:
    store = LocalStore(folder)
    for prefix in ("_b/", "_sg/", "_ss/"):
        for _ in store.list(prefix):
            pass
