"""Which columns have Bloom filters, and what the records say of them."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from fuse_stream.check.records import flaw_of_block, flaw_of_segment
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.block import encode_block
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import block_key
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table

ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("x", pa.float64()),
        ("is_new", pa.bool_()),
        ("part", pa.struct([("id", pa.int64())])),
        ("part.id", pa.int32()),
        ("tags", pa.list_(pa.string())),
    ]
)
FILTERED = {"fuse.bloom.columns": "id, email"}


def rows(count: int = 100) -> pa.Table:
    numbers = list(range(count))
    return pa.table(
        {
            "id": numbers,
            "email": [f"{number}@x.org" for number in numbers],
            "x": [float(number) for number in numbers],
            "is_new": [True] * count,
            "part": [{"id": number} for number in numbers],
            "part.id": numbers,
            "tags": [["a"]] * count,
        },
        schema=ARROW,
    )


def filtered(table: Table) -> list[set[int]]:
    blocks = iter_blocks(table.committer.metadata, table.head())
    return [
        {column for column, meta in block.col_metas.items() if meta.bloom is not None}
        for block in blocks
    ]


@pytest.mark.parametrize(
    ("names", "column"),
    [("id,emial", "emial"), ("x", "x"), ("is_new", "is_new"), ("part", "part"), ("tags", "tags")],
)
def test_a_column_that_cannot_have_a_filter_is_refused(names: str, column: str) -> None:
    table = temporary_table(ARROW)

    with pytest.raises(InvalidInputError, match="column") as at_set:
        table.set_properties({"fuse.bloom.columns": names})
    with pytest.raises(InvalidInputError, match="column") as at_create:
        temporary_table(ARROW, properties={"fuse.bloom.columns": names})
    assert at_set.value.context["column"] == at_create.value.context["column"] == column
    assert at_set.value.context.get("nearest") == ("email" if column == "emial" else None)
    assert table.head().version == 0


def test_new_blocks_have_filters_and_old_ones_get_them_by_compaction() -> None:
    table = temporary_table(ARROW)
    table.append(rows())
    table.set_properties(FILTERED)
    table.append(rows())

    assert filtered(table) == [set(), {1, 2}]
    table.compact()
    assert filtered(table) == [{1, 2}]
    table.unset_properties(["fuse.bloom.columns"])
    table.append(rows())
    assert filtered(table) == [{1, 2}, set()]
    assert "bloom" in table.head().required_features


def test_a_column_has_no_filter_because_a_field_has_its_name() -> None:
    table = temporary_table(ARROW, properties={"fuse.bloom.columns": "part.id"})
    table.append(rows())

    assert filtered(table) == [{7}]
    assert table.to_arrow(where="`part.id` = 7").num_rows == 1
    assert table.to_arrow(where="part.id = 7").num_rows == 1
    assert table.fsck(deep=True).is_sound


def test_a_table_whose_filters_are_gone_no_longer_needs_the_feature() -> None:
    table = temporary_table(ARROW, properties=FILTERED)
    table.append(rows())
    table.set_properties({"fuse.bloom.columns": ""})
    assert "bloom" in table.head().required_features
    table.overwrite(rows())

    assert table.head().summary.index_size == 0
    assert "bloom" not in table.head().required_features


def test_a_block_without_filters_has_the_bytes_that_it_had() -> None:
    schema = first_schema(columns_of_arrow(ARROW))
    plain, data = encode_block(rows(), schema, (), block_id="a" * 32)
    none, same = encode_block(rows(), schema, (), block_id="a" * 32, filtered=["gone", "x"])

    assert (plain, data) == (none, same)
    assert plain.index_size == 0


def test_the_index_size_is_the_sum_of_the_filters() -> None:
    table = temporary_table(ARROW, properties=FILTERED)
    table.append(rows())
    (block,) = iter_blocks(table.committer.metadata, table.head())
    sizes = [meta.bloom.len for meta in block.col_metas.values() if meta.bloom is not None]

    assert table.head().summary.index_size == block.index_size == sum(sizes) > 0


def test_fsck_notices_a_filter_that_lacks_a_value_or_has_another_type() -> None:
    schema = first_schema(columns_of_arrow(ARROW))
    block, data = encode_block(
        adapt(rows(), schema.columns, schema), schema, (), block_id="a" * 32, filtered=["id"]
    )
    bloom = block.col_metas[1].bloom
    assert bloom is not None
    changed = bytearray(data)
    changed[bloom.offset : bloom.offset + bloom.len] = b"\1\0\0\0" * (bloom.len // 4)
    lacking = dataclasses.replace(block, sha256=sha256_hex(bytes(changed)))
    other = dataclasses.replace(bloom, type="integer")
    metas = {**block.col_metas, 1: dataclasses.replace(block.col_metas[1], bloom=other)}

    assert flaw_of_block(bytes(data), block, schema) is None
    assert "lacks" in str(flaw_of_block(bytes(changed), lacking, schema))
    assert "places" in str(
        flaw_of_block(bytes(data), dataclasses.replace(block, col_metas=metas), schema)
    )


def test_fsck_deep_notices_a_changed_filter() -> None:
    store = MemoryStore()
    table = temporary_table(ARROW, store=store, properties=FILTERED)
    table.append(rows())
    (block,) = iter_blocks(table.committer.metadata, table.head())
    bloom = block.col_metas[1].bloom
    assert bloom is not None
    data = bytearray(store.get(block_key(block.id)))
    data[bloom.offset] ^= 1
    store.replace(block_key(block.id), bytes(data))

    assert not open_table_in(store).fsck(deep=True).is_sound


def test_a_segment_whose_index_size_is_not_the_sum_is_damage() -> None:
    table = temporary_table(ARROW, properties=FILTERED)
    table.append(rows())
    head, metadata = table.head(), table.committer.metadata
    ref = head.segments[0]
    segment = metadata.load_segment(ref, head.schema.leaf_types)
    wrong = dataclasses.replace(segment, summary=dataclasses.replace(segment.summary, index_size=1))

    assert flaw_of_segment(segment, ref) is None
    assert "sizes" in str(flaw_of_segment(wrong, ref))
