"""The objects that a snapshot or a segment names, read without decoding the whole record.

Vacuum needs only these names of every retained snapshot and segment; decoding whole records takes
a hundred times as long. Vacuum deletes what is not named, so anything that cannot be read with
certainty is an error, never an empty result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fuse_stream.errors import CorruptObjectError, FuseError, UnsupportedFormatError
from fuse_stream.format.codec import (
    KNOWN_FEATURES,
    decode_segment,
    sha256_hex,
    take_own_hash,
    unpacked_segment,
)
from fuse_stream.format.columns import READING_ERRORS
from fuse_stream.format.features import OWN_HASH
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.layout import branch_checked, id_checked, sha256_checked
from fuse_stream.format.records import FORMAT_VERSION

_VERSION_KEY = b'"format_version":'
_VERSION = re.compile(rb"%s%d[,}]" % (_VERSION_KEY, FORMAT_VERSION))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNames:
    """The fields of a snapshot that vacuum needs."""

    branch_id: str
    version: int
    sha256: str
    """Of the slot's bytes."""
    parent: tuple[str, int, str] | None
    """Branch id, version and sha256."""
    operation: str
    floor: int
    epoch: int
    segments: tuple[tuple[str, str, int], ...]
    """Id, sha256 and count of blocks; those of sides, too."""
    deletion_files: tuple[tuple[str, str], ...]
    """Id and sha256; those of sides, too."""
    index_list: tuple[str, str] | None
    """Id and sha256."""
    offsets: tuple[str, ...]
    """Ids of the source offsets that are objects of their own."""


def read_snapshot_names(data: bytes) -> SnapshotNames:
    """Return the names in the bytes of a slot.

    Raises:
        CorruptObjectError: the bytes are not a snapshot.
        UnsupportedFormatError: a newer release wrote it, and may name more.
    """
    try:
        fields = _fields(data)
        features = set(fields["required_features"])
        if features - KNOWN_FEATURES:
            raise _newer()
        if OWN_HASH in features:
            take_own_hash(fields, size=len(data))
        parent, indexes = fields.get("parent"), fields.get("index_list")
        lists = [fields, *fields.get("sides", {}).values()]
        return SnapshotNames(
            branch_id=branch_checked(fields["branch_id"]),
            version=_number(fields["version"]),
            sha256=sha256_hex(data),
            parent=parent and (parent["branch_id"], parent["version"], parent["sha256"]),
            operation=fields["operation"],
            floor=_number(fields["floor"]),
            epoch=_number(fields["epoch"]),
            segments=tuple(
                (id_checked(ref["id"]), ref["sha256"], ref["block_count"])
                for held in lists
                for ref in held["segments"]
            ),
            deletion_files=tuple(
                (id_checked(ref["id"]), sha256_checked(ref["sha256"]))
                for held in lists
                for ref in held.get("deletion_files", ())
            ),
            index_list=indexes and (id_checked(indexes["id"]), sha256_checked(indexes["sha256"])),
            offsets=tuple(_offset_ids(fields["ledger"]["entries"])),
        )
    except FuseError:
        raise
    except READING_ERRORS as error:
        raise CorruptObjectError("the object is not a snapshot", size=len(data)) from error


def read_block_ids(stored: bytes, sha256: str, block_count: int) -> list[str]:
    """Return the ids of a segment's blocks that are objects of its own table.

    `sha256` and `block_count` are those in its snapshot.

    Raises:
        CorruptObjectError: the bytes do not have this hash, or are not a segment.
        UnsupportedFormatError: a newer release wrote it, and may name more.
    """
    try:
        data = unpacked_segment(stored, sha256)
        if (found := _found_ids(data)) is not None and len(found) == block_count:
            return found
        blocks = decode_segment(stored, sha256, {}).blocks
        return [id_checked(block.id) for block in blocks if block.origin is None]
    except FuseError:
        raise
    except READING_ERRORS as error:
        raise CorruptObjectError("the object is not a segment", sha256=sha256) from error


def _found_ids(data: bytes) -> list[str] | None:
    """Return the values of the keys "id" without parsing the rest of the JSON.

    Quotes inside a JSON string are escaped, so only keys match. None if the segment has another
    version, origins or deletes: then it must be parsed.
    """
    at = data.rfind(_VERSION_KEY)  # comes after the blocks
    if not _VERSION.match(data, at) or b'"origin"' in data or b'"deletes"' in data:
        return None
    return [id_checked(part[:32].decode("ascii")) for part in data.split(b'"id":"')[1:]]


def _fields(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = load_json(data)
    if fields["format_version"] > FORMAT_VERSION:
        raise _newer()
    return fields


def _offset_ids(entries: list[dict[str, Any]]) -> list[str]:
    return [
        id_checked(offsets["id"])
        for entry in entries
        for offsets in entry["offsets"]
        if "id" in offsets
    ]


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _newer() -> UnsupportedFormatError:
    return UnsupportedFormatError(
        "a newer release wrote this table, and may keep objects that this one does not know; "
        "upgrade fuse-stream"
    )
