"""What the commands load beyond a call of the table: differences of rows, columns by name."""

from __future__ import annotations

import difflib

from fuse_stream.cli.render import LogLine
from fuse_stream.errors import InvalidInputError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Leaf, Schema
from fuse_stream.table import Table


def log_lines(table: Table, limit: int) -> tuple[list[LogLine], bool]:
    """Return the newest snapshots with their differences, and whether there are older ones."""
    snapshots = list(table.log(limit + 1))  # one more: it tells what the last one changed
    lines: list[LogLine] = []
    for at, snapshot in enumerate(snapshots[:limit]):
        before = snapshots[at + 1] if at + 1 < len(snapshots) else None
        lines.append((snapshot, row_count_change(before, snapshot)))
    return lines, len(snapshots) > limit


def with_change(table: Table, snapshot: Snapshot) -> LogLine:
    """Return a snapshot with its difference from the one before."""
    before, parent = None, snapshot.parent
    if parent and snapshot.version > snapshot.floor:
        try:
            # Not by its number: the snapshot may be of another branch than the table's handle.
            before = table.metadata.load_snapshot(parent.branch_id, parent.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            before = None  # expired meanwhile: the difference is not known
    return snapshot, row_count_change(before, snapshot)


def row_count_change(before: Snapshot | None, snapshot: Snapshot) -> int | None:
    """Return by how many rows a snapshot differs from the one before; None if that has expired."""
    if before is None:
        return 0 if snapshot.version == 0 else None
    return snapshot.summary.row_count - before.summary.row_count


def find_leaf(schema: Schema, name: str) -> Leaf:
    """Return the column of a dotted name.

    Raises:
        InvalidInputError: there is none with statistics; names the nearest.
    """
    leaves = {".".join(leaf.path): leaf for leaf in schema.leaves() if not leaf.repeated}
    if name in leaves:
        return leaves[name]
    near = difflib.get_close_matches(name, leaves, n=1)
    raise InvalidInputError(
        "no column of this name has statistics; those inside lists and maps have none",
        column=name,
        nearest=near[0] if near else None,
        columns=list(leaves),
    )
