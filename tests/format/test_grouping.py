"""Of two tables, the rows that one has more often than the other."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.grouping import find_unequal_rows

SCHEMA = pa.schema([("k", pa.int32()), ("x", pa.float64()), ("name", pa.string())])

Row = tuple[int | None, float | None, str | None]

rows = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.none() | st.sampled_from([0.0, 1.5]),
        st.none() | st.sampled_from(["", "a"]),
    ),
    max_size=12,
)


def table_of(values: list[Row]) -> pa.Table:
    columns = [[row[at] for row in values] for at in range(len(SCHEMA))]
    return pa.table(columns, schema=SCHEMA)


@given(removed=rows, inserted=rows)
def test_equal_rows_cancel_out_one_for_one(removed: list[Row], inserted: list[Row]) -> None:
    found = find_unequal_rows(table_of(removed), table_of(inserted))

    left, right = ([at.as_py() for at in each] for each in found)
    common = Counter(removed) & Counter(inserted)
    first, last = Counter[Row](), Counter[Row]()
    for kept, values, seen, numbers in (
        (left, removed, first, range(len(removed))),
        (right, inserted, last, reversed(range(len(inserted)))),
    ):
        wanted = Counter(values) - common
        expected = []
        for at in numbers:  # the first ones of what was removed stay, the last of what came
            if seen[values[at]] < wanted[values[at]]:
                expected.append(at)
            seen[values[at]] += 1
        assert kept == sorted(expected)
