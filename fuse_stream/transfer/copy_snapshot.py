"""Copy one snapshot: a table of its own, with the content and the ledger, without the history.

It is made as a clone is (`refs/clone`): version 0 has the snapshot's columns with their ids, and
version 1 brings all rows. But its blocks are copied, so no block names an origin, and no pin is
put. The table file names the table that it was made of: earlier batches are to be found there.

Rules:
- The claim has the table file, so every call draws the same ids and finishes the same copy.
- Blocks come first, then version 0 and version 1, then the table file. Without that the folder is
  no table.
"""

from __future__ import annotations

import dataclasses

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.create import put_version_0
from fuse_stream.commit.plan import Intent, Staged, parent_of
from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import CLONED_VERSION, COPY_KEY, MAIN, segment_key, slot_key
from fuse_stream.format.records import Operation, Snapshot, TableFile
from fuse_stream.format.sides import row_lists
from fuse_stream.objects.refs import MAIN_BRANCH
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.history import History
from fuse_stream.refs.clone import stage_content, stage_indexes, table_file_of
from fuse_stream.storage.base import find_object
from fuse_stream.transfer.claim import CopyClaim, find_claim, other_copy, put_claim
from fuse_stream.transfer.parts import Copying, Parts, load_segments

ATTEMPTS = 5
"""Attempts to copy a snapshot that expires meanwhile: each takes the head anew."""


def copy_snapshot(
    committer: Committer, place: Metadata, copying: Copying, *, offset_us: int
) -> Snapshot:
    """Copy the head of a branch to `place`, whose folder is free or has a claim.

    Returns version 1 of the copy. `offset_us` is how far the clock of its store is ahead of this
    machine's.

    Raises:
        AlreadyExistsError: another copy was begun in the folder.
        SnapshotExpiredError: the snapshot expired while it was copied, several times.
        CorruptObjectError: an object of the snapshot is lost or damaged.
    """
    metadata = committer.metadata
    for _ in range(ATTEMPTS):
        claim = _claim(committer, place)
        if find_object(place.store, slot_key(MAIN, CLONED_VERSION)) is not None:
            return place.load_snapshot(MAIN, CLONED_VERSION).snapshot
        try:
            stored = _stored(committer, claim)
            _copy_blocks(stored.snapshot, copying)
            return _commit(metadata, stored.snapshot, place, claim.table_file, offset_us)
        except (NotFoundError, SnapshotExpiredError) as error:
            if not _has_expired(committer, claim):
                raise _lost(committer, error) from error
        _give_up(place)
    raise SnapshotExpiredError(
        "the snapshots that were copied expired meanwhile, again and again: keep them with a tag, "
        "or raise fuse.retain, and copy again",
        path=metadata.store.url,
    )


def _claim(committer: Committer, place: Metadata) -> CopyClaim:
    """Return the claim in the folder; put one if there is none."""
    metadata = committer.metadata
    table = metadata.load_table_file()
    found = find_claim(place.store)
    if found is not None:
        if found.target is None or found.source_id != table.table_id:
            raise other_copy(place.store)
        return found
    head = committer.head()
    claim = CopyClaim(
        source_id=table.table_id,
        target=parent_of(head),
        table_file=table_file_of(metadata, table, head.snapshot),
    )
    put_claim(place.store, claim)
    return claim


def _stored(committer: Committer, claim: CopyClaim) -> Stored:
    """Return the snapshot that the claim names.

    Raises:
        NotFoundError, SnapshotExpiredError: it is not there any more.
        CorruptObjectError: another one is.
    """
    target = claim.target
    assert target is not None
    stored = committer.metadata.load_snapshot(target.branch_id, target.version)
    if stored.sha256 != target.sha256:
        raise CorruptObjectError(
            "the snapshot of which a copy was begun is not there any more: remove the folder of "
            "the copy, and copy again",
            key=slot_key(target.branch_id, target.version),
            path=committer.metadata.store.url,
        )
    return stored


def _copy_blocks(source: Snapshot, copying: Copying) -> None:
    parts = Parts()
    refs = [ref for view in row_lists(source) for ref in view.segments]
    loaded = load_segments(copying.store, refs, segment_key)
    for number, (_, _, segment) in enumerate(loaded, 1):
        parts.add_segment(segment)
        copying.report("reading segments", number, len(refs))
    copying.copy_parts(parts)
    if source.index_list is not None:
        copying.copy_index_parts([source.index_list])


def _commit(
    metadata: Metadata, source: Snapshot, place: Metadata, table_file: TableFile, offset_us: int
) -> Snapshot:
    put_version_0(place, table_file)
    writer = Committer(place, MAIN_BRANCH, grace_us=table_file.grace_us, is_probed=True)
    writer.clock_offset_us = offset_us
    branch = "" if source.branch_id == MAIN else f" of branch {source.branch_id}"
    message = f"copy of table {source.table_id}, version {source.version}{branch}"

    def stage(_head: Stored, _before: Staged | None) -> Staged:
        staged = stage_content(metadata, place, source, is_copied=True)
        indexes = stage_indexes(metadata, place, source, pinned=None)
        return dataclasses.replace(staged, index_list=indexes)

    intent = Intent(operation=Operation.APPEND, message=message)
    return writer.commit(intent, stage, replan=False).stored.snapshot


def _has_expired(committer: Committer, claim: CopyClaim) -> bool:
    """True if the snapshot that the claim names is below the floor, or cannot be found."""
    target = claim.target
    assert target is not None
    head = committer.head()
    return target.version < History(committer.metadata, head).floor


def _give_up(place: Metadata) -> None:
    """Delete the claim of a copy that cannot be finished: the next one begins anew.

    The blocks stay: the next one needs most of them.
    """
    for key in (slot_key(MAIN, CLONED_VERSION), slot_key(MAIN, 0), COPY_KEY):
        place.store.delete(key)


def _lost(committer: Committer, error: NotFoundError | SnapshotExpiredError) -> CorruptObjectError:
    return CorruptObjectError(
        "an object of the table is missing, so it cannot be copied: fuse-stream fsck shows what is "
        "lost, and how to restore it",
        path=committer.metadata.store.url,
        **error.context,
    )


def check_is_copy(place: Metadata, table: TableFile, source_id: str) -> Snapshot:
    """Return the head of a finished copy of a snapshot of the source.

    Raises:
        AlreadyExistsError: it is another table, or it has commits of its own.
    """
    head = place.load_head(MAIN).snapshot
    is_copy = table.origins[:1] and table.origins[0][0] == source_id
    if not is_copy or head.version != CLONED_VERSION:
        raise AlreadyExistsError(
            "there is a table here already, which is no copy of that snapshot, or has commits of "
            "its own: use another path for the copy",
            path=place.store.url,
        )
    return head
