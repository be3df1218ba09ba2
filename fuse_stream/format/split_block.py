"""Split-block Bloom filters, as Parquet stores them: which bits a value has. Pure.

A filter is a list of buckets of 32 bytes. A value has a bucket, and in each of the bucket's eight
words one bit. Both follow from XXH64 of the value's plain encoding
(https://parquet.apache.org/docs/file-format/bloomfilter/).

Rules:
- A filter has no false negative: a value that was put in is found.
- A writer makes a filter so small that its buckets are never empty in practice. So a bucket with an
  empty word is damaged, as by a page of zeros, and rules nothing out.
"""

from __future__ import annotations

import operator
import struct
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.dictionaries import numpy_view
from fuse_stream.format.records import Value
from fuse_stream.format.schema import decimal_of

BUCKET_BYTES = 32
_WORDS = struct.Struct("<8I")

Hashes = npt.NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SALTS = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_INTEGER_BYTES = {
    "byte": 4,
    "short": 4,
    "integer": 4,
    "date": 4,
    "long": 8,
    "timestamp": 8,
    "timestamp_ntz": 8,
}
"""The width of Parquet's integer for a type."""


def is_filterable(type_name: str) -> bool:
    """True if columns of a type may have a filter.

    Not floating-point numbers, whose -0.0 and 0.0 are equal and have different hashes.
    """
    return (
        type_name in _INTEGER_BYTES
        or type_name in {"string", "binary"}
        or decimal_of(type_name) is not None
    )


@lru_cache(maxsize=4096)
def hash_of(value: Value, type_name: str) -> int | None:
    """Return the hash of a value in a column stored as `type_name`; None if it holds no such value.

    The column may be of a wider type by now: what counts is the type that its file has.
    """
    data = _plain(value, type_name)
    if data is None:
        return None
    return int(xxh64(np.frombuffer(data, np.uint8).reshape(1, -1))[0])


def bucket_offset(value_hash: int, byte_count: int) -> int:
    """Return where in a filter of so many bytes the bucket of a hash begins."""
    return ((value_hash >> 32) * (byte_count // BUCKET_BYTES) >> 32) * BUCKET_BYTES


def may_contain(bucket: bytes, value_hash: int) -> bool:
    """False if the value with this hash is certainly not in the filter; `bucket` is the value's."""
    words = _WORDS.unpack(bucket)
    return 0 in words or all(map(operator.and_, words, _bits_of(value_hash)))


@lru_cache(maxsize=4096)
def _bits_of(value_hash: int) -> tuple[int, ...]:
    """Return the bit of a hash in each word of its bucket."""
    return tuple(_masks(np.array([value_hash], np.uint64))[0].tolist())


def missing_hashes(bits: bytes, hashes: Hashes) -> int:
    """Return how many of the hashes a whole filter does not contain."""
    words = np.frombuffer(bits, "<u4").reshape(-1, 8)
    places = (hashes >> np.uint64(32)) * np.uint64(len(words)) >> np.uint64(32)
    masks = _masks(hashes)
    held = (words[places.astype(np.int64)] & masks == masks).all(axis=1)
    return int(len(hashes) - np.count_nonzero(held))


def hashes_of(values: pa.ChunkedArray, type_name: str) -> Hashes:
    """Return the hashes of the distinct values of a column stored as `type_name`, but null."""
    distinct = pc.unique(values).drop_null()
    if type_name in _INTEGER_BYTES:
        width = _INTEGER_BYTES[type_name]
        plain = distinct.cast(pa.int32() if width == 4 else pa.int64())
        return xxh64(plain.to_numpy().view(np.uint8).reshape(-1, width))
    if decimal := decimal_of(type_name):
        width = decimal_bytes(decimal[0])
        return xxh64(numpy_view(distinct, "(16,)u1")[:, :width][:, ::-1])  # Arrow's are little
    by_length: dict[int, list[bytes]] = {}
    for text in distinct.cast(pa.binary()).to_pylist():
        by_length.setdefault(len(text), []).append(text)
    found = [
        xxh64(np.frombuffer(b"".join(some), np.uint8).reshape(len(some), length))
        for length, some in by_length.items()
    ]
    return np.concatenate([np.empty(0, np.uint64), *found])


def xxh64(rows: npt.NDArray[np.uint8]) -> Hashes:
    """Return XXH64 with seed 0 of each row's bytes, after the specification of xxHash 0.8."""
    count, length = rows.shape
    with np.errstate(over="ignore"):
        if length >= 32:
            found, at = _stripes(rows)
        else:
            found, at = np.full(count, _P5), 0
        found = found + np.uint64(length)
        for word in range(at, length - 7, 8):
            found ^= _rotated(_words(rows, word, 8) * _P2, 31) * _P1
            found = _rotated(found, 27) * _P1 + _P4
        at = length // 8 * 8
        if at + 4 <= length:
            found ^= _words(rows, at, 4) * _P1
            found = _rotated(found, 23) * _P2 + _P3
            at += 4
        for last in range(at, length):
            found ^= rows[:, last].astype(np.uint64) * _P5
            found = _rotated(found, 11) * _P1
        found ^= found >> np.uint64(33)
        found *= _P2
        found ^= found >> np.uint64(29)
        found *= _P3
        found ^= found >> np.uint64(32)
    return found


def _stripes(rows: npt.NDArray[np.uint8]) -> tuple[Hashes, int]:
    """Return the hash of the whole stripes of 32 bytes, and how many bytes these are."""
    count, length = rows.shape
    lanes = [np.full(count, start) for start in (_P1 + _P2, _P2, np.uint64(0), -_P1)]
    end = length // 32 * 32
    for at in range(0, end, 32):
        for lane in range(4):
            lanes[lane] = _rotated(lanes[lane] + _words(rows, at + 8 * lane, 8) * _P2, 31) * _P1
    found = _rotated(lanes[0], 1) + _rotated(lanes[1], 7)
    found = found + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for each in lanes:
        found = (found ^ _rotated(each * _P2, 31) * _P1) * _P1 + _P4
    return found, end


def _words(rows: npt.NDArray[np.uint8], at: int, width: int) -> Hashes:
    part = np.ascontiguousarray(rows[:, at : at + width])
    return part.view(f"<u{width}")[:, 0].astype(np.uint64)


def _rotated(words: Hashes, bits: int) -> Hashes:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def _masks(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """Return the bits of each hash in the eight words of its bucket."""
    low = hashes.astype(np.uint32).reshape(-1, 1)
    with np.errstate(over="ignore"):
        return np.uint32(1) << (low * _SALTS >> np.uint32(27))


def _plain(value: Any, type_name: str) -> bytes | None:
    """Return Parquet's plain encoding of a value; None if the type cannot hold it."""
    if type_name in _INTEGER_BYTES:
        width = _INTEGER_BYTES[type_name]
        if not -(2 ** (8 * width - 1)) <= value < 2 ** (8 * width - 1):
            return None
        return int(value).to_bytes(width, "little", signed=True)
    if type_name == "string":
        # Arrow refuses to compare a text with a lone surrogate, so no row has it.
        return str(value).encode("utf-8", "surrogatepass")
    if type_name == "binary":
        return bytes(value)
    return _plain_decimal(value, type_name)


def _plain_decimal(value: Decimal, type_name: str) -> bytes | None:
    precision, scale = decimal_of(type_name) or (0, 0)
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits)) or "0")
    shift = int(exponent) + scale
    if shift < 0:
        number, rest = divmod(number, 10**-shift)
        if rest:
            return None
    else:
        number *= 10**shift
    if number >= 10**precision:
        return None
    signed = -number if sign else number
    return signed.to_bytes(decimal_bytes(precision), "big", signed=True)


def decimal_bytes(precision: int) -> int:
    """Return the least number of bytes that hold a decimal of so many digits, and its sign."""
    most: int = 10**precision - 1
    return most.bit_length() // 8 + 1
