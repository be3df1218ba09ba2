"""What a service does next: what makes a step due, what does not, and that it cannot spin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.properties import DAY_US, check_properties
from fuse_stream.format.records import (
    Ledger,
    Operation,
    Snapshot,
    Summary,
)
from fuse_stream.format.refs import Past
from fuse_stream.format.schema import Schema
from fuse_stream.optimize.policy import (
    INDEX_EVERY_US,
    LONGEST_RETRY_US,
    Decision,
    Failures,
    Step,
    decide,
    past_after,
    past_at,
    should_start_optimizer,
)

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000
RETAIN = {"fuse.retain": "10d", "fuse.vacuum.age": "24h"}


def head(
    *,
    imperfect: int = 0,
    perfect: int = 0,
    rows: int = 0,
    key: tuple[int, ...] = (),
    properties: Mapping[str, str] | None = None,
) -> Snapshot:
    return Snapshot(
        table_id="0" * 32,
        branch_id="main",
        version=1,
        snapshot_id="1" * 32,
        timestamp_us=NOW_US,
        clock_us=NOW_US,
        operation=Operation.APPEND,
        data_change=True,
        schema=Schema(id=0, columns=(), last_column_id=0),
        cluster_key=key,
        properties=check_properties(properties or {}, creating=True),
        summary=Summary(
            row_count=rows, block_count=imperfect + perfect, perfect_block_count=perfect
        ),
        ledger=Ledger(),
    )


NO_PAST = Past()


def next_step(snapshot: Snapshot, past: Past = NO_PAST) -> Step | None:
    return decide(snapshot, past, {}, NOW_US).step


@pytest.mark.parametrize(("imperfect", "step"), [(24, None), (25, Step.COMPACT)])
def test_blocks_are_compacted_once_25_imperfect_ones_have_gathered(
    imperfect: int, step: Step | None
) -> None:
    assert next_step(head(imperfect=imperfect, perfect=1000)) == step
    assert should_start_optimizer(head(imperfect=imperfect), NOW_US, NOW_US) == (step is not None)


def test_how_many_have_to_gather_is_a_property() -> None:
    properties = {"fuse.optimize.blocks": "3"}

    assert next_step(head(imperfect=3, properties=properties)) == Step.COMPACT
    assert next_step(head(imperfect=2, properties=properties)) is None


def test_a_run_that_found_nothing_is_repeated_when_as_many_more_have_gathered() -> None:
    stuck = head(imperfect=40)
    past = past_after(Past(), Step.COMPACT, stuck, NOW_US, again=False)

    assert next_step(stuck, past) is None
    assert next_step(head(imperfect=64), past) is None
    assert next_step(head(imperfect=65), past) == Step.COMPACT


def test_a_run_that_helped_is_followed_by_the_next_while_there_are_enough() -> None:
    past = past_after(Past(settled_blocks=40), Step.COMPACT, head(imperfect=30), NOW_US, again=True)

    assert next_step(head(imperfect=30), past) == Step.COMPACT
    assert next_step(head(imperfect=24), past) is None


def test_an_overwritten_table_starts_from_nothing() -> None:
    past = past_at(Past(settled_blocks=40), head(imperfect=1))

    assert next_step(head(imperfect=26), past) == Step.COMPACT


@given(left=st.lists(st.integers(0, 200), min_size=1, max_size=20))
def test_a_service_ends_as_soon_as_its_runs_find_nothing(left: list[int]) -> None:
    """Whatever each run leaves behind, one that found nothing is the last of its kind."""
    past, found = Past(), iter(left)
    snapshot = head(imperfect=200)
    runs = 0
    while decide(snapshot, past, {}, NOW_US).step is Step.COMPACT:
        after = head(imperfect=next(found, snapshot.summary.block_count))
        changed = after.summary.block_count < snapshot.summary.block_count
        past = past_after(past_at(past, after), Step.COMPACT, after, NOW_US, again=changed)
        snapshot = after
        runs += 1

    assert runs <= len(left) + 1


def test_rows_are_put_in_order_once_a_block_of_them_has_come() -> None:
    table = head(perfect=3, rows=3_000_000, key=(1,))
    past = past_after(Past(), Step.RECLUSTER, table, NOW_US, again=False)

    assert next_step(table) == Step.RECLUSTER
    assert next_step(table, past) is None
    assert next_step(head(perfect=3, rows=3_999_999, key=(1,)), past) is None
    assert next_step(head(perfect=4, rows=4_000_000, key=(1,)), past) == Step.RECLUSTER


def test_reclustering_goes_on_while_there_may_be_more() -> None:
    table = head(perfect=3, rows=3_000_000, key=(1,))

    past = past_after(Past(), Step.RECLUSTER, table, NOW_US, again=True)

    assert next_step(table, past) == Step.RECLUSTER


def test_another_cluster_key_is_another_order() -> None:
    past = past_after(
        Past(), Step.RECLUSTER, head(perfect=3, rows=3_000_000, key=(1,)), NOW_US, again=False
    )

    assert next_step(head(perfect=3, rows=3_000_000, key=(2,)), past) == Step.RECLUSTER


@pytest.mark.parametrize(
    "table",
    [head(perfect=3, rows=3_000_000), head(perfect=1, rows=3_000_000, key=(1,))],
    ids=["no key", "one block"],
)
def test_what_is_in_order_by_itself_is_not_reclustered(table: Snapshot) -> None:
    assert next_step(table) is None


def test_history_is_never_removed_unasked() -> None:
    snapshot = head(imperfect=1, properties={"fuse.vacuum.age": "1s"})

    assert decide(snapshot, Past(), {}, NOW_US) == Decision()
    assert not should_start_optimizer(snapshot, None, NOW_US)


def test_expire_comes_every_tenth_of_the_time_to_retain() -> None:
    snapshot = head(properties=RETAIN)
    past = past_after(Past(vacuumed_us=NOW_US), Step.EXPIRE, snapshot, NOW_US, again=True)

    assert next_step(snapshot) == Step.EXPIRE
    assert decide(snapshot, past, {}, NOW_US + 11 * HOUR_US).next_check_us == NOW_US + 12 * HOUR_US
    past = dataclasses.replace(past, vacuumed_us=NOW_US + 20 * HOUR_US)
    assert decide(snapshot, past, {}, NOW_US + 24 * HOUR_US).step == Step.EXPIRE


def test_expire_comes_no_oftener_than_the_grace() -> None:
    snapshot = head(properties={"fuse.retain": "1h", "fuse.grace": "1h"})
    past = Past(expired_us=NOW_US, vacuumed_us=NOW_US)

    assert decide(snapshot, past, {}, NOW_US + HOUR_US - 1).step is None
    assert decide(snapshot, past, {}, NOW_US + HOUR_US).step == Step.EXPIRE


def test_vacuum_comes_twice_in_its_age() -> None:
    snapshot = head(properties=RETAIN)
    past = Past(expired_us=NOW_US)

    assert next_step(snapshot, past) == Step.VACUUM
    past = past_after(past, Step.VACUUM, snapshot, NOW_US, again=True)
    assert decide(snapshot, past, {}, NOW_US + 12 * HOUR_US - 1).step is None
    assert decide(snapshot, past, {}, NOW_US + 12 * HOUR_US).step == Step.VACUUM


def test_garbage_is_removed_before_a_busy_stream_lets_go() -> None:
    assert next_step(head(imperfect=1000, properties=RETAIN)) == Step.EXPIRE


def test_a_time_that_lies_ahead_stops_nobody() -> None:
    past = Past(expired_us=NOW_US + DAY_US, vacuumed_us=NOW_US)

    assert next_step(head(properties=RETAIN), past) == Step.EXPIRE


def test_nothing_is_done_in_quiet_hours() -> None:
    # 22:13:20 UTC
    quiet = {"fuse.optimize.quiet": "22:00-06:00"}
    snapshot = head(imperfect=1000, properties={**RETAIN, **quiet})

    decision = decide(snapshot, Past(), {}, NOW_US)

    assert decision.step is None
    assert decision.next_check_us is not None
    assert decision.next_check_us % DAY_US == 6 * HOUR_US
    assert 0 < decision.next_check_us - NOW_US < DAY_US
    assert not should_start_optimizer(snapshot, None, NOW_US)
    assert decide(snapshot, Past(), {}, decision.next_check_us).step is not None


@given(count=st.integers(1, 100), ago_us=st.integers(-DAY_US, DAY_US))
def test_the_rest_after_failures_is_bounded_and_ends(count: int, ago_us: int) -> None:
    failures = {Step.COMPACT: Failures(count=count, last_us=NOW_US - ago_us)}
    decision = decide(head(imperfect=25), Past(), failures, NOW_US)

    if decision.step is None:
        assert decision.next_check_us is not None
        assert NOW_US < decision.next_check_us <= NOW_US + LONGEST_RETRY_US
        assert (
            decide(head(imperfect=25), Past(), failures, decision.next_check_us).step
            == Step.COMPACT
        )


def test_the_rest_doubles_with_each_failure_in_a_row() -> None:
    rests = [Failures(count=n, last_us=0).retry_at_us(0) // 1_000_000 for n in range(6)]

    assert rests == [0, 10, 20, 40, 80, 160]


def test_a_step_that_fails_does_not_keep_the_others() -> None:
    snapshot = head(imperfect=25, properties=RETAIN)
    failures = {Step.EXPIRE: Failures(count=1, last_us=NOW_US)}

    assert decide(snapshot, Past(), failures, NOW_US).step == Step.VACUUM
    past = Past(vacuumed_us=NOW_US)
    assert decide(snapshot, past, failures, NOW_US).step == Step.COMPACT
    assert decide(snapshot, past, failures, NOW_US + 10_000_000).step == Step.EXPIRE


def test_a_damaged_property_is_named() -> None:
    snapshot = dataclasses.replace(head(), properties={"fuse.optimize.quiet": "never"})

    with pytest.raises(CorruptObjectError, match="quiet"):
        decide(snapshot, Past(), {}, NOW_US)


# ---- indexes

LISTED = IndexListRef(id="2" * 32, sha256="3" * 64)


def indexed(perfect: int, ref: IndexListRef | None = LISTED) -> Snapshot:
    return dataclasses.replace(head(perfect=perfect), index_list=ref)


def test_indexes_are_refreshed_once_for_each_number_of_large_blocks() -> None:
    past = past_after(Past(), Step.INDEX, indexed(5), NOW_US, again=False)

    assert next_step(indexed(5)) == Step.INDEX
    assert next_step(indexed(5), past) is None
    assert next_step(indexed(6), past) == Step.INDEX
    assert next_step(indexed(5, IndexListRef(id="4" * 32, sha256="3" * 64)), past) == Step.INDEX
    assert next_step(head(perfect=5)) is None


def test_a_bounded_refresh_and_new_blocks_of_a_compaction_are_followed_by_another() -> None:
    done = past_after(Past(), Step.INDEX, indexed(5), NOW_US, again=False)
    steps = {
        Step.INDEX: past_after(done, Step.INDEX, indexed(5), NOW_US, again=True),
        Step.COMPACT: past_after(done, Step.COMPACT, indexed(5), NOW_US, again=False),
        Step.RECLUSTER: past_after(done, Step.RECLUSTER, indexed(5), NOW_US, again=False),
    }

    for past in steps.values():
        assert next_step(indexed(5), past) == Step.INDEX


def test_compaction_comes_before_indexes() -> None:
    assert next_step(dataclasses.replace(indexed(5), summary=head(imperfect=25).summary)) == (
        Step.COMPACT
    )


def test_a_writer_starts_an_optimizer_for_indexes_seldom() -> None:
    assert should_start_optimizer(indexed(1), None, NOW_US)
    assert not should_start_optimizer(indexed(1), NOW_US - INDEX_EVERY_US + 1, NOW_US)
    assert should_start_optimizer(indexed(1), NOW_US - INDEX_EVERY_US, NOW_US)
    assert not should_start_optimizer(head(perfect=1), None, NOW_US)
