"""Private columns: no record shows a bound of theirs, so their values are in blocks only. Pure.

The property `fuse.private` names them. A name without a column, such as after a rewind, is ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TypeVar

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.properties import PRIVATE, iter_listed_columns, listed_names
from fuse_stream.format.records import Block, SegmentRef, Summary
from fuse_stream.format.schema import Schema
from fuse_stream.format.stats import without_bounds

_OF_QUARANTINE = frozenset(
    "id reason op sequence event given raw source app_id writer batch_id at".split()
)
"""The columns by which the schema of a quarantine is known."""

Described = TypeVar("Described", bound=Block | Summary)


def private_leaves(schema: Schema, properties: Mapping[str, str]) -> frozenset[int]:
    """Return the ids of the leaves of the private columns."""
    return private_ids(schema, listed_names(properties.get(PRIVATE, "")))


def private_ids(schema: Schema, names: Collection[str]) -> frozenset[int]:
    """Return the ids of the leaves of the top columns with these names.

    In a quarantine they are also those of the event's fields with these names, and the raw text.
    """
    if not names:
        return frozenset()
    is_quarantine = _OF_QUARANTINE.issubset(schema.names())
    return frozenset(
        leaf.column.id
        for leaf in schema.leaves()
        if leaf.path[0] in names
        or (is_quarantine and leaf.path[0] == "raw")
        or (is_quarantine and leaf.path[0] == "event" and leaf.path[1] in names)
    )


def describing_less(record: Described, private: Collection[int]) -> Described:
    """Return a record without the bounds of the columns with the ids `private`."""
    found: Described = record
    stats = without_bounds(record.col_stats, private)
    if stats is not record.col_stats:
        found = dataclasses.replace(found, col_stats=stats)
    if isinstance(found, Block) and _has_range_of(found, private):
        found = dataclasses.replace(found, cluster_stats=None)
    return found


def _has_range_of(block: Block, private: Collection[int]) -> bool:
    """True if an earlier cluster key had one of the columns."""
    stats = block.cluster_stats
    return stats is not None and not set(private).isdisjoint(stats.range.columns)


def ranging_less(ref: SegmentRef, private: Collection[int]) -> SegmentRef:
    """Return a segment's reference without a key range that has one of the columns `private`."""
    if ref.key_range is None or set(private).isdisjoint(ref.key_range.columns):
        return ref
    return dataclasses.replace(ref, key_range=None)


def check_private(
    schema: Schema, properties: Mapping[str, str], cluster_key: Collection[int]
) -> None:
    """Raise unless `fuse.private` names columns of a table, none of them in its cluster key.

    Raises:
        InvalidInputError: there is no such column; or it is in the cluster key, whose bounds are
            stored for every block.
    """
    for column in iter_listed_columns(PRIVATE, schema, properties):
        if column.id in cluster_key:
            raise InvalidInputError(
                "a column of the cluster key cannot be private, because its bounds are stored for "
                f"every block: choose another cluster key, or take it out of {PRIVATE}",
                column=column.name,
            )
