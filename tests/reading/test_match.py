"""Counting the rows that match: statistics give an exact count or none; a block is read once."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.schema import Column, Schema
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.reading.scan import MatchCounts, Selection, read_cost, select_matches
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.kit.predicates import SCHEMA, random_table, random_where

OURS = first_schema(columns_of_arrow(SCHEMA))


def filled(store: MemoryStore, rows: pa.Table) -> Table:
    schema = first_schema(columns_of_arrow(rows.schema))
    table = create_table(store, schema, clock=ManualClock(), probe_store=False)
    table.append(rows)
    return table


def random_selection(random: Random) -> Selection:
    while True:
        try:
            return select_matches(OURS, random_where(random))
        except InvalidInputError:
            continue


@given(seed=st.integers(0, 1 << 32))
def test_statistics_give_the_exact_count_of_matching_rows_or_none(seed: int) -> None:
    random = Random(seed)
    store = MemoryStore()
    rows = random_table(random, random.randint(1, 5))
    (block,) = filled(store, rows).blocks()

    for _ in range(20):
        selection = random_selection(random)
        assert selection.predicate is not None
        counts = MatchCounts(store)
        truth = pc.sum(filter_mask(selection.predicate, rows)).as_py()

        assert counts.find(block, selection) in {None, truth}
        decided = counts.find(block, selection) is not None
        assert [counts.load(block, selection) for _ in range(2)] == [truth] * 2
        assert counts.blocks_read == (0 if decided else 1)


def test_a_column_is_identified_by_its_id_and_not_by_a_reused_name() -> None:
    store = MemoryStore()
    (block,) = filled(store, pa.table({"k": [1, 2, 9], "x": [1, 2, 9]})).blocks()
    k = Column(id=1, name="k", type="long")
    old = Schema(id=0, last_column_id=2, columns=(k, Column(id=2, name="x", type="long")))
    new = Schema(id=1, last_column_id=3, columns=(k, Column(id=3, name="x", type="long")))
    counts = MatchCounts(store)
    where = "(k = 2 AND x = 2) OR (k = 4 AND x IS NULL)"

    assert [counts.load(block, select_matches(each, where)) for each in (old, new)] == [1, 0]
    assert counts.blocks_read == 2


def test_reading_a_large_block_loads_only_the_columns_of_the_predicate() -> None:
    store = MemoryStore()
    random = Random(1)
    rows = pa.table({"k": range(400_000), "x": [random.random() for _ in range(400_000)]})
    small, large = (
        filled(store, part).blocks()[0]
        for store, part in ((MemoryStore(), rows[:9]), (store, rows))
    )
    schema = first_schema(columns_of_arrow(rows.schema))
    k, x = (select_matches(schema, f"{name} = 1") for name in ("k", "x"))

    assert read_cost(small, k) == read_cost(small, x) == small.file_size
    assert read_cost(large, k) < read_cost(large, x) < large.file_size
