"""Upsert rows by the key of a table: each arriving row replaces the row with its key, or is new.

Rules:
- A table has one row of each key at every version. The first upsert of a table without a key sets
  the key, after a check that its rows are unique.
- The commit has the effect of an upsert that runs alone on the head on which it lands: on another
  head the keys are looked for again, in the blocks that came and those of which rows came back.
- Arriving rows are put once, as for an append; the rows that they replace are hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.commit.stage import measure_rows, stage_deletions, stage_rows
from fuse_stream.dml.arriving import ArrivingRows, StageRows
from fuse_stream.dml.keys import (
    KeySearch,
    check_keys,
    check_unique,
    key_of,
    key_schema,
)
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.positions import Positions, positions_of
from fuse_stream.format.records import Block, Operation, Snapshot, rows_of
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata, Stored


def upsert_rows(
    committer: Committer,
    rows: pa.Table,
    *,
    keys: Sequence[str] | None,
    merge_schema: bool,
    batch: Batch | None,
    author: str,
    message: str,
) -> ChangeResult:
    """Upsert Arrow rows; arguments and errors of `Table.upsert`."""
    is_numbered = batch is not None and batch.is_numbered

    def stage(head: Stored, before: Staged | None) -> Staged:
        def check(whole: pa.Table, schema: Schema) -> None:
            check_keys(whole, key_schema(schema, key_ids(head.snapshot, schema, keys)))

        return stage_rows(
            committer.metadata,
            head,
            before,
            rows,
            merge_schema=merge_schema,
            is_numbered=is_numbered,
            operation=Operation.UPSERT,
            check=check,
        )

    staging = UpsertStaging(committer.metadata, stage, keys=keys, may_be_empty=is_numbered)
    intent = Intent(operation=Operation.UPSERT, batch=batch, author=author, message=message)
    committer.head()  # the known one may lack the key, or have another
    measure = partial(measure_rows, rows=rows) if is_numbered else None
    try:
        outcome = committer.commit(intent, staging.stage, measure=measure)
    except NothingToDoError:
        return ChangeResult()
    return staging.result(outcome.snapshot)


def set_key(committer: Committer, columns: Sequence[str], *, replan: bool) -> Snapshot:
    """Set the key of a table; errors of `Table.set_key`."""

    def stage(head: Stored, _before: Staged | None) -> Staged:
        schema = head.snapshot.schema
        if head.snapshot.sequence is not None:
            raise SchemaMismatchError(
                "the rows of this table come from events with sequences, by the key of these: "
                "write the events to a new table with another key"
            )
        key = key_of(schema, columns)
        if key:
            check_unique(committer.metadata, head.snapshot, key)
        return Staged(schema=schema, key=key, is_for_one_head=True)

    stage(committer.head(), None)  # raises before anything is written
    message = f"key {', '.join(columns)}" if columns else "no key"
    intent = Intent(operation=Operation.ALTER, message=message)
    return committer.commit(intent, stage, replan=replan).stored.snapshot


class UpsertStaging:
    """Stages an upsert on one head after another; the rows are put once, if possible."""

    def __init__(
        self,
        metadata: Metadata,
        stage_rows: StageRows,
        *,
        keys: Sequence[str] | None,
        may_be_empty: bool,
    ) -> None:
        """Stage an upsert.

        Args:
            metadata: the table.
            stage_rows: puts the arriving rows.
            keys: the columns of the key; None for the key that the table has.
            may_be_empty: whether there is something to commit if no row arrives: a batch's number.
        """
        self._metadata = metadata
        self._arriving = ArrivingRows(stage_rows)
        self._keys = keys
        self._may_be_empty = may_be_empty
        self._inserted = self._updated = 0
        """By the upsert on the last head."""

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        head = on.snapshot
        if head.sequence is not None:
            raise SchemaMismatchError(
                "the rows of this table come from events with sequences: name the column that "
                "orders the events of a key, with sequence_by"
            )
        rows = self._arriving.staged_on(on)
        key = key_ids(head, rows.schema, self._keys)
        if not head.key:
            check_unique(self._metadata, head, key)
        if rows.ref is None:
            if not self._may_be_empty and head.key:
                raise NothingToDoError
            return dataclasses.replace(rows, key=key, is_for_one_head=True)
        keys = key_schema(rows.schema, key)
        blocks = self._metadata.load_segment(rows.ref, rows.schema.leaf_types).blocks
        arriving = pa.concat_tables(
            load_block(self._metadata.store, block, keys) for block in blocks
        )
        check_keys(arriving, keys)
        found = KeySearch(keys, arriving).find(self._metadata, head)
        hidden = rows_of(found.blocks)
        self._updated = int(found.is_known.sum())
        self._inserted = len(arriving) - self._updated
        updated = {**hidden, **marked_rows(blocks, found.is_known)} if hidden else {}
        return dataclasses.replace(
            rows,
            key=key,
            deletions=stage_deletions(self._metadata, hidden, updated) if hidden else (),
            is_for_one_head=True,
        )

    def result(self, snapshot: Snapshot) -> ChangeResult:
        """Return what the commit of `snapshot` did; nothing, if the batch was a replay."""
        if snapshot.replayed:
            return ChangeResult(snapshot=snapshot)
        return ChangeResult(snapshot=snapshot, inserted=self._inserted, updated=self._updated)


def key_ids(head: Snapshot, schema: Schema, names: Sequence[str] | None) -> tuple[int, ...]:
    """Return the ids of the key of an upsert on a head; `schema` is the table's after the commit.

    Raises:
        InvalidInputError: the table has no key and none is named, or it has another one.
    """
    if names is None:
        if not head.key:
            raise InvalidInputError(
                'the table has no key: name the columns by which rows are unique, keys=["id"]'
            )
        return head.key
    key = key_of(schema, names)
    if not key:
        raise InvalidInputError("name at least one column of the key", keys=list(names))
    if head.key and set(head.key) != set(key):
        known = {column.id: column.name for column in head.schema.columns}
        raise InvalidInputError(
            "the table has another key; leave keys out, or change the key (set_key)",
            keys=list(names),
            key=[known[column] for column in head.key],
        )
    return head.key or key


def marked_rows(blocks: Sequence[Block], is_marked: np.ndarray) -> dict[str, Positions]:
    """Return the marked rows of blocks, whose rows are numbered from the first block's on."""
    first, found = 0, {}
    for block in blocks:
        rows = np.flatnonzero(is_marked[first : first + block.row_count])
        if len(rows):
            found[block.id] = positions_of(rows)
        first += block.row_count
    return found
