"""Compute what the indexes of a branch lack: the states of blocks of its head.

Rules:
- Blocks that are large enough, and have no deleted rows, are covered. Small ones are left to
  compaction.
- A block with more than a tenth as many groups as rows is not covered, and not tried again.
- A part covers up to 64 blocks. Parts that cover fewer are merged with new ones, so their number
  stays small. A part without a block of the head is dropped.
- Nothing depends on this. A refresh that dies loses what it did not commit; two at once compute
  the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import NothingToDoError, may_be_gone
from fuse_stream.errors import ConflictError, CorruptObjectError, InvalidInputError
from fuse_stream.format.indexes import (
    MAX_LISTED_BLOCKS,
    MAX_PART_BLOCKS,
    IndexDefinition,
    IndexList,
    IndexPart,
)
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.indexes.define import (
    can_cover,
    commit_indexes,
    covered_by,
    private_columns,
    usable_parts,
)
from fuse_stream.indexes.parts import MAX_BLOCK_GROUPS, load_part, store_part
from fuse_stream.indexes.spec import Aggregate, bind
from fuse_stream.indexes.states import states_of_count, states_of_rows
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.indexes import load_index_list
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

ROWS_PER_GROUP = 10
"""A block is covered if it has at least so many rows for each group."""
COMMIT_EVERY_S = 60.0
MOST_WORKERS = 4

Progress = Callable[[int, int], object]
"""Called with the number of blocks that were read, and of all to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRefresh:
    """The result of a refresh."""

    snapshot: Snapshot | None = None
    """Its last commit; None if there was nothing to do."""
    block_count: int = 0
    """Blocks that were read; one counts once for each index."""
    skipped_count: int = 0
    """Those of them that have too many groups to be worth covering."""
    left_count: int = 0
    """Blocks that are still to be read: more than `limit`."""

    __repr__ = one_line("version=snapshot.version block_count skipped_count left_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What one index needs."""

    definition: IndexDefinition
    aggregate: Aggregate
    missing: tuple[Block, ...]
    small: tuple[IndexPart, ...]
    """Parts that cover few blocks of the head: they are merged with what is new."""
    dead: tuple[IndexPart, ...]
    """Parts that cover no block of the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """Parts that were put, and those that they replace."""

    index_id: str
    new: tuple[IndexPart, ...]
    old: frozenset[str]


def refresh_indexes(
    committer: Committer, *, limit: int | None = None, progress: Progress | None = None
) -> IndexRefresh:
    """Compute what indexes lack; arguments and errors of `Table.refresh_indexes`."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInputError("limit must be a number of blocks, from 1", limit=limit)
    head = committer.head().snapshot
    indexes = load_index_list(committer.metadata, head.index_list)
    if not indexes.definitions:
        return IndexRefresh()
    work = list(_plan(committer.metadata, head, indexes))
    missing = sum(len(one.missing) for one in work)
    total = missing if limit is None else min(limit, missing)
    if not total and not any(one.dead for one in work):
        return IndexRefresh()
    committer.prepare()
    return _Refresh(committer, head, total, progress).run(work, left_count=missing - total)


class _Refresh:
    """One run over the indexes of a head."""

    def __init__(
        self, committer: Committer, head: Snapshot, total: int, progress: Progress | None
    ) -> None:
        self._committer = committer
        self._metadata = committer.metadata
        self._head = head
        self._total = total
        self._progress = progress
        self._result = IndexRefresh()
        self._done: list[_Done] = []
        self._since_s = self._metadata.clock.monotonic_s()

    def run(self, work: Sequence[_Work], *, left_count: int) -> IndexRefresh:
        """Compute and commit; return the result."""
        left = self._total
        for one in work:
            blocks = one.missing[:left]
            left -= len(blocks)
            self._cover(one, blocks)
        self._commit()
        return dataclasses.replace(self._result, left_count=left_count)

    def _cover(self, work: _Work, blocks: Sequence[Block]) -> None:
        if work.dead:
            dead = frozenset(part.id for part in work.dead)
            self._done.append(_Done(index_id=work.definition.id, new=(), old=dead))
        small = work.small if blocks else ()
        computed = self._computed(work.aggregate, blocks)
        # Lists of blocks are short: parts are put while the next blocks are read.
        states = self._of_parts(work, small)
        for chunk in _chunks(states, computed):
            covered = {block_id: table for block_id, table in chunk if table is not None}
            skipped = [block_id for block_id, table in chunk if table is None]
            self._put(work, covered, skipped)
            if self._metadata.clock.monotonic_s() - self._since_s > COMMIT_EVERY_S:
                self._commit()

    def _of_parts(
        self, work: _Work, parts: Sequence[IndexPart]
    ) -> Iterator[tuple[str, pa.Table | None]]:
        """Yield the states of blocks of the head that parts cover already; drop the parts."""
        if not parts:
            return
        live = {block.id for block in iter_blocks(self._metadata, self._head)}
        for part in parts:
            try:
                held = load_part(self._metadata.store, part, work.aggregate)
            except CorruptObjectError:
                held = {}  # its blocks are computed by the next refresh
            old = frozenset({part.id})
            self._done.append(_Done(index_id=work.definition.id, new=(), old=old))
            yield from ((block_id, held[block_id]) for block_id in held if block_id in live)
            yield from ((block_id, None) for block_id in part.skipped if block_id in live)

    def _computed(
        self, aggregate: Aggregate, blocks: Sequence[Block]
    ) -> Iterator[tuple[str, pa.Table | None]]:
        store = self._metadata.store
        workers = min(pa.cpu_count(), MOST_WORKERS)
        act = partial(block_states, store, aggregate)
        for block, states in zip(
            blocks, each(act, blocks, store, at_once=workers, ahead=1), strict=True
        ):
            is_worth = len(states) * ROWS_PER_GROUP <= block.row_count
            is_worth = is_worth and len(states) <= MAX_BLOCK_GROUPS
            count, skipped = self._result.block_count + 1, self._result.skipped_count
            self._result = dataclasses.replace(
                self._result, block_count=count, skipped_count=skipped + (not is_worth)
            )
            if self._progress is not None:
                self._progress(count, self._total)
            yield block.id, states if is_worth else None

    def _put(self, work: _Work, covered: dict[str, pa.Table], skipped: Sequence[str]) -> None:
        part = store_part(self._metadata, work.aggregate, work.definition.id, covered, skipped)
        if part is None:  # too many bytes: none of its blocks is worth covering
            part = store_part(
                self._metadata, work.aggregate, work.definition.id, {}, [*covered, *skipped]
            )
        if part is not None:
            self._done.append(_Done(index_id=work.definition.id, new=(part,), old=frozenset()))

    def _commit(self) -> None:
        """Commit what was put: the list of whatever head is changed, so nothing is lost."""
        if not self._done:
            return
        done, self._done = self._done, []
        count = sum(len(part.blocks) for one in done for part in one.new)

        def change(head: Snapshot, indexes: IndexList) -> IndexList:
            if may_be_gone(self._head.epoch, head):
                raise ConflictError(
                    "the refresh took so long that vacuum may have deleted what it put; call it "
                    "again",
                    branch=head.branch_id,
                )
            return _changed(indexes, done)

        try:
            snapshot = commit_indexes(
                self._committer, change, f"refresh indexes: {count:,} blocks covered"
            )
        except NothingToDoError:
            return
        self._result = dataclasses.replace(self._result, snapshot=snapshot)
        self._since_s = self._metadata.clock.monotonic_s()


def _changed(indexes: IndexList, done: Sequence[_Done]) -> IndexList:
    """Return a list with what was done: the union, if others have changed the list meanwhile."""
    old = frozenset().union(*(one.old for one in done))
    parts = [part for part in indexes.parts if part.id not in old]
    known = {one.id for one in indexes.definitions}
    listed = sum(len(part.blocks) + len(part.skipped) for part in parts)
    held = {fact for part in parts for fact in _facts(part)}
    for one in done:
        if one.index_id not in known:
            continue  # dropped meanwhile
        for part in one.new:
            facts = _facts(part)
            if not held.issuperset(facts) and listed + len(facts) <= MAX_LISTED_BLOCKS:
                parts.append(part)
                listed += len(facts)
                held |= facts
    return dataclasses.replace(indexes, parts=tuple(parts))


def _facts(part: IndexPart) -> set[tuple[str, tuple[str, ...], str]]:
    """Return what a part says something of: an index, for types of its columns, of a block."""
    return {(part.index, part.types, block_id) for block_id in (*part.blocks, *part.skipped)}


def block_states(store: Store, aggregate: Aggregate, block: Block) -> pa.Table:
    """Return the states of the rows that a block shows.

    Raises:
        CorruptObjectError: the block is missing or damaged.
        InvalidInputError: the block is in another table, whose location the user did not allow.
    """
    if not aggregate.read.columns:
        return states_of_count(aggregate, block.live_rows)
    return states_of_rows(aggregate, load_block(store, block, aggregate.read))


def _plan(metadata: Metadata, head: Snapshot, indexes: IndexList) -> Iterator[_Work]:
    blocks = list(iter_blocks(metadata, head))
    live = {block.id for block in blocks}
    for definition in indexes.definitions:
        parts = indexes.parts_of(definition)
        try:
            aggregate = bind(definition.columns, head.schema)
        except InvalidInputError:
            continue  # the head lacks a column: other versions and branches may still use the parts
        if private_columns(aggregate, head):
            continue
        dead = tuple(
            part for part in parts if live.isdisjoint(part.blocks) and live.isdisjoint(part.skipped)
        )
        usable = usable_parts(tuple(part for part in parts if part not in dead), definition, head)
        known = set(covered_by(usable)).union(*(part.skipped for part in usable))
        yield _Work(
            definition=definition,
            aggregate=aggregate,
            missing=tuple(
                block for block in blocks if block.id not in known and can_cover(block, head)
            ),
            small=tuple(part for part in usable if _live_count(part, live) < MAX_PART_BLOCKS // 2),
            dead=dead,
        )


def _live_count(part: IndexPart, live: set[str]) -> int:
    return sum(block_id in live for block_id in (*part.blocks, *part.skipped))


def _chunks(
    *states: Iterable[tuple[str, pa.Table | None]],
) -> Iterator[list[tuple[str, pa.Table | None]]]:
    """Yield as many blocks at a time as a part covers."""
    everything = (one for each_of in states for one in each_of)
    for first in everything:
        yield [first, *islice(everything, MAX_PART_BLOCKS - 1)]
