"""Bloom filters rule blocks out, and never one that holds a wanted row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuse_stream as fuse
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.layout import BLOCKS_PREFIX, block_key
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where
from fuse_stream.reading import filters
from fuse_stream.reading.scan import has_filters, prune, select
from fuse_stream.storage.parallel import each
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table
from tests.kit.predicates import SCHEMA as ANY_SCHEMA
from tests.kit.predicates import random_table, random_where

Row = dict[str, object]

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int32())])
FILTERED = {"fuse.bloom.columns": "k, s"}


def rows(*keys: int | None) -> pa.Table:
    values = {
        "k": keys,
        "s": [None if key is None else f"s{key}" for key in keys],
        "v": [7 for _ in keys],
    }
    return pa.table(values, schema=SCHEMA)


def spread(store: MemoryStore | None = None) -> Table:
    """Return a table of five blocks, whose bounds all contain the numbers from 1 to 99."""
    table = temporary_table(SCHEMA, store=store, properties=FILTERED)
    for number in range(5):
        table.append(rows(0, *range(10 + number, 90, 5), 100))
    return table


def candidates(table: Table, where: str) -> int:
    head = table.head()
    return len(list(prune(table.committer.metadata, head, select(head.schema, where=where))))


# ---- what is ruled out


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("k = 12", 1),
        ("12 = k AND v = 7", 1),
        ("s = 's12'", 1),
        ("k <=> 12", 1),
        ("k IN (12, 13)", 2),
        ("k = 12 OR s = 's13'", 2),
        ("k = 12 AND s = 's13'", 0),
        ("k = 12 OR v = 7", 5),
        ("NOT (k <> 12)", 1),
        ("k <> 12", 5),
        ("k = 99", 0),
        ("k = 9223372036854775807", 0),
        ("k = CAST(NULL AS BIGINT)", 0),
        ("v = 7", 5),
        ("k > 12", 5),
        ("k IS NULL", 0),
        (f"k IN ({', '.join(map(str, range(40, 50)))})", 5),
        (f"k IN ({', '.join(map(str, [*range(1, 10), 91]))})", 0),
        (f"k IN ({', '.join(map(str, [*range(1, 10), 91, 92]))})", 5),  # too many to look up
        (f"k IN ({', '.join(map(str, [*range(1, 10), 91, 1000]))})", 0),  # one is out of bounds
    ],
)
def test_blocks_without_a_wanted_value_are_not_read(where: str, expected: int) -> None:
    table = spread()
    whole = table.to_arrow()
    mask = filter_mask(bind(parse_where(where), whole.schema), whole)

    assert candidates(table, where) == expected
    assert table.to_arrow(where=where) == whole.filter(mask)


def test_blocks_that_are_older_than_the_property_are_read() -> None:
    table = temporary_table(SCHEMA)
    table.append(rows(0, 100))
    table.set_properties(FILTERED)
    table.append(rows(0, 100))
    table.append(rows(0, 50, 100))

    assert candidates(table, "k = 50") == 2
    assert candidates(table, "k = 50 AND s = 's05'") == 1


def test_a_table_without_filters_looks_nothing_up() -> None:
    store = FaultyStore(MemoryStore())
    table = temporary_table(SCHEMA, store=store)
    table.append(rows(0, 100))
    store.calls.clear()

    assert not has_filters(table.head())
    assert candidates(table, "k = 50") == 1
    assert not [key for _, key in store.calls if key.startswith(BLOCKS_PREFIX)]


def test_a_filter_is_looked_up_only_if_it_can_rule_the_block_out() -> None:
    store = FaultyStore(MemoryStore())
    table = temporary_table(SCHEMA, store=store, properties=FILTERED)
    table.append(rows(0, 100))
    store.calls.clear()

    def looked_up(where: str) -> bool:
        store.calls.clear()
        candidates(table, where)
        return any(key.startswith(BLOCKS_PREFIX) for _, key in store.calls)

    assert looked_up("k = 50")
    assert not looked_up("k = 50 OR v = 7")
    assert not looked_up("k <> 50")
    assert not looked_up("k = 101")


class _Remote(StoreWrapper):
    is_remote = True


def test_a_remote_store_is_asked_for_many_blocks_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    spread(store)
    asked: list[int] = []

    def noted(*arguments: Any, at_once: int) -> Iterator[Any]:
        asked.append(at_once)
        return each(*arguments, at_once=at_once)

    monkeypatch.setattr(filters, "each", noted)
    table = open_table_in(_Remote(store))

    assert candidates(table, "k = 12") == 1
    assert asked == [filters.READERS]


# ---- rows


POOL: dict[str, list[object]] = {
    "n": [None, *range(-3, 4), 127, -128, 300, 2**31 - 1, -(2**31), 2**40, -(2**63)],
    "d": [None, *map(Decimal, ("0", "1.50", "-1.5", "999.99", "1.234", "-99999.999"))],
    "s": [None, "", "a", "b", "z" * 40, "é", "a" * 32, "b" * 33],
    "b": [None, b"", b"\0", b"ab", b"z" * 40],
    "t": [None, 0, -1, 1, 10**15],
}
WIDTHS = (
    {"n": pa.int8(), "d": pa.decimal128(5, 2)},
    {"n": pa.int16(), "d": pa.decimal128(9, 3)},
    {"n": pa.int32(), "d": pa.decimal128(20, 3)},
    {"n": pa.int64(), "d": pa.decimal128(38, 5)},
)


class Lookups:
    """A table with filters, its rows by hand, and what may be done to it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._width = 0
        self._has_late = False
        self.store = MemoryStore()
        self.table = temporary_table(
            self._schema(),
            store=self.store,
            properties={"fuse.bloom.columns": "n,d,s,b,t", "fuse.block.rows": "8"},
        )

    def _schema(self) -> pa.Schema:
        fields = {
            **WIDTHS[self._width],
            "s": pa.string(),
            "b": pa.binary(),
            "t": pa.timestamp("us", "UTC"),
            "id": pa.int64(),
        }
        if self._has_late:
            fields["late"] = pa.int32()
        return pa.schema(list(fields.items()))

    def _fits(self, value: object, arrow: pa.DataType) -> bool:
        try:
            pa.scalar(value, arrow)
        except (pa.ArrowInvalid, OverflowError):
            return False
        return True

    def _rows(self, count: int) -> pa.Table:
        columns = {}
        for field in self._schema():
            pool: list[object] = [
                value
                for value in POOL.get(field.name, list(range(20)))
                if self._fits(value, field.type)
            ]
            columns[field.name] = pa.array(
                [self._random.choice(pool) for _ in range(count)], field.type
            )
        return pa.table(columns, schema=self._schema())

    def append(self) -> None:
        self.table.append(self._rows(self._random.randint(1, 12)), merge_schema=True)

    def widen(self) -> None:
        self._width = min(self._width + 1, len(WIDTHS) - 1)
        self.append()

    def add_column(self) -> None:
        self._has_late = True
        self.append()
        self.table.set_properties({"fuse.bloom.columns": "n,d,s,b,t,late"})

    def delete(self) -> None:
        self.table.delete(self.predicate())

    def compact(self) -> None:
        self.table.compact()

    def revert(self) -> None:
        version = self._random.randrange(1, self.table.head().version + 1)
        with suppress(fuse.ConflictError, fuse.InvalidInputError):
            self.table.revert(version)

    def unset(self) -> None:
        self.table.set_properties({"fuse.bloom.columns": self._random.choice(["", "n", "d,s"])})

    def predicate(self) -> str:
        tests = [self._test() for _ in range(self._random.choice([1, 1, 2, 3]))]
        joined = self._random.choice([" AND ", " OR "]).join(tests)
        return f"NOT ({joined})" if self._random.random() < 0.15 else joined

    def _test(self) -> str:
        name = self._random.choice(["n", "n", "d", "s", "b", "t", *(["late"] * self._has_late)])
        pool = [value for value in POOL.get(name, range(20)) if value is not None]
        texts = [_text(name, self._random.choice(pool)) for _ in range(self._random.randint(1, 4))]
        return self._random.choice(
            [
                f"{name} = {texts[0]}",
                f"{name} <=> {texts[0]}",
                f"{name} IN ({', '.join(texts)})",
                f"{name} NOT IN ({', '.join(texts)})",
                f"{name} IS NULL",
            ]
        )


def _text(name: str, value: object) -> str:
    if name == "b":
        assert isinstance(value, bytes)
        return f"X'{value.hex()}'"
    if name == "t":
        seconds, micros = divmod(int(str(value)), 10**6)
        stamp = pa.scalar(seconds, pa.timestamp("s")).as_py()
        return f"TIMESTAMP '{stamp}.{micros:06} UTC'"
    return f"'{value}'" if name == "s" else str(value)


ACTS = ["append", "append", "append", "widen", "add_column", "delete", "compact", "revert", "unset"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(ACTS), min_size=2, max_size=8))
def test_a_scan_with_filters_has_the_rows_of_one_without(seed: int, acts: list[str]) -> None:
    random = Random(seed)
    made = Lookups(random)
    made.append()
    for act in acts:
        getattr(made, act)()
    whole = made.table.to_arrow()

    for _ in range(8):
        where = made.predicate()
        mask = filter_mask(bind(parse_where(where), whole.schema), whole)
        assert made.table.to_arrow(where=where) == whole.filter(mask), where
    assert made.table.fsck(deep=True).is_sound
    blocks = iter_blocks(made.table.committer.metadata, made.table.head())
    assert made.table.head().summary.index_size == sum(block.index_size for block in blocks)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_any_predicate_on_any_types_has_the_rows_of_a_scan_without_filters(seed: int) -> None:
    random = Random(seed)
    names = [
        field.name for field in ANY_SCHEMA if field.name not in {"flag", "single", "double", "part"}
    ]
    table = temporary_table(
        ANY_SCHEMA, properties={"fuse.bloom.columns": ",".join(names), "fuse.block.rows": "5"}
    )
    table.append(random_table(random, 23))
    whole = table.to_arrow()

    for _ in range(10):
        where = random_where(random)
        mask = filter_mask(bind(parse_where(where), arrow_schema(table.head().schema)), whole)
        found = table.to_arrow(where=where)
        assert list(map(str, found.to_pylist())) == list(map(str, whole.filter(mask).to_pylist()))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=6), max_size=8))
def test_an_upsert_with_filters_replaces_the_rows_with_its_keys(batches: list[list[int]]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    table = temporary_table(schema, properties={"fuse.bloom.columns": "a,b"})
    expected: dict[tuple[int, str], int] = {}
    for number, keys in enumerate(batches):
        texts = [str(key % 3) for key in keys]
        table.upsert(
            pa.table({"a": keys, "b": texts, "v": [number] * len(keys)}, schema=schema),
            keys=["a", "b"],
        )
        expected |= dict.fromkeys(zip(keys, texts, strict=True), number)
    found = Counter((row["a"], row["b"], row["v"]) for row in table.to_arrow().to_pylist())

    assert found == Counter((*key, value) for key, value in expected.items())


def test_an_upsert_of_few_keys_reads_no_block_that_has_none_of_them() -> None:
    store = FaultyStore(MemoryStore())
    table = temporary_table(SCHEMA, store=store, properties=FILTERED)
    for number in range(4):
        table.append(rows(-number, *range(10 + number, 90, 4), 100 + number))
    table.set_key(["k"])
    table = open_table_in(store)
    store.calls.clear()
    table.upsert(rows(8, 11), keys=["k"])
    touched = {key for verb, key in store.calls if verb != "open_input"}

    assert len([key for key in touched if key.startswith(BLOCKS_PREFIX)]) == 2  # read one, put one
    assert table.to_arrow(where="k IN (8, 11)").num_rows == 2


def test_a_feed_does_not_read_blocks_that_the_filters_rule_out() -> None:
    store = FaultyStore(MemoryStore())
    table = temporary_table(SCHEMA, store=store, properties=FILTERED)
    for number in range(3):
        table.append(rows(0, *range(10 + number, 90, 3), 100))
    store.calls.clear()
    found = table.changes(1, where="k = 11").read_all()
    read = {key for verb, key in store.calls if verb != "open_input"}

    assert found.column("k").to_pylist() == [11]
    assert len([key for key in read if key.startswith(BLOCKS_PREFIX)]) == 1


def test_a_clone_uses_the_filters_of_its_origin(tmp_path: Path) -> None:
    origin, place = str(tmp_path / "origin"), str(tmp_path / "clone")
    table = Table.create(origin, SCHEMA, properties=FILTERED)
    for number in range(3):
        table.append(rows(0, *range(10 + number, 90, 3), 100))
    fuse.clone(origin, place)
    clone = Table.open(place, origins=[origin])

    assert clone.head().summary.index_size == table.head().summary.index_size > 0
    assert "bloom" in clone.head().required_features
    assert candidates(clone, "k = 11") == 1
    assert clone.to_arrow(where="k = 11").num_rows == 1


# ---- damage


def bits_of(table: Table, column: int) -> tuple[str, int, int]:
    block = next(iter(iter_blocks(table.committer.metadata, table.head())))
    bloom = block.col_metas[column].bloom
    assert bloom is not None
    return block_key(block.id), bloom.offset, bloom.len


def test_a_filter_of_zeros_rules_nothing_out() -> None:
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store, properties=FILTERED)
    table.append(rows(*range(100)))
    key, start, count = bits_of(table, 1)
    data = bytearray(store.get(key))
    data[start : start + count] = bytes(count)
    store.replace(key, bytes(data))

    assert candidates(open_table_in(store), "k = 50") == 1


def test_a_missing_block_is_reported_by_its_reader() -> None:
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store, properties=FILTERED)
    table.append(rows(*range(100)))
    store.delete(bits_of(table, 1)[0])

    with pytest.raises(fuse.CorruptObjectError, match="block is missing"):
        open_table_in(store).to_arrow(where="k = 50")
