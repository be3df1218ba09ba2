"""Answer an aggregate at one version: merge the states of parts, and compute the rest.

Rules:
- A part counts for a block that the version names and of which it hides no row. All other blocks
  are read, so the answer is exact at every version and on every branch.
- A part that is missing or damaged costs time: its blocks are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.indexes import IndexPart
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.indexes.define import covered_by, get_definition, usable_parts
from fuse_stream.indexes.parts import load_states
from fuse_stream.indexes.refresh import block_states
from fuse_stream.indexes.results import keys_of, result_of
from fuse_stream.indexes.spec import Aggregate, bind
from fuse_stream.indexes.states import merge_states
from fuse_stream.objects.blocks import is_small
from fuse_stream.objects.indexes import load_index_list
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.reading.history import expiry_reported
from fuse_stream.reading.scan import READERS, Selection, select, stats_may_match
from fuse_stream.storage.parallel import each

MERGED_ROWS = 1_000_000
"""Rows of states that are kept in memory before they are merged."""

_log = logging.getLogger(__name__)


def aggregate(
    metadata: Metadata,
    head: Snapshot,
    snapshot: Snapshot,
    name: str,
    *,
    where: str | None = None,
    time_zone: str = "UTC",
) -> pa.Table:
    """Return the result of an index of `head` at `snapshot`; errors of `Table.aggregate`."""
    indexes = load_index_list(metadata, head.index_list)
    definition = get_definition(indexes, name)
    bound = bind(definition.columns, snapshot.schema)
    keys = bound.key_schema
    selection = None if where is None else select(keys, where=where, time_zone=time_zone)
    parts = usable_parts(indexes.parts_of(definition), definition, snapshot)
    with expiry_reported(metadata, (snapshot.branch_id, snapshot.version)):
        states = _Answer(metadata, snapshot, bound, selection).states(parts)
    if selection is not None and selection.predicate is not None:
        states = states.filter(filter_mask(selection.predicate, keys_of(bound, states)))
    return result_of(bound, states)


class _Answer:
    def __init__(
        self,
        metadata: Metadata,
        snapshot: Snapshot,
        bound: Aggregate,
        selection: Selection | None,
    ) -> None:
        self._metadata = metadata
        self._snapshot = snapshot
        self._bound = bound
        self._selection = selection

    def states(self, parts: Sequence[IndexPart]) -> pa.Table:
        """Return the states of all groups of the snapshot."""
        covered = covered_by(tuple(parts))
        wanted: dict[str, dict[str, Block]] = {}
        rest: list[Block] = []
        for block in iter_blocks(self._metadata, self._snapshot):
            part = covered.get(block.id) if block.hidden is None else None
            if part is None:
                rest.append(block)
            else:
                wanted.setdefault(part.id, {})[block.id] = block
        used = [part for part in parts if part.id in wanted]
        held: list[pa.Table] = []
        for table in self._of_parts(used, wanted, rest):
            self._keep(held, table)
        for table in self._of_blocks(rest):
            self._keep(held, table)
        return merge_states(self._bound, held)

    def _keep(self, held: list[pa.Table], table: pa.Table) -> None:
        held.append(table)
        if sum(map(len, held)) > MERGED_ROWS and len(held) > 1:
            held[:] = [merge_states(self._bound, held)]

    def _of_parts(
        self, parts: Sequence[IndexPart], wanted: dict[str, dict[str, Block]], rest: list[Block]
    ) -> Iterator[pa.Table]:
        """Yield the states in parts; blocks of those that cannot be read are added to `rest`."""
        store = self._metadata.store

        def load(part: IndexPart) -> pa.Table | CorruptObjectError:
            try:
                return load_states(store, part, self._bound, wanted[part.id])
            except CorruptObjectError as error:
                return error

        for part, found in zip(parts, each(load, parts, store, at_once=READERS), strict=True):
            if isinstance(found, CorruptObjectError):
                _log.warning("the rows of %d blocks are read: %s", len(wanted[part.id]), found)
                rest += wanted[part.id].values()
            else:
                yield found

    def _of_blocks(self, blocks: Sequence[Block]) -> Iterator[pa.Table]:
        store = self._metadata.store
        needed = [block for block in blocks if block.live_rows and self._may_match(block)]
        for are_small in (True, False):
            some = [block for block in needed if is_small(block) is are_small]
            at_once = READERS if are_small and store.is_remote else 1
            yield from each(
                lambda block: block_states(store, self._bound, block), some, store, at_once=at_once
            )

    def _may_match(self, block: Block) -> bool:
        selection = self._selection
        return selection is None or stats_may_match(selection, block.col_stats, block.row_count)
