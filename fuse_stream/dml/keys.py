"""The keys of rows: which arriving keys are in which rows of a table, and whether keys are unique.

Keys are equal if Spark groups them together (`format.grouping`); a null in a key is refused.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, tee
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.create import column_ids
from fuse_stream.errors import AmbiguousMergeError, InvalidInputError
from fuse_stream.format.grouping import grouping_keys, groups_of
from fuse_stream.format.positions import positions_of
from fuse_stream.format.records import Block, ColumnStats, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks, load_blocks
from fuse_stream.reading.filters import MOST_VALUES, Sought, absent_values, bloom_of, each_answer
from fuse_stream.reading.scan import has_filters
from fuse_stream.storage.base import Store

MOST_BOUNDS = 100_000
"""With more arriving keys than this, bounds rule no block out."""
_SEARCHED = 100_000
"""Rows that are searched at a time, and more of the last block."""
_SHOWN = 3
"""The most keys that an error names."""
_TABLE_BITS = 22
"""The most bits of a hash by which numbers are ruled out: of a table of 4 MiB."""
_PER_VALUE_BITS = 7
"""A number that is not wanted passes one in 2 ** 7 times at most."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Knuth's, 2**64 over the golden ratio


def key_of(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the columns of a key; errors of `column_ids`."""
    return column_ids(schema, names, argument="keys")


def key_schema(schema: Schema, key: Sequence[int]) -> Schema:
    """Return a schema of the columns of a key, in the order of the key."""
    columns = {column.id: column for column in schema.columns}
    return dataclasses.replace(schema, columns=tuple(columns[column] for column in key))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeys:
    """The rows of a snapshot that have one of the arriving keys."""

    blocks: tuple[Block, ...]
    """Blocks that show only these rows, oldest first."""
    is_known: np.ndarray
    """For each arriving key, whether a row has it."""


class KeySearch:
    """Looks for arriving keys, which are unique and have no null, in the rows of snapshots."""

    def __init__(self, keys: Schema, arriving: pa.Table) -> None:
        """`arriving` has the columns of `keys`."""
        self._keys = keys
        self._count = len(arriving)
        self._places = Places(grouping_keys(arriving))
        self._candidates = Candidates(keys, arriving)

    def find(self, metadata: Metadata, head: Snapshot) -> FoundKeys:
        """Return the rows that `head` shows and that have one of the keys.

        Raises:
            CorruptObjectError: a segment, a deletion file or a block is missing or damaged.
        """
        found: list[Block] = []
        is_known = np.zeros(self._count, bool)
        blocks = list(self._candidates.iter_blocks(metadata, head))
        tables = metadata.block_columns.iter_tables(blocks, self._keys)
        for some, keys in _joined(zip(blocks, tables, strict=True)):
            at, places = self._places.find(grouping_keys(keys))
            start = 0
            for block in some:
                end = start + block.row_count
                first, last = np.searchsorted(at, (start, end))
                rows = positions_of(at[first:last] - start) if first < last else None
                if rows is not None and block.hidden is not None:
                    rows -= block.hidden
                if rows:
                    found.append(block.showing(rows))
                    shown = np.asarray(rows.to_array(), np.int64) + start
                    is_known[places[np.searchsorted(at, shown)]] = True
                start = end
        return FoundKeys(blocks=tuple(found), is_known=is_known)


def _joined(
    blocks: Iterable[tuple[Block, pa.Table]],
) -> Iterator[tuple[list[Block], pa.Table]]:
    """Yield the blocks and their rows, small blocks together: each search has a cost of its own."""
    some: list[Block] = []
    tables: list[pa.Table] = []
    rows = 0
    for block, table in blocks:
        some.append(block)
        tables.append(table)
        rows += len(table)
        if rows >= _SEARCHED:
            yield some, pa.concat_tables(tables)
            some, tables, rows = [], [], 0
    if some:
        yield some, pa.concat_tables(tables)


class Candidates:
    """Finds the blocks that may hold one of some rows, by their statistics."""

    def __init__(self, schema: Schema, rows: pa.Table) -> None:
        """`rows` has the columns of `schema`."""
        self._schema = schema
        self._is_empty = not len(rows)
        self._bounds = [_bounds(column) for column in rows.columns]

    def iter_blocks(self, metadata: Metadata, head: Snapshot) -> Iterator[Block]:
        """Yield the blocks of `head` that show a row and may hold one of the wanted ones.

        Statistics rule blocks out, then Bloom filters.
        """
        if self._is_empty:
            return
        blocks = self._by_stats(metadata, head)
        if not has_filters(head):
            yield from blocks
            return
        first, second = tee(blocks)
        store = metadata.store
        yield from compress(
            second, each_answer(store, first, partial(self._filters_may_hold, store))
        )

    def _by_stats(self, metadata: Metadata, head: Snapshot) -> Iterator[Block]:
        for ref in head.segments:
            summary = metadata.load_segment(ref, head.schema.leaf_types).summary
            if not self._may_hold(summary.col_stats):
                continue
            for block in load_blocks(metadata, head, ref):
                if block.live_rows and self._may_hold(block.col_stats):
                    yield block

    def _may_hold(self, stats: Mapping[int, ColumnStats]) -> bool:
        """False if no row with these statistics is wanted."""
        for column, bounds in zip(self._schema.columns, self._bounds, strict=True):
            if bounds is None:
                continue
            known = stats.get(column.id)
            if known is None:
                return False  # older than the column, which is null in it
            if known.min is None or known.max is None:
                continue
            at = bisect_left(bounds, known.min)
            if at == len(bounds) or bounds[at] > known.max:
                return False
        return True

    def _filters_may_hold(self, store: Store, block: Block) -> bool:
        """False if the Bloom filter of a column has none of the few values within its bounds."""
        sought = []
        for column, bounds in zip(self._schema.columns, self._bounds, strict=True):
            bloom = bloom_of(block, column.id)
            if bounds is None or bloom is None:
                continue
            known = block.col_stats[column.id]
            first = 0 if known.min is None else bisect_left(bounds, known.min)
            last = len(bounds) if known.max is None else bisect_right(bounds, known.max)
            if last - first <= MOST_VALUES:
                sought.append(Sought(column.id, bloom, bounds[first:last]))
        if not sought:
            return True
        absent = absent_values(store, block, sought)
        return all(len(absent.get(column, ())) < len(set(values)) for column, _, values in sought)


def check_keys(rows: pa.Table, keys: Schema) -> None:
    """Raise if the key columns of arriving rows have a null, or a key twice.

    Raises:
        InvalidInputError: a null.
        AmbiguousMergeError: a key twice; names some.
    """
    columns = rows.select(list(keys.names()))
    _check_no_null(columns)
    if doubles := _doubles(columns):
        raise AmbiguousMergeError(
            "several arriving rows have one key, so which of them the table should have is not "
            "certain: send one row for each key",
            key=list(keys.names()),
            doubles=doubles,
        )


def check_unique(metadata: Metadata, head: Snapshot, key: tuple[int, ...]) -> None:
    """Raise unless the columns `key` are unique and not null in the rows of a snapshot.

    Reads these columns of all blocks.

    Raises:
        InvalidInputError: they are not; names some keys.
    """
    keys = key_schema(head.schema, key)
    blocks = [block for block in iter_blocks(metadata, head) if block.live_rows]
    shown = [load_block(metadata.store, block, keys) for block in blocks]
    if not shown:
        return
    rows = pa.concat_tables(shown)
    _check_no_null(rows)
    if doubles := _doubles(rows):
        raise InvalidInputError(
            "several rows of the table have one key: delete all but one of each, or take other "
            "columns",
            key=list(keys.names()),
            doubles=doubles,
        )


def _check_no_null(columns: pa.Table) -> None:
    for name in columns.column_names:
        if columns.column(name).null_count:
            raise InvalidInputError("a key has no null: fill or filter the column", column=name)


def _doubles(columns: pa.Table) -> list[object]:
    """Return some of the keys that several rows have."""
    first, counts = groups_of(grouping_keys(columns))
    doubles = first.filter(pc.greater(counts, 1)).slice(0, _SHOWN)
    found = readable(columns.take(doubles))
    return [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in found]


def readable(rows: pa.Table) -> list[dict[str, object]]:
    """Return rows for an error; values that Python cannot hold as what Arrow shows of them."""
    try:
        found: list[dict[str, object]] = rows.to_pylist()
    except (UnicodeDecodeError, OverflowError, ValueError):  # text of any bytes, times out of range
        found = [
            {name: repr(rows.column(name)[at]) for name in rows.column_names}
            for at in range(len(rows))
        ]
    return found


class Places:
    """Finds rows among arriving ones, which are all different; both are `grouping_keys`."""

    def __init__(self, arriving: pa.Table) -> None:
        self._values = [pc.unique(column) for column in arriving.columns]
        self._sets: list[np.ndarray] = []
        """After each further column, the codes that arriving keys have up to it, in order."""
        codes = self._codes(arriving, learns=True)
        self._rows = np.argsort(codes)
        self._sorted = codes[self._rows]
        numbers = [at for at, values in enumerate(self._values) if pa.types.is_integer(values.type)]
        self._tested = max(numbers, key=lambda at: len(self._values[at]), default=None)
        """The column of numbers with the most values."""
        self._table = None if self._tested is None else _table_of(self._values[self._tested])

    def find(self, keys: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of `keys` that have an arriving key, and the arriving row of each."""
        maybe = None
        if self._tested is not None and self._table is not None:
            hashes = _hashes(keys.column(self._tested), self._table)
            maybe = np.flatnonzero(self._table.take(hashes))
            keys = keys.take(pa.array(maybe))
        codes = self._codes(keys, learns=False)
        if len(self._values) == 1:  # the distinct values are the arriving rows, in their order
            at = np.flatnonzero(codes >= 0)
            places = codes[at]
        else:
            found = np.searchsorted(self._sorted, codes)
            found[found == len(self._sorted)] = 0
            at = np.flatnonzero((codes >= 0) & (self._sorted[found] == codes))
            places = self._rows[found[at]]
        return (at if maybe is None else maybe[at]), places

    def _codes(self, keys: pa.Table, *, learns: bool) -> np.ndarray:
        """Return a number for each key, the same for equal ones; -1 if no arriving key has it."""
        codes = _index_in(keys.column(0), self._values[0])
        for at, values in enumerate(self._values[1:]):
            own = _index_in(keys.column(at + 1), values)
            combined = np.where((codes < 0) | (own < 0), -1, codes * len(values) + own)
            if learns:
                self._sets.append(np.unique(combined))
            known = self._sets[at]
            found = np.searchsorted(known, combined)
            found[found == len(known)] = 0
            codes = np.where((combined >= 0) & (known[found] == combined), found, -1)
        return codes


def _table_of(values: pa.Array) -> np.ndarray | None:
    """Return a table that is true at the hashes of some numbers; None if they are too many."""
    bits = len(values).bit_length() + _PER_VALUE_BITS
    if bits > _TABLE_BITS:
        return None
    table = np.zeros(1 << bits, bool)
    table[_hashes(pa.chunked_array([values]), table)] = True
    return table


def _hashes(numbers: pa.ChunkedArray, table: np.ndarray) -> np.ndarray:
    """Return the place in a table of each number, 0 for null: fast, where a lookup is not."""
    plain = pc.fill_null(numbers, 0) if numbers.null_count else numbers
    hashes = plain.to_numpy().astype(np.int64, copy=False).view(np.uint64) * _MULTIPLIER
    hashes >>= np.uint64(65 - len(table).bit_length())
    found: np.ndarray = hashes.view(np.int64)
    return found


def _index_in(column: pa.ChunkedArray, values: pa.Array) -> np.ndarray:
    found = pc.index_in(column, value_set=values)
    plain: np.ndarray = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return plain


def _bounds(values: pa.ChunkedArray) -> list[Any] | None:
    """Return values in order: a block that has a key has one of them in its bounds."""
    arrow = values.type
    if pa.types.is_nested(arrow) or pa.types.is_floating(arrow) or values.null_count:
        return None  # bounds leave NaN and null out
    distinct = pc.unique(values)
    if pa.types.is_date32(arrow):
        distinct = distinct.cast(pa.int32())
    elif pa.types.is_timestamp(arrow):
        distinct = distinct.cast(pa.int64())
    if len(distinct) > MOST_BOUNDS:
        return None  # one of so many is within the bounds of nearly every block
    try:
        return sorted(distinct.to_pylist())
    except UnicodeDecodeError:  # text of any bytes: its column has no bounds
        return None
