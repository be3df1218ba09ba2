"""Cutting what a batch delivers into tasks of about the same work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuse_stream.feed.changes import DELETE
from fuse_stream.feed.offsets import Slice
from fuse_stream.format.records import Block
from fuse_stream.reading.scan import Selection

OPEN_BYTES = 128 * 1024
"""What it costs to open a block, told in bytes to read."""

LEAST_TASK_BYTES = 32 * 1024 * 1024
"""About a second's work. What is less is one task: to start one takes a tenth of a second."""
MOST_TASK_BYTES = 64 * 1024 * 1024
WANTED_TASKS = 16
"""Between those bounds. Fixed, for a source is not told how many cores there are, and a batch that
runs again elsewhere should be cut the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One block to read, with what its rows are marked with."""

    change_type: str
    version: int
    timestamp_us: int
    block: Block
    stands_in: int
    """A version that has the block."""
    selection: Selection | None = None
    """How its rows are read; None where the reader's own selection fits its schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetTask:
    """A share of a unit whose equal rows on both sides are to be left out."""

    pieces: tuple[Piece, ...]
    """Of both sides, all of them: a row finds its partner by what it holds, not by where."""
    share: int
    of: int
    """Rows fall into so many shares by their hash."""


def plan_tasks(slices: Iterable[Slice]) -> list[tuple[Piece, ...]]:
    """Return the blocks of `slices` that may hold a wanted row, in order, cut into tasks.

    Many small blocks make one task: a thousand small commits are not a thousand tasks. Units that
    are net have tasks of their own.
    """
    pieces = [piece for part in slices if not part.unit.is_net for piece in _pieces(part)]
    total = sum(_weight(piece) for piece in pieces)
    # A power of two: cores mostly are one, and then none of them waits for the last task.
    count = WANTED_TASKS
    while count > 1 and total < count * LEAST_TASK_BYTES:
        count //= 2
    size = min(-(-total // count), MOST_TASK_BYTES)
    tasks: dict[int, list[Piece]] = {}
    before = 0
    for piece in pieces:
        weight = _weight(piece)
        tasks.setdefault((before + weight // 2) // size, []).append(piece)
        before += weight
    return [tuple(task) for task in tasks.values()]


def plan_net_tasks(slices: Iterable[Slice]) -> list[NetTask]:
    """Return the tasks of those of `slices` whose units are net."""
    tasks = []
    for part in slices:
        if part.unit.is_net:
            pieces = tuple(_pieces(part))
            total = sum(_weight(piece) for piece in pieces)
            count = -(-total // MOST_TASK_BYTES)
            tasks += [NetTask(pieces=pieces, share=share, of=count) for share in range(count)]
    return tasks


def _pieces(part: Slice) -> Iterator[Piece]:
    """Yield the blocks of a slice that may hold a wanted row."""
    for item in part.blocks:
        if item.is_wanted:
            yield Piece(
                change_type=item.change_type,
                version=part.unit.version,
                timestamp_us=part.unit.timestamp_us,
                block=item.block,
                stands_in=part.unit.before if item.change_type == DELETE else part.unit.version,
                selection=item.selection,
            )


def _weight(piece: Piece) -> int:
    return piece.block.file_size + OPEN_BYTES
