"""A block's bytes hold its rows under their column ids, and its record says what they are."""

from __future__ import annotations

import dataclasses
import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.block import decode_block, encode_block
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema

ROWS = pa.table(
    {
        "k": [3, 1, None],
        "a.b": ["x", "", None],
        "a": [{"b": 1, "c": [1.5]}, None, {"b": None, "c": []}],
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "t": pa.array([1, 2, 3], pa.timestamp("us")),
        "z": pa.array([1, 2, 3], pa.timestamp("us", tz="UTC")),
    }
)


def shaped(rows: pa.Table) -> tuple[pa.Table, Schema]:
    columns = columns_of_arrow(rows.schema)
    schema = first_schema(columns)
    return adapt(rows, columns, schema), schema


def encoded(rows: pa.Table = ROWS, key: tuple[int, ...] = ()) -> tuple[Block, bytes, Schema]:
    table, schema = shaped(rows)
    block, data = encode_block(table, schema, key, block_id="a" * 32)
    return block, data.to_pybytes(), schema


def test_rows_survive_their_bytes() -> None:
    block, data, schema = encoded()
    out = decode_block(io.BytesIO(data), block, schema)

    assert out == shaped(ROWS)[0]
    assert out.schema.equals(shaped(ROWS)[0].schema, check_metadata=True)


def test_the_record_describes_the_bytes() -> None:
    block, data, schema = encoded(key=(1,))
    metadata = pq.read_metadata(io.BytesIO(data))

    assert (block.row_count, block.file_size) == (3, len(data))
    assert block.sha256 == sha256_hex(data)
    assert metadata.num_row_groups == 1
    assert block.cluster_stats is not None
    assert (block.cluster_stats.range.min, block.cluster_stats.range.max) == ((1,), (3,))
    assert set(block.col_metas) == {leaf.column.id for leaf in schema.leaves()}
    for place, leaf in enumerate(schema.leaves()):
        meta = block.col_metas[leaf.column.id]
        chunk = metadata.row_group(0).column(place)
        assert (meta.len, meta.num_values) == (chunk.total_compressed_size, chunk.num_values)
        assert 0 < meta.offset < meta.offset + meta.len < len(data)


@pytest.mark.parametrize("names", [["a.b"], ["a"], ["m", "k"], ["z"]])
def test_columns_are_read_alone_whatever_their_names_hold(names: list[str]) -> None:
    block, data, schema = encoded()
    columns = tuple(column for name in names for column in schema.columns if column.name == name)
    out = decode_block(io.BytesIO(data), block, dataclasses.replace(schema, columns=columns))

    assert out.to_pylist() == ROWS.select(names).to_pylist()


def test_a_block_that_predates_columns_reads_them_as_null_and_widened() -> None:
    rows = pa.table(
        {"i": pa.array([1], pa.int32()), "s": [{"x": 1}], "f": pa.array([0.1], pa.float32())}
    )
    block, data, schema = encoded(rows)
    wide = pa.schema(
        [
            ("new", pa.list_(pa.string())),
            ("i", pa.int64()),
            ("s", pa.struct([("y", pa.string()), ("x", pa.int64())])),
            ("f", pa.float64()),
        ]
    )
    later, _ = resolve(schema, columns_of_arrow(wide), merge_schema=True)
    out = decode_block(io.BytesIO(data), block, later)
    new = dataclasses.replace(later, columns=later.columns[-1:])

    assert out.to_pylist() == [
        {"i": 1, "s": {"x": 1, "y": None}, "f": 0.10000000149011612, "new": None}
    ]
    assert decode_block(io.BytesIO(data), block, new).to_pylist() == [{"new": None}]


def test_a_renamed_column_is_found_by_its_id() -> None:
    block, data, schema = encoded(pa.table({"old": [1]}))
    renamed = dataclasses.replace(
        schema, columns=(dataclasses.replace(schema.columns[0], name="new"),)
    )

    assert decode_block(io.BytesIO(data), block, renamed).to_pylist() == [{"new": 1}]


def test_another_number_of_rows_is_corrupt() -> None:
    block, data, schema = encoded()

    with pytest.raises(CorruptObjectError, match="number of rows"):
        decode_block(io.BytesIO(data), dataclasses.replace(block, row_count=4), schema)


def test_a_file_without_column_ids_is_corrupt() -> None:
    block, _, schema = encoded()
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": [1, 2, 3]}), sink)

    with pytest.raises(CorruptObjectError, match="no id"):
        decode_block(io.BytesIO(sink.getvalue()), block, schema)


def test_damage_is_a_typed_error_or_none_at_all() -> None:
    block, data, schema = encoded(pa.table({"k": list(range(50)), "s": ["abc"] * 50}))
    damaged = [
        data[:place] + bytes([data[place] ^ byte]) + data[place + 1 :]
        for place in range(len(data))
        for byte in (1, 2, 4, 8, 16, 32, 64, 128, 255)
    ]
    damaged += [data[:kept] for kept in range(len(data))]
    lengths = set()
    for stored in damaged:
        with suppress(FuseError):
            lengths.add(len(decode_block(io.BytesIO(stored), block, schema)))

    assert lengths == {50}
