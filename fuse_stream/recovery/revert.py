"""Undo one commit: remove the rows that it added, and add those that it removed.

The head must still have the added rows, in the same blocks. If a later commit has rewritten or
removed one, it can no longer be found, and the error names that commit. If the head lacks a column
of the blocks that come back, the column comes back with them.

What the commit did to sides is undone in the same way, each side for itself. A list of rows has a
name here: `ROWS` for those of the table, the side's for those of a side.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Content, Intent, Staged, parent_of
from fuse_stream.commit.replace import Exchange, stage_difference
from fuse_stream.dml.keys import KeySearch, check_keys, key_schema
from fuse_stream.errors import (
    AmbiguousMergeError,
    ConflictError,
    InvalidInputError,
    SchemaMismatchError,
    SnapshotExpiredError,
)
from fuse_stream.feed.diff import BlockDiff, diff_plain_commit, diff_snapshots
from fuse_stream.format.evolve import restored
from fuse_stream.format.names import Version
from fuse_stream.format.operations import BRINGS_ROWS, CHANGES_ROWS, KEEPS_ROWS
from fuse_stream.format.positions import BlockRows, common, minus, union
from fuse_stream.format.records import TAKES_CONTENT, Operation, Side, Snapshot, rows_of
from fuse_stream.format.schema import Schema
from fuse_stream.format.sides import side_or_empty
from fuse_stream.format.stats import merge_summaries
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.reading.history import History, load_parent

ROWS = ""

_CHANGES_BLOCKS = CHANGES_ROWS | {
    Operation.REVERT,
    Operation.OVERWRITE,
    Operation.COMPACT,
    Operation.RECLUSTER,
    Operation.ERASE,
}
"""Operations after which a row of an older block may be back, or no longer there."""


def revert(
    committer: Committer,
    version: Version,
    *,
    replan: bool = False,
    author: str = "",
    message: str = "",
) -> Snapshot:
    """Undo one commit, and return the new snapshot; arguments and errors of `Table.revert`."""
    metadata = committer.metadata
    history = History(metadata, committer.head())
    remedy = "a branch can revert only its own commits"
    target = history.get_own(version, branch=committer.branch.name, remedy=remedy)

    def stage(on: Stored, _before: Staged | None) -> Staged:
        return _stage(History(metadata, on), target)

    diffs = undone(history, target)  # raises before anything is written
    for name, diff in diffs.items():
        _restored(metadata, history.head.snapshot, target.snapshot, diff, name)
    intent = Intent(operation=Operation.REVERT, author=author, message=message)
    return committer.commit(intent, stage, replan=replan).stored.snapshot


def undone(history: History, target: Stored) -> dict[str, BlockDiff]:
    """Return the blocks to remove and to add on the head to undo the commit of `target`.

    They are given for each list of rows that the commit changed, by its name.

    Raises:
        InvalidInputError: the commit changed no row, or took the content of another snapshot.
        SnapshotExpiredError: the blocks that the commit removed have expired.
        ConflictError: a later commit has changed these blocks; names that commit.
    """
    metadata, head, snapshot = history.metadata, history.head.snapshot, target.snapshot
    if snapshot.operation in TAKES_CONTENT:
        raise InvalidInputError(
            "this commit took other content; to undo it, rewind to the version before it",
            version=snapshot.version,
            operation=str(snapshot.operation),
        )
    if snapshot.operation is Operation.ERASE:
        raise InvalidInputError(
            "an erasure is not undone; as long as an older version has the rows, read them there "
            "and append them",
            version=snapshot.version,
        )
    may_remove = snapshot.operation not in KEEPS_ROWS | {Operation.APPEND} or snapshot.sides
    if may_remove and snapshot.version <= history.floor:
        raise SnapshotExpiredError(
            "the commit cannot be undone: the blocks that it removed have expired",
            version=snapshot.version,
            first=history.floor + 1,
        )
    diffs = {
        name: diff
        for name in (ROWS, *_changed_sides(metadata, snapshot))
        if (diff := _diff(metadata, snapshot, name)).removed or diff.inserted
    }
    if not diffs:
        raise InvalidInputError(
            "this commit changed no row, so there is nothing to undo",
            version=snapshot.version,
            operation=str(snapshot.operation),
        )
    for name, diff in diffs.items():
        current = _rows(history, head, name)
        gone = minus(rows_of(diff.inserted), current)
        back: BlockRows = rows_of(diff.removed)
        if back:
            back = common(back, current) or _restored_since(history, target, back, name)
        if gone or back:
            raise _conflict(history, target, gone, back, name)
    return {
        name: BlockDiff(removed=diff.inserted, inserted=diff.removed)
        for name, diff in diffs.items()
    }


def _changed_sides(metadata: Metadata, snapshot: Snapshot) -> list[str]:
    """Return the names of the sides that a commit changed, or dropped."""
    if snapshot.operation in KEEPS_ROWS:
        return []
    if not snapshot.sides and snapshot.operation is not Operation.REVERT:
        return []  # no other of these operations drops a side
    before, after = load_parent(metadata, snapshot).sides, snapshot.sides
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _view(snapshot: Snapshot, name: str) -> Snapshot:
    return side_or_empty(snapshot, name) if name else snapshot


def _diff(metadata: Metadata, snapshot: Snapshot, name: str) -> BlockDiff:
    """Return the blocks that one commit removed and inserted, of the list of rows of this name."""
    if not name:
        return diff_plain_commit(metadata, snapshot)
    if snapshot.operation in KEEPS_ROWS:
        return BlockDiff()
    before = load_parent(metadata, snapshot)
    return diff_snapshots(metadata, _view(before, name), _view(snapshot, name))


def _restored_since(history: History, target: Stored, removed: BlockRows, name: str) -> BlockRows:
    """Return those of the rows that a commit `removed` that may be in another block now."""
    later: list[Snapshot] = []
    for base in history.iter_sources(history.head):
        if base.snapshot.timestamp_us <= target.snapshot.timestamp_us:
            break
        later.append(base.snapshot)
    else:
        return removed
    back: BlockRows = {}
    rewritten: BlockRows = {}
    if base.sha256 != target.sha256:  # a later commit went back before the target
        back = common(removed, _rows(history, base.snapshot, name))
        rewritten = minus(minus(removed, back), _inserted_between(history, base, target, name))
    for snapshot in reversed(later):
        if snapshot.operation in _CHANGES_BLOCKS:
            before = load_parent(history.metadata, snapshot)
            diff = diff_snapshots(history.metadata, _view(before, name), _view(snapshot, name))
            left = common(back, rows_of(diff.removed))
            if snapshot.operation in KEEPS_ROWS | {Operation.ERASE}:
                rewritten = union(rewritten, left)
            back = union(minus(back, left), common(removed, rows_of(diff.inserted)))
    return rewritten


def _inserted_between(history: History, base: Stored, target: Stored, name: str) -> BlockRows:
    """Return the new rows that the sources of a commit since `base` inserted.

    Without the rows of batches: what went back before them gets them again.
    """
    found: BlockRows = {}
    for stored in history.iter_sources(target):
        if stored.sha256 == base.sha256:
            return found
        adds = stored.snapshot.operation in BRINGS_ROWS
        if adds and not stored.snapshot.batches:
            diff = _diff(history.metadata, stored.snapshot, name)
            found = union(found, rows_of(diff.inserted))
    return {}


def _rows(history: History, snapshot: Snapshot, name: str) -> BlockRows:
    return rows_of(iter_blocks(history.metadata, _view(snapshot, name)))


def _restored(
    metadata: Metadata, head: Snapshot, target: Snapshot, diff: BlockDiff, name: str
) -> Schema:
    """Return the head's schema with the columns of the blocks that come back.

    Raises:
        SchemaMismatchError: these columns do not fit into one schema with the head's.
    """
    schema = _view(head, name).schema
    if not diff.inserted:
        return schema
    past = _view(load_parent(metadata, target), name).schema
    if name and name not in head.sides:
        return past
    held = frozenset(column for block in diff.inserted for column in block.col_metas)
    try:
        return restored(schema, past, held)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(
            f"{error.message}, so this commit cannot be undone on top of the head. Rewind to the "
            "version before this commit; or read the rows that it removed, diff(version, version "
            "- 1), and append them with the table's columns",
            **error.context,
            version=target.version,
            head=head.version,
        ) from error


def _stage(history: History, target: Stored) -> Staged:
    metadata, on = history.metadata, history.head.snapshot
    schema, changes = on.schema, dict[str, object]()
    sides = dict(on.sides)
    for name, diff in undone(history, target).items():
        restored_schema = _restored(metadata, on, target.snapshot, diff, name)
        head = dataclasses.replace(_view(on, name), schema=restored_schema)
        _check_keys(metadata, head, diff)
        done, content = _difference(metadata, head, diff)
        if name:
            sides[name] = Side(schema=restored_schema, **content)
        else:
            schema, changes = restored_schema, {**content, "added": done.added}
    return Staged(
        schema=schema,
        content=Content.of(on, **changes, sides=sides, target=parent_of(target)),
    )


def _difference(
    metadata: Metadata, head: Snapshot, diff: BlockDiff
) -> tuple[Exchange, dict[str, Any]]:
    """Put `head` with a difference applied: return its segments, deletion files and summary."""
    segments = {
        index: metadata.load_segment(ref, head.schema.leaf_types)
        for index, ref in enumerate(head.segments)
    }
    done, deletion_files = stage_difference(
        metadata, head, segments, removed=diff.removed, inserted=diff.inserted
    )
    kept = [segment.summary for index, segment in segments.items() if index not in done.replaced]
    summary = merge_summaries([*kept, *(segment.summary for segment in done.new)])
    return done, {
        "segments": done.refs,
        "summary": summary,
        "deletion_files": deletion_files,
    }


def _check_keys(metadata: Metadata, head: Snapshot, diff: BlockDiff) -> None:
    """Raise if a row that comes back has the key of another row.

    Raises:
        ConflictError: it has, or its key has a null.
    """
    if not head.key or not diff.inserted:
        return
    keys = key_schema(head.schema, head.key)
    coming = pa.concat_tables(load_block(metadata.store, block, keys) for block in diff.inserted)
    try:
        check_keys(coming, keys)
        found = KeySearch(keys, coming).find(metadata, head)
        doubles = minus(rows_of(found.blocks), rows_of(diff.removed))
    except (AmbiguousMergeError, InvalidInputError) as error:
        raise ConflictError(
            "rows that would come back are not unique by the key of the table; remove the key "
            "(set_key([])) first",
            reason=str(error),
        ) from error
    if doubles:
        raise ConflictError(
            "rows that would come back have keys that other rows have now: delete these first, or "
            "rewind to the version before this commit",
            key=list(keys.names()),
            rows=sum(map(len, doubles.values())),
        )


def _conflict(
    history: History, target: Stored, gone: BlockRows, back: BlockRows, name: str
) -> ConflictError:
    """Return the error for the first later commit that removed or added one of the rows."""
    before = after = target.snapshot
    went_back: Snapshot | None = None
    last = history.head.snapshot.version
    for stored in history.iter_between(target.snapshot.version + 1, last):
        after = stored.snapshot
        diff = diff_snapshots(history.metadata, _view(before, name), _view(after, name))
        took = common(gone, rows_of(diff.removed))
        brought = common(back, rows_of(diff.inserted))
        if took or brought:
            break
        if after.operation in TAKES_CONTENT:
            went_back = went_back or after
        before = after
    else:
        after = went_back or after
    return ConflictError(
        "a later commit has rewritten or removed rows that this commit added, or restored rows "
        "that it removed, or went back to before the batches that had brought those rows. Revert "
        "the later commit first; or rewind to the version before this commit",
        version=target.snapshot.version,
        in_the_way=after.version,
        operation=str(after.operation),
        **({"side": name} if name else {}),
    )
