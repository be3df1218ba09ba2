"""The largest size of each kind of object, known before it is read."""

from __future__ import annotations

from fuse_stream.format.codec import MAX_REF_BYTES, MAX_SEGMENT_BYTES, MAX_SNAPSHOT_BYTES
from fuse_stream.format.deletions import MAX_DELETION_FILE_BYTES
from fuse_stream.format.index_codec import MAX_INDEX_LIST_BYTES
from fuse_stream.format.indexes import MAX_PART_BYTES
from fuse_stream.format.layout import (
    AGGREGATES_PREFIX,
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    DELETIONS_PREFIX,
    FLOOR_PREFIX,
    HINT_PREFIX,
    INDEX_LISTS_PREFIX,
    LEASES_PREFIX,
    OFFSETS_PREFIX,
    SEGMENTS_PREFIX,
    SERVICES_PREFIX,
    SLOTS_PREFIX,
    TABLE_KEY,
    TAGS_PREFIX,
)

MAX_OFFSETS_BYTES = 64 * 1024 * 1024
"""The most bytes of one batch's source offsets."""

_LIMITS = {
    TABLE_KEY: MAX_SNAPSHOT_BYTES,
    SLOTS_PREFIX: MAX_SNAPSHOT_BYTES,
    SEGMENTS_PREFIX: MAX_SEGMENT_BYTES,
    DELETIONS_PREFIX: MAX_DELETION_FILE_BYTES,
    INDEX_LISTS_PREFIX: MAX_INDEX_LIST_BYTES,
    AGGREGATES_PREFIX: MAX_PART_BYTES,
    OFFSETS_PREFIX: MAX_OFFSETS_BYTES,
    BRANCHES_PREFIX: MAX_REF_BYTES,
    TAGS_PREFIX: MAX_REF_BYTES,
    CLONES_PREFIX: MAX_REF_BYTES,
    LEASES_PREFIX: MAX_REF_BYTES,
    SERVICES_PREFIX: MAX_REF_BYTES,
    HINT_PREFIX: 64,
    FLOOR_PREFIX: MAX_REF_BYTES,
}


def limit_of(key: str) -> int | None:
    """Return the most bytes that the object under `key` may have; None for a block."""
    prefixes = (TABLE_KEY, key[: key.find("/") + 1], key[: key.rfind("/") + 1])
    return next((_LIMITS[one] for one in prefixes if one in _LIMITS and key.startswith(one)), None)
