"""Delete rows: hide them, and rewrite no block.

Rules:
- The commit has the effect of a delete that runs alone on the head on which it lands: on another
  head, rows are looked for in the blocks that came, and rows that are hidden there are left alone.
- A block of which all rows match is not read, unless its rows come from events.
- Where rows come from events, they leave tombstones, so that an event which is delivered again does
  not bring them back; a later one does.
"""

from __future__ import annotations

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, Staged, check_may_change
from fuse_stream.commit.stage import stage_deletions
from fuse_stream.dml.event_sides import stage_by_hand
from fuse_stream.dml.find import Progress, RowFinder
from fuse_stream.dml.result import ChangeResult, commit_change
from fuse_stream.format.records import Block, Operation, Snapshot, rows_of
from fuse_stream.objects.slots import Stored
from fuse_stream.predicate.tree import Predicate
from fuse_stream.reading.scan import select_matches


def delete(
    committer: Committer,
    where: str | Predicate,
    *,
    time_zone: str = "UTC",
    dry_run: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> ChangeResult:
    """Delete the rows that match; arguments and errors of `Table.delete`."""
    finder = RowFinder(committer.metadata, progress)

    def find(head: Snapshot) -> list[Block]:
        check_may_change(head)
        return finder.find(head, select_matches(head.schema, where, time_zone=time_zone))

    def stage(on: Stored, found: list[Block], _before: Staged | None) -> Staged:
        return Staged(
            schema=on.snapshot.schema,
            deletions=stage_deletions(committer.metadata, rows_of(found)),
            sides=stage_by_hand(committer.metadata, on.snapshot, found),
            is_for_one_head=True,
        )

    intent = Intent(operation=Operation.DELETE, author=author, message=message)
    snapshot, count = commit_change(committer, intent, find, stage, dry_run=dry_run)
    return ChangeResult(snapshot=snapshot, deleted=count)
