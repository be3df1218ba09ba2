"""Consumers during expiries and vacuums: every row once, or an error about the loss."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import SnapshotExpiredError
from fuse_stream.feed.follow import head_selection
from fuse_stream.feed.views import Limits, Request
from fuse_stream.recovery.target import Goal
from tests.feed.test_consumer import Reader
from tests.feed.test_follow import Row
from tests.protocol.worlds import World, small_chunks
from tests.recovery.by_hand import compact
from tests.recovery.histories import rewind

DAY_S = 86_400
SLOW = Request(consumer="slow", limits=Limits(commits=1))
RESYNCING = dataclasses.replace(SLOW, on_expired="resync", limits=Limits())

WORK = ("append", "append", "overwrite", "compact", "expire", "vacuum", "rewind")
READING = ("read", "restart", "replay")


def reader_of(world: World, request: Request) -> Reader:
    columns = head_selection(world.store, request, clock=world.clock).schema.columns
    return Reader(cast("Any", world), request, columns)


def work(step: str, world: World) -> None:
    """Let another process change the table."""
    table = world.opened()
    match step:
        case "append":
            world.append()
        case "overwrite":
            world.overwrite()
        case "compact":
            if len(table.blocks()) > 1:
                compact(table)
        case "expire":
            world.expire()
        case "vacuum":
            world.vacuum_twice_aged()
        case "rewind":
            head = table.head()
            rewind(table.committer, Goal(version=max(head.floor, head.version - 3)))
        case _:
            world.pass_time(DAY_S)


def read(step: str, reader: Reader) -> list[Row]:
    """Let the consumer run once; return the rows that it read."""
    if step == "read":
        return reader.run()
    end = reader.next_end() if step == "replay" else reader.start
    reader.restart()
    if end is None or end == reader.start:
        return []
    found = reader.read(end)
    reader.start = end
    return found


def run(steps: list[str], world: World, reader: Reader) -> list[Row]:
    """Do all steps and read the rest; return the rows that were read."""
    found = reader.run()
    for step in steps:
        if step in READING:
            found += read(step, reader)
        else:
            work(step, world)
    return found + reader.drain()


def sum_of(found: list[Row]) -> Counter[object]:
    total: Counter[object] = Counter()
    for row in found:
        total[row[0]] += 1 if row[-3] == "insert" else -1
    assert all(count >= 0 for count in total.values())
    return +total


def held_by(world: World) -> Counter[object]:
    return Counter(world.opened().to_arrow().column("k").to_pylist())


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.sampled_from(WORK + READING), min_size=1, max_size=30),
    limits=st.sampled_from([Limits(commits=1), Limits(rows=1), Limits(commits=3)]),
)
def test_a_slow_consumer_with_a_live_lease_gets_every_row_once(
    steps: list[str], limits: Limits
) -> None:
    with small_chunks():
        world = World()
        world.append()
        reader = reader_of(world, dataclasses.replace(SLOW, limits=limits))
        found = run(steps, world, reader)

        assert sum_of(found) == held_by(world)


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.sampled_from((*WORK, *READING, "lapse")), min_size=1, max_size=30),
    request=st.sampled_from([SLOW, RESYNCING]),
)
def test_a_lost_lease_is_an_error(steps: list[str], request: Request) -> None:
    with small_chunks():
        world = World()
        world.append()
        reader = reader_of(world, request)
        try:
            found = run(steps, world, reader)
        except SnapshotExpiredError:
            return

        assert sum_of(found) == held_by(world)


def test_resync_works_after_an_expiry_until_a_vacuum_deletes_the_old_blocks() -> None:
    outcomes = []
    for vacuums in (False, True):
        with small_chunks():
            world = World()
            world.append()
            reader = reader_of(world, RESYNCING)
            found = reader.run()
            for _ in range(6):
                world.overwrite()
            world.pass_time(DAY_S)
            world.expire()
            if vacuums:
                world.vacuum_twice_aged()
            try:
                found += reader.drain()
            except SnapshotExpiredError:
                outcomes.append("lost")
            else:
                assert sum_of(found) == held_by(world)
                outcomes.append("bridged")

    assert outcomes == ["bridged", "lost"]


def test_versions_that_a_lease_kept_are_vacuumed_once_they_were_read() -> None:
    with small_chunks():
        world = World()
        world.append()
        reader = reader_of(world, SLOW)
        reader.run()
        for _ in range(6):
            world.overwrite()
        world.expire()
        world.vacuum_twice_aged()
        kept = sum(key.startswith("_b/") for key in world.store.objects)
        reader.drain()
        world.vacuum_twice_aged()
        left = sum(key.startswith("_b/") for key in world.store.objects)

        assert (kept, left) == (7, 1)
