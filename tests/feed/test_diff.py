"""What turns one version into another, net: no row that stands in both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.feed.net import read_net
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.grouping import cancel_equal_rows
from fuse_stream.format.layout import BLOCKS_PREFIX, segment_key
from fuse_stream.reading.scan import select
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import Row, Rows, rows_of
from tests.protocol.worlds import World

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("l", pa.list_(pa.float64()))])
INNER = pa.struct([("t", pa.timestamp("us")), ("f", pa.float32()), ("s", pa.string())])
commits = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "overwrite"]),
        st.lists(st.tuples(st.integers(0, 3), st.none() | st.sampled_from([0.5, 1.5])), max_size=4),
    ),
    max_size=8,
)


def table_of(rows: list[tuple[int, float | None]]) -> pa.Table:
    return pa.table({"k": [row[0] for row in rows], "x": [row[1] for row in rows]}, schema=PLAIN)


PLAIN = pa.schema([("k", pa.int64()), ("x", pa.float64())])


def net(reader: pa.RecordBatchReader) -> tuple[Rows, Rows]:
    """Return the rows that were deleted and those that were inserted."""
    table = reader.read_all()
    kinds = table.column("_change_type").to_pylist()
    plain = list(zip(*(table.column(name).to_pylist() for name in ("k", "x")), strict=True))
    deleted, inserted = Counter[Row](), Counter[Row]()
    for kind, row in zip(kinds, plain, strict=True):
        (deleted if kind == "delete" else inserted)[row] += 1
    return deleted, inserted


@given(history=commits, data=st.data())
def test_a_diff_is_the_difference_of_the_two_versions(
    history: list[tuple[str, list[tuple[int, float | None]]]], data: st.DataObject
) -> None:
    table = create_table(
        MemoryStore(),
        first_schema(columns_of_arrow(PLAIN)),
        clock=ManualClock(),
        probe_store=False,
    )
    for operation, rows in history:
        getattr(table, operation)(table_of(rows))
    a, b = (data.draw(st.integers(0, len(history))) for _ in range(2))
    old, new = rows_of(table.to_arrow(version=a)), rows_of(table.to_arrow(version=b))
    deleted, inserted = net(table.diff(a, b))

    assert (deleted, inserted) == (old - new, new - old)


def keyed(values: list[object], arrow: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, arrow)})


@pytest.mark.parametrize(
    ("arrow", "value", "equal", "other"),
    [
        (pa.float64(), math.nan, float("nan"), 1.0),
        (pa.float64(), 0.0, -0.0, math.nan),
        (pa.int64(), None, None, 0),
        (pa.list_(pa.float64()), [math.nan, -0.0], [math.nan, 0.0], [math.nan]),
        (pa.struct([("x", pa.float32())]), {"x": math.nan}, {"x": math.nan}, {"x": None}),
        (pa.map_(pa.string(), pa.int8()), [("a", 1)], [("a", 1)], [("a", 2)]),
        (pa.binary(), b"\xff", b"\xff", b""),
        (pa.bool_(), True, True, None),
    ],
    ids=str,
)
def test_rows_are_equal_as_spark_groups_them(
    arrow: pa.DataType, value: object, equal: object, other: object
) -> None:
    removed, inserted = cancel_equal_rows(
        keyed([value, value, other], arrow), keyed([equal, equal, equal], arrow)
    )

    assert repr(removed.to_pylist()) == repr([{"c": other}])
    assert repr(inserted.to_pylist()) == repr([{"c": equal}])


@pytest.mark.parametrize("bits", [pa.int64(), pa.int32()], ids=str)
def test_every_nan_is_one_value_whatever_its_bits(bits: pa.DataType) -> None:
    wide = bits == pa.int64()
    first = (0x7FF8 << 48) if wide else (0x7FC0 << 16)
    patterns = [first, first + 5, first - 3, -1]
    column = pa.array(patterns, bits).view(pa.float64() if wide else pa.float32())

    removed, inserted = cancel_equal_rows(
        pa.table({"c": column}), pa.table({"c": column.take([3, 2, 0])})
    )

    assert (len(removed), len(inserted)) == (1, 0)


@pytest.mark.parametrize(
    "values",
    [
        [float(number) * 1e300 for number in range(1, 30)],
        [2.0**63 * number for number in range(1, 30)],
        [1 / 2**60 / number for number in range(1, 30)],
    ],
    ids=["huge", "past longs", "tiny"],
)
def test_shares_are_found_by_the_bits_of_numbers(
    create: Create, store: MemoryStore, values: list[float]
) -> None:
    table = create(pa.schema([("c", pa.float64())]))
    values += [-0.0, 0.0, math.inf, -math.inf]
    table.append(pa.table({"c": values}))
    selection = select(table.head().schema)
    blocks = [(block, selection) for block in table.blocks()]

    shares = [
        read_net(store, blocks, (), selection.schema, share=share, of=4)[0]["c"].to_pylist()
        for share in range(4)
    ]

    assert sorted(value for share in shares for value in share) == sorted(values)
    assert all(len(share) > 2 for share in shares)
    assert sorted(share.count(0.0) for share in shares) == [0, 0, 0, 2]


def test_times_past_pythons_and_texts_that_are_not_utf8_are_compared() -> None:
    far = pa.array([2**62, 1], pa.int64()).cast(pa.timestamp("us"))
    day = pa.array([2**31 - 1, 1], pa.int32()).cast(pa.date32())
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0")
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    inner = pa.StructArray.from_arrays(
        [far, pa.array([1, 2], pa.float32()), text], fields=list(INNER)
    )
    rows = pa.table({"far": far, "day": day, "text": text, "inner": inner})

    removed, inserted = cancel_equal_rows(rows, rows.slice(1))

    assert (len(removed), len(inserted)) == (1, 0)
    assert removed.column("far").cast(pa.int64()).to_pylist() == [2**62]


def test_a_diff_over_a_widening_keeps_every_value_either_way(create: Create) -> None:
    table = create(pa.schema([("k", pa.int32()), ("x", pa.float32())]))
    table.append(pa.table({"k": pa.array([1], pa.int32()), "x": pa.array([0.1], pa.float32())}))
    wide = pa.table({"k": [2**40], "x": [0.1], "new": ["n"]})
    table.append(wide, merge_schema=True)
    row = (2**40, 0.1)

    assert net(table.diff(1, 2)) == ({}, {row: 1})
    assert net(table.diff(2, 1)) == ({row: 1}, {})
    assert table.diff(2, 1).schema.names == ["k", "x", "new", "_change_type"]


def test_a_diff_opens_only_the_segments_that_are_not_shared(
    create: Create, store: MemoryStore
) -> None:
    table = create(PLAIN)
    for number in range(8):
        table.append(table_of([(number, None)]))
    last = table.segments()[-1]
    faulty = FaultyStore(store)
    table.metadata.store = faulty
    list(table.diff(7, 8))

    opened = {key for _, key in faulty.calls if key.startswith("_sg/")}
    assert opened <= {segment_key(last.id)}
    assert len([key for _, key in faulty.calls if key.startswith(BLOCKS_PREFIX)]) == 1


def test_a_diff_of_one_version_is_empty_and_has_a_schema(create: Create) -> None:
    table = create(PLAIN)
    table.append(table_of([(1, None)]))
    found = table.diff(1, 1).read_all()

    assert found.num_rows == 0
    assert found.schema.names == ["k", "x", "_change_type"]


def test_a_diff_may_be_of_some_columns(create: Create) -> None:
    table = create(PLAIN)
    table.append(table_of([(1, 0.5)]))
    table.overwrite(table_of([(1, 1.5)]))

    assert table.diff(1, 2, columns=["k"]).read_all().num_rows == 0
    assert table.diff(1, 2, columns=["x"]).read_all().num_rows == 2


def test_bad_versions_are_named(create: Create) -> None:
    table = create(PLAIN)

    with pytest.raises(NotFoundError):
        table.diff(0, 1)
    with pytest.raises(NotFoundError, match="no such tag"):
        table.diff("x", 0)
    with pytest.raises(InvalidInputError):
        table.diff(0, 0, columns=["nope"])


def test_commits_of_another_branch_that_have_expired_are_not_read() -> None:
    world = World()
    world.append()
    world.table.create_branch("fix")
    world.append()
    for _ in range(2):
        world.append("fix")
    world.overwrite("fix")
    reader = world.opened()
    before = reader.diff("main@", "fix@4").read_all()
    world.expire(branch="fix")
    world.vacuum_twice_aged()

    assert sorted(before["k"].to_pylist()) == [1, 2, 5]
    for table in (reader, world.opened()):
        found = table.diff("main@", "fix@").read_all()
        back = table.diff("fix@", "main@").read_all()
        assert rows_of(found) == rows_of(before)
        assert sorted(back["k"].to_pylist()) == [1, 2, 5]
