"""What follows from the rest of a snapshot: counts of rows, and the features that it uses. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fuse_stream.format.features import OWN_HASH, used_features
from fuse_stream.format.private import describing_less, private_leaves, ranging_less
from fuse_stream.format.records import DeletionFileRef, SegmentRef, Side, Snapshot


def completed(new: Snapshot) -> Snapshot:
    """Return `new` with its counts of rows, and the features that it uses now.

    Its `required_features` are those of the snapshots that it was made from.
    """
    rows = new.stored_rows - new.hidden_rows
    private = private_leaves(new.schema, new.properties)
    if private:
        new = dataclasses.replace(
            new,
            segments=tuple(ranging_less(ref, private) for ref in new.segments),
            summary=describing_less(new.summary, private),
        )
    kept = {
        column: stats
        for column, stats in new.summary.col_stats.items()
        if column in new.schema.leaf_types  # not dropped
    }
    new = dataclasses.replace(
        new,
        sides=_completed_sides(new),
        summary=dataclasses.replace(
            new.summary,
            row_count=rows,
            col_stats=kept if new.schema.retired else new.summary.col_stats,
        ),
    )
    return dataclasses.replace(new, required_features=tuple(sorted(_features(new))))


def _features(new: Snapshot) -> frozenset[str]:
    # Version 0 is in the table file, too. Its hash is left out of tables that began without.
    is_hashed = OWN_HASH in new.required_features or (new.parent and new.parent.version == 0)
    return used_features(new) | ({OWN_HASH} if is_hashed else frozenset())


def _completed_sides(new: Snapshot) -> dict[str, Side]:
    """Return the sides that have segments, each with its count of rows."""
    sides = {}
    for name, side in sorted(new.sides.items()):
        if side.segments:
            rows = _rows(side.segments) - _rows(side.deletion_files)
            summary = dataclasses.replace(side.summary, row_count=rows)
            summary = describing_less(summary, private_leaves(side.schema, new.properties))
            sides[name] = dataclasses.replace(side, summary=summary)
    return sides


def _rows(refs: Iterable[SegmentRef | DeletionFileRef]) -> int:
    return sum(ref.row_count for ref in refs)
