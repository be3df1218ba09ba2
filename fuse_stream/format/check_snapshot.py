"""The rules that the fields of one snapshot have to keep, beyond their types. Pure.

They are judged before a field is used: a number that no writer stores would be shown, looped over,
or taken for a size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import LAST_VERSION, id_checked, sha256_checked
from fuse_stream.format.line import LineStart
from fuse_stream.format.records import DeletionFileRef, Ledger, SegmentRef, Snapshot
from fuse_stream.format.schema import Schema, flaw_of
from fuse_stream.format.sides import SideName
from fuse_stream.format.source_offset import is_storable_offset
from fuse_stream.format.times import is_time

MAX_LISTED = 20_000
"""The most segments of a snapshot, and the most deletion files: roll-ups keep both lists short."""

MAX_COUNT = 2**63 - 1
"""The most rows, bytes or blocks that a number counts; the sum of two has 64 bits."""


def check_lengths(fields: Mapping[str, Any]) -> None:
    """Raise CorruptObjectError if a list in a snapshot's JSON is too long to be decoded."""
    for name in ("segments", "deletion_files"):
        listed = fields.get(name)
        if isinstance(listed, list) and len(listed) > MAX_LISTED:
            raise CorruptObjectError(
                "a snapshot lists more objects than a writer lets it",
                field=name,
                count=len(listed),
                most=MAX_LISTED,
            )


def check_snapshot(snapshot: Snapshot) -> None:
    """Raise CorruptObjectError if a decoded snapshot breaks a rule of the format."""
    _check_numbers(snapshot)
    check_cluster_key(snapshot.cluster_key, snapshot.schema)
    _check_key(snapshot)
    if (line := snapshot.line) is not None:
        _check_line(line, snapshot.version)
    _check_sources(snapshot.ledger)
    _check_deletion_files(snapshot.deletion_files, snapshot)
    _check_sides(snapshot)
    _check_events(snapshot)
    if snapshot.index_list is not None:
        id_checked(snapshot.index_list.id)
        sha256_checked(snapshot.index_list.sha256)


def check_cluster_key(cluster_key: tuple[int, ...], schema: Schema) -> None:
    """Raise CorruptObjectError if a cluster key names a column that cannot be in one."""
    known = {column.id for column in schema.columns if not column.children}
    if not known.issuperset(cluster_key):
        raise CorruptObjectError("the cluster key names columns that the schema lacks")


def _check_numbers(snapshot: Snapshot) -> None:
    """Raise for numbers that no writer stores: they would be shown, or looped over."""
    parent, summary = snapshot.parent, snapshot.summary
    counts = [
        snapshot.floor,
        snapshot.epoch,
        *(getattr(summary, name) for name in _COUNTS_OF_SUMMARY),
        *(count for ref in snapshot.segments for count in _counts_of(ref)),
        *(count for ref in snapshot.deletion_files for count in _counts_of(ref)),
    ]
    is_valid = (
        0 <= snapshot.version <= LAST_VERSION
        and 0 <= min(counts) <= max(counts) <= MAX_COUNT
        and snapshot.floor <= snapshot.version
        and (parent is None or parent.version == snapshot.version - 1)
        and is_time(snapshot.timestamp_us)
        and all(is_time(entry.timestamp_us) for entry in snapshot.ledger.entries.values())
    )
    if not is_valid:
        raise CorruptObjectError(
            "a number of the snapshot is out of range", version=snapshot.version
        )


_COUNTS_OF_SUMMARY = (
    "row_count",
    "block_count",
    "perfect_block_count",
    "uncompressed_byte_size",
    "compressed_byte_size",
    "index_size",
)


def _counts_of(ref: SegmentRef | DeletionFileRef) -> tuple[int, ...]:
    return ref.level, ref.row_count, ref.block_count, ref.byte_size


def _check_line(line: LineStart, version: int) -> None:
    is_valid = 0 <= (line.base or 0) < line.since <= version or line == LineStart(since=0)
    if not is_valid:
        raise CorruptObjectError(
            "the start of the snapshot's line is invalid", since=line.since, base=line.base
        )


def _check_sources(ledger: Ledger) -> None:
    for entry in ledger.entries.values():
        if entry.sources is None:
            continue
        offsets = [source.offset for source in entry.sources]
        if not all(map(is_storable_offset, offsets)):
            raise CorruptObjectError(
                "the sources of a ledger entry are invalid", batch=entry.batch_id
            )


def _check_deletion_files(refs: tuple[DeletionFileRef, ...], snapshot: Snapshot) -> None:
    """Raise for broken records of the deletion files of `snapshot`, or of one of its sides."""
    ids = [id_checked(ref.id) for ref in refs]
    for ref in refs:
        sha256_checked(ref.sha256)
    has_added = refs is not snapshot.deletion_files or set(ids).issuperset(
        snapshot.deletion_files_added
    )
    is_valid = (
        len(set(ids)) == len(ids)
        and has_added
        and all(min(ref.row_count, ref.block_count, ref.byte_size) > 0 for ref in refs)
    )
    if not is_valid:
        raise CorruptObjectError(
            "the deletion files of a snapshot are invalid", version=snapshot.version
        )


def _check_sides(snapshot: Snapshot) -> None:
    for name, side in snapshot.sides.items():
        flaw = "there are no segments" if not side.segments else flaw_of(side.schema)
        if name not in set(SideName):
            flaw = "no side has this name"
        if flaw:
            raise CorruptObjectError(
                "a side of the snapshot is invalid", side=name[:50], reason=flaw
            )
        _check_deletion_files(side.deletion_files, snapshot)


def _check_key(snapshot: Snapshot) -> None:
    known = {column.id for column in snapshot.schema.columns if not column.children}
    key = snapshot.key
    is_valid = known.issuperset(key) and len(set(key)) == len(key)
    if not is_valid:
        raise CorruptObjectError("the key of the rows is invalid", version=snapshot.version)


def _check_events(snapshot: Snapshot) -> None:
    sequence, counts = snapshot.sequence, snapshot.counts
    if sequence is not None:
        known = {column.id for column in snapshot.schema.columns if not column.children}
        keys = sequence.keys
        is_valid = keys and known.issuperset(keys) and len(set(keys)) == len(keys)
        if not is_valid or sequence.scd_type not in (1, 2):
            raise CorruptObjectError("the sequence is invalid", version=snapshot.version)
    if counts is not None and min(dataclasses.astuple(counts)) < 0:
        raise CorruptObjectError("the counts are invalid", version=snapshot.version)
