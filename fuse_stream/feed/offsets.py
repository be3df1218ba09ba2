"""The position of a stream in a table's feed, and the end of its next batch. Pure.

The feed is a list of units: the table at one version (the first full read), then one unit for each
commit on the line of the head (`reading.line`). A unit is a list of blocks in canonical order: the
table's blocks as its segments list them, a commit's with the removed ones first. Blocks that a
predicate rules out are counted too, so a position means the same under every predicate.

| version, index | what has been delivered |
| --- | --- |
| n, 0 | everything through commit n, the first full read (if any) included |
| n, k > 0 | everything before commit n, and the first k blocks of commit n |
| n, -k < 0 | the table at version n without its last k blocks, and nothing later |
| 0, -1 | nothing: a first full read, whose version is not chosen yet |
| 0, -2 | nothing: the commits from a version on that is not chosen yet: "now", or a name |
| n, -2**62 | everything through commit n, the last of it as a net difference (`RESYNC`) |

(0, -1) and (0, -2) cannot be mistaken for the table at version 0, which holds no block. They are
needed because Spark does not store the start of its first batch. It asks for the first offset twice
in every new run, and once more when a first batch runs again; only the batch's end is in the
checkpoint. So the first offset must not depend on the head, and the contents of the first batch
must follow from its end alone:

- From (0, -1) the first batch delivers blocks of the table at the version of its end, no commit.
- From (0, -2) the first batch is empty: its end is where the stream starts.
- From (n, 0), which a number or a time as the start gives, it delivers the commits from n + 1 to
  its end.

A batch that ends at (m, `RESYNC`) holds the net difference of two snapshots, its start's and its
end's, because the commits between them have expired. The end itself records that, so the batch is
the same when it runs again, whatever has expired by then.

Limits: a batch takes whole commits in order. Only a first full read, or one commit that alone is
over the limit of rows or bytes, is split, between two blocks. A batch holds at least one block,
whatever its size.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuse_stream.errors import StreamIdentityError
from fuse_stream.feed.changes import Piece, Unit
from fuse_stream.feed.views import Limits
from fuse_stream.format.source_offset import FIRST_READ, Offset
from fuse_stream.reading.line import Line, Step
from fuse_stream.reading.scan import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The part of the feed between two offsets."""

    selection: Selection
    """How the reader reads rows of its own schema."""
    units: tuple[Unit, ...] = ()
    """The units, each with the pieces that the batch delivers; none is empty."""


def steps_ahead(start: Offset, line: Line, last: int) -> tuple[int | None, Iterator[Step]]:
    """Return what is between `start` and the end of commit `last`: (table, steps of the line).

    `table` is the version whose whole table is to be read, in full or in part, or None. The commit
    or table that `start` is within comes first, also if it was undone meanwhile. From `FIRST_READ`
    the table is that of `last`.
    """
    if start.is_undecided:
        return (last if start.index == FIRST_READ else None), iter(())
    steps = line.iter_steps(last)
    if start.index < 0:
        return start.version, steps
    if start.index > 0:
        begun = Step(base=start.version - 1, version=start.version)
        return None, itertools.chain((begun,), steps)
    return None, steps


def plan_end(start: Offset, units: Iterable[Unit], limits: Limits) -> Offset:
    """Return the end of the batch from `start`: after as many of `units` as `limits` allow.

    `units` are those after `start` (`steps_ahead`), in order, read one by one as needed. A first
    full read ends its batch.
    """
    end = start
    size = _BatchSize(limits)
    for unit in units:
        begin = delivered(end, unit)
        count = size.admit(unit.pieces[begin:], is_whole=unit.is_whole)
        if count is None:
            break
        end = _after(unit, begin + count, end)
        if unit.is_table or end.index:
            break
    return end


def plan_slices(start: Offset, end: Offset, units: Iterable[Unit]) -> Iterator[Unit]:
    """Yield the parts of `units` that are between two offsets; `units` cover all between them."""
    for unit in units:
        first, stop = delivered(start, unit), delivered(end, unit)
        if first < stop:
            is_all = stop - first == len(unit.pieces)
            part = unit.pieces[first:stop]
            yield unit if is_all else dataclasses.replace(unit, first=first, pieces=part)


def delivered(offset: Offset, unit: Unit) -> int:
    """Return how many of a unit's blocks are delivered at `offset`.

    Raises:
        StreamIdentityError: the offset counts blocks that the unit does not have.
    """
    total = len(unit.pieces)
    if offset.is_undecided or offset.version < unit.version:
        return 0
    if offset.version > unit.version or offset.index == 0:
        return total
    count = offset.index if offset.index > 0 else total + offset.index
    if not 0 <= count <= total or unit.is_table != (offset.index < 0):
        raise StreamIdentityError(
            "the checkpoint's offset counts blocks that this version does not have; start a new "
            "checkpoint",
            version=offset.version,
            index=offset.index,
            block_count=total,
        )
    return count


class _BatchSize:
    """The size of a batch so far, compared with its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rows = self._bytes = self._commits = 0

    def admit(self, pieces: tuple[Piece, ...], *, is_whole: bool) -> int | None:
        """Return how many of a unit's pieces the batch takes; None if it is full."""
        if not any(piece.is_wanted for piece in pieces):
            return len(pieces)
        is_first, is_begun = not self._commits, False
        if not is_first and self._commits == self._limits.commits:
            return None
        self._commits += 1
        for count, piece in enumerate(pieces):
            if not piece.is_wanted:
                continue
            self._rows += piece.block.live_rows
            self._bytes += piece.block.live_file_size
            if self._is_over():
                if not is_first:
                    return None
                if is_begun and not is_whole:
                    return count
            is_begun = True
        return len(pieces)

    def _is_over(self) -> bool:
        most_rows, most_bytes = self._limits.rows, self._limits.bytes
        return (most_rows is not None and self._rows > most_rows) or (
            most_bytes is not None and self._bytes > most_bytes
        )


def _after(unit: Unit, count: int, offset: Offset) -> Offset:
    """Return the position after the first `count` blocks of a unit."""
    left = len(unit.pieces) - count
    return Offset(
        table_id=offset.table_id,
        branch_id=offset.branch_id,
        version=unit.version,
        snapshot_id=unit.snapshot_id,
        index=0 if not left else -left if unit.is_table else count,
    )
