"""The overlap of a table's blocks in the order of its cluster key. Pure.

Rules:
- Keys are compared column by column, in the order of the rows in a block: values in Spark's order,
  then NaN, then null.
- A block's extent is a lower and an upper bound of its keys. An unknown bound is before or after
  every key.
- A block that was not written for this key overlaps every other one: its rows are in no order.
- Extents are closed: two blocks that share one key overlap, because a search for that key reads
  both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Block, ColumnStats, Snapshot, Value

_End = tuple[int, Value | None]
Key = tuple[_End, ...]
"""For each column of the key a rank, and the value if the rank is `_VALUE`."""
Span = tuple[int, int]
"""An extent as integers, whose code does not depend on the types of the key."""

_BEFORE_ALL, _VALUE, _NAN, _NULL, _AFTER_ALL = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The keys that a block may hold, both ends included."""

    low: Key
    high: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """The overlap and depth of a snapshot's blocks in the order of its cluster key."""

    version: int
    """The snapshot's version."""
    columns: tuple[str, ...]
    """The columns of the cluster key."""
    block_count: int
    unsorted_count: int
    """The number of blocks that were not written for this key; they overlap all others."""
    average_overlap: float
    """The average number of other blocks that a block overlaps."""
    average_depth: float
    """The average depth. A block's depth is the most blocks, itself included, that may all hold
    one of its keys."""
    max_depth: int
    depths: Mapping[int, int]
    """The number of blocks of each depth, in ascending order of depth."""

    __repr__ = one_line("version columns block_count unsorted_count average_depth max_depth")


def measure_clustering(snapshot: Snapshot, blocks: Sequence[Block]) -> Clustering:
    """Return the overlap of `blocks`, the blocks of `snapshot`; in O(n log n)."""
    key = snapshot.cluster_key
    names = {column.id: column.name for column in snapshot.schema.columns}
    spans = spans_of(extent_of(block, key) for block in blocks)
    depths = depths_of(spans)
    return Clustering(
        version=snapshot.version,
        columns=tuple(names[column] for column in key),
        block_count=len(blocks),
        unsorted_count=sum(not is_sorted_by(block, key) for block in blocks),
        average_overlap=mean(overlaps_of(spans)),
        average_depth=mean(depths),
        max_depth=max(depths, default=0),
        depths=dict(sorted(Counter(depths).items())),
    )


def is_sorted_by(block: Block, cluster_key: tuple[int, ...]) -> bool:
    """True if a block was written for exactly this key."""
    return block.cluster_stats is not None and block.cluster_stats.range.columns == cluster_key


def extent_of(block: Block, cluster_key: tuple[int, ...]) -> Extent:
    """Return the bounds of a block's keys; unknown ones if it was not written for the key."""
    if not is_sorted_by(block, cluster_key):
        count = len(cluster_key)
        return Extent(low=((_BEFORE_ALL, None),) * count, high=((_AFTER_ALL, None),) * count)
    ends = [_ends(block.col_stats.get(column), block.row_count) for column in cluster_key]
    return Extent(low=tuple(low for low, _ in ends), high=tuple(high for _, high in ends))


def spans_of(extents: Iterable[Extent]) -> list[Span]:
    """Return for each extent the ranks of its ends among the sorted ends of all extents."""
    held = list(extents)
    ends = sorted({end for extent in held for end in (extent.low, extent.high)})
    place = {end: at for at, end in enumerate(ends)}
    return [(place[extent.low], place[extent.high]) for extent in held]


def depths_of(spans: Sequence[Span]) -> list[int]:
    """Return for each span the largest number of spans that share one of its points."""
    opened, closed = Counter(low for low, _ in spans), Counter(high for _, high in spans)
    ending: dict[int, list[int]] = {}
    for index, (_, high) in enumerate(spans):
        ending.setdefault(high, []).append(index)
    # Depths so far that are greater than all depths after them, and their places. The greatest
    # depth from a place on is the first of these whose place is not before it.
    peaks: list[int] = []
    places: list[int] = []
    depths = [0] * len(spans)
    depth = 0
    for place in sorted({*opened, *closed}):
        depth += opened[place]
        while peaks and peaks[-1] <= depth:
            peaks.pop()
            places.pop()
        peaks.append(depth)
        places.append(place)
        for index in ending.get(place, ()):
            depths[index] = peaks[bisect_left(places, spans[index][0])]
        depth -= closed[place]
    return depths


def overlaps_of(spans: Sequence[Span]) -> list[int]:
    """Return for each span the number of other spans that share a point with it."""
    lows, highs = sorted(low for low, _ in spans), sorted(high for _, high in spans)
    return [bisect_right(lows, high) - bisect_left(highs, low) - 1 for low, high in spans]


def mean(counts: Sequence[int]) -> float:
    """Return the average; 0 for an empty sequence."""
    return sum(counts) / len(counts) if counts else 0.0


def _ends(stats: ColumnStats | None, row_count: int) -> tuple[_End, _End]:
    if stats is None or stats.null_count >= row_count:  # no statistics: older than the column
        return (_NULL, None), (_NULL, None)
    low: _End = (_BEFORE_ALL, None)
    high: _End = (_AFTER_ALL, None)
    if stats.null_count + stats.nan_count >= row_count:
        low = (_NAN, None)
    elif stats.min is not None:
        low = (_VALUE, stats.min)
    if stats.null_count:
        high = (_NULL, None)
    elif stats.nan_count:
        high = (_NAN, None)
    elif stats.max is not None:
        high = (_VALUE, stats.max)
    return low, high
