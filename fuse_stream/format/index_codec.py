"""Encode a list of indexes as it is stored, and decode it: canonical JSON in zstd."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from fuse_stream.errors import CorruptObjectError, InvalidInputError, UnsupportedFormatError
from fuse_stream.format.codec import sha256_hex, unpacked
from fuse_stream.format.indexes import (
    INDEX_FORMAT_VERSION,
    IndexList,
    check_index_list,
)
from fuse_stream.format.jsonio import (
    MAX_MARKS,
    count_marks,
    dump_canonical,
    from_json,
    is_narrow,
    load_canonical,
    to_json,
)

MAX_INDEX_LIST_BYTES = 64 * 1024 * 1024
"""The limit of a list's JSON."""


def encode_index_list(indexes: IndexList) -> tuple[bytes, str]:
    """Return the stored bytes of a list of indexes and their SHA-256.

    Raises:
        InvalidInputError: it is larger than a reader accepts.
    """
    data = dump_canonical(to_json(indexes, {}))
    is_readable = (
        len(data) <= MAX_INDEX_LIST_BYTES and count_marks(data) <= MAX_MARKS and is_narrow(data)
    )
    try:
        check_index_list(indexes)
    except CorruptObjectError:
        is_readable = False
    if not is_readable:
        raise InvalidInputError(
            "the table would have more indexes than a reader accepts; drop some (Table.drop_index)",
            index_count=len(indexes.definitions),
            size_bytes=len(data),
            most_bytes=MAX_INDEX_LIST_BYTES,
        )
    stored: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return stored, sha256_hex(stored)


def decode_index_list(stored: bytes, sha256: str) -> IndexList:
    """Return the list that stored bytes encode; `sha256` is the hash in its snapshot.

    Raises:
        CorruptObjectError: the bytes do not have this hash, or are no such list.
        UnsupportedFormatError: a newer release wrote it.
    """
    data = unpacked_index_list(stored, sha256)
    fields = load_canonical(data)
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if type(version) is not int or version < 1:
        raise CorruptObjectError("the object is not a list of indexes", sha256=sha256)
    if version > INDEX_FORMAT_VERSION:
        raise UnsupportedFormatError(
            "a newer release wrote the indexes of this table; upgrade fuse-stream",
            format_version=version,
            known=INDEX_FORMAT_VERSION,
        )
    found = from_json(IndexList, fields, {})
    check_index_list(found)
    return found


def unpacked_index_list(stored: bytes, sha256: str) -> bytes:
    """Return the JSON of a stored list; `sha256` is the hash in its snapshot.

    Raises:
        CorruptObjectError: the bytes do not have this hash, or are larger than a writer makes.
    """
    return unpacked(stored, sha256, "a list of indexes", MAX_INDEX_LIST_BYTES)


def without_part_origins(indexes: IndexList) -> IndexList:
    """Return a list whose parts are all the table's own."""
    parts = tuple(dataclasses.replace(part, origin=None) for part in indexes.parts)
    return dataclasses.replace(indexes, parts=parts)
