"""Parts of an aggregate: the states of up to 64 blocks, in one Parquet object."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.indexes import MAX_PART_BYTES, IndexPart
from fuse_stream.format.layout import aggregates_key
from fuse_stream.indexes.spec import Aggregate
from fuse_stream.indexes.states import state_schema
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store, get_large

BLOCK = "block"
"""The column with the number of the block, in the order of `IndexPart.blocks`."""

MAX_BLOCK_GROUPS = 65_536
"""A block with more groups is not covered: its states are not much less than its rows."""
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
"""The most bytes that the pages of a part may have, uncompressed."""


def encode_part(aggregate: Aggregate, states: Mapping[str, pa.Table]) -> bytes:
    """Return the bytes of a part with the states of blocks, by block id."""
    tables = [
        table.add_column(0, BLOCK, pa.repeat(pa.scalar(number, pa.int32()), len(table)))
        for number, table in enumerate(states.values())
    ]
    sink = io.BytesIO()
    rows = pa.concat_tables([_schema(aggregate).empty_table(), *tables])
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def store_part(
    metadata: Metadata,
    aggregate: Aggregate,
    index_id: str,
    states: Mapping[str, pa.Table],
    skipped: Collection[str] = (),
) -> IndexPart | None:
    """Store the states of blocks as one part, and return its record; None if it is too large."""
    data = encode_part(aggregate, states)
    if len(data) > MAX_PART_BYTES:
        return None
    part_id = metadata.clock.new_id()
    metadata.store.put(aggregates_key(part_id), data)
    return IndexPart(
        id=part_id,
        index=index_id,
        sha256=sha256_hex(data),
        byte_size=len(data),
        types=aggregate.types,
        blocks=tuple(states),
        skipped=tuple(skipped),
    )


def load_part(store: Store, part: IndexPart, aggregate: Aggregate) -> dict[str, pa.Table]:
    """Return the states of the blocks of a part, by block id.

    Raises:
        CorruptObjectError: the object is missing or damaged, or is no such part.
        InvalidInputError: it is in another table, whose location the user did not allow.
    """
    rows = _load(store, part, aggregate)
    numbers = rows.column(BLOCK)
    states = rows.drop_columns([BLOCK])
    return {
        block_id: states.filter(pc.equal(numbers, number))
        for number, block_id in enumerate(part.blocks)
    }


def load_states(
    store: Store, part: IndexPart, aggregate: Aggregate, wanted: Collection[str]
) -> pa.Table:
    """Return the states of the wanted blocks of a part in one table; errors of `load_part`."""
    rows = _load(store, part, aggregate)
    states = rows.drop_columns([BLOCK])
    if len(wanted) == len(part.blocks):
        return states
    numbers = [number for number, block_id in enumerate(part.blocks) if block_id in wanted]
    return states.filter(pc.is_in(rows.column(BLOCK), pa.array(numbers, pa.int32())))


def _load(store: Store, part: IndexPart, aggregate: Aggregate) -> pa.Table:
    key = aggregates_key(part.id, part.origin)
    try:
        data = get_large(store, key, part.byte_size)
    except NotFoundError as error:
        raise _damaged(part, "it is not there") from error
    if sha256_hex(data) != part.sha256:
        raise _damaged(part, "it differs from its hash")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        most_rows = len(part.blocks) * MAX_BLOCK_GROUPS
        if size > MAX_UNPACKED_BYTES or file.metadata.num_rows > most_rows:
            raise _damaged(part, "it is larger than any that a writer makes")
        if not file.schema_arrow.equals(_schema(aggregate)):
            raise _damaged(part, "its columns are not those of the aggregate")
        rows = file.read(use_threads=False)
        rows.validate(full=True)  # texts are UTF-8
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, CorruptObjectError):
            raise
        raise _damaged(part, "it cannot be read as Parquet") from error
    numbers = pc.min_max(rows.column(BLOCK))
    is_valid = not rows.column(BLOCK).null_count and (
        not len(rows) or (numbers["min"].as_py() >= 0 and numbers["max"].as_py() < len(part.blocks))
    )
    if not is_valid:
        raise _damaged(part, "it names blocks that its record does not")
    return rows


def _schema(aggregate: Aggregate) -> pa.Schema:
    return pa.schema([pa.field(BLOCK, pa.int32()), *state_schema(aggregate)])


def _damaged(part: IndexPart, wrong: str) -> CorruptObjectError:
    return CorruptObjectError("a part of an index is missing or damaged", part=part.id, wrong=wrong)
