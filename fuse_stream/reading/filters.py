"""Look values up in the Bloom filters of blocks: which blocks certainly have none of them.

Rules:
- It is asked after the statistics, and only where the answer can rule a block out.
- A value is read as one bucket of 32 bytes. More than `MOST_VALUES` in one block are not looked up:
  so many rule out hardly a block.
- Filters have no checksum. A block whose filter cannot be read, or whose bucket cannot be right, is
  read; `fuse-stream fsck --deep` finds all other damage.
- A filter covers all rows of the file, hidden ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar

from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.bloom import FALSE_POSITIVES
from fuse_stream.format.bloom_filter import BloomFilter
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Block, ColumnStats, Value
from fuse_stream.format.split_block import BUCKET_BYTES, bucket_offset, hash_of, may_contain
from fuse_stream.predicate.absent import iter_equalities, without_absent
from fuse_stream.predicate.bound import Bound, BoundColumn
from fuse_stream.predicate.prune import StatsOf, may_match
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

MOST_VALUES = round(0.1 / FALSE_POSITIVES)
"""The most values that are looked up in a block: one in ten blocks is then read in vain."""
READERS = 32
"""Filters that are read at a time from a remote store."""

Item = TypeVar("Item")


class Sought(NamedTuple):
    """Values to look up in a filter of a block."""

    column_id: int
    bloom: BloomFilter
    values: Sequence[Value]


class Equalities:
    """The part of a predicate that filters can decide."""

    def __init__(self, predicate: Bound | None, leaf_ids: Mapping[tuple[str, ...], int]) -> None:
        """`leaf_ids` are the ids of columns by path."""
        self._predicate = predicate
        self._leaf_ids = leaf_ids
        self._values: dict[int, dict[Value, BoundColumn]] = {}
        if predicate is not None:
            for column, value in iter_equalities(predicate):
                column_id = leaf_ids.get(column.path)
                if column_id is not None:
                    self._values.setdefault(column_id, {})[value] = column

    def may_hold(self, store: Store, block: Block, stats: StatsOf) -> bool:
        """False if a block's filters rule out that the predicate is true for a row.

        `stats` are the block's statistics, which do not rule it out.
        """
        sought = self._sought(block, stats)
        if not sought or not self._may_decide(sought, block, stats):
            return True
        absent = absent_values(store, block, sought)
        return not absent or self._is_possible(absent, block, stats)

    def _sought(self, block: Block, stats: StatsOf) -> list[Sought]:
        """Return the values to look up: those within the bounds of a column with a filter."""
        sought = []
        for column_id, values in self._values.items():
            bloom = bloom_of(block, column_id)
            if bloom is None:
                continue
            found = stats(next(iter(values.values())).path)
            within = [value for value in values if found is None or _is_within(value, found)]
            sought.append(Sought(column_id, bloom, within))
        return sought

    def _may_decide(self, sought: Sequence[Sought], block: Block, stats: StatsOf) -> bool:
        """True if the block would be ruled out if none of the values was there."""
        count = sum(len(one.values) for one in sought)
        everything = {one.column_id: frozenset(one.values) for one in sought}
        return 0 < count <= MOST_VALUES and not self._is_possible(everything, block, stats)

    def _is_possible(
        self, absent: Mapping[int, frozenset[Value]], block: Block, stats: StatsOf
    ) -> bool:
        def is_absent(column: BoundColumn, value: Value) -> bool:
            return value in absent.get(self._leaf_ids.get(column.path, -1), ())

        assert self._predicate is not None
        left = without_absent(self._predicate, is_absent)
        return may_match(left, stats, block.row_count)


def each_answer(store: Store, items: Iterable[Item], ask: Callable[[Item], bool]) -> Iterator[bool]:
    """Yield what `ask` says of each item, in order; a remote store is asked for many at a time."""
    return each(ask, items, store, at_once=READERS if store.is_remote else 1)


def bloom_of(block: Block, column_id: int) -> BloomFilter | None:
    """Return where a block has the filter of a column; None if it has none."""
    meta = block.col_metas.get(column_id)
    return None if meta is None else meta.bloom


def absent_values(
    store: Store, block: Block, sought: Sequence[Sought]
) -> dict[int, frozenset[Value]]:
    """Return those of the values that a block certainly does not have, by column id."""
    places: list[tuple[int, Value, int, int]] = []
    absent: dict[int, set[Value]] = {}
    for column_id, bloom, values in sought:
        for value in values:
            value_hash = hash_of(value, bloom.type)
            if value_hash is None:
                absent.setdefault(column_id, set()).add(value)
            else:
                at = bloom.offset + bucket_offset(value_hash, bloom.len)
                places.append((column_id, value, value_hash, at))
    if places:
        buckets = _buckets(store, block, [at for *_, at in places])
        for (column_id, value, value_hash, _), bucket in zip(places, buckets, strict=True):
            if len(bucket) == BUCKET_BYTES and not may_contain(bucket, value_hash):
                absent.setdefault(column_id, set()).add(value)
    return {column_id: frozenset(values) for column_id, values in absent.items()}


def _buckets(store: Store, block: Block, offsets: Sequence[int]) -> list[bytes]:
    """Return the buckets at offsets in a block's file; empty where there is none."""
    unknown = [b""] * len(offsets)  # then the block is read, and its reader reports the error
    try:
        with store.open_input(block_key(block.id, block.origin), block.file_size) as file:
            return [_bucket(file, at) for at in offsets]
    except NotFoundError:
        return unknown
    except FuseError:
        raise
    except OSError:  # of a local file
        return unknown


def _bucket(file: BinaryIO, at: int) -> bytes:
    file.seek(at)
    return file.read(BUCKET_BYTES)


def _is_within(value: Any, stats: ColumnStats) -> bool:
    # `Any`: bounds and value have the same type, which the type checker cannot know.
    low: Any = stats.min
    high: Any = stats.max
    return (low is None or low <= value) and (high is None or value <= high)
