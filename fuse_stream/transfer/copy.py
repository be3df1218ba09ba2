"""Copy a table to another place: with its history, or one snapshot of it.

Rules:
- A copy with history keeps the table's id, and so the positions of the streams that follow it. A
  copy of one snapshot is a new table.
- A copy is no table before it is whole: the table file is put last, and then the claim is deleted.
- The same call goes on where another one ended. It copies what lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.create import check_clock, check_folder_is_free, probe_store
from fuse_stream.format.layout import COPY_KEY
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Metadata
from fuse_stream.transfer.claim import find_claim
from fuse_stream.transfer.copy_history import copy_history
from fuse_stream.transfer.copy_snapshot import check_is_copy, copy_snapshot
from fuse_stream.transfer.parts import Copying, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    """A whole copy of a table."""

    table_id: str
    """The table's own, if the copy has its history; else a new one."""
    location: str
    has_history: bool
    snapshot: Snapshot
    """The head of the copy's branch `main`."""
    object_count: int
    """Objects that this call has copied; those that were there are left out."""
    byte_count: int
    """Their bytes."""

    __repr__ = one_line("location version=snapshot.version table_id has_history object_count")


def copy_table(
    committer: Committer,
    place: Metadata,
    *,
    history: bool,
    report: Progress,
    probe_place: bool = True,
) -> TableCopy:
    """Copy the table of a committer to `place`, and return the copy; errors of `fuse_stream.copy`.

    With `history` the whole table is copied, else the head of the committer's branch.
    """
    current = place.find_table_file()
    if current is None and find_claim(place.store) is None:
        check_folder_is_free(place)
    offset_us = probe_store(place) if probe_place else 0
    copying = Copying.begin(committer.metadata.store, place.store, report)
    if history:
        snapshot = copy_history(committer.metadata, place, copying)
    elif current is not None:
        source_id = committer.metadata.load_table_file().table_id
        snapshot = check_is_copy(place, current, source_id)
    else:
        now_us = place.clock.now_us()
        check_clock(now_us, now_us + offset_us)
        snapshot = copy_snapshot(committer, place, copying, offset_us=offset_us)
    claim = find_claim(place.store)
    if current is None:
        assert claim is not None
        current = claim.table_file
        place.store_table_file(current)
    if claim is not None:
        place.store.delete(COPY_KEY)
    return TableCopy(
        table_id=current.table_id,
        location=place.store.url,
        has_history=history,
        snapshot=snapshot,
        object_count=copying.object_count,
        byte_count=copying.byte_count,
    )
