"""Commit a change of rows, and say what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.objects.slots import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """The result of a delete, an update or an upsert."""

    snapshot: Snapshot | None = None
    """The commit; None if no row had to change, or for a dry run. `replayed` in it says that the
    table has the batch already, and nothing was written."""
    inserted: int = 0
    """Rows."""
    deleted: int = 0
    """Rows."""
    updated: int = 0
    """Rows; one that had the new values already is not counted, and not written."""

    events: int = 0
    """Events with sequences that were taken."""
    quarantined: int = 0
    """Those of them that could not be applied, and are kept in the side `quarantine`."""
    unread: int | None = None
    """After `Table.retry`: how many of the events that match were left out, because only their text
    was kept. `fuse.retry` reads it again."""

    __repr__ = one_line(
        "version=snapshot.version inserted updated deleted events quarantined unread"
    )


def commit_change(
    committer: Committer,
    intent: Intent,
    find: Callable[[Snapshot], list[Block]],
    stage: Callable[[Stored, list[Block], Staged | None], Staged],
    *,
    dry_run: bool,
) -> tuple[Snapshot | None, int]:
    """Commit a change of the rows that `find` finds on the newest head; return their number too.

    `find` returns blocks that show only these rows. Without rows nothing is written, nor for a dry
    run. `stage` puts the objects of the commit for a head and its rows, and may use what it staged
    for an earlier head.
    """
    count = 0

    def stage_found(on: Stored, before: Staged | None) -> Staged:
        nonlocal count
        found = find(on.snapshot)
        count = sum(block.live_rows for block in found)
        if not found:
            raise NothingToDoError
        return stage(on, found, before)

    found = find(committer.head().snapshot)  # raises before anything is written
    if dry_run or not found:
        return None, sum(block.live_rows for block in found)
    try:
        return committer.commit(intent, stage_found).stored.snapshot, count
    except NothingToDoError:  # others have deleted these rows meanwhile
        return None, 0
