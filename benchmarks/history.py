"""Rewinds, names and differences: their speed while the history grows."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

import fuse_stream as fuse
from benchmarks.measure import Result, in_turn
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.source_offset import Offset, SourcePosition, offset_to_json
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.faults import FaultyStore

CHAIN = ("bronze", "silver", "gold")
KEPT_BATCHES = 100
UNDONE = 50
SHORT = 100
_ROWS = pa.table({"k": list(range(10))})
_OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
_READS = frozenset({"get", "open_input", "list"})


def rewinds(work: Path, *, snapshots: int, runs: int) -> list[Result]:
    """Undo 50 batches of a stream, each time on a new branch."""
    long, short = (_streamed(work / f"history_{count}", count) for count in (snapshots, SHORT))
    ours, theirs = in_turn(partial(_rewind, long), partial(_rewind, short), runs=runs)
    return [
        Result(
            work=f"rewind of {UNDONE} batches, {snapshots:,} snapshots, {KEPT_BATCHES} kept in the "
            "checkpoint",
            against=f"the same with {SHORT} snapshots",
            ours=ours,
            theirs=theirs,
            limit=1.5,
            note="under 1 s is wanted",
        )
    ]


def pipelines(work: Path, *, snapshots: int, runs: int) -> list[Result]:
    """Undo 50 batches of a stream in three tables that are made from one another."""
    each = snapshots // len(CHAIN)
    long, short = (_chained(work / f"pipeline_{count}", count) for count in (each, SHORT))
    ours, theirs = in_turn(partial(_rewind, *long), partial(_rewind, *short), runs=runs)
    return [
        Result(
            work=f"rewind of {UNDONE} batches in a pipeline of {len(CHAIN)} tables, {each:,} "
            "snapshots each",
            against=f"the same with {SHORT} snapshots each",
            ours=ours,
            theirs=theirs,
            limit=1.5,
            note="under 1 s is wanted",
        )
    ]


def reads(work: Path, *, snapshots: int) -> list[Result]:
    """Count the objects read and written to find a time, and to make a branch and a tag."""
    results = []
    for count in (10, snapshots):
        folder = _streamed(work / f"history_{count}", count)
        kind = f"among {count:,} snapshots"
        at = Table.open(folder).snapshot(count // 3).timestamp_us
        time = dt.datetime.fromtimestamp(at / 1_000_000, dt.UTC) + dt.timedelta(milliseconds=1)
        results += [
            _counted(folder, f"open at a time {kind}", 20, partial(_open_at, time=time)),
            _counted(folder, f"make a branch {kind}", 10, _make_branch),
            _counted(folder, f"make a tag {kind}", 10, _make_tag),
        ]
    return results


def diffs(flights: pa.Table, work: Path, *, commits: int, runs: int) -> list[Result]:
    """Compare the diff of many small commits with a scan of the rows that they added."""
    folder = work / "diffed"
    shutil.rmtree(folder, ignore_errors=True)
    table = Table.create(folder, flights.schema)
    table.append(flights)
    for at in range(commits):
        table.append(flights.slice(at * 10, 10))
    alone = work / "diffed_alone"
    shutil.rmtree(alone, ignore_errors=True)
    small = Table.create(alone, flights.schema)
    for at in range(commits):
        small.append(flights.slice(at * 10, 10))
    wanted = commits * 10

    def diff() -> None:
        found = Table.open(folder).diff(1, commits + 1).read_all()
        assert found.num_rows == wanted

    def scan() -> None:
        assert Table.open(alone).to_arrow().num_rows == wanted

    ours, theirs = in_turn(diff, scan, runs=runs)
    return [
        Result(
            work=f"diff over {commits:,} commits that net to {wanted:,} rows",
            against="a scan of those rows' blocks",
            ours=ours,
            theirs=theirs,
            limit=3.0,
        )
    ]


def _chained(folder: Path, batches: int) -> list[Path]:
    """Make tables, each from the one before it, and the checkpoints of their queries; once."""
    found: list[Path] = []
    for name in CHAIN:
        found.append(_streamed(folder / name, batches, found[-1] if found else None))
    return found


def _streamed(folder: Path, batches: int, source: Path | None = None) -> Path:
    """Make the table of a stream and its checkpoint, which keeps the last batches; once.

    Each batch reads a commit of the table `source`, or of files.
    """
    checkpoint = folder.with_name(f"{folder.name}_checkpoint")
    if (checkpoint / "metadata").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(checkpoint, ignore_errors=True)
    table, query = Table.create(folder, _ROWS.schema), str(uuid.uuid4())
    read = None if source is None else Table.open(source)
    for number in range(batches):
        line, sources = f'{{"logOffset":{number}}}', None
        if read is not None:
            offset = _offset_after(read.snapshot(number + 1))
            line = json.dumps(offset_to_json(offset))
            sources = (SourcePosition(offset=offset, path=str(source)),)
        text = _OFFSETS + line
        batch = Batch(
            query_id=query, batch_id=number, offsets=offsets_of(number, text), sources=sources
        )
        table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), _ROWS)
        if number >= batches - KEPT_BATCHES:
            for log, entry in (("offsets", text), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
                (checkpoint / log).mkdir(parents=True, exist_ok=True)
                (checkpoint / log / str(number)).write_text(entry)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    return folder


def _offset_after(snapshot: Snapshot) -> Offset:
    return Offset(
        table_id=snapshot.table_id,
        branch_id=snapshot.branch_id,
        version=snapshot.version,
        snapshot_id=snapshot.snapshot_id,
        index=0,
    )


def _rewind(*folders: Path) -> None:
    # On branches, so that every run finds the same history.
    name = f"run-{SYSTEM_CLOCK.new_id()}"
    tables = [Table.open(folder) for folder in folders]
    for table in tables:
        table.create_branch(name)
    checkpoints = {
        str(folder.with_name(f"{folder.name}_checkpoint")): str(
            folder.with_name(f"{folder.name}_{name}")
        )
        for folder in folders
    }
    fuse.rewind(
        list(folders),
        branch=name,
        after_batch=tables[0].head().version - 1 - UNDONE,
        checkpoints=checkpoints,
    )
    for fork in checkpoints.values():
        shutil.rmtree(fork)
    for table in tables:
        table.delete_branch(name)


def _counted(folder: Path, work: str, most: int, act: Callable[[Table], object]) -> Result:
    """Count the objects that a call on an open table reads and writes."""
    store = FaultyStore(LocalStore(folder))
    table = open_table(store, probe_store=False)
    store.calls.clear()
    act(table)
    verbs = [verb for verb, _ in store.calls]
    reads = sum(verb in _READS for verb in verbs)
    return Result(
        work=work,
        against="at most",
        ours=[reads],
        theirs=[most],
        limit=1.0,
        unit="reads",
        note=f"{len(verbs) - reads} writes",
    )


def _open_at(table: Table, time: dt.datetime) -> None:
    table.snapshot(timestamp=time)


def _make_branch(table: Table) -> None:
    table.create_branch(f"b-{SYSTEM_CLOCK.new_id()}")


def _make_tag(table: Table) -> None:
    table.create_tag(f"t-{SYSTEM_CLOCK.new_id()}")
