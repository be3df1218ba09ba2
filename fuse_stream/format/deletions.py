"""Deletion files: which rows of which blocks a commit hides, as a Puffin file.

Puffin is the format of Apache Iceberg for such files (https://iceberg.apache.org/puffin-spec/). The
blobs `deletion-vector-v1` are those of Iceberg's version 3 and of Delta Lake: other systems read
them. The blobs `fuse-updated-v1` have the same bytes; other systems pass over them.

    magic, blobs, magic, footer (JSON), size of the footer (4 bytes, little endian), flags, magic
    blob: size (4 bytes, big endian) of what follows it but the last 4 bytes; D1 D3 39 64; a 64-bit
          roaring bitmap in its portable form; CRC-32 (4 bytes, big endian) of magic and bitmap
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64, FrozenBitMap64

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.columns import READING_ERRORS, checked
from fuse_stream.format.jsonio import dump_canonical, load_json
from fuse_stream.format.layout import BLOCKS_PREFIX, block_key, id_in
from fuse_stream.format.positions import Positions
from fuse_stream.format.roaring import check_bitmap64

HIDDEN, UPDATED = "deletion-vector-v1", "fuse-updated-v1"

MAX_DELETION_FILE_BYTES = 64 * 1024 * 1024
"""The most bytes of a deletion file."""
VECTOR_RECORD_BYTES = 512
"""More than a vector takes besides its bitmap, most of it in the footer."""

_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_NO_FLAGS = b"\0\0\0\0"
_FOOTER_END = len(_NO_FLAGS) + len(_MAGIC)
_POSITION_FIELD = 2_147_483_645
"""Iceberg's id of the field that holds the position of a row."""
_ROWS, _FILE = "cardinality", "referenced-data-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFile:
    """The rows that one commit hides, or several, by block id; never an empty set."""

    hidden: Mapping[str, Positions]
    updated: Mapping[str, Positions] = field(default_factory=dict)
    """Rows that are updates, where the operation does not say which: rows that the commit hides in
    older blocks, as they were before, and rows of its own blocks, as they are now."""

    @property
    def row_count(self) -> int:
        """The number of hidden rows."""
        return sum(map(len, self.hidden.values()))


def encode_deletions(file: DeletionFile) -> bytes:
    """Return the bytes of a deletion file."""
    data = bytearray(_MAGIC)
    blobs = []
    for kind, vectors in ((HIDDEN, file.hidden), (UPDATED, file.updated)):
        for block_id, rows in sorted(vectors.items()):
            blob = _encode_vector(rows)
            blobs.append(
                {
                    "type": kind,
                    "fields": [_POSITION_FIELD],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": len(data),
                    "length": len(blob),
                    "properties": {_ROWS: str(len(rows)), _FILE: block_key(block_id)},
                }
            )
            data += blob
    footer = dump_canonical({"blobs": blobs})
    return bytes(data + _MAGIC + footer + struct.pack("<i", len(footer)) + _NO_FLAGS + _MAGIC)


def decode_deletions(data: bytes) -> DeletionFile:
    """Return the deletion file that bytes encode; blobs of other types are ignored.

    Raises:
        CorruptObjectError: the bytes are not such a Puffin file.
    """
    vectors: dict[str, dict[str, Positions]] = {HIDDEN: {}, UPDATED: {}}
    try:
        for blob in _blobs(data):
            found = vectors.get(checked(blob["type"], str))
            if found is None:
                continue
            properties = checked(blob["properties"], dict)
            block_id = id_in(checked(properties[_FILE], str), BLOCKS_PREFIX)
            if block_id is None or block_id in found:
                raise ValueError("a vector's block is not one of the table's, or has two vectors")
            rows = _decode_vector(_slice(data, blob["offset"], blob["length"]))
            if not rows or properties[_ROWS] != str(len(rows)):
                raise ValueError("a vector has another number of rows than its record says")
            found[block_id] = rows
    except (*READING_ERRORS, IndexError) as error:
        raise CorruptObjectError(
            "a deletion file is damaged", reason=str(error)[:200], size=len(data)
        ) from error
    return DeletionFile(hidden=vectors[HIDDEN], updated=vectors[UPDATED])


def _blobs(data: bytes) -> Iterator[dict[str, Any]]:
    end = len(data) - _FOOTER_END
    if not data.startswith(_MAGIC) or data[end:] != _NO_FLAGS + _MAGIC:
        raise ValueError("the file is not in Puffin's format, or its footer is compressed")
    size = struct.unpack("<i", _slice(data, end - 4, 4))[0]
    start = end - 4 - size
    if _slice(data, start - len(_MAGIC), len(_MAGIC)) != _MAGIC:
        raise ValueError("the footer of a Puffin file has another size than its end says")
    yield from checked(load_json(_slice(data, start, size))["blobs"], list)


def _encode_vector(rows: Positions) -> bytes:
    vector = BitMap64(rows)
    vector.run_optimize()  # the result of a difference takes up to 8 KB for each 65,536 rows
    body = _VECTOR_MAGIC + vector.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _decode_vector(blob: bytes) -> Positions:
    body, crc = blob[4:-4], blob[-4:]
    if blob[:4] != struct.pack(">I", len(body)) or not body.startswith(_VECTOR_MAGIC):
        raise ValueError("a blob is not a deletion vector")
    if crc != struct.pack(">I", zlib.crc32(body)):
        raise ValueError("the checksum of a deletion vector is wrong")
    bitmap = body[len(_VECTOR_MAGIC) :]
    check_bitmap64(bitmap)
    return FrozenBitMap64.deserialize(bitmap)


def _slice(data: bytes, offset: int, length: int) -> bytes:
    if type(offset) is not int or type(length) is not int:
        raise TypeError("an offset or a length is not a whole number")
    if offset < 0 or length < 0 or offset + length > len(data):
        raise ValueError("a part lies outside the file")
    return data[offset : offset + length]
