"""What follows from the rest of a snapshot: counts of rows, and the features that it uses. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fuse_stream.format.features import (
    COUNTS,
    DELETION_FILES,
    ERASURE,
    FINGERPRINTS,
    KEY,
    LINE,
    PRIVATE_COLUMNS,
    SEQUENCE,
    SIDES,
    SOURCES,
)
from fuse_stream.format.private import describing_less, private_leaves, ranging_less
from fuse_stream.format.properties import PRIVATE
from fuse_stream.format.records import DeletionFileRef, Operation, SegmentRef, Side, Snapshot


def completed(new: Snapshot) -> Snapshot:
    """Return `new` with its counts of rows, and the features that it uses now."""
    rows = new.stored_rows - new.hidden_rows
    private = private_leaves(new.schema, new.properties)
    if private:
        new = dataclasses.replace(
            new,
            segments=tuple(ranging_less(ref, private) for ref in new.segments),
            summary=describing_less(new.summary, private),
        )
    sides = _completed_sides(new)
    in_sides = any(side.deletion_files for side in sides.values())
    is_used = {
        COUNTS: new.counts is not None,
        DELETION_FILES: bool(new.deletion_files) or in_sides,
        KEY: bool(new.key),
        FINGERPRINTS: any(entry.fingerprint is not None for entry in new.ledger.entries.values()),
        LINE: new.line is not None,
        ERASURE: new.operation is Operation.ERASE,
        PRIVATE_COLUMNS: bool(new.properties.get(PRIVATE)),
        SEQUENCE: new.sequence is not None,
        SIDES: bool(sides),
        SOURCES: any(entry.sources is not None for entry in new.ledger.entries.values()),
    }
    others = set(new.required_features) - is_used.keys()
    features = others | {name for name, used in is_used.items() if used}
    return dataclasses.replace(
        new,
        required_features=tuple(sorted(features)),
        sides=sides,
        summary=dataclasses.replace(new.summary, row_count=rows),
    )


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
