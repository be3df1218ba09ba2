"""Compaction removes deleted rows: many of a block, or old ones; and the optimizer asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.format.refs import Past
from fuse_stream.optimize.policy import Step, decide
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound

Create = Callable[..., Table]
DAY_US = 86_400_000_000


@pytest.fixture
def table(create: Create) -> Table:
    """Two perfect blocks."""
    made = create(properties={"fuse.block.rows": "100"})
    for first in (0, 100):
        made.append(pa.table({"k": list(range(first, first + 100))}))
    return made


def step_of(table: Table, clock: ManualClock) -> Step | None:
    return decide(table.head(), Past(settled_blocks=9), {}, clock.now_us()).step


def test_a_block_of_which_a_tenth_is_deleted_is_rewritten_alone(
    table: Table, store: MemoryStore
) -> None:
    table.delete("k < 10")
    result = table.compact()

    assert (result.blocks_before, result.blocks_after, result.row_count) == (1, 1, 90)
    assert table.head().deletion_files == ()
    assert [block.row_count for block in table.blocks()] == [90, 100]
    assert_sound(store, table)


def test_a_few_deleted_rows_stay_until_they_are_old(table: Table, clock: ManualClock) -> None:
    table.delete("k = 5")
    at_once = table.compact()
    clock.sleep(7 * 86_400)
    later = table.compact()

    assert at_once.snapshot is None
    assert later.row_count == 99


def test_the_share_and_the_age_are_properties_of_the_table(
    table: Table, clock: ManualClock
) -> None:
    table.set_properties({"fuse.deletes.rows": "50%", "fuse.deletes.age": "1h"})
    table.delete("k < 40")
    assert table.compact().snapshot is None

    clock.sleep(3_600)
    assert table.compact().row_count == 60


@pytest.mark.parametrize("value", ["0%", "101%", "10", "ten", "-5%"])
def test_a_share_is_a_whole_number_of_percent(table: Table, value: str) -> None:
    with pytest.raises(ValueError, match='"1%" to "100%"'):
        table.set_properties({"fuse.deletes.rows": value})


def test_a_block_without_rows_goes(table: Table, store: MemoryStore) -> None:
    table.delete("k < 100")
    result = table.compact()

    assert (result.blocks_before, result.blocks_after) == (1, 0)
    assert len(table.blocks()) == 1
    assert table.to_arrow()["k"].to_pylist() == list(range(100, 200))
    assert_sound(store, table)


def test_a_tiered_run_does_not_leave_a_block_out_that_is_due(table: Table) -> None:
    table.append(pa.table({"k": [1000]}))
    table.delete("k >= 100 AND k < 120")

    assert table.compact(tiered=True).row_count == 81


def test_the_optimizer_compacts_once_a_tenth_of_the_rows_is_deleted(
    table: Table, clock: ManualClock
) -> None:
    table.delete("k < 19")
    assert step_of(table, clock) is None

    table.delete("k = 150")
    assert step_of(table, clock) is Step.COMPACT
    table.compact()
    assert step_of(table, clock) is None


def test_the_optimizer_comes_back_when_deleted_rows_are_old(
    table: Table, clock: ManualClock
) -> None:
    table.delete("k = 1")
    deleted_us = table.head().deletion_files[0].since_us
    decision = decide(table.head(), Past(settled_blocks=9), {}, clock.now_us())

    assert decision.step is None
    assert decision.next_check_us == deleted_us + 7 * DAY_US
