"""Apply a change feed to a table without a key, so that it has the rows of the table that is fed.

Rules:
- Deletes and inserts are multisets: what a batch deletes and inserts again cancels out, and of
  equal rows as many are deleted as the feed says. So the order within a batch does not matter.
- A row that is deleted and is not there is an error: the rows between the two tables were not
  computed in the same way each time.
- The commit has the effect of one that runs alone on the head on which it lands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_deletions, stage_rows
from fuse_stream.dml.arriving import ArrivingRows
from fuse_stream.dml.keys import Candidates, Places, readable
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import ConflictError, InvalidInputError, SchemaMismatchError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.evolve import resolve
from fuse_stream.format.feed_columns import (
    CHANGE_TYPE,
    DELETE,
    FEED_FIELDS,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
)
from fuse_stream.format.grouping import cancel_equal_rows, grouping_keys, groups_of
from fuse_stream.format.positions import positions_of
from fuse_stream.format.records import Block, Operation, Snapshot, rows_of
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.storage.base import Store

REMOVED, ADDED = frozenset({DELETE, PREIMAGE}), frozenset({INSERT, POSTIMAGE})
_SHOWN = 3
"""The most missing rows that an error names."""


def replicate_rows(
    committer: Committer, changes: pa.Table, *, merge_schema: bool, author: str, message: str
) -> ChangeResult:
    """Apply the rows of a feed; arguments and errors of `Table.replicate`."""
    staging = ReplicateStaging(
        committer.metadata, changes, merge_schema=merge_schema, case_sensitive=False
    )
    if not staging.deleted and not staging.inserted:
        return ChangeResult()
    intent = Intent(operation=Operation.REPLICATE, author=author, message=message)
    committer.head()  # the known one may have another schema, or a key
    snapshot = committer.commit(intent, staging.stage).snapshot
    return ChangeResult(snapshot=snapshot, inserted=staging.inserted, deleted=staging.deleted)


class ReplicateStaging:
    """Stages a batch of changes on one head after another."""

    def __init__(
        self, metadata: Metadata, changes: pa.Table, *, merge_schema: bool, case_sensitive: bool
    ) -> None:
        """Read the changes.

        Args:
            metadata: the table.
            changes: rows of a feed: the columns of the table, and `_change_type`. The other columns
                of a feed are left out.
            merge_schema: let the changes add columns and widen types.
            case_sensitive: whether columns whose names differ in case are different ones.

        Raises:
            InvalidInputError: the rows are not those of a feed.
        """
        removed, inserted = net_changes(changes)
        self.deleted, self.inserted = len(removed), len(inserted)
        """Rows, after what is both deleted and inserted was left out."""

        self._metadata = metadata
        self._removed = removed
        self._merge_schema = merge_schema
        self._case_sensitive = case_sensitive

        def stage_inserted(on: Stored, before: Staged | None) -> Staged:
            return stage_rows(
                metadata,
                on,
                before,
                inserted,
                merge_schema=merge_schema,
                case_sensitive=case_sensitive,
                operation=Operation.REPLICATE,
            )

        self._arriving = ArrivingRows(stage_inserted)

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        head = on.snapshot
        if head.key:
            raise SchemaMismatchError(
                'the table has a key: apply the changes with mode="upsert", or remove the key '
                "(set_key([]))"
            )
        staged = self._arriving.staged_on(on)
        if not len(self._removed):
            return staged
        columns = columns_of_arrow(self._removed.schema)
        schema, resolved = resolve(
            head.schema,
            columns,
            merge_schema=self._merge_schema,
            case_sensitive=self._case_sensitive,
        )
        shown = schema.visible
        hidden = find_equal(self._metadata, head, shown, adapt(self._removed, resolved, shown))
        return dataclasses.replace(
            staged,
            deletions=stage_deletions(self._metadata, rows_of(hidden)),
            is_for_one_head=True,
        )


def net_changes(changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that changes remove and insert, without what they both remove and insert.

    Raises:
        InvalidInputError: there is no column `_change_type`, or it has another value than a feed's.
    """
    if CHANGE_TYPE not in changes.column_names:
        raise InvalidInputError(
            'to replicate a table, read it with feed="changes", and keep the column _change_type',
            columns=changes.column_names,
        )
    if len(set(changes.column_names)) < changes.num_columns:
        raise InvalidInputError("two columns have the same name", columns=changes.column_names)
    kinds = changes.column(CHANGE_TYPE)
    unknown = set(pc.unique(kinds).to_pylist()) - REMOVED - ADDED
    if unknown:
        raise InvalidInputError(
            "_change_type has another value than a change feed's",
            values=sorted(map(str, unknown)),
            known=sorted(REMOVED | ADDED),
        )
    added_by_feed = {field.name for field in FEED_FIELDS}
    names = [name for name in changes.column_names if name not in added_by_feed]
    rows = changes.select(names)
    is_removed = pc.is_in(kinds, value_set=pa.array(sorted(REMOVED)))
    return cancel_equal_rows(rows.filter(is_removed), rows.filter(pc.invert(is_removed)))


def find_equal(
    metadata: Metadata, head: Snapshot, schema: Schema, wanted: pa.Table
) -> tuple[Block, ...]:
    """Return blocks of a head that show rows equal to `wanted`, as many of each as it has.

    `wanted` has the columns of `schema`, which has all columns of the head but hidden ones.

    Raises:
        ConflictError: the head has fewer of a row; names some.
    """
    keys = grouping_keys(wanted)
    first, counts = groups_of(keys)
    missing = counts.to_numpy().copy()
    places = Places(keys.take(first))
    blocks = Candidates(schema, wanted).iter_blocks(metadata, head)
    found = tuple(_found(metadata.store, blocks, schema, places, missing))
    if missing.any():
        examples = wanted.take(first.take(pa.array(np.flatnonzero(missing)[:_SHOWN])))
        raise ConflictError(
            "the changes delete rows that the table does not have: the rows were computed in "
            "another way when they were inserted, or the table was changed by others. Rewind the "
            "table with its query, or make it anew from the whole feed",
            rows=int(missing.sum()),
            examples=[str(row) for row in readable(examples)],
        )
    return found


def _found(
    store: Store, blocks: Iterable[Block], schema: Schema, places: Places, missing: np.ndarray
) -> Iterator[Block]:
    """Yield blocks that show wanted rows; lower the counts of `missing` by these rows."""
    for block in blocks:
        if not missing.any():
            return
        rows = load_block(store, block.hiding(None), schema)
        at, groups = places.find(grouping_keys(rows))
        if block.hidden is not None:
            is_shown = ~np.isin(at, np.asarray(block.hidden.to_array(), np.int64))
            at, groups = at[is_shown], groups[is_shown]
        order = np.argsort(groups, kind="stable")
        at, groups = at[order], groups[order]
        starts = np.searchsorted(groups, groups)  # where the rows of each group begin
        is_taken = np.arange(len(at)) - starts < missing[groups]
        taken = at[is_taken]
        if len(taken):
            missing -= np.bincount(groups[is_taken], minlength=len(missing))
            yield block.showing(positions_of(taken))
