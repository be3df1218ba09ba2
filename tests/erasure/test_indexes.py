"""An erasure leaves no value of erased rows in an index."""

from __future__ import annotations

import pytest

from fuse_stream.format.layout import AGGREGATES_PREFIX, INDEX_LISTS_PREFIX
from fuse_stream.objects.indexes import load_index_list
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import temporary_table
from tests.kit.indexes import AGING, NAME, SCHEMA, SQL, answer, by_city, city_rows, covered

WHERE = "city = 'Rome'"


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    table = temporary_table(SCHEMA, store=store, clock=clock, properties=AGING)
    table.append(city_rows(0).filter([n % 3 > 0 for n in range(20)]))  # no Rome; a small block
    table.append(city_rows(0))
    table.append(city_rows(20))
    table.create_aggregate(NAME, SQL)
    table.refresh_indexes()
    return table


def holding(table: Table) -> list[str]:
    """Return the kinds of the objects in which a verification finds the value."""
    found = table.erase(WHERE, verify=True).verification
    assert found is not None
    assert found.unreadable == ()
    return sorted({item.kind for item in found.findings})


def test_a_verification_finds_values_in_parts(table: Table) -> None:
    assert "part of an index" in holding(table)


def test_an_erasure_drops_the_parts_of_rewritten_blocks(
    store: MemoryStore, table: Table, clock: ManualClock
) -> None:
    table.erase(WHERE)
    assert covered(table) == 0
    assert answer(table) == by_city(table.to_arrow())
    assert [row["city"] for row in answer(table)] == ["Oslo"]
    for _ in range(4):
        clock.advance(10)
        table.expire(keep_last=1)
        table.vacuum()

    assert not [key for key in store.objects if key.startswith(AGGREGATES_PREFIX)]
    table.refresh_indexes()
    assert "part of an index" not in holding(table)


def test_an_erasure_drops_parts_of_blocks_that_left_the_head(table: Table) -> None:
    table.overwrite(city_rows(0, 1).filter([False]))
    assert load_index_list(table.metadata, table.head().index_list).parts
    table.erase(WHERE)

    assert load_index_list(table.metadata, table.head().index_list).parts == ()
    head = table.head().version
    table.erase(WHERE)
    assert table.head().version == head


def test_an_erasure_keeps_parts_without_the_rows_and_drops_a_lost_list(
    store: MemoryStore, table: Table
) -> None:
    before = table.head().index_list
    table.erase("x = -1")
    assert table.head().index_list == before
    for key in [key for key in store.objects if key.startswith(INDEX_LISTS_PREFIX)]:
        del store.objects[key]
    table.erase(WHERE)

    assert table.head().index_list is None
    assert table.to_arrow(where=WHERE).num_rows == 0
