"""Rewrite a group of blocks: put the rows that they show as other blocks, and check them.

Rules:
- Each new block is read back and must have its hash. The rows read back must have the fingerprint
  of the rows of the inputs. Otherwise the group is not committed.
- New blocks have the given schema; columns that an input lacks are null, as for any reader.
- Memory: without a cluster key, the rows of one new block (up to two targets), twice if it is
  joined from small pieces. With a key, all rows of the group twice: they are sorted together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from fuse_stream.clock import Clock
from fuse_stream.commit.stage import Rewritten
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.block import decode_block, encode_block
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.dictionaries import joined, repeated_texts
from fuse_stream.format.layout import block_key
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import is_small, load_block, sort_rows
from fuse_stream.optimize.fingerprint import CHUNK_ROWS, Fingerprint, fingerprint
from fuse_stream.storage.base import Store, get_large
from fuse_stream.storage.parallel import each

_READERS = 2
"""How many small blocks are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Blocks to be rewritten together, in the order of their rows."""

    inputs: tuple[Block, ...]
    level: int = 0
    """The level of the new blocks, if there is a cluster key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriter:
    """Rewrites the groups of one run, in this process or in Spark's tasks."""

    store: Store
    schema: Schema
    """The schema of the new blocks; columns that older blocks lack are null."""
    cluster_key: tuple[int, ...]
    target: BlockTarget
    clock: Clock

    def run(self, group: Group) -> Rewritten:
        """Put the rows of a group as blocks of one to two targets; check and return them.

        Raises:
            CorruptObjectError: an input is damaged or missing, or the new blocks do not hold the
                rows that were read; names the blocks. No slot names the new blocks.
            StorageError: the store failed.
        """
        if not any(block.live_rows for block in group.inputs):
            return Rewritten(inputs=group.inputs, outputs=())
        before = after = Fingerprint()
        outputs: list[Block] = []
        plain = arrow_schema(self.schema)

        def read() -> Iterator[pa.Table]:
            nonlocal before
            for read_table in self._gathered(group.inputs):
                before += fingerprint(read_table, self.schema)
                yield read_table

        tables = read()
        if self.cluster_key:
            tables = iter([joined(list(tables), plain).combine_chunks()])
        cut = _Cut(row_counts(group.inputs, self.target), plain)
        for table in tables:
            rows = sort_rows(table, self.schema, self.cluster_key)
            del table  # otherwise its rows would stay in memory beside the sorted ones
            for piece in cut.pieces(rows):
                block, data = encode_block(
                    piece,
                    self.schema,
                    self.cluster_key,
                    block_id=self.clock.new_id(),
                    private=self.target.private,
                    filtered=self.target.filtered,
                )
                del piece
                self.store.put(block_key(block.id), memoryview(data))
                del data
                outputs.append(at_level(block, group.level))
                after += self._stored_fingerprint(block)
        if before != after or before.row_count != sum(block.live_rows for block in group.inputs):
            raise CorruptObjectError(
                "a rewrite did not keep the rows, and was not committed; please report it",
                blocks=[block.id for block in group.inputs],
                rewritten=[block.id for block in outputs],
                rows=before.row_count,
                rewritten_rows=after.row_count,
            )
        return Rewritten(inputs=group.inputs, outputs=tuple(outputs))

    def _gathered(self, inputs: Sequence[Block]) -> Iterator[pa.Table]:
        """Yield the rows of `inputs`; small blocks are joined, since each table costs time.

        Raises:
            CorruptObjectError: a block is damaged or missing.
        """
        held: list[pa.Table] = []
        rows = 0
        for table in self._read_ahead(inputs):
            held.append(table)
            rows += len(table)
            if rows >= CHUNK_ROWS:
                yield pa.concat_tables(held).combine_chunks()
                held, rows = [], 0
        if held:
            yield pa.concat_tables(held).combine_chunks()

    def _read_ahead(self, inputs: Sequence[Block]) -> Iterator[pa.Table]:
        """Yield the rows of each block; read small ones `_READERS` at a time if the store can."""
        # Not for small blocks: joining their dictionaries would cost more than they save.
        are_large = all(block.row_count >= CHUNK_ROWS for block in inputs)
        repeated = (
            repeated_texts(inputs, self.schema, apart_from=self.cluster_key) if are_large else ()
        )
        load = partial(load_block, self.store, target=self.schema, repeated=repeated)
        threads = min(pa.cpu_count(), _READERS)
        for are_small, run in groupby(inputs, key=is_small):
            yield from each(load, list(run), self.store, at_once=threads if are_small else 1)

    def _stored_fingerprint(self, block: Block) -> Fingerprint:
        data = get_large(self.store, block_key(block.id), block.file_size)
        if sha256_hex(data) != block.sha256:
            raise CorruptObjectError(
                "a block that was just written does not come back as it was sent; nothing was "
                "committed. Check the store",
                block=block.id,
            )
        source, repeated = pa.BufferReader(data), repeated_texts([block], self.schema)
        rows = decode_block(
            source, block, self.schema, is_verified=True, repeated=repeated, use_threads=True
        )
        return fingerprint(rows, self.schema)


def row_counts(inputs: Sequence[Block], target: BlockTarget) -> list[int]:
    """Return the row count of each new block: equal parts of one to two targets each."""
    rows = sum(block.live_rows for block in inputs)
    size = sum(block.live_size for block in inputs)
    count = min(max(rows // target.rows, size // target.bytes, 1), rows)
    return [(place + 1) * rows // count - place * rows // count for place in range(count)]


def at_level(block: Block, level: int) -> Block:
    """Return a block with another level; as it is if the table has no cluster key."""
    if block.cluster_stats is None:
        return block
    stats = dataclasses.replace(block.cluster_stats, level=level)
    return dataclasses.replace(block, cluster_stats=stats)


class _Cut:
    """Cuts a sequence of tables into pieces with given row counts."""

    def __init__(self, counts: list[int], plain: pa.Schema) -> None:
        self._plain = plain
        self._wanted = iter(counts)
        self._missing = next(self._wanted)
        self._held: list[pa.Table] = []

    def pieces(self, table: pa.Table) -> Iterator[pa.Table]:
        """Add a table; yield the pieces that are complete now."""
        start = 0
        while len(table) - start >= self._missing > 0:
            self._held.append(table.slice(start, self._missing))
            start += self._missing
            self._missing = next(self._wanted, 0)
            held, self._held = self._held, []
            yield joined(held, self._plain)
        if start < len(table):
            self._held.append(table.slice(start))
            self._missing -= len(table) - start
