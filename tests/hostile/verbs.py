"""Every verb that reads a table, each to be tried on hostile metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from fuse_stream.check.fsck import check_table
from fuse_stream.clock import Clock
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.views import Request
from fuse_stream.format.source_offset import offset_from_json
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.source_offsets import load_offsets
from fuse_stream.optimize.claim import BranchClaim, find_claim
from fuse_stream.reading.history import History
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.refs.clone import clone
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.trace.lineage import trace_sources

Verb = Callable[[Store, Clock], object]


def _on(act: Callable[[Table], object], branch: str = "main") -> Verb:
    def verb(store: Store, clock: Clock) -> object:
        return act(open_table(store, branch=branch, clock=clock, probe_store=False))

    return verb


def _follow(store: Store, clock: Clock) -> int:
    follower = Follower(store, Request(starting_version=1), None, clock=clock)
    start = follower.first_offset()
    end = follower.next_offset(start, is_limited=False)
    return sum(len(unit.pieces) for unit in follower.read_between(start, end).units)


def follow_from(text: str) -> Verb:
    """Return a verb that continues a stream from the offset in a checkpoint."""

    def verb(store: Store, clock: Clock) -> object:
        follower = Follower(store, Request(), None, clock=clock)
        start = offset_from_json(json.loads(text))
        end = follower.next_offset(start, is_limited=False)
        return sum(len(unit.pieces) for unit in follower.read_between(start, end).units)

    return verb


def _offsets(table: Table) -> list[str]:
    entries = table.ledger().values()
    return [load_offsets(table.metadata.store, one) for entry in entries for one in entry.offsets]


def _lineage(table: Table) -> object:
    history = History(table.metadata, table.committer.head())

    def open_source(path: str) -> Metadata:
        return Metadata(MemoryStore(), table.metadata.clock)

    return trace_sources(history, path="t", ref=table.committer.branch, open_source=open_source)


def _rows(table: Table) -> pa.Table:
    return table.to_arrow(version=1).slice(0, 2)


def _clone(table: Table) -> object:
    place = Metadata(MemoryStore(), table.metadata.clock)
    origin_of = StoreWithOrigins(table.metadata.store).origin
    return clone(table.committer, place, version=None, origin_of=origin_of, probe_place=False)


def _rewind(table: Table, *, dry_run: bool) -> object:
    goal = Goal(version=2, timestamp=None, application="default", after_batch=None)
    return rewind_tables((table.committer,), goal, retire=("*",), dry_run=dry_run, replan=False)


def _claim(table: Table) -> object:
    metadata = table.metadata
    BranchClaim(metadata, "main", owner_id="aa" * 16).take(metadata.clock.now_us())
    return find_claim(metadata, "main")


def _shown(result: Any) -> str:
    return repr(result)


READS: dict[str, Verb] = {
    "open": _on(_shown),
    "head": _on(lambda table: _shown(table.head())),
    "log": _on(lambda table: [_shown(one) for one in table.log()]),
    "scan": _on(lambda table: table.to_arrow()),
    "scan where": _on(lambda table: table.to_arrow(where="k > 11 AND k < 14", columns=["k"])),
    "scan tag": _on(lambda table: table.to_arrow(version="good")),
    "scan branch": _on(lambda table: table.to_arrow(), "fix"),
    "scan time": _on(
        lambda table: table.to_arrow(timestamp="2026-11-25T00:00:00+00:00", where="k = 1")
    ),
    "blocks": _on(lambda table: [_shown(dict(one.col_stats)) for one in table.blocks()]),
    "ledger": _on(lambda table: [_shown(one) for one in table.ledger().values()]),
    "offsets": _on(_offsets),
    "refs": _on(lambda table: (_shown(table.branches()), _shown(table.tags()))),
    "pins": _on(lambda table: _shown(table.clones())),
    "consumers": _on(lambda table: _shown(table.consumers())),
    "stats": _on(lambda table: _shown(table.stats())),
    "clustering": _on(lambda table: _shown(table.clustering())),
    "feed": _on(lambda table: table.changes(1).read_all()),
    "block feed": _on(lambda table: [_shown(one) for one in table.block_changes(1)]),
    "diff": _on(lambda table: table.diff(1, "HEAD").read_all()),
    "follow": _follow,
    "blame": _on(lambda table: _shown(table.blame("k = 12"))),
    "bisect": _on(lambda table: _shown(table.bisect("k = 12"))),
    "lineage": _on(lambda table: _shown(_lineage(table))),
    "fsck": lambda store, clock: _shown(check_table(store, clock)),
    "fsck deep": lambda store, clock: _shown(check_table(store, clock, deep=True)),
    "vacuum dry": _on(lambda table: _shown(table.vacuum(dry_run=True))),
    "expire dry": _on(lambda table: _shown(table.expire(keep_last=1, dry_run=True))),
    "rewind dry": _on(lambda table: _shown(_rewind(table, dry_run=True))),
    "erase dry": _on(lambda table: _shown(table.erase("k = 12", dry_run=True))),
}
"""Verbs that write nothing."""

WRITES: dict[str, Verb] = {
    "claim": _on(_claim),
    "append": _on(lambda table: table.append(_rows(table))),
    "delete": _on(lambda table: table.delete("k = 12")),
    "tag": _on(lambda table: table.create_tag("another")),
    "compact": _on(lambda table: table.compact()),
    "recluster": _on(lambda table: table.recluster()),
    "revert": _on(lambda table: table.revert(2)),
    "publish": _on(lambda table: table.publish("fix", retire=["*"])),
    "clone": _on(_clone),
    "expire": _on(lambda table: table.expire(keep_last=1)),
    "vacuum": _on(lambda table: table.vacuum()),
    "rewind": _on(lambda table: _rewind(table, dry_run=False)),
}
"""Verbs that write, each to be tried on a copy of its own."""
