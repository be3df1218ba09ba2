"""Statistics are loose and never wrong, of one block and of any number merged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.codec import decode_segment, encode_segment
from fuse_stream.format.columns import value_from_json, value_to_json
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import (
    Block,
    ColumnStats,
    Segment,
    Value,
)
from fuse_stream.format.stats import (
    MAX_BOUND_LENGTH,
    column_stats,
    key_range,
    merge_stats,
    merge_summaries,
    summarize,
)

TARGET = BlockTarget(rows=10, bytes=2 * 10**6)
EDGES = "a\U0010ffff\U0010fffe\ud7ff\ue000é\x00\x7f"
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "integer": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "string": (
        pa.string(),
        st.text(max_size=5) | st.text(EDGES, min_size=28, max_size=40),
    ),
    "binary": (
        pa.binary(),
        st.binary(max_size=5)
        | st.lists(st.sampled_from([0, 254, 255]), min_size=30, max_size=36).map(bytes),
    ),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.integers(-(2**63), 2**63 - 1)),
    "timestamp_ntz": (pa.timestamp("us"), st.integers(-(2**63), 2**63 - 1)),
    "decimal(12,3)": (
        pa.decimal128(12, 3),
        st.decimals(-(10**9) + 1, 10**9 - 1, places=3).map(lambda d: d.quantize(Decimal("0.001"))),
    ),
}


def array_of(values: list[object], arrow: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(arrow):
        storage = pa.int32() if pa.types.is_date32(arrow) else pa.int64()
        return pa.array(values, storage).cast(arrow)
    return pa.array(values, arrow)


def stats_of(array: pa.Array | pa.ChunkedArray) -> ColumnStats:
    table = pa.table({"c": array})
    columns = columns_of_arrow(table.schema)
    schema = first_schema(columns)
    return column_stats(adapt(table, columns, schema), schema)[1]


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def assert_holds(stats: ColumnStats, values: list[Any]) -> None:
    """See that nothing that `stats` say of `values` is wrong."""
    ordered = [value for value in values if value is not None and not is_nan(value)]
    assert stats.null_count == values.count(None)
    assert stats.nan_count == sum(map(is_nan, values))
    low: Any = stats.min
    high: Any = stats.max
    assert low is None or all(low <= value for value in ordered)
    assert high is None or all(high >= value for value in ordered)


columns = st.sampled_from(sorted(TYPES)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.lists(st.lists(st.none() | TYPES[name][1], max_size=6), min_size=1, max_size=4),
    )
)


@given(column=columns)
def test_statistics_hold_for_every_value_and_through_json(
    column: tuple[str, list[list[object]]],
) -> None:
    name, chunks = column
    arrow = TYPES[name][0]
    values = [value for chunk in chunks for value in chunk]
    stats = stats_of(pa.chunked_array([array_of(chunk, arrow) for chunk in chunks], arrow))

    assert_holds(stats, values)
    for bound in (stats.min, stats.max):
        if bound is not None:
            text = orjson.loads(dump_canonical(value_to_json(bound, name)))
            assert value_from_json(text, name) == bound


WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}


@given(data=st.data(), name=st.sampled_from(sorted(WHOLE)), span=st.sampled_from([0, 3, 40, 10**6]))
def test_different_numbers_are_counted_close_together_or_not(
    data: st.DataObject, name: str, span: int
) -> None:
    most = 2 ** (WHOLE[name] - 1)
    low = data.draw(st.sampled_from([-most, -1, most - 1 - min(span, most)]))
    near = st.none() | st.integers(low, min(low + span, most - 1))
    chunks = data.draw(st.lists(st.lists(near, max_size=30), min_size=1, max_size=3))
    arrow = TYPES[name][0]
    # Beginning in the middle of what lies in memory, as slices do.
    parts = [pa.array([low, None, *chunk], arrow).slice(2) for chunk in chunks]

    stats = stats_of(pa.chunked_array(parts, arrow))

    assert stats.distinct_of_values == len({value for chunk in chunks for value in chunk} - {None})


@given(column=columns)
def test_merged_statistics_hold_for_every_value(column: tuple[str, list[list[object]]]) -> None:
    name, chunks = column
    arrow = TYPES[name][0]
    children = [({1: stats_of(array_of(chunk, arrow))}, len(chunk)) for chunk in chunks]
    whole = stats_of(pa.chunked_array([array_of(chunk, arrow) for chunk in chunks], arrow))
    values = [value for chunk in chunks for value in chunk]

    merged = merge_stats(children)[1]
    in_two_steps = merge_stats(
        [
            (merge_stats(children[:1]), len(chunks[0])),
            (merge_stats(children[1:]), len(values) - len(chunks[0])),
        ]
    )[1]

    for stats in (merged, in_two_steps):
        assert_holds(stats, values)
        assert stats.null_count == whole.null_count
        assert (stats.distinct_of_values or 0) <= (whole.distinct_of_values or 0)
    assert (merged.min, merged.max) == (in_two_steps.min, in_two_steps.max)


@given(text=st.text(EDGES, min_size=MAX_BOUND_LENGTH + 1, max_size=40))
def test_a_cut_maximum_is_above_the_text_and_is_a_text(text: str) -> None:
    stats = stats_of(pa.array([text]))

    assert isinstance(stats.min, str)
    assert len(stats.min.encode()) <= 4 * MAX_BOUND_LENGTH
    if stats.max is None:
        assert set(text[:MAX_BOUND_LENGTH]) == {"\U0010ffff"}
    else:
        assert isinstance(stats.max, str)
        assert stats.max.encode() > text.encode()


def test_a_cut_maximum_steps_over_the_surrogates() -> None:
    assert stats_of(pa.array(["\ud7ff" * 40])).max == "\ud7ff" * 31 + "\ue000"


def test_the_largest_binary_has_no_upper_bound() -> None:
    assert stats_of(pa.array([b"\xff" * 40])).max is None
    assert stats_of(pa.array([b"\xff" * 32])).max == b"\xff" * 32


def test_a_text_that_is_not_utf8_leaves_its_bound_out() -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0")
    array = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])
    stats = stats_of(array)

    assert (stats.min, stats.max) == ("a", None)


def test_nan_is_counted_and_bounds_leave_it_out() -> None:
    nan = float("nan")
    stats = stats_of(pa.array([nan, -0.0, 1.5, None, nan]))
    only = stats_of(pa.array([nan, None]))

    assert (stats.min, stats.max, stats.nan_count, stats.null_count) == (0.0, 1.5, 2, 1)
    assert (only.min, only.max, only.nan_count, only.null_count) == (None, None, 1, 1)


def test_no_values_have_no_bounds() -> None:
    stats = stats_of(pa.array([], pa.int64()))

    assert (stats.min, stats.max, stats.null_count, stats.distinct_of_values) == (None, None, 0, 0)


def test_leaves_of_structs_count_the_nulls_above_them() -> None:
    array = pa.array([{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}])
    table = pa.table({"s": array, "l": [[1], [2], None]})
    columns = columns_of_arrow(table.schema)
    schema = first_schema(columns)
    found = column_stats(adapt(table, columns, schema), schema)
    names = {leaf.column.id: leaf.path for leaf in schema.leaves()}

    assert {names[column]: item.null_count for column, item in found.items()} == {
        ("s", "x"): 2,
        ("s", "y", "z"): 2,
    }


def stats_with(low: Value | None, high: Value | None, **counts: int) -> Mapping[int, ColumnStats]:
    return {1: ColumnStats(min=low, max=high, **{"null_count": 0, "in_memory_size": 0, **counts})}


@pytest.mark.parametrize(
    ("children", "bounds"),
    [
        ([(stats_with(1, 2), 5), (stats_with(None, 3), 5)], (None, 3)),
        ([(stats_with(1, 2), 5), (stats_with(None, None, null_count=5), 5)], (1, 2)),
        ([(stats_with(1, 2), 5), (stats_with(None, None, nan_count=5), 5)], (1, 2)),
        ([(stats_with(1, 2), 5), ({}, 5)], (1, 2)),
        ([(stats_with(1, 2), 5), (stats_with(None, None), 0)], (1, 2)),
        ([({}, 5)], None),
    ],
)
def test_what_is_unknown_in_a_child_is_unknown_in_the_merge(
    children: list[tuple[Mapping[int, ColumnStats], int]], bounds: tuple[int, int] | None
) -> None:
    merged = merge_stats(children)

    assert (None if not merged else (merged[1].min, merged[1].max)) == bounds


def test_a_column_that_a_child_predates_is_null_there() -> None:
    merged = merge_stats([({}, 7), (stats_with(1, 2, null_count=1), 5)])

    assert merged[1].null_count == 8


def block(**changes: Any) -> Block:
    values: dict[str, Any] = {
        "id": "0" * 32,
        "row_count": 10,
        "block_size": 100,
        "file_size": 50,
        "sha256": "",
        "schema_id": 0,
        "col_stats": stats_with(1, 9, null_count=4),
        "col_metas": {},
        "compression": "zstd",
    }
    return Block(**(values | changes))


def test_a_summary_adds_up() -> None:
    summary = summarize([block(), block(row_count=7)], TARGET)

    assert (summary.row_count, summary.block_count, summary.perfect_block_count) == (17, 2, 1)
    assert (summary.uncompressed_byte_size, summary.compressed_byte_size) == (200, 100)
    assert merge_summaries([summary, summary]).row_count == 34


def test_merged_statistics_survive_a_segment() -> None:
    summary = summarize([block()], TARGET)
    stored, sha256 = encode_segment(Segment(blocks=(block(),), summary=summary), {1: "long"})

    assert decode_segment(stored, sha256, {1: "long"}).summary == summary


def test_a_key_range_is_that_of_the_keys_columns() -> None:
    stats = {**stats_with(1, 9), 2: ColumnStats(null_count=3, in_memory_size=0)}
    found = key_range(stats, (2, 1, 7))

    assert found is not None
    assert (found.columns, found.min, found.max) == ((2, 1, 7), (None, 1, None), (None, 9, None))
    assert key_range(stats, ()) is None
