"""Sums over the rows of a batch, by which a replay is told from another batch of the same number.

Rules (`docs/format.md`, section "Fingerprints"):
- The sums of a batch depend on its rows alone: not on their order, nor on how they are divided
  into tables, tasks and blocks, nor on columns that are null throughout.
- Widening a column keeps its sums, so a batch may be compared after the table's types have changed.
- A change of one value changes its column's sum. Not seen: values that change places within a
  column, the bytes of texts that change places, and changes that add up to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.dictionaries import FEW_ROWS, numpy_view
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.schema import ARRAY, MAP, STRUCT, Column, Schema, decimal_of

_MODULUS = 1 << 128
_UNIT = 1 << 64
"""One in a sum of 64 bits. Arrow's sums are modulo 2^64, so those of this unit are modulo 2^128."""
_LENGTH = 1 << 32
"""A byte of a text counts as this and its own value, so that bytes cannot hide a length."""
_MAX_SCALE = 38
_NAN = 0x7FF8000000000000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSums:
    """The sums of some rows; those of two sets of rows add up to those of all their rows."""

    rows: int = 0
    columns: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """By column id, without columns that are null throughout: how many values the column has, and
    their sum in decimal digits."""

    def __add__(self, other: BatchSums) -> BatchSums:
        columns = dict(self.columns)
        for column, (count, total) in other.columns.items():
            known_count, known = columns.get(column, (0, "0"))
            columns[column] = known_count + count, str((int(known) + int(total)) % _MODULUS)
        return BatchSums(rows=self.rows + other.rows, columns=columns)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the sums."""
        columns = {str(column): list(sums) for column, sums in self.columns.items()}
        return sha256_hex(dump_canonical({"columns": columns, "rows": self.rows}))


class MeasuredTables:
    """An iterator over tables that adds up their sums."""

    def __init__(self, tables: Iterable[pa.Table], schema: Schema) -> None:
        self.sums = BatchSums()
        """The sums of the tables that were iterated over."""

        self._tables = iter(tables)
        self._schema = schema

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        table = next(self._tables)
        if len(table) < FEW_ROWS * table.column(0).num_chunks:  # else each chunk takes its time
            table = table.combine_chunks()
        self.sums += batch_sums(table, self._schema)
        return table


def batch_sums(table: pa.Table, schema: Schema) -> BatchSums:
    """Return the sums of the rows of `table`, which has the schema `schema` (`arrow.adapt`)."""
    found: dict[int, tuple[int, int]] = {}
    for column, values in zip(schema.columns, table.columns, strict=True):
        for chunk in values.chunks:
            _add(found, column, chunk)
    columns = {column: (count, str(total % _MODULUS)) for column, (count, total) in found.items()}
    return BatchSums(rows=len(table), columns=columns)


def _add(found: dict[int, tuple[int, int]], column: Column, values: pa.Array) -> None:
    count = len(values) - values.null_count
    if not count:
        return
    total = 0
    if column.type == STRUCT:
        for place, child in enumerate(column.children):
            _add(found, child, pc.struct_field(values, place))
    elif column.type in {ARRAY, MAP}:
        values = values.drop_null() if values.null_count else values
        first, last = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        total = (last - first) * _UNIT
        parts = (values.keys, values.items) if column.type == MAP else (values.values,)
        for child, part in zip(column.children, parts, strict=True):
            _add(found, child, part.slice(first, last - first))
    else:
        total = _leaf_sum(column.type, values)
    known_count, known = found.get(column.id, (0, 0))
    found[column.id] = known_count + count, known + total


def _leaf_sum(type_name: str, values: pa.Array) -> int:
    if type_name in {"string", "binary"}:
        return _text_sum(values) * _UNIT
    if decimal := decimal_of(type_name):
        unit: int = 10 ** (_MAX_SCALE - decimal[1])
        return _decimal_sum(values) * unit
    if type_name in {"float", "double"}:
        return _float_sum(values) * _UNIT
    if type_name == "date":
        values = values.view(pa.int32())
    elif type_name in {"timestamp", "timestamp_ntz"}:
        values = values.view(pa.int64())
    return cast("int", pc.sum(values).as_py()) * _UNIT


def _text_sum(values: pa.Array) -> int:
    bounds = values.buffers()[1]
    offsets = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    length = last - first
    if values.null_count and pc.sum(pc.binary_length(values)).as_py() != length:
        return _text_sum(values.drop_null())  # there are bytes under its nulls
    if not length:
        return 0
    data = pa.Array.from_buffers(pa.uint8(), length, [None, values.buffers()[2]], offset=first)
    return _LENGTH * length + cast("int", pc.sum(data).as_py())


def _float_sum(values: pa.Array) -> int:
    if values.type != pa.float64():  # a cast that changes nothing takes its time, too
        values = values.cast(pa.float64())
    bits = values.view(pa.int64())
    if math.isnan(pc.sum(values).as_py()):  # NaN has many bits; inf - inf is NaN, too
        bits = pc.if_else(pc.is_nan(values), pa.scalar(_NAN, pa.int64()), bits)
    return cast("int", pc.sum(bits).as_py())


def _decimal_sum(values: pa.Array) -> int:
    """Return the exact sum of the unscaled values."""
    values = values.drop_null() if values.null_count else values
    parts = numpy_view(values, np.dtype((np.uint32, 4)))
    low = [int(parts[:, place].sum(dtype=np.uint64)) for place in range(3)]
    high = int(parts[:, 3].view(np.int32).sum(dtype=np.int64))
    return low[0] + (low[1] << 32) + (low[2] << 64) + (high << 96)
