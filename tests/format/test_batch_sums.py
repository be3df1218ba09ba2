"""The sums of a batch: the same for the same rows however they come, another for other rows."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.batch_sums import BatchSums, MeasuredTables, batch_sums
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.jsonio import dump_canonical, from_json, load_json, to_json
from fuse_stream.format.schema import Schema

ARROW = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("number", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(38, 2)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("place", pa.struct([("x", pa.int32()), ("label", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
SCHEMA = first_schema(columns_of_arrow(ARROW))

texts = st.text(max_size=5)
values: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": st.integers(-128, 127),
    "number": st.integers(-(2**63), 2**63 - 1),
    "single": st.floats(width=32),
    "double": st.floats(),
    "price": st.decimals(-(10**35), 10**35, places=2),
    "name": texts,
    "raw": st.binary(max_size=5),
    "day": st.dates(),
    "at": st.datetimes(timezones=st.just(dt.UTC)),
    "place": st.fixed_dictionaries({"x": st.integers(-9, 9) | st.none(), "label": texts}),
    "tags": st.lists(texts | st.none(), max_size=3),
    "counts": st.dictionaries(texts, st.integers(-9, 9) | st.none(), max_size=3).map(
        lambda items: list(items.items())
    ),
}
TEXTS = {"name", "raw", "place", "tags", "counts"}
rows = st.fixed_dictionaries({name: st.none() | kind for name, kind in values.items()})


def table_of(items: list[dict[str, Any]]) -> pa.Table:
    found = pa.Table.from_pylist(items, ARROW)
    return adapt(found, SCHEMA.columns, SCHEMA)


def sums_of(table: pa.Table, schema: Schema | None = None) -> BatchSums:
    schema = schema or first_schema(columns_of_arrow(table.schema))
    return batch_sums(adapt(table, schema.columns, schema), schema)


def fingerprint_of(column: pa.Array) -> str:
    return sums_of(pa.table({"c": column})).fingerprint


@given(items=st.lists(rows, max_size=8), seed=st.randoms(use_true_random=False))
def test_order_and_division_of_the_rows_do_not_matter(
    items: list[dict[str, Any]], seed: random.Random
) -> None:
    whole = batch_sums(table_of(items), SCHEMA)
    shuffled = seed.sample(items, len(items))
    cut = seed.randint(0, len(items))
    other = table_of(shuffled)
    measured = MeasuredTables([other.slice(0, cut), other.slice(cut)], SCHEMA)
    parts = [batch_sums(table_of(part), SCHEMA) for part in (shuffled[:cut], shuffled[cut:])]

    assert sum((len(table) for table in measured), 0) == len(items)
    assert measured.sums == whole
    assert sum(parts, BatchSums()) == whole


@given(items=st.lists(rows, min_size=1, max_size=4), data=st.data())
def test_another_value_has_another_fingerprint(
    items: list[dict[str, Any]], data: st.DataObject
) -> None:
    # Not of texts: their bytes may be the same in another order.
    name = data.draw(st.sampled_from(sorted(values.keys() - TEXTS)))
    value = data.draw(st.none() | values[name])
    before, after = table_of(items), table_of([{**items[0], name: value}, *items[1:]])

    is_equal = repr(before.column(name).to_pylist()) == repr(after.column(name).to_pylist())
    assert is_equal == (batch_sums(before, SCHEMA) == batch_sums(after, SCHEMA))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([["a", "b"], ["c"]], [["a", "b", "c"]]),
        ([["a"], None], [["a"], []]),
        ([["a"]], [["a", None]]),
    ],
)
def test_a_list_counts_its_elements(one: list[Any], other: list[Any]) -> None:
    kind = pa.list_(pa.string())

    assert fingerprint_of(pa.array(one, kind)) != fingerprint_of(pa.array(other, kind))


def test_a_null_is_not_zero_nor_an_empty_text() -> None:
    assert fingerprint_of(pa.array([0, None])) != fingerprint_of(pa.array([0, 0]))
    assert fingerprint_of(pa.array(["", None])) != fingerprint_of(pa.array(["", ""]))


def test_a_value_under_a_null_does_not_count() -> None:
    bitmap = pa.py_buffer(b"\x01")
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [bitmap, offsets, pa.py_buffer(b"ab")])
    kind = pa.struct([("x", pa.int64())])
    struct = pa.StructArray.from_arrays(
        [pa.array([1, 2])], fields=list(kind), mask=pa.array([False, True])
    )

    assert text.to_pylist() == ["a", None]
    assert fingerprint_of(text) == fingerprint_of(pa.array(["a", None]))
    assert fingerprint_of(struct) == fingerprint_of(pa.array([{"x": 1}, None], kind))


def test_every_nan_is_one_value_beside_infinities() -> None:
    other_nan = pa.array([-(2**51)], pa.int64()).view(pa.float64())
    both = pa.array([float("inf"), float("-inf")])

    assert fingerprint_of(other_nan) == fingerprint_of(pa.array([float("nan")]))
    assert fingerprint_of(both) != fingerprint_of(pa.array([float("nan"), float("nan")]))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.array([-1, 2], pa.int8()), pa.int64()),
        (pa.array([0.1, -2.5], pa.float32()), pa.float64()),
        (pa.array([Decimal("-1.25")], pa.decimal128(5, 2)), pa.decimal128(38, 6)),
    ],
)
def test_widened_columns_and_new_ones_keep_the_sums(narrow: pa.Array, wide: pa.DataType) -> None:
    table = pa.table({"c": narrow})
    schema = first_schema(columns_of_arrow(table.schema))
    widened = pa.schema([("c", wide), ("new", pa.list_(pa.string()))])
    later, _ = resolve(schema, columns_of_arrow(widened), merge_schema=True)

    assert batch_sums(adapt(table, schema.columns, later), later) == sums_of(table)


def test_sums_survive_their_way_from_a_task() -> None:
    table = pa.table({"c": pa.array([2**63 - 1] * 3), "p": pa.array([Decimal(10**37)] * 5)[:3]})
    sums = sums_of(table) + sums_of(table)

    assert from_json(BatchSums, load_json(dump_canonical(to_json(sums, {}))), {}) == sums


def test_the_fingerprint_of_a_batch_is_pinned() -> None:
    table = pa.table(
        {"id": pa.array([1, 2, None]), "name": ["a", None, "bc"], "tags": [["x"], [], None]}
    )

    assert sums_of(table).columns == {
        1: (2, str(3 << 64)),
        2: (2, str(((3 << 32) + 97 + 98 + 99) << 64)),
        3: (2, str(1 << 64)),
        4: (1, str(((1 << 32) + 120) << 64)),
    }
    assert sums_of(table).fingerprint == (
        "c561d88d70fd17a10f6c539dabe956e80bf824cc65b5bc602154b2d929181b99"
    )
