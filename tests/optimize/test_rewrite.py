"""A group that was rewritten holds the same rows, or nothing comes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.commit.stage import Rewritten
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.block import encode_block
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import block_key
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.objects import blocks as objects_blocks
from fuse_stream.objects.blocks import load_block, sort_rows
from fuse_stream.optimize import rewrite
from fuse_stream.optimize.rewrite import Group, Rewriter, row_counts
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import rows_of

TARGET = BlockTarget(rows=10, bytes=1 << 30)


def made(*batches: pa.Table, cluster_by: tuple[str, ...] = ()) -> Table:
    store = MemoryStore(clock=ManualClock())
    table = create_table(
        store,
        first_schema(columns_of_arrow(batches[0].schema)),
        cluster_by=cluster_by,
        clock=ManualClock(),
        probe_store=False,
    )
    for batch in batches:
        table.append(batch, merge_schema=True)
    return table


def numbers(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64()), "v": [f"v{value}" for value in values]})


def rewritten(
    table: Table, target: BlockTarget = TARGET, level: int = 0, *, store: Store | None = None
) -> Rewritten:
    head = table.head()
    rewriter = Rewriter(
        store=store or table.metadata.store,
        schema=head.schema,
        cluster_key=head.cluster_key,
        target=target,
        clock=table.metadata.clock,
    )
    return rewriter.run(Group(inputs=table.blocks(), level=level))


def read(table: Table, blocks: tuple[Block, ...]) -> pa.Table:
    schema = table.head().schema
    return pa.concat_tables(load_block(table.metadata.store, item, schema) for item in blocks)


def test_rows_keep_their_order_over_all_new_blocks() -> None:
    table = made(numbers(*range(3)), numbers(*range(3, 24)), numbers(24))
    found = rewritten(table)

    assert [block.row_count for block in found.outputs] == [12, 13]
    assert read(table, found.outputs)["k"].to_pylist() == list(range(25))
    assert found.inputs == table.blocks()


def test_with_a_cluster_key_all_rows_are_sorted_together() -> None:
    table = made(numbers(5, 1, 9), numbers(8, 2, 4), cluster_by=("k",))
    found = rewritten(table, BlockTarget(rows=3, bytes=1 << 30), level=2)
    stats = [block.cluster_stats for block in found.outputs]

    assert read(table, found.outputs)["k"].to_pylist() == [1, 2, 4, 5, 8, 9]
    assert [item and (item.range.min, item.range.max, item.level) for item in stats] == [
        ((1,), (4,), 2),
        ((5,), (9,), 2),
    ]


def test_blocks_of_an_older_schema_get_the_newest() -> None:
    narrow = pa.table({"k": pa.array([1], pa.int32())})
    wide = pa.table({"k": pa.array([2**40]), "late": [0.5]})
    table = made(narrow, wide)
    found = rewritten(table)

    assert rows_of(read(table, found.outputs)) == rows_of(table.to_arrow())
    assert found.outputs[0].schema_id == table.head().schema.id == 1
    assert found.outputs[0].col_stats[2].null_count == 1


def test_nested_rows_survive() -> None:
    nested = pa.table(
        {
            "s": [{"x": 1, "y": ["a", None]}, None, {"x": None, "y": []}],
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "d": pa.array([None, 1, 2], pa.decimal128(20, 3)),
        }
    )
    table = made(nested, nested.slice(1), nested.slice(0, 2))
    found = rewritten(table)

    assert read(table, found.outputs).to_pylist() == table.to_arrow().to_pylist()


def lost_row(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def doubled_row(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 1), rows.slice(0, 1), rows.slice(2)])


def swapped_values(rows: pa.Table) -> pa.Table:
    column = rows["v"].combine_chunks()
    return rows.set_column(1, rows.field(1), column.take(pa.array([1, 0, 2])))


BREAKS = [lost_row, doubled_row, swapped_values]


@pytest.mark.parametrize("broken", BREAKS)
def test_rows_that_change_on_the_way_are_noticed(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pa.Table], pa.Table]
) -> None:
    table = made(numbers(1, 2), numbers(3))

    def encode(rows: pa.Table, *others: object, **named: object) -> object:
        return encode_block(broken(rows), *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "encode_block", encode)

    with pytest.raises(CorruptObjectError, match="did not keep the rows") as caught:
        rewritten(table)
    assert caught.value.context["blocks"] == [block.id for block in table.blocks()]


def test_rows_that_get_lost_in_sorting_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(numbers(1, 2), numbers(3), cluster_by=("k",))
    monkeypatch.setattr(rewrite, "sort_rows", lambda *call: sort_rows(*call).slice(1))

    with pytest.raises(CorruptObjectError, match="did not keep the rows"):
        rewritten(table)


class _Lying(MemoryStore):
    """Stores other bytes than it was given."""

    change: Callable[[bytes], bytes]

    def put(self, key: str, data: bytes | memoryview) -> None:
        super().put(key, self.change(bytes(data)))


@pytest.mark.parametrize("at", [6, -40, -1])
def test_a_store_that_does_not_keep_what_it_was_given_is_noticed(at: int) -> None:
    table = made(numbers(1, 2), numbers(3))
    store = _Lying()
    store.objects = table.metadata.store.objects  # type: ignore[attr-defined]

    def change(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[len(data) + at + 1 if at < 0 else at + 1 :]

    store.change = change

    with pytest.raises(CorruptObjectError, match="does not come back as it was sent"):
        rewritten(table, store=store)


def test_a_damaged_input_is_an_error() -> None:
    table = made(numbers(1, 2), numbers(3))
    store = table.metadata.store
    key = block_key(table.blocks()[1].id)
    data = bytearray(store.get(key))
    data[7] ^= 1
    store.replace(key, bytes(data))

    with pytest.raises(CorruptObjectError, match="differs from the hash in its record"):
        rewritten(table)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), min_size=1, max_size=20),
    st.integers(1, 60),
    st.integers(1, 6000),
)
def test_new_blocks_are_of_one_to_two_targets(
    sizes: list[tuple[int, int]], target_rows: int, target_bytes: int
) -> None:
    (some,) = made(numbers(1)).blocks()
    inputs = [dataclasses.replace(some, row_count=rows, block_size=size) for rows, size in sizes]
    target = BlockTarget(rows=target_rows, bytes=target_bytes)
    counts = row_counts(inputs, target)
    rows = sum(block.row_count for block in inputs)

    assert sum(counts) == rows
    assert max(counts) - min(counts) <= 1
    assert max(counts) < 2 * target_rows
    if len(counts) > 1:
        by_bytes = sum(block.block_size for block in inputs) // target_bytes
        assert min(counts) >= target_rows or len(counts) == min(by_bytes, rows)


def repeating(first: int, rows: int = 32) -> pa.Table:
    texts = ["north", None, "south", ""]
    return pa.table(
        {
            "k": range(first, first + rows),
            "often": [texts[place % 4] for place in range(rows)],
            "seldom": [f"only {place}" for place in range(first, first + rows)],
            "bytes": [b"\xff" if place % 2 else None for place in range(rows)],
            "never": pa.nulls(rows, pa.string()),
        }
    )


@pytest.fixture(params=[False, True], ids=["read whole", "read in parts"])
def way_of_reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read blocks whole, or as those above the size for that."""
    if request.param:
        monkeypatch.setattr(objects_blocks, "MAX_WHOLE_BYTES", 0)


@pytest.mark.usefixtures("way_of_reading")
@pytest.mark.parametrize(
    ("cluster_by", "repeated"),
    [
        ((), ["often", "bytes", "never"]),
        (("often",), ["bytes", "never"]),  # Arrow sorts by no dictionary
    ],
    ids=["as it came", "sorted"],
)
def test_texts_that_repeat_in_large_blocks_are_read_as_dictionaries(
    monkeypatch: pytest.MonkeyPatch, cluster_by: tuple[str, ...], repeated: list[str]
) -> None:
    monkeypatch.setattr(rewrite, "CHUNK_ROWS", 16)
    seen: list[list[str]] = []

    def spied(*args: Any, **named: Any) -> pa.Table:
        found = load_block(*args, **named)
        types = zip(found.column_names, found.schema.types, strict=True)
        seen.append([name for name, kind in types if pa.types.is_dictionary(kind)])
        return found

    monkeypatch.setattr(rewrite, "load_block", spied)
    table = made(repeating(0), repeating(32), repeating(64), cluster_by=cluster_by)
    rows = rows_of(table.to_arrow())
    found = rewritten(table, BlockTarget(rows=40, bytes=1 << 30))

    assert seen == [repeated] * 3
    assert sorted(rows_of(read(table, found.outputs)), key=str) == sorted(rows, key=str)
    for block in found.outputs:
        texts = read(table, (block,))["often"]
        stats = block.col_stats[2]
        counted = texts.null_count, len(set(texts.drop_null().to_pylist()))
        assert (stats.null_count, stats.distinct_of_values) == counted


@pytest.mark.usefixtures("way_of_reading")
def test_large_blocks_that_predate_a_column_are_rewritten_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rewrite, "CHUNK_ROWS", 16)
    newer = repeating(32).append_column("more", pa.array(["x"] * 32))
    table = made(repeating(0), newer)
    rows = rows_of(table.to_arrow())
    found = rewritten(table, BlockTarget(rows=100, bytes=1 << 30))

    assert rows_of(read(table, found.outputs)) == rows


def test_no_file_has_a_text_that_stands_in_none_of_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rewrite, "CHUNK_ROWS", 16)
    texts = ["forgotten"] * 24 + ["kept"] * 8
    rows = pa.table({"k": range(32), "v": texts})
    table = made(rows, rows.slice(24).take(pa.array([0] * 32)))
    halves = rewritten(table, BlockTarget(rows=32, bytes=1 << 30)).outputs
    quarters = rewritten(table, BlockTarget(rows=16, bytes=1 << 30)).outputs
    found = [in_dictionary(table, block) for block in (*halves, *quarters)]

    both = {"forgotten", "kept"}
    assert found == [both, {"kept"}, {"forgotten"}, both, {"kept"}, {"kept"}]


def in_dictionary(table: Table, block: Block) -> set[str]:
    """Return what texts the file of a block has for its second column, in rows or not."""
    data = table.metadata.store.get(block_key(block.id))
    rows = pq.ParquetFile(pa.BufferReader(data), read_dictionary=["v"]).read()
    return set(rows["v"].chunk(0).dictionary.to_pylist())
