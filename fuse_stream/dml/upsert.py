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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged, is_stale
from fuse_stream.commit.stage import measure_rows, stage_deletions, stage_rows
from fuse_stream.dml.keys import (
    KeyCache,
    KeySearch,
    check_keys,
    check_unique,
    key_of,
    key_schema,
)
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.positions import Positions, positions_of
from fuse_stream.format.records import Block, Operation, Snapshot, rows_of
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata, Stored

StageRows = Callable[[Stored, Staged | None], Staged]
"""Puts the arriving rows for a head, as an append does; gets what it staged before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """What to upsert, whatever head it is committed on."""

    keys: Sequence[str] | None
    """The columns of the key; None for the key that the table has."""
    stage: StageRows
    batch: Batch | None = None
    author: str = ""
    message: str = ""
    measure: Callable[[Stored], BatchSums] | None = None
    """Returns the sums of the rows, to compare a replay with; only for numbered batches."""


def upsert(committer: Committer, cache: KeyCache, wanted: Upsert) -> ChangeResult:
    """Commit an upsert; errors of `Table.upsert`."""
    staging = _Staging(committer.metadata, cache, wanted)
    intent = Intent(
        operation=Operation.UPSERT,
        batch=wanted.batch,
        author=wanted.author,
        message=wanted.message,
    )
    committer.head()  # the known one may lack the key, or have another
    try:
        outcome = committer.commit(intent, staging.stage, measure=wanted.measure)
    except NothingToDoError:
        return ChangeResult()
    snapshot = outcome.snapshot
    if snapshot.replayed:
        return ChangeResult(snapshot=snapshot)
    return ChangeResult(snapshot=snapshot, inserted=staging.inserted, updated=staging.updated)


def upsert_rows(
    committer: Committer,
    cache: KeyCache,
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

    wanted = Upsert(
        keys=keys,
        stage=stage,
        batch=batch,
        author=author,
        message=message,
        measure=partial(measure_rows, rows=rows) if is_numbered else None,
    )
    return upsert(committer, cache, wanted)


def set_key(committer: Committer, columns: Sequence[str], *, replan: bool) -> Snapshot:
    """Set the key of a table; errors of `Table.set_key`."""

    def stage(head: Stored, _before: Staged | None) -> Staged:
        schema = head.snapshot.schema
        key = key_of(schema, columns)
        if key:
            check_unique(committer.metadata, head.snapshot, key)
        return Staged(schema=schema, key=key, is_for_one_head=True)

    stage(committer.head(), None)  # raises before anything is written
    message = f"key {', '.join(columns)}" if columns else "no key"
    intent = Intent(operation=Operation.ALTER, message=message)
    return committer.commit(intent, stage, replan=replan).stored.snapshot


class _Staging:
    """Stages an upsert on one head after another; the rows are put once, if possible."""

    def __init__(self, metadata: Metadata, cache: KeyCache, wanted: Upsert) -> None:
        self.inserted = self.updated = 0
        """By the upsert on the last head."""

        self._metadata = metadata
        self._cache = cache
        self._wanted = wanted
        self._put: tuple[Staged, Snapshot] | None = None
        """The arriving rows, and the head for which they were put."""

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        head = on.snapshot
        rows = self._rows(on)
        key = key_ids(head, rows.schema, self._wanted.keys)
        if not head.key:
            check_unique(self._metadata, head, key)
        if rows.ref is None:
            if self._wanted.batch is None and head.key:
                raise NothingToDoError
            return dataclasses.replace(rows, key=key, is_for_one_head=True)
        keys = key_schema(rows.schema, key)
        blocks = self._metadata.load_segment(rows.ref, rows.schema.leaf_types).blocks
        arriving = pa.concat_tables(
            load_block(self._metadata.store, block, keys) for block in blocks
        )
        check_keys(arriving, keys)
        found = KeySearch(keys, arriving).find(self._metadata, head, self._cache)
        hidden = rows_of(found.blocks)
        self.updated = int(found.is_known.sum())
        self.inserted = len(arriving) - self.updated
        updated = {**hidden, **_updated(blocks, found.is_known)} if hidden else {}
        return dataclasses.replace(
            rows,
            key=key,
            deletions=stage_deletions(self._metadata, hidden, updated) if hidden else (),
            is_for_one_head=True,
        )

    def _rows(self, on: Stored) -> Staged:
        """Return the arriving rows, put for this head or for one that they fit as well."""
        if self._put is not None and not is_stale(*self._put, on.snapshot):
            return self._put[0]
        staged = self._wanted.stage(on, self._put and self._put[0])
        self._put = staged, on.snapshot
        return staged


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


def _updated(blocks: Sequence[Block], is_known: np.ndarray) -> dict[str, Positions]:
    """Return the rows of new blocks whose keys were known, by block."""
    first, found = 0, {}
    for block in blocks:
        rows = np.flatnonzero(is_known[first : first + block.row_count])
        if len(rows):
            found[block.id] = positions_of(rows)
        first += block.row_count
    return found
