"""Store rows as blocks, and load blocks as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.clock import Clock
from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.format.block import decode_block, encode_block
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.layout import block_key
from fuse_stream.format.positions import without_hidden
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.storage.base import Store, get_large
from fuse_stream.storage.parallel import Puts

MAX_WHOLE_BYTES = 2 * 1024 * 1024
"""A block up to this size is read with one request, a larger one with one request per column."""


def store_blocks(
    store: Puts,
    tables: Iterable[pa.Table],
    schema: Schema,
    cluster_key: tuple[int, ...],
    *,
    target: BlockTarget,
    clock: Clock,
) -> Iterator[Block]:
    """Store the rows of `tables`, which have the schema `schema`, as blocks of the target size.

    Yields a block's record after its `put`; memory holds the rows of one block at a time. The rows
    of each block are sorted by the cluster key.
    """
    for rows in _of_target_size(tables, target):
        block, data = encode_block(
            sort_rows(rows, schema, cluster_key),
            schema,
            cluster_key,
            block_id=clock.new_id(),
            private=target.private,
            filtered=target.filtered,
        )
        store.put(block_key(block.id), memoryview(data))
        yield block


def load_block(
    store: Store, block: Block, target: Schema, *, repeated: Sequence[str] = ()
) -> pa.Table:
    """Return the rows that a block shows, in the columns of `target`; one that it lacks is null.

    The text columns `repeated` may be returned as dictionaries; see `decode_block`.

    Raises:
        CorruptObjectError: the block is missing or damaged.
        InvalidInputError: the block is in another table, whose location the user did not allow.
    """
    is_verified = is_small(block)
    with _missing_reported(store, block), open_block(store, block, at_first_read=True) as source:
        rows = decode_block(source, block, target, is_verified=is_verified, repeated=repeated)
    return without_hidden(rows, block.hidden)


def is_small(block: Block) -> bool:
    """True if the file of a block is read as a whole, for any of its columns."""
    return block.file_size <= MAX_WHOLE_BYTES


def open_block(
    store: Store, block: Block, *, whole: bool = False, at_first_read: bool = False
) -> pa.NativeFile | BinaryIO:
    """Open the file of a block for random reads; a small file is read and compared with its hash.

    With `whole` a large one is, too; else only its pages have checksums, for the reader to compare.
    If `at_first_read`, a large block that is missing may be found so by a read: a NotFoundError.

    Raises:
        CorruptObjectError: the block is missing or damaged.
        InvalidInputError: the block is in another table, whose location the user did not allow.
    """
    key = block_key(block.id, block.origin)
    with _missing_reported(store, block):
        if not is_small(block) and not whole:
            return store.open_input(key, block.file_size if at_first_read else None)
        if is_small(block):
            data = store.get_up_to(key, block.file_size)
        else:
            data = get_large(store, key, block.file_size)
    if sha256_hex(data) != block.sha256:  # checksums cover the pages, not the footer
        raise CorruptObjectError(
            "a block differs from the hash in its record; fuse-stream fsck shows what is lost",
            block=block.id,
        )
    return pa.BufferReader(data)


@contextmanager
def _missing_reported(store: Store, block: Block) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise CorruptObjectError(
            "a block is missing: fuse-stream fsck on this path shows what else is, and which "
            "versions still work; if this version has expired meanwhile, read a later version",
            path=store.url,
            block=block.id,
            origin=block.origin,
        ) from error


def sort_rows(rows: pa.Table, schema: Schema, cluster_key: tuple[int, ...]) -> pa.Table:
    """Return `rows` sorted by the cluster key, nulls and NaN last."""
    return rows.take(sort_order(rows, schema, cluster_key)) if cluster_key else rows


def sort_order(rows: pa.Table, schema: Schema, cluster_key: tuple[int, ...]) -> pa.Array:
    """Return the numbers of `rows` in the order of the cluster key; equal ones keep their order."""
    # By index: Arrow takes a name that begins with a dot for a path.
    indexes = {column.id: index for index, column in enumerate(schema.columns)}
    keys = [(indexes[column], "ascending") for column in cluster_key]
    return pc.sort_indices(rows, sort_keys=keys)


def _of_target_size(tables: Iterable[pa.Table], target: BlockTarget) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for piece in _pieces(table, target):
            if rows and (rows + len(piece) > target.rows or size + piece.nbytes > target.bytes):
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + len(piece), size + piece.nbytes
    if rows:
        yield pa.concat_tables(held)


def _pieces(table: pa.Table, target: BlockTarget) -> Iterator[pa.Table]:
    if not len(table):
        return
    by_bytes = len(table) * target.bytes // max(table.nbytes, 1)
    step = max(1, min(target.rows, by_bytes))
    for start in range(0, len(table), step):
        yield table.slice(start, step)
