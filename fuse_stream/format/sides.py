"""The sides of a snapshot: their names, and snapshots that show their rows. Pure.

Whatever reads the rows of a snapshot reads those of a side if it gets a view of that side.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from fuse_stream.format.records import Snapshot, Summary


class SideName(StrEnum):
    """What a side holds."""

    COALESCED = "coalesced"
    """Rows of a history that were merged into others; and rows that are not shown, since they have
    null in a column that takes none."""
    QUARANTINE = "quarantine"
    """Events that could not be applied, with the reasons."""
    TOMBSTONES = "tombstones"
    """Keys whose rows were deleted, with the sequence of the delete."""


def side_views(snapshot: Snapshot) -> dict[str, Snapshot]:
    """Return the view of each side, by its name."""
    return {name: snapshot.side(name) for name in snapshot.sides}


def row_lists(snapshot: Snapshot) -> tuple[Snapshot, ...]:
    """Return the snapshot itself, with the table's rows, and the views of its sides."""
    return snapshot, *side_views(snapshot).values()


def side_or_empty(snapshot: Snapshot, name: str) -> Snapshot:
    """Return the view of a side; one without rows if there is no such side."""
    if name in snapshot.sides:
        return snapshot.side(name)
    return replace(
        snapshot,
        cluster_key=(),
        key=(),
        summary=Summary(),
        segments=(),
        added=(),
        deletion_files=(),
        deletion_files_added=(),
        sides={},
    )
