"""Which rows of blocks changed, from all rows before and after. No JVM is needed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.spark import compared_rows
from fuse_stream.spark.compared_rows import StagedFiles, find_changes
from fuse_stream.testing.tables import temporary_table

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("x", pa.float64()), ("b", pa.bool_())])
NESTED = SCHEMA.append(pa.field("items", pa.list_(pa.int64())))

Row = tuple[object, ...]
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, None]),
        st.sampled_from(["a", "b", "", None]),
        st.sampled_from([0.0, -0.0, math.nan, 1.5, None]),
        st.sampled_from([True, False, None]),
    ),
    max_size=12,
)


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    further = {name: [1, None] for name in schema.names[4:]}
    named = [{**dict(zip(SCHEMA.names, row, strict=True)), **further} for row in rows]
    return pa.Table.from_pylist(named, schema)


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))


@pytest.mark.long
@pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["plain", "nested"])
@pytest.mark.parametrize("most_rows", [4, 4_000_000])
@given(before=ROWS, after=ROWS)
def test_rows_that_differ_in_a_bit_are_the_changes(
    schema: pa.Schema, most_rows: int, before: list[Row], after: list[Row]
) -> None:
    was, now = table_of(before, schema), table_of(after, schema)
    table = temporary_table(schema)
    table.append(was)
    table.delete("n = 0")
    shown, head, metadata = table.to_arrow(), table.head(), table.metadata
    staged = StagedFiles(
        store=metadata.store, prefix="_staged/x/", columns=head.schema.columns, schema=head.schema
    )
    sink = pa.BufferOutputStream()
    pq.write_table(now.rename_columns([f"c{at}" for at in range(len(schema))]), sink)
    metadata.store.put("_staged/x/1.parquet", sink.getvalue().to_pybytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared_rows, "_MOST_ROWS", most_rows)
        found = find_changes(metadata, head, [block.id for block in table.blocks()], staged)
    gone = sum(map(len, found.deleted.values()))
    came = sum(block.row_count for block in found.inserts)

    common = (counted(shown) & counted(now)).total()
    assert (gone, came) == (len(shown) - common, len(now) - common)
