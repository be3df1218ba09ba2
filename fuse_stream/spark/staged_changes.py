"""Stage the changed rows that Spark's tasks have found, for the head of which they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa

from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.commit.stage import stage_blocks, stage_deletions
from fuse_stream.dml.event_sides import stage_by_hand
from fuse_stream.dml.keys import KeySearch, check_keys, key_schema
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import AmbiguousMergeError, ConflictError, InvalidInputError
from fuse_stream.format.evolve import relaxed
from fuse_stream.format.grouping import codes_of, grouping_keys
from fuse_stream.format.hidden_columns import COLUMN_SEQUENCES, LAST_COLUMN, ROW_SEQUENCE
from fuse_stream.format.positions import BlockRows, all_rows, minus, union
from fuse_stream.format.records import Operation, Snapshot, rows_of
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_named
from fuse_stream.spark.change_writer import ChangedRows
from fuse_stream.table.handle import Table


def commit_read(
    table: Table, read: Snapshot, intent: Intent, stage: Callable[[Snapshot], Staged]
) -> Snapshot | None:
    """Commit what was computed from the snapshot `read`; return None if `stage` has nothing to do.

    If another snapshot is the head already, nothing is put.

    Raises:
        ConflictError: `read` is not the head any more; nothing was committed.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """

    def stage_on(on: Stored, _before: Staged | None) -> Staged:
        if on.snapshot.snapshot_id != read.snapshot_id:
            raise _moved(read)
        return stage(on.snapshot)

    try:
        if table.committer.was_behind():
            raise _moved(read)
        return table.committer.commit(intent, stage_on, replan=False).snapshot
    except NothingToDoError:
        return None
    except ConflictError as error:
        raise (_moved(read) if table.committer.was_behind() else error) from error


def _moved(read: Snapshot) -> ConflictError:
    return ConflictError(
        "another writer committed while the statement ran, and nothing was committed: run the "
        "statement again",
        read=read.version,
    )


def stage_changes(
    metadata: Metadata,
    head: Snapshot,
    schema: Schema,
    found: ChangedRows,
    operation: Operation,
    *,
    is_numbered: bool = False,
) -> tuple[Staged, ChangeResult]:
    """Put the objects of a commit of changed rows on `head`; return the numbers of rows, too.

    `schema` is the table's after the commit. A numbered batch is committed also without rows.

    Raises:
        NothingToDoError: there is no row.
        AmbiguousMergeError: several rows of the source act on one row, or rows of a table with a
            key would not be unique.
        InvalidInputError: a key would have a null, or rows from events get other keys.
    """
    if found.ambiguous:
        raise _ambiguous(metadata, head, found.ambiguous)
    blocks, hidden = (*found.updates, *found.inserts), union(found.deleted, found.updated)
    result = ChangeResult(
        inserted=sum(block.row_count for block in found.inserts),
        updated=sum(map(len, found.updated.values())),
        deleted=sum(map(len, found.deleted.values())),
    )
    if not blocks and not hidden and not is_numbered:
        raise NothingToDoError
    staged = stage_blocks(metadata, head, schema, blocks, epoch=head.epoch)
    if head.key and blocks:
        _check_keys(metadata, head, schema, staged, hidden)
    if head.sequence is not None and found.updates:
        _check_same_keys(metadata, head, schema, found)
    updates: BlockRows = {}
    if operation is Operation.MERGE:
        new = {block.id: all_rows(block.row_count) for block in found.updates}
        updates = union(found.updated, new)
    deleted = (
        block.showing(found.deleted[block.id])
        for block in iter_named(metadata, head, found.deleted)
    )
    staged = dataclasses.replace(
        staged,
        deletions=stage_deletions(metadata, hidden, updates),
        sides=stage_by_hand(metadata, head, deleted),
        is_for_one_head=True,
    )
    return staged, result


def _check_keys(
    metadata: Metadata, head: Snapshot, schema: Schema, staged: Staged, hidden: BlockRows
) -> None:
    """Raise unless the rows of the table are unique by its key after the commit.

    Raises:
        AmbiguousMergeError: two rows would have one key.
        InvalidInputError: a key would have a null.
    """
    keys = key_schema(schema, head.key)
    assert staged.ref is not None
    blocks = metadata.load_segment(staged.ref, schema.leaf_types).blocks
    arriving = pa.concat_tables(load_block(metadata.store, block, keys) for block in blocks)
    check_keys(arriving, keys)
    found = KeySearch(keys, arriving).find(metadata, head)
    if doubles := minus(rows_of(found.blocks), hidden):
        raise AmbiguousMergeError(
            "the changes would bring second rows of keys that the table has",
            key=list(keys.names()),
            rows=sum(map(len, doubles.values())),
        )


def _check_same_keys(
    metadata: Metadata, head: Snapshot, schema: Schema, found: ChangedRows
) -> None:
    """Raise InvalidInputError if an update gives rows, which come from events, other keys.

    Sequences are of keys: two rows that exchange their keys must not exchange these.
    """
    keys = key_schema(schema, head.key)
    own = (ROW_SEQUENCE, COLUMN_SEQUENCES, LAST_COLUMN)
    kept = with_columns(schema, head.key, [name for name in own if name in schema.names()])
    old = [
        block.showing(found.updated[block.id])
        for block in iter_named(metadata, head, found.updated)
    ]
    wanted = relaxed(kept)
    rows = [load_block(metadata.store, block, wanted) for block in (*old, *found.updates)]
    codes = codes_of(grouping_keys(pa.concat_tables(rows)))
    count = sum(block.live_rows for block in old)
    if set(codes[:count].tolist()) != set(codes[count:].tolist()):
        raise InvalidInputError(
            "the key of rows that come from events cannot be updated: send a delete of the old "
            "key and an upsert of the new one",
            key=list(keys.names()),
        )


def _ambiguous(metadata: Metadata, head: Snapshot, rows: BlockRows) -> AmbiguousMergeError:
    block = next(iter_named(metadata, head, rows))
    names = {column.id: column for column in head.schema.columns}
    columns = tuple(names[at] for at in head.key) or head.schema.columns
    wanted = dataclasses.replace(head.schema, columns=columns)
    example = load_block(metadata.store, block.showing(rows[block.id]), wanted).slice(0, 1)
    return AmbiguousMergeError(
        "several rows of the source act on one row of the table, so what becomes of it is not "
        "certain: let the source have one row for each",
        row=str(example.to_pylist()[0])[:200],
        rows=sum(map(len, rows.values())),
    )
