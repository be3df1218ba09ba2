"""Expiry: a commit that raises the floor."""

from __future__ import annotations

import datetime as dt

import pytest

from fuse_stream.errors import InvalidInputError, SnapshotExpiredError
from fuse_stream.format.records import Operation
from tests.kit.interleave import run_interleaved
from tests.protocol.worlds import GRACE_S, World
from tests.recovery.histories import keys, rows


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_expires_without_a_rule(world: World) -> None:
    world.append()

    with pytest.raises(InvalidInputError, match=r"fuse\.retain"):
        world.opened().expire()


def test_the_tables_own_rule_applies_without_arguments(world: World) -> None:
    world.opened().set_properties({"fuse.retain": "1h"})
    world.append()
    world.pass_time(3600)

    assert world.opened().expire().floor == 2


@pytest.mark.parametrize("keep_last", [0, -1, True, "3"])
def test_an_invalid_keep_last_is_refused(world: World, keep_last: object) -> None:
    with pytest.raises(InvalidInputError, match="keep_last"):
        world.opened().expire(keep_last=keep_last)  # type: ignore[arg-type]


def test_an_expiry_is_a_commit_that_keeps_all_rows(world: World) -> None:
    for _ in range(3):
        world.append()
    world.pass_time(GRACE_S)
    done = world.opened().expire(keep_last=2)

    assert done.snapshot is not None
    assert done.snapshot.operation is Operation.EXPIRE
    assert not done.snapshot.data_change
    assert (done.floor_before, done.floor, done.expired_count) == (0, 2, 2)
    assert keys(world.opened().to_arrow()) == [1, 2, 3]
    assert [snapshot.version for snapshot in world.opened().log()] == [4, 3, 2]
    with pytest.raises(SnapshotExpiredError, match="first=2"):
        world.opened().to_arrow(version=1)


def test_the_age_of_a_version_is_counted_from_its_successor_in_store_time(world: World) -> None:
    world.append()
    world.pass_time(1000)
    world.append()  # supersedes 1 now; the age of 1 itself does not count
    world.pass_time(GRACE_S)

    assert world.opened().expire(older_than=dt.timedelta(seconds=60)).floor == 1
    world.pass_time(49)
    assert world.opened().expire(older_than="60s").floor == 1
    world.pass_time(1)
    assert world.opened().expire(older_than="60s").floor == 2


def test_the_report_counts_what_only_the_grace_keeps(world: World) -> None:
    for _ in range(3):
        world.append()
    world.pass_time(GRACE_S / 2)
    table = world.opened()

    def kept(older_than: str | None, keep_last: int | None = None) -> int:
        done = table.expire(older_than, keep_last)
        assert (done.snapshot, done.expired_count) == (None, 0)
        return done.kept_by_grace

    assert (kept("1s"), kept("1s", 2), kept(None, 1), kept("1h")) == (3, 2, 3, 0)
    world.pass_time(GRACE_S / 2)
    world.append()
    world.pass_time(1)
    done = world.opened().expire(older_than="1s")
    assert (done.expired_count, done.kept_by_grace) == (3, 1)
    assert "kept_by_grace=1" in repr(done)


def test_a_version_superseded_within_the_grace_does_not_expire(world: World) -> None:
    world.append()
    world.append()
    world.pass_time(GRACE_S - 1)

    assert world.opened().expire(keep_last=1).floor == 1
    world.pass_time(1)
    assert world.opened().expire(keep_last=1).floor == 2


def test_a_local_clock_that_is_a_year_ahead_expires_nothing(world: World) -> None:
    world.append()
    table = world.opened()
    table.metadata.clock.ahead_us += 365 * 86_400_000_000  # type: ignore[attr-defined]

    assert table.expire(older_than="1h").snapshot is None


def test_an_expiry_that_changes_nothing_commits_nothing(world: World) -> None:
    world.append()
    world.pass_time(GRACE_S)
    world.opened().expire(keep_last=1)
    head = world.opened().head()

    assert world.opened().expire(keep_last=3).snapshot is None
    assert world.opened().head() == head


def test_a_dry_run_writes_nothing(world: World) -> None:
    for _ in range(3):
        world.append()
    world.pass_time(GRACE_S)
    world.clock.wall_us = world.store.clock.now_us()
    before = dict(world.store.objects)
    planned = world.opened().expire(keep_last=1, dry_run=True)

    assert (planned.snapshot, planned.expired_count) == (None, 3)
    assert world.store.objects == before


def test_expire_drops_an_idle_stream_from_the_ledger_and_keeps_a_retired_one(
    world: World,
) -> None:
    world.clock.wall_us = world.store.clock.now_us()
    world.opened().append(rows(1), app_id="old", batch_id=0)
    world.pass_time(90 * 86_400 - 100)
    world.opened().append(rows(2), app_id="young", batch_id=0)
    assert world.opened().expire(older_than="1000d").snapshot is None
    world.pass_time(100)
    done = world.opened().expire(older_than="1000d")

    assert done.dropped == (("old", ""),)
    assert done.expired_count == 0
    assert set(world.opened().ledger()) == {("young", "")}


def test_a_stream_on_a_machine_behind_the_store_clock_does_not_count_as_idle(world: World) -> None:
    for batch in range(3):
        world.opened().append(rows(batch), app_id="etl", batch_id=batch)
    world.pass_time(GRACE_S + 1)
    planned = world.opened().expire(keep_last=1, dry_run=True)
    done = world.opened().expire(keep_last=1)

    assert planned.dropped == done.dropped == ()
    world.opened().append(rows(2), app_id="etl", batch_id=2)
    assert keys(world.opened().to_arrow()) == [0, 1, 2]


def test_a_consumer_whose_position_expires_is_named(world: World) -> None:
    for _ in range(4):
        world.append()
    world.lease("slow", 1)
    world.lease("fast", 4)
    world.pass_time(GRACE_S)

    assert world.opened().expire(keep_last=1).left_behind == ("slow",)


def test_expiring_a_branch_does_not_expire_versions_of_main(world: World) -> None:
    world.append()
    world.append()
    world.table.create_branch("fix")
    world.append("fix")
    world.pass_time(GRACE_S)
    done = world.opened("fix").expire(keep_last=1)

    assert done.floor == 3
    assert world.opened().head().floor == 0
    assert keys(world.opened().to_arrow(version=1)) == [1]
    assert world.opened("fix").fsck().is_sound


def test_after_two_concurrent_expiries_the_higher_floor_holds(world: World) -> None:
    for _ in range(5):
        world.append()
    world.pass_time(GRACE_S)
    before = dict(world.store.objects)
    for calls in range(30):
        for first, second in ((2, 4), (4, 2), (3, 3)):
            world.store.objects = dict(before)
            done = run_interleaved(
                world.store,
                [
                    lambda store: world.opened(store=store).expire(keep_last=first),  # noqa: B023
                    lambda store: world.opened(store=store).expire(keep_last=second),  # noqa: B023
                ],
                [0] * calls + [1] * 100,
            )

            assert not [item for item in done if isinstance(item, BaseException)]
            assert world.opened().head().floor in {6 - min(first, second), 7 - min(first, second)}
            assert world.opened().fsck().is_sound
