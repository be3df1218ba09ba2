"""Vacuum keeps the lists and parts of indexes that retained snapshots name, and no others."""

from __future__ import annotations

import pytest

from fuse_stream.format.layout import AGGREGATES_PREFIX, INDEX_LISTS_PREFIX, index_list_key
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table
from tests.kit.indexes import AGING, NAME, SCHEMA, SQL, answer, by_city, city_rows


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    table = temporary_table(SCHEMA, store=store, clock=clock, properties=AGING)
    table.append(city_rows(0))
    table.create_aggregate(NAME, SQL)
    table.refresh_indexes()
    return table


def vacuum(table: Table, clock: ManualClock) -> None:
    for _ in range(4):
        clock.advance(10)
        table.expire(keep_last=1)
        table.vacuum()


def counts(store: MemoryStore) -> tuple[int, int]:
    return tuple(
        sum(key.startswith(prefix) for key in store.objects)
        for prefix in (INDEX_LISTS_PREFIX, AGGREGATES_PREFIX)
    )  # type: ignore[return-value]


def test_what_the_head_names_stays_and_what_nothing_names_goes(
    store: MemoryStore, table: Table, clock: ManualClock
) -> None:
    table.append(city_rows(100))
    table.refresh_indexes()
    assert counts(store) == (3, 2)  # one list more for the definition alone
    vacuum(table, clock)

    assert counts(store) == (1, 1)
    assert answer(table) == by_city(table.to_arrow())
    assert table.indexes()[0].covered_blocks == 2
    assert table.fsck(deep=True).findings == ()
    table.drop_index()
    vacuum(table, clock)
    assert counts(store) == (0, 0)


def test_a_tag_and_a_branch_keep_what_they_name(
    store: MemoryStore, table: Table, clock: ManualClock
) -> None:
    table.create_tag("good")
    table.create_branch("fix")
    table.drop_index()
    table.append(city_rows(100))
    vacuum(table, clock)
    fix = open_table_in(store, branch="fix", clock=clock)

    assert counts(store) == (2, 1)  # the branch keeps the versions before it, too
    assert answer(fix) == by_city(fix.to_arrow())
    assert fix.indexes()[0].covered_blocks == 1
    table.delete_tag("good")
    table.delete_branch("fix")
    vacuum(table, clock)
    assert counts(store) == (0, 0)


def test_a_lost_list_stops_no_vacuum(store: MemoryStore, table: Table, clock: ManualClock) -> None:
    ref = table.head().index_list
    assert ref is not None
    del store.objects[index_list_key(ref.id)]
    vacuum(table, clock)

    assert counts(store) == (0, 0)
    assert table.to_arrow().num_rows == 20


def test_fsck_counts_what_nothing_names(store: MemoryStore, table: Table) -> None:
    table.drop_index()
    table.expire(keep_last=1)
    report = table.fsck()

    assert report.findings == ()
    assert report.unreachable["lists of indexes"].object_count == 2
    assert report.unreachable["parts of indexes"].object_count == 1
