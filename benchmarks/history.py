"""Rewinds, names and differences: their speed while the history grows."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

import fuse_stream as fuse
from benchmarks.measure import Result, in_turn
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.format.records import Operation
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.faults import FaultyStore

QUERY = "11111111-2222-3333-4444-555555555555"
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


def _streamed(folder: Path, batches: int) -> Path:
    """Make the table of a stream and its checkpoint, which keeps the last batches; once."""
    checkpoint = folder.with_name(f"{folder.name}_checkpoint")
    if (checkpoint / "metadata").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(checkpoint, ignore_errors=True)
    table = Table.create(folder, _ROWS.schema)
    for number in range(batches):
        text = f'{_OFFSETS}{{"logOffset":{number}}}'
        batch = Batch(query_id=QUERY, batch_id=number, offsets=offsets_of(number, text))
        table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), _ROWS)
        if number >= batches - KEPT_BATCHES:
            for log, entry in (("offsets", text), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
                (checkpoint / log).mkdir(parents=True, exist_ok=True)
                (checkpoint / log / str(number)).write_text(entry)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    return folder


def _rewind(folder: Path) -> None:
    # On a branch, so that every run finds the same history.
    name = f"run-{SYSTEM_CLOCK.new_id()}"
    table = Table.open(folder)
    table.create_branch(name)
    checkpoint = folder.with_name(f"{folder.name}_checkpoint")
    fork = folder.with_name(f"{folder.name}_{name}")
    fuse.rewind(
        folder,
        branch=name,
        after_batch=table.head().version - 1 - UNDONE,
        checkpoints={str(checkpoint): str(fork)},
    )
    shutil.rmtree(fork)
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
