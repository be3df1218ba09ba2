"""A fingerprint of a multiset of rows, with which a rewrite is checked.

Rules:
- Every value has a 64-bit hash. A row's hash is mixed from the sum of its values' hashes, each
  multiplied by a number that belongs to the column. The fingerprint is two different sums over the
  hashes of the rows. So it changes if a row is lost, doubled or changed, or if a value moves to
  another column or row. It does not depend on the order of rows, nor on how they are cut in blocks.
- Null is a value of its own. All NaN are one value, because Parquet's dictionaries merge them;
  every other value counts by its bits.
- It detects accidents, not forgery, and is never stored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fuse_stream.format.dictionaries import numpy_view
from fuse_stream.format.schema import ARRAY, MAP, STRUCT, Column, Schema

CHUNK_ROWS = 65536
"""Rows hashed at a time: so few that their hashes fit into the processor's cache."""
LONG_BYTES = 256
"""A longer string is hashed on its own: hashed with others, each byte takes eight bytes more."""
_PIECE = 1 << 17
"""Bytes or elements hashed at a time; a single list may have more."""

_Words: TypeAlias = npt.NDArray[np.uint64]

_Known: TypeAlias = dict[tuple[int, int, int], _Words]
"""The hashes of dictionaries by address, so that each is hashed only once. Null's comes last."""

_MODULUS = 1 << 64
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_NULL, _NAN = np.uint64(0xA24BAED4963EE407), np.uint64(0x7FF8000000000000)
_HALF = np.uint64(32)
_BASE = 0x5851F42D4C957F2D
"""Odd, so that its powers have inverses modulo 2^64."""
_INVERSE = pow(_BASE, -1, _MODULUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The fingerprint of a multiset of rows; the sum of two is that of all their rows."""

    row_count: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(
            row_count=self.row_count + other.row_count,
            first=(self.first + other.first) % _MODULUS,
            second=(self.second + other.second) % _MODULUS,
        )


def fingerprint(table: pa.Table, schema: Schema) -> Fingerprint:
    """Return the fingerprint of the rows of `table`, which has the shape of `schema`."""
    total = Fingerprint()
    known: _Known = {}
    for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
        rows = np.zeros(batch.num_rows, np.uint64)
        weighed = np.empty(batch.num_rows, np.uint64)
        for column, values in zip(schema.columns, batch.columns, strict=True):
            np.multiply(_hashes(values, column, known), _multiplier(column.id), out=weighed)
            rows += weighed
        rows = _mixed(rows, 0)
        total += Fingerprint(
            row_count=len(rows),
            first=int(rows.sum(dtype=np.uint64)),
            second=int(_mixed(rows, 0).sum(dtype=np.uint64)),
        )
    return total


def _mixed(words: _Words, column_id: int) -> _Words:
    """Return a hash of each word and the column's id, which depends on every bit of the word."""
    words = words + _FIRST
    words *= _multiplier(column_id)
    words ^= words >> _HALF
    words *= _SECOND
    words ^= words >> _HALF
    return words


@lru_cache(maxsize=4096)
def _multiplier(column_id: int) -> np.uint64:
    return np.uint64((column_id * 0xD6E8FEB86659FD93 * 2 + 0x9E3779B97F4A7C15) % _MODULUS)


def _hashes(values: pa.Array, column: Column, known: _Known) -> _Words:
    """Return a word for each value, null or not; perhaps a view of the memory of `values`."""
    words: _Words
    if not len(values):  # an empty array may have no buffers
        return np.zeros(0, np.uint64)
    if pa.types.is_dictionary(values.type):
        return _dictionary_hashes(values, column, known)
    if column.type == STRUCT:
        words = np.zeros(len(values), np.uint64)
        for place, child in enumerate(column.children):
            words += _mixed(_hashes(values.field(place), child, known), child.id)
    elif column.type in {ARRAY, MAP}:
        words = _list_hashes(values, column, known)
    elif column.type in {"string", "binary"}:
        words = _text_hashes(values)
    else:
        words = _fixed_words(values)
    if values.null_count:
        words = np.where(numpy_view(values.is_null().cast(pa.uint8()), np.bool_), _NULL, words)
    return words


def _dictionary_hashes(values: pa.Array, column: Column, known: _Known) -> _Words:
    dictionary = values.dictionary
    place = dictionary.buffers()[1].address, dictionary.offset, len(dictionary)
    if place not in known:
        known[place] = np.append(_hashes(dictionary, column, known), _NULL)
    indices = numpy_view(values.indices, np.int32)
    if values.null_count:
        is_null = numpy_view(values.is_null().cast(pa.uint8()), np.bool_)
        indices = np.where(is_null, len(dictionary), indices)
    words: _Words = known[place][indices]
    return words


def _fixed_words(values: pa.Array) -> _Words:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pa.types.is_decimal(values.type):
        halves = numpy_view(values, np.dtype((np.uint64, 2)))
        words: _Words = _mixed(halves[:, 0], 0) + halves[:, 1]
        return words
    width = values.type.bit_width // 8
    words = numpy_view(values, np.dtype(f"u{width}")).astype(np.uint64, copy=False)
    if pa.types.is_floating(values.type):
        words = np.where(np.isnan(numpy_view(values, np.dtype(f"f{width}"))), _NAN, words)
    return words


def _text_hashes(values: pa.Array) -> _Words:
    data = values.buffers()[2]
    if data is None:
        return np.zeros(len(values), np.uint64)
    offsets = _offsets(values)
    is_long = np.diff(offsets) > LONG_BYTES
    if not is_long.any():
        return _sequence_hashes(np.frombuffer(data, np.uint8), offsets)
    words = np.empty(len(values), np.uint64)
    words[~is_long] = _text_hashes(values.filter(pa.array(~is_long)))
    words[is_long] = [
        int.from_bytes(hashlib.blake2b(data[start:stop], digest_size=8).digest(), "little")
        for start, stop in zip(offsets[:-1][is_long], offsets[1:][is_long], strict=True)
    ]
    return words


def _offsets(values: pa.Array) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def _list_hashes(values: pa.Array, column: Column, known: _Known) -> _Words:
    offsets = _offsets(values)
    first, last = int(offsets[0]), int(offsets[-1])
    children = (values.keys, values.items) if column.type == MAP else (values.values,)
    elements = np.zeros(last - first, np.uint64)
    for child, part in zip(column.children, children, strict=True):
        elements += _mixed(_hashes(part.slice(first, last - first), child, known), child.id)
    return _sequence_hashes(elements, offsets - first)


def _sequence_hashes(elements: npt.NDArray[Any], offsets: npt.NDArray[np.int32]) -> _Words:
    """Return a word for each sequence: a polynomial in its elements, computed by prefix sums."""
    words = np.empty(len(offsets) - 1, np.uint64)
    start = 0
    while start < len(words):
        within = int(np.searchsorted(offsets, int(offsets[start]) + _PIECE, side="right")) - 1
        stop = max(within, start + 1)
        words[start:stop] = _piece_hashes(elements, offsets[start : stop + 1])
        start = stop
    return words


def _piece_hashes(elements: npt.NDArray[Any], offsets: npt.NDArray[np.int32]) -> _Words:
    first, last = int(offsets[0]), int(offsets[-1])
    count = last - first
    starts, stops = offsets[:-1] - first, offsets[1:] - first
    powers = _powers(_BASE, max(count, _PIECE))[:count]
    inverses = _powers(_INVERSE, max(count, _PIECE))
    sums = np.zeros(count + 1, np.uint64)
    np.cumsum((elements[first:last].astype(np.uint64) + np.uint64(1)) * powers, out=sums[1:])
    words = (sums[stops] - sums[starts]) * inverses[starts]
    return words + (stops - starts).astype(np.uint64) * _FIRST


@lru_cache(maxsize=2)
def _powers(base: int, count: int) -> _Words:
    """Return the powers of `base` from 0 to `count`, modulo 2^64."""
    powers = np.full(count + 1, np.uint64(base))
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)
