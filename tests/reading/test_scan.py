"""Pruning skips exactly the blocks that cannot match; the result has the requested columns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuse_stream.commit import rollup
from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.arrow import arrow_schema, columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import BLOCKS_PREFIX, block_key
from fuse_stream.format.records import ColumnStats
from fuse_stream.objects.slots import Metadata
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where
from fuse_stream.reading.scan import (
    prune,
    select,
    stats_may_match,
    stats_must_match,
)
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore

Create = Callable[..., Table]
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("p", pa.struct([("q", pa.int32())])),
        ("l", pa.list_(pa.int8())),
    ]
)
WIDER = SCHEMA.append(pa.field("late", pa.int32()))
rows = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(-3, 3),
        "x": st.none() | st.sampled_from([-0.0, 0.0, 1.5, math.nan, math.inf, -math.inf]),
        "s": st.none() | st.sampled_from(["", "a", "ab", "z" * 40, "z" * 31 + "\U0010ffff" * 5]),
        "p": st.none() | st.fixed_dictionaries({"q": st.none() | st.integers(-2, 2)}),
        "l": st.none() | st.lists(st.integers(0, 3), max_size=2),
        "late": st.none() | st.integers(-2, 2),
    }
)
batches = st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=9)
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
literals = {
    "k": st.integers(-4, 4).map(str),
    "x": st.sampled_from(["0.0", "-0.0", "1.5", "CAST('NaN' AS DOUBLE)"]),
    "s": st.sampled_from(["''", "'a'", "'aa'", f"'{'z' * 40}'", f"'{'z' * 35}'"]),
    "p.q": st.integers(-3, 3).map(str),
    "late": st.integers(-3, 3).map(str),
}


def conditions(name: str) -> st.SearchStrategy[str]:
    values = literals[name]
    return st.one_of(
        st.tuples(st.just(name), operators, values).map(" ".join),
        st.lists(values, min_size=1, max_size=3).map(
            lambda items: f"{name} IN ({', '.join(items)})"
        ),
        st.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL"]),
    )


simple = st.one_of(
    *map(conditions, literals),
    st.sampled_from(["s LIKE 'a%'", "s LIKE 'zz%'", "s NOT LIKE '%b'"]),
)
predicates = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=4,
)


def made(groups: list[list[dict[str, object]]], *, cluster_by: tuple[str, ...]) -> Table:
    """Return a table with one append per group; the second half has one more column."""
    table = create_table(
        MemoryStore(),
        first_schema(columns_of_arrow(SCHEMA)),
        cluster_by=cluster_by,
        clock=ManualClock(),
        probe_store=False,
    )
    for number, group in enumerate(groups):
        wide = number * 2 >= len(groups)
        data = pa.Table.from_pylist(group, schema=WIDER if wide else SCHEMA)
        table.append(data, merge_schema=True)
    return table


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=batches,
    where=st.lists(predicates, min_size=1, max_size=4),
    cluster_by=st.sampled_from([(), ("k",), ("s", "x")]),
)
def test_a_scan_with_a_predicate_equals_the_filtered_whole_scan(
    monkeypatch: pytest.MonkeyPatch,
    groups: list[list[dict[str, object]]],
    where: list[str],
    cluster_by: tuple[str, ...],
) -> None:
    monkeypatch.setattr(rollup, "FAN_IN", 2)
    table = made(groups, cluster_by=cluster_by)
    whole = table.to_arrow()
    names = table.schema.names
    for text in where:
        if "late" in text and "late" not in names:
            continue
        bound = bind(parse_where(text), arrow_schema(table.head().schema), time_zone="UTC")
        expected = whole.filter(filter_mask(bound, whole))

        assert repr(table.to_arrow(where=text).to_pylist()) == repr(expected.to_pylist())
        assert repr(table.to_arrow(where=text, columns=["l"]).to_pylist()) == repr(
            expected.select(["l"]).to_pylist()
        )


@pytest.fixture
def clustered(create: Create) -> Table:
    table = create(SCHEMA, cluster_by=["k"])
    for number in range(40):
        table.append(pa.Table.from_pylist([{"k": number, "s": f"row {number}"}], schema=SCHEMA))
    return table


def test_a_point_lookup_opens_one_block(clustered: Table, store: MemoryStore) -> None:
    faulty = clustered.metadata.store = FaultyStore(store)
    found = clustered.to_arrow(where="k = 17", columns=["s"])

    assert found.to_pylist() == [{"s": "row 17"}]
    assert len([key for _, key in faulty.calls if key.startswith(BLOCKS_PREFIX)]) == 1


def test_segments_whose_key_range_cannot_match_are_not_opened(
    clustered: Table, store: MemoryStore
) -> None:
    snapshot = clustered.head()
    fresh = FaultyStore(store)
    metadata = Metadata(fresh, ManualClock())
    blocks = list(prune(metadata, snapshot, select(snapshot.schema, where="k = 39")))

    assert len(blocks) == 1
    assert len([key for _, key in fresh.calls if key.startswith("_sg/")]) == 1


def test_a_scan_reads_one_block_at_a_time(clustered: Table, store: MemoryStore) -> None:
    faulty = clustered.metadata.store = FaultyStore(store)
    reader = clustered.scan()
    reader.read_next_batch()

    assert len([key for _, key in faulty.calls if key.startswith(BLOCKS_PREFIX)]) == 1


def test_columns_come_in_the_requested_order(clustered: Table) -> None:
    found = clustered.to_arrow(columns=["s", "K", "s"], where="p.q IS NULL AND k < 2")

    assert found.schema.names == ["s", "k"]
    assert found.num_rows == 2


def test_the_schema_is_the_same_with_and_without_matching_rows(clustered: Table) -> None:
    some, none = clustered.scan(where="k = 1"), clustered.scan(where="k = -1")

    assert some.schema.equals(none.schema, check_metadata=True)
    assert none.read_all().num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"columns": []}, "column"),
        ({"columns": "k"}, "list of names"),
        ({"columns": [5]}, "list of names"),
        ({"columns": ["kk"]}, "'kk'"),
        ({"columns": ["l.element"]}, "l.element"),
        ({"where": 5}, "SQL predicate"),
        ({"where": ""}, "predicate"),
        ({"where": "nope = 1"}, "nope"),
        ({"where": "k ="}, "predicate"),
        ({"where": "l = 1"}, "l"),
        ({"where": "k = 1", "time_zone": "Mars/Base"}, "Mars/Base"),
        ({"version": 1, "timestamp": "2026-01-01T00:00:00Z"}, "not both"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_read(
    clustered: Table, arguments: dict[str, object], names: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        clustered.scan(**arguments)  # type: ignore[arg-type]

    assert names in str(caught.value)


def test_the_error_for_a_missing_column_suggests_the_nearest_name(create: Create) -> None:
    table = create(pa.schema([("delay_minutes", pa.int64()), ("carrier", pa.string())]))

    with pytest.raises(InvalidInputError) as caught:
        table.scan(columns=["delay_minute"])

    assert caught.value.context["nearest"] == "delay_minutes"


def test_the_reader_raises_a_typed_error_for_a_damaged_block(
    clustered: Table, store: MemoryStore
) -> None:
    (block,) = [item for item in clustered.blocks() if item.col_stats[1].min == 3]
    key = f"_b/{block.id}_v1.parquet"
    data = bytearray(store.get(key))
    data[len(data) // 8] ^= 0xFF
    store.put(key, bytes(data))
    assert clustered.to_arrow(where="k = 4").num_rows == 1

    store.delete(key)
    with pytest.raises(CorruptObjectError, match="missing"):
        clustered.to_arrow()


def test_a_block_with_another_blocks_bytes_is_damage(table: Table, store: MemoryStore) -> None:
    first, second = (block_key(block.id) for block in table.blocks()[:2])
    store.replace(first, store.get(second))

    with pytest.raises(CorruptObjectError, match="differs from the hash"):
        table.to_arrow()


@pytest.mark.parametrize(
    ("read", "version"),
    [
        (lambda table: table.to_arrow(), 3),
        (lambda table: table.to_arrow(version=2), 2),
        (lambda table: table.changes(1).read_all(), 2),
        (lambda table: table.diff(1, 3).read_all(), 3),
    ],
    ids=["the head", "a version", "changes", "a difference"],
)
def test_the_error_for_a_missing_block_names_path_version_and_fsck(
    create: Create, store: MemoryStore, read: Callable[[Table], object], version: int
) -> None:
    table = create()
    for key in range(3):
        table.append(pa.table({"k": [key]}))
    gone = table.blocks()[1]
    store.delete(block_key(gone.id))
    with pytest.raises(CorruptObjectError, match="fuse-stream fsck") as caught:
        read(table)

    context = caught.value.context
    assert (context["path"], context["version"]) == (store.url, version)
    assert context["block"] == gone.id


def test_a_reader_keeps_reading_its_snapshot(clustered: Table) -> None:
    reader = clustered.scan()
    clustered.overwrite(pa.Table.from_pylist([{"k": 1}], schema=SCHEMA))

    assert reader.read_all().num_rows == 40


# ---- names that Arrow reads as paths


DOTTED = [(".x", "x"), (".", "x"), (".x.y", "x"), ("[1]", "x"), ("..", ".")]


@pytest.mark.parametrize(("name", "other"), DOTTED)
def test_a_field_whose_name_begins_with_a_dot_is_not_confused_with_another(
    create: Create, name: str, other: str
) -> None:
    inner = pa.struct([(other, pa.int64()), (name, pa.int64())])
    table = create(pa.schema([("s", inner)]))
    row = {other: 1, name: 100}
    table.append(pa.table({"s": pa.array([row], inner)}))

    assert table.to_arrow(where=f"s.`{name}` = 100")["s"].to_pylist() == [row]
    assert table.to_arrow(where=f"s.`{name}` = 1").num_rows == 0
    assert table.to_arrow(where=f"s.`{other}` = 1").num_rows == 1
    ids = [leaf.column.id for leaf in table.head().schema.leaves()]
    stats = table.blocks()[0].col_stats
    assert [(stats[column].min, stats[column].max) for column in ids] == [(1, 1), (100, 100)]


@pytest.mark.parametrize(("name", "other"), DOTTED)
def test_a_cluster_key_whose_name_begins_with_a_dot_orders_by_its_own_values(
    create: Create, name: str, other: str
) -> None:
    table = create(pa.schema([(other, pa.int64()), (name, pa.int64())]), cluster_by=(name,))
    table.append(pa.table({other: [1, 2, 3], name: [2, 3, 1]}))

    assert table.to_arrow()[name].to_pylist() == [1, 2, 3]
    assert table.to_arrow()[other].to_pylist() == [3, 1, 2]


@pytest.mark.parametrize("path", [("s", ".x"), ("s", ".p", "q")])
def test_statistics_that_may_belong_to_another_field_prune_nothing(
    create: Create, path: tuple[str, ...]
) -> None:
    kind = pa.int64()
    for name in reversed(path[1:]):
        kind = pa.struct([(name, kind)])
    schema = create(pa.schema([("s", kind), (".t", pa.int64())])).head().schema
    wrong = {column: ColumnStats(min=1, max=1, null_count=0, in_memory_size=8) for column in (2, 3)}
    name = ".".join(f"`{part}`" for part in path)

    assert stats_may_match(select(schema, where=f"{name} = 100"), wrong, 1)
    assert not stats_must_match(select(schema, where=f"{name} = 1"), wrong, 1)
    own = {schema.columns[1].id: ColumnStats(min=1, max=1, null_count=0, in_memory_size=8)}
    assert not stats_may_match(select(schema, where="`.t` = 100"), own, 1)
