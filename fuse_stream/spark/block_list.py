"""The blocks of a scan by Spark, which asks for them when it plans a query.

Rules:
- Spark asks with the filters of the query, so any filter of a DataFrame, a view or a join rules
  blocks out by their statistics. Spark still tests each row.
- Each block that hides rows is known beforehand: its hidden rows are a part of the plan.
- Spark asks in any thread, and in several at a time; a table's handle is for one thread.
- A missing block is found before tasks start, as far as that takes no request for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import hidden_in, iter_named
from fuse_stream.predicate.bound import Bound, BoundAnd
from fuse_stream.reading.history import expiry_reported
from fuse_stream.reading.scan import Selection, prune, stats_may_match
from fuse_stream.spark.hidden_rows import HiddenRows
from fuse_stream.spark.jvm.file_scan import is_local
from fuse_stream.storage.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFile:
    """The file of a block, and which of its rows are read."""

    key: Hashable
    """Tells it from the others of its list."""
    block_id: str
    location: str
    byte_count: int
    live_rows: int
    hidden: HiddenRows | None
    """None if all rows are read."""
    constants: tuple[int | str, ...] = ()
    """The values of the scan's constants in all rows."""


class BlockList(Protocol):
    """The blocks of a scan."""

    @property
    def identity(self) -> object:
        """Lists whose identities have the same `repr` have the same rows, for Spark's cache."""

    @property
    def folder(self) -> str:
        """The location of the table."""

    @property
    def byte_count(self) -> int:
        """The size of all blocks, or an estimate."""

    def hiding(self) -> Sequence[BlockFile]:
        """Return all blocks that `matching` may return and of which rows are hidden."""

    def matching(self, where: Bound | None) -> Sequence[BlockFile]:
        """Return the blocks that may hold a row for which `where` is true, all without it."""


class SnapshotBlocks:
    """The blocks of a snapshot. Its records are not kept: those of a large table are large."""

    def __init__(self, metadata: Metadata, snapshot: Snapshot, selection: Selection) -> None:
        """Keep what to read; load nothing. A predicate of the selection rules blocks out too."""
        self._metadata = metadata
        self._snapshot = snapshot
        self._selection = dataclasses.replace(selection, leaf_ids=snapshot.schema.bounded_ids)
        self._lock = Lock()

    @property
    def identity(self) -> object:
        snapshot = self._snapshot
        return self._metadata.store.url, snapshot.snapshot_id, self._selection.predicate

    @property
    def folder(self) -> str:
        return self._metadata.store.location("")

    @property
    def byte_count(self) -> int:
        return self._snapshot.summary.compressed_byte_size

    def hiding(self) -> Sequence[BlockFile]:
        with self._opened():
            ids = hidden_in(self._metadata, self._snapshot).keys()
            return [
                self._file(block)
                for block in iter_named(self._metadata, self._snapshot, ids)
                if block.live_rows
                and stats_may_match(self._selection, block.col_stats, block.row_count)
            ]

    def matching(self, where: Bound | None) -> Sequence[BlockFile]:
        selection = _restricted(self._selection, where)
        with self._opened():
            found = prune(self._metadata, self._snapshot, selection)
            return [_present(self._file(block)) for block in found]

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Let one thread read metadata; if an object is gone, say that the version has expired."""
        read = self._snapshot.branch_id, self._snapshot.version
        with self._lock, expiry_reported(self._metadata, read):
            yield

    def _file(self, block: Block) -> BlockFile:
        return block_file(self._metadata.store, block, key=block.id)


class KnownBlocks:
    """Blocks that are known, each with the constants of its rows. No filter rules one out."""

    def __init__(self, store: Store, blocks: Sequence[tuple[Block, tuple[int | str, ...]]]) -> None:
        """Keep the blocks.

        Raises:
            CorruptObjectError: one is missing on a local disk.
        """
        self._store = store
        self._files = [
            _present(block_file(store, block, key=at, constants=constants))
            for at, (block, constants) in enumerate(blocks)
        ]

    @property
    def identity(self) -> object:
        return id(self)

    @property
    def folder(self) -> str:
        return self._store.location("")

    @property
    def byte_count(self) -> int:
        return sum(file.byte_count for file in self._files)

    def hiding(self) -> Sequence[BlockFile]:
        return [file for file in self._files if file.hidden is not None]

    def matching(self, _where: Bound | None) -> Sequence[BlockFile]:
        # The blocks of a feed have no statistics here: they are too big to keep.
        return self._files


class BlocksOfAKind:
    """Those blocks of a list that hide rows, or the others."""

    def __init__(self, blocks: BlockList, *, is_hiding: bool) -> None:
        self._blocks = blocks
        self._is_hiding = is_hiding

    @property
    def identity(self) -> object:
        return self._blocks.identity, self._is_hiding

    @property
    def folder(self) -> str:
        return self._blocks.folder

    @property
    def byte_count(self) -> int:
        return self._blocks.byte_count

    def hiding(self) -> Sequence[BlockFile]:
        return self._blocks.hiding() if self._is_hiding else []

    def matching(self, where: Bound | None) -> Sequence[BlockFile]:
        found = self._blocks.matching(where)
        return [file for file in found if (file.hidden is not None) is self._is_hiding]


def block_file(
    store: Store, block: Block, *, key: Hashable, constants: tuple[int | str, ...] = ()
) -> BlockFile:
    """Return the file of a block of the table in `store`."""
    hidden = block.hidden
    return BlockFile(
        key=key,
        block_id=block.id,
        location=store.location(block_key(block.id, block.origin)),
        byte_count=block.file_size,
        live_rows=block.live_rows,
        hidden=None if hidden is None else HiddenRows(row_count=block.row_count, hidden=hidden),
        constants=constants,
    )


def _present(file: BlockFile) -> BlockFile:
    """Return a file; raise if it is a local one and missing."""
    if is_local(file.location) and not Path(file.location).exists():
        raise missing_block(file)
    return file


def missing_block(file: BlockFile) -> CorruptObjectError:
    """Return the error to raise for a block without a file."""
    return CorruptObjectError(
        "a block is missing: fuse-stream fsck on this path shows what else is, and which versions "
        "still work",
        block=file.block_id,
        location=file.location,
    )


def _restricted(selection: Selection, where: Bound | None) -> Selection:
    if where is None:
        return selection
    if selection.predicate is not None:
        where = BoundAnd(operands=(selection.predicate, where))
    return dataclasses.replace(selection, predicate=where)
