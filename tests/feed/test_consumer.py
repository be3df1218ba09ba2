"""Following under a name: the lease keeps what is yet to be read, and its loss is reported."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import (
    ConsumerBusyError,
    InvalidInputError,
    SnapshotExpiredError,
    StorageError,
    StreamIdentityError,
)
from fuse_stream.feed.consumer import (
    extended,
    keeps,
    may_take_over,
    needed_from,
    open_follower,
    resumes,
)
from fuse_stream.feed.views import Limits, Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import (
    BLOCKS_PREFIX,
    SEGMENTS_PREFIX,
    TABLE_KEY,
    block_key,
    segment_key,
    slot_key,
)
from fuse_stream.format.properties import CONSUMER_LEASE
from fuse_stream.format.refs import Lease, Position
from fuse_stream.format.source_offset import (
    FIRST_READ,
    FROM_NOW,
    RESYNC,
    Offset,
)
from fuse_stream.objects.leases import (
    StoredLease,
    iter_leases,
    load_lease,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import create_table
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from tests.feed.test_follow import SCHEMA, Row, Scene, Stream, short
from tests.kit.interleave import iter_schedules, run_interleaved

DAY_S = 86_400
NAME = "nightly"
REQUEST = Request(consumer=NAME, limits=Limits(commits=1))
RESYNCING = dataclasses.replace(REQUEST, on_expired="resync", limits=Limits())


class Reader(Stream):
    """A stream under a name; a restart is another reader on the same checkpoint."""

    def restart(self) -> None:
        self.follower = open_follower(
            self.scene.store, self.request, self.columns, clock=self.scene.clock
        )


class Place(Scene):
    """A table, its consumers, and a vacuum that takes all that nothing keeps."""

    def reader(self, request: Request = REQUEST) -> Reader:
        loaded = super().load(request=request)
        return Reader(self, request, loaded.columns)

    def lease(self) -> Lease:
        return load_lease(Metadata(self.store, self.clock), NAME)

    def leases(self) -> list[StoredLease]:
        return list(iter_leases(Metadata(self.store, self.clock)))

    def vacuum(self) -> object:
        """Remove what is below the floor and kept by no live lease, but for the slots."""
        head = self.table.head()
        now_us = self.clock.now_us()
        live = [s.lease for s in self.leases() if s.is_live(now_us)]
        first = min([head.floor, *(lease.version for lease in live)])
        kept = set()
        for version in range(first, head.version + 1):
            # Not from the table's handle: what is below the floor is no business of its readers.
            snapshot = self.table.metadata.load_snapshot("main", version).snapshot
            for ref in snapshot.segments:
                kept.add(segment_key(ref.id))
                segment = self.table.metadata.load_segment(ref, snapshot.schema.leaf_types)
                kept.update(block_key(block.id) for block in segment.blocks)
        for key in list(self.store.objects):
            if key.startswith((BLOCKS_PREFIX, SEGMENTS_PREFIX)) and key not in kept:
                self.store.delete(key)
        return kept

    def forget(self, floor: int) -> object:
        """Let everything below `floor` go, whatever still stood there."""
        self.expire(floor)
        return self.vacuum()


@pytest.fixture
def place() -> Place:
    return Place()


# ---- pure decisions


def offset(version: int, index: int = 0) -> Offset:
    return Offset(
        table_id="t", branch_id="main", version=version, snapshot_id=str(version), index=index
    )


@pytest.mark.parametrize(
    ("start", "end", "first"),
    [
        (offset(3), offset(3), 3),
        (offset(3), offset(7), 3),
        (offset(3), offset(4, 2), 3),
        (offset(4, 2), offset(4, 5), 3),  # the rest of commit 4 is told against version 3
        (offset(4, -2), offset(6), 4),
        (offset(0, FIRST_READ), offset(5), 5),
        (offset(0, FIRST_READ), offset(5, -3), 5),
        (offset(0, FROM_NOW), offset(5), 5),
        (offset(3), offset(9, RESYNC), 9),
        (offset(9, RESYNC), offset(11), 9),
    ],
)
def test_a_batch_needs_the_snapshot_that_was_read_last(
    start: Offset, end: Offset, first: int
) -> None:
    assert needed_from(start, end) == first


def test_a_restart_may_continue_from_either_end_of_the_batch() -> None:
    assert resumes(offset(3), offset(4, 2)) == (Position(version=3), Position(version=4, index=2))
    assert resumes(offset(3), offset(3)) == (Position(version=3),)


def a_lease(owner: str = "a", *, branch: str = "main", version: int = 3, end: int = 5) -> Lease:
    return Lease(
        consumer=NAME,
        owner_id=owner * 32,
        branch_id=branch,
        version=version,
        resumes=resumes(offset(version), offset(end)),
        lease_us=1_000,
    )


@pytest.mark.parametrize(
    ("lease", "has_held", "may"),
    [
        (a_lease("b", version=3, end=3), False, True),
        (a_lease("b", version=5, end=5), False, True),
        (a_lease("b", version=4, end=5), False, False),  # neither start nor end
        (a_lease("b", version=2, end=3), False, False),
        (a_lease("b", version=3, end=3), True, False),  # it was replaced
        (a_lease("b", version=3, end=3, branch="c" * 32), False, False),
        (a_lease("a", version=9, end=9), True, True),  # its own
    ],
)
def test_a_reader_that_continues_from_the_lease_takes_it_over(
    lease: Lease, *, has_held: bool, may: bool
) -> None:
    assert may_take_over(lease, a_lease(), has_held=has_held) is may


def test_a_lease_keeps_what_a_later_one_needs_on_its_branch() -> None:
    assert keeps(a_lease(version=3), a_lease("b", version=3))
    assert keeps(a_lease(version=3), a_lease("b", version=4))
    assert not keeps(a_lease(version=3), a_lease("b", version=2))
    assert not keeps(a_lease(), a_lease("b", branch="c" * 32))


@pytest.mark.parametrize(("written_us", "unbroken"), [(1_999, True), (2_000, False)])
def test_a_lease_is_unbroken_if_the_one_before_lived_until_it_was_written(
    *, written_us: int, unbroken: bool
) -> None:
    before = StoredLease(lease=a_lease(), written_us=1_000)
    lease = extended(a_lease("b"), before)

    assert StoredLease(lease=lease, written_us=written_us).is_unbroken is unbroken
    assert not StoredLease(lease=extended(lease, None), written_us=1).is_unbroken


# ---- one reader


def test_a_named_stream_gets_what_an_unnamed_one_gets(place: Place) -> None:
    place.append(1)
    named, unnamed = place.reader(), place.load()
    first = named.drain()
    assert first == unnamed.drain()
    place.overwrite(2)
    place.append(3)

    assert named.drain() == unnamed.drain() != []


def test_the_lease_is_written_before_the_first_batch_is_read(place: Place) -> None:
    place.append(1)
    reader = place.reader()
    end = reader.next_end()

    assert place.lease().version == end.version == 1
    assert place.lease().resumes == (
        Position(version=0, index=FIRST_READ),
        Position(version=1),
    )


def test_the_lease_moves_with_the_batches_that_are_asked_for(place: Place) -> None:
    reader = place.reader()
    reader.drain()
    places = []
    for key in range(3):
        place.append(key)
        reader.run()
        places.append((place.lease().version, place.lease().resumes[-1].version))

    assert places == [(0, 1), (1, 2), (2, 3)]


def test_the_lease_lasts_as_long_as_the_table_says(place: Place) -> None:
    place.store.objects.clear()
    schema = first_schema(columns_of_arrow(SCHEMA))
    create_table(place.store, schema, properties={CONSUMER_LEASE: "90s"}, clock=place.clock)
    place.reader().run()

    assert place.lease().lease_us == 90_000_000


def test_a_slow_consumer_reads_on_below_the_floor(place: Place) -> None:
    place.append(1)
    reader = place.reader()
    first = reader.drain()
    for key in (2, 3, 4):
        place.overwrite(key)
    place.forget(5)

    assert short(first) == [(1, "insert", 1)]
    assert short(reader.drain()) == [
        (1, "delete", 2), (2, "insert", 2), (2, "delete", 3), (3, "insert", 3),
        (3, "delete", 4), (4, "insert", 4),
    ]  # fmt: skip


def test_a_stream_without_a_name_does_not(place: Place) -> None:
    place.append(1)
    unnamed = place.load()
    unnamed.drain()
    named = place.reader()
    named.drain()
    for key in (2, 3, 4):
        place.overwrite(key)
    place.forget(5)

    with pytest.raises(SnapshotExpiredError):
        unnamed.drain()


def test_a_restarted_consumer_reads_on_below_the_floor(place: Place) -> None:
    place.append(1)
    reader = place.reader()
    reader.drain()
    place.overwrite(2)
    place.overwrite(3)
    end = reader.next_end()
    before = reader.read(end)
    place.overwrite(4)
    place.forget(5)
    reader.restart()  # its batch is run again

    assert reader.read(end) == before
    reader.start = end
    assert [row[1] for row in short(reader.drain())] == ["delete", "insert"] * 2


def test_a_first_read_that_is_split_is_kept_from_its_version_on(place: Place) -> None:
    for key in range(4):
        place.append(key)
    reader = place.reader(dataclasses.replace(REQUEST, limits=Limits(rows=1)))
    found = reader.run()
    place.overwrite(9)
    place.forget(6)
    found += reader.run()
    reader.restart()
    found += reader.drain()

    inserted = Counter(row[0] for row in short(found) if row[1] == "insert")
    assert inserted == Counter([0, 1, 2, 3, 9])
    assert len([row for row in found if row[-3] == "delete"]) == 4


@pytest.mark.parametrize("lapses", [False, True])
def test_a_first_batch_from_a_version_is_run_again_below_the_floor(
    place: Place, *, lapses: bool
) -> None:
    """Spark does not keep the start of a first batch: it asks for it again."""
    for key in (1, 2, 3, 4):
        place.overwrite(key)
    reader = place.reader(dataclasses.replace(REQUEST, starting_version=2))
    end = reader.next_end()
    before = reader.read(end)
    place.clock.advance(DAY_S if lapses else 0)
    place.forget(4)
    reader.restart()

    if lapses:
        with pytest.raises(SnapshotExpiredError):
            reader.read(end)
    else:
        assert short(reader.read(end)) == short(before) == [(1, "delete", 2), (2, "insert", 2)]


def test_an_idle_consumer_keeps_its_lease_alive_at_little_cost(place: Place) -> None:
    store = FaultyStore(place.store)
    place.append(1)
    reader = place.reader()
    reader.follower = open_follower(store, REQUEST, reader.columns, clock=place.clock)
    reader.drain()
    reader.run()
    store.calls.clear()
    for _ in range(5):
        reader.run()
    idle = [key for _, key in store.calls if "_leases" in key]
    for _ in range(12):
        place.clock.advance(DAY_S / 4)
        reader.run()
    writes = [verb for verb, key in store.calls if "_leases" in key and verb == "replace"]

    assert idle == []
    assert len(writes) == 12
    [standing] = place.leases()
    assert standing.is_live(place.clock.now_us())
    assert standing.is_unbroken


def test_a_batch_with_rows_costs_three_calls_for_the_lease(place: Place) -> None:
    store = FaultyStore(place.store)
    reader = place.reader()
    reader.follower = open_follower(store, REQUEST, reader.columns, clock=place.clock)
    reader.drain()
    reader.run()
    place.append(1)
    store.calls.clear()
    reader.run()

    found = [verb for verb, key in store.calls if "_leases" in key]
    assert found == ["get", "replace", "list"]


def test_a_checkpoint_of_another_table_writes_no_lease(place: Place) -> None:
    place.append(1)
    stranger = Place()
    stranger.clock.new_id()
    stranger.append(1)
    theirs = stranger.reader()
    theirs.drain()
    reader = place.reader()
    reader.start = dataclasses.replace(theirs.written_start(), table_id="f" * 32)

    with pytest.raises(StreamIdentityError):
        reader.run()
    with pytest.raises(StreamIdentityError):
        reader.read(reader.start)
    assert not place.leases()


def test_a_consumer_has_a_name(place: Place) -> None:
    with pytest.raises(InvalidInputError):
        place.reader(Request(consumer="../x"))


# ---- loss


def test_a_lapsed_lease_is_written_anew_while_nothing_is_lost(place: Place) -> None:
    reader = place.reader()
    reader.drain()
    place.clock.advance(2 * DAY_S)
    place.append(1)
    place.vacuum()

    assert short(reader.drain()) == [(1, "insert", 1)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_lost_lease_is_reported(place: Place, *, restarted: bool) -> None:
    reader = place.reader()
    reader.drain()
    for key in (1, 2, 3):
        place.overwrite(key)
    place.clock.advance(DAY_S)
    place.forget(4)
    if restarted:
        reader.restart()

    with pytest.raises(SnapshotExpiredError):
        reader.run()


def test_what_a_lapsed_lease_kept_is_lost_though_the_lease_still_exists(place: Place) -> None:
    reader = place.reader()
    reader.drain()
    for key in (1, 2, 3):
        place.overwrite(key)
    place.expire(4)
    place.clock.advance(DAY_S)

    with pytest.raises(SnapshotExpiredError):
        reader.run()


def test_a_machine_that_slept_notices_by_the_stores_clock(place: Place) -> None:
    """Its own monotonic clock stood still, as it does when a machine is suspended."""
    reader = place.reader()
    reader.drain()
    for key in (1, 2, 3):
        place.overwrite(key)
    place.clock.wall_us += DAY_S * 1_000_000
    place.expire(4)

    with pytest.raises(SnapshotExpiredError):
        reader.next_end()  # before Spark writes it down


def test_a_lease_that_lapses_in_a_run_to_a_pinned_head_is_reported(place: Place) -> None:
    reader = place.reader()
    reader.drain()
    for key in (1, 2, 3):
        place.overwrite(key)
    reader.follower.pin_head()
    reader.run()
    place.clock.advance(DAY_S)
    place.forget(4)

    with pytest.raises(SnapshotExpiredError):
        reader.run()


def test_a_batch_that_was_planned_before_the_loss_is_not_read_after_it(place: Place) -> None:
    reader = place.reader(RESYNCING)
    reader.drain()
    for key in (1, 2, 3):
        place.overwrite(key)
    end = reader.next_end()
    place.clock.advance(DAY_S)
    place.expire(4)
    reader.restart()

    with pytest.raises(SnapshotExpiredError):  # it may have been delivered, commit by commit
        reader.read(end)


def test_a_reader_that_is_too_late_writes_no_lease_and_leaves_others_alone(place: Place) -> None:
    other = place.reader()
    other.drain()
    place.clock.advance(DAY_S)
    late = below_the_floor(place)
    place.expire(4)
    store = FaultyStore(place.store)
    late.follower = open_follower(store, REQUEST, late.columns, clock=place.clock)
    before = place.leases()

    with pytest.raises(SnapshotExpiredError):
        late.run()
    assert "replace" not in {verb for verb, _ in store.calls}
    assert place.leases() == before != []


def below_the_floor(place: Place, *, request: Request = REQUEST) -> Reader:
    """Return a reader whose checkpoint says that version 1 of 5 was read last."""
    for key in (1, 2, 3, 4):
        place.overwrite(key)
    reader = place.reader(request)
    first = reader.follower.first_offset()
    standing = place.table.snapshot(1)
    reader.start = dataclasses.replace(first, version=1, index=0, snapshot_id=standing.snapshot_id)
    return reader


def test_a_floor_that_passes_a_lease_in_the_making_is_noticed() -> None:
    outcomes = set()
    for calls in range(30):
        place = Place()
        reader = below_the_floor(place)

        def read(store: Store, place: Place = place, reader: Reader = reader) -> object:
            reader.follower = open_follower(store, REQUEST, reader.columns, clock=place.clock)
            return reader.next_end()

        def forget(store: Store, place: Place = place) -> object:
            store.get(TABLE_KEY)
            return place.forget(4)

        found, _ = run_interleaved(place.store, [read, forget], [0] * calls + [1])
        outcomes.add(type(found))
        if isinstance(found, Offset):  # what was promised can be read, by a restart as well
            reader.restart()
            assert short(reader.read(found)) == [(1, "delete", 2), (2, "insert", 2)]
        else:
            assert isinstance(found, SnapshotExpiredError)
            assert not place.leases()

    assert outcomes == {Offset, SnapshotExpiredError}


# ---- crashes and lost replies


@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_a_reader_that_dies_at_any_call_continues_when_it_is_started_again(fault: Fault) -> None:
    """A slow one, whose snapshots only its lease keeps."""
    for call in range(1, 40):
        place = Place()
        place.append(1)
        reader = place.reader()
        found = reader.drain()
        place.overwrite(2)
        place.overwrite(3)
        place.forget(4)
        store = FaultyStore(place.store, at_call=call, fault=fault)
        with contextlib.suppress(Crash, StorageError):
            reader.follower = open_follower(store, REQUEST, reader.columns, clock=place.clock)
            end = reader.next_end()
            found += reader.read(end)
            reader.start = end
        place.forget(4)
        reader.restart()
        found += reader.drain()

        assert short(found) == [
            (1, "insert", 1),
            (1, "delete", 2), (2, "insert", 2),
            (2, "delete", 3), (3, "insert", 3),
        ]  # fmt: skip


@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_a_lease_that_came_too_late_helps_no_restart(fault: Fault) -> None:
    """The floor passes between the look and the write, and the reader dies before it withdraws."""
    for call in range(1, 30):
        place = Place()
        reader = below_the_floor(place)

        class Late(FaultyStore):
            def replace(self, key: str, data: bytes | memoryview, place: Place = place) -> None:
                if not place.table.head().floor:
                    place.forget(4)
                super().replace(key, data)

        store = Late(place.store, at_call=call, fault=fault)
        with contextlib.suppress(Crash, StorageError, SnapshotExpiredError):
            reader.follower = open_follower(store, REQUEST, reader.columns, clock=place.clock)
            reader.next_end()
        place.forget(4)
        reader.restart()

        with pytest.raises(SnapshotExpiredError):
            reader.run()


# ---- two readers


def test_another_reader_is_refused_while_the_lease_lives(place: Place) -> None:
    place.append(1)
    first, second = place.reader(), place.reader()
    first.drain()
    place.append(2)
    first.run()

    with pytest.raises(ConsumerBusyError, match="another reader") as refused:
        second.run()
    assert {"consumer", "position", "lapses", "owner"} <= refused.value.context.keys()
    first.drain()


def test_a_fork_from_before_the_lease_continues_after_a_release_by_force(place: Place) -> None:
    place.append(1)
    first, fork = place.reader(), place.reader()
    first.run()
    fork.start = first.start
    for value in (2, 3):
        place.append(value)
        first.run()

    with pytest.raises(ConsumerBusyError, match=r"fork.*release\(name, force=True\)") as refused:
        fork.run()
    name = str(refused.value.context["consumer"])
    with pytest.raises(ConsumerBusyError, match=r"release it with force if .*fork"):
        place.table.release(name)
    place.table.release(name, force=True)
    assert len(fork.drain()) == 2


def test_another_reader_may_continue_when_the_lease_has_lapsed(place: Place) -> None:
    place.append(1)
    first, second = place.reader(), place.reader()
    first.drain()
    place.append(2)
    first.run()
    place.clock.advance(DAY_S)

    assert len(second.drain()) == 2
    with pytest.raises(ConsumerBusyError):
        first.run()


def test_a_restart_takes_over_and_the_one_before_stops(place: Place) -> None:
    place.append(1)
    first, second = place.reader(), place.reader()
    first.drain()
    second.start = first.start
    second.run()
    place.append(2)

    with pytest.raises(ConsumerBusyError):
        first.run()
    assert short(second.drain()) == [(2, "insert", 2)]
    with pytest.raises(ConsumerBusyError):  # not even at the very place of the lease
        first.run()


@pytest.mark.parametrize("is_batch_done", [False, True])
def test_a_killed_reader_does_not_block_its_restart(place: Place, *, is_batch_done: bool) -> None:
    """Wherever it was killed: Spark goes on at the start of the last batch, or at its end."""
    reader = place.reader()
    reader.drain()
    place.append(1)
    end = reader.next_end()
    if is_batch_done:
        reader.start = end
    reader.restart()

    assert len(reader.drain()) == (0 if is_batch_done else 1)


@pytest.mark.long
def test_of_two_readers_that_start_at_once_one_continues() -> None:
    for schedule in iter_schedules(14):
        place = Place()
        place.append(1)
        before = place.reader()
        before.drain()
        for key in (2, 3, 4):
            place.append(key)

        def go_on(store: Store, place: Place = place, before: Reader = before) -> int:
            reader = Reader(place, REQUEST, before.columns)
            reader.start = before.start
            reader.follower = open_follower(store, REQUEST, reader.columns, clock=place.clock)
            return len(list(reader.batches()))

        found = run_interleaved(place.store, [go_on, go_on], schedule)
        refused = [item for item in found if isinstance(item, ConsumerBusyError)]

        assert len(refused) <= 1
        assert 3 in found
        assert all(item in {0, 3} for item in found if isinstance(item, int))


# ---- resync


def test_resync_delivers_the_net_difference_and_continues(place: Place) -> None:
    place.append(1)
    place.append(2)
    reader = place.reader(RESYNCING)
    first = reader.drain()
    place.overwrite(3)
    place.overwrite(2, 4)
    place.clock.advance(DAY_S)
    place.expire(4)  # everything stands yet
    end = reader.next_end()
    net = reader.read(end)

    assert end.index == RESYNC
    assert sorted(short(first + net)) == [
        (1, "delete", 5), (1, "insert", 2), (2, "insert", 2), (4, "insert", 5),
    ]  # fmt: skip
    place.append(9)
    reader.restart()
    assert reader.read(end) == net  # the same batch, run again later
    reader.start = end
    reader.restart()
    assert short(reader.drain()) == [(9, "insert", 6)]


@pytest.mark.parametrize("kept", ["slot", "segment", "block"])
def test_resync_without_the_old_snapshot_is_the_same_error(place: Place, kept: str) -> None:
    place.append(1)
    reader = place.reader(RESYNCING)
    reader.drain()
    old = place.table.snapshot(1)
    [segment], [block] = place.table.segments(1), place.table.blocks(1)
    for key in (3, 4):
        place.overwrite(key)
    place.clock.advance(DAY_S)
    place.expire(3)
    lost = {
        "slot": slot_key("main", old.version),
        "segment": segment_key(segment.id),
        "block": block_key(block.id),
    }
    place.store.delete(lost[kept])
    reader.restart()

    with pytest.raises(SnapshotExpiredError):
        reader.run()


@pytest.mark.parametrize("is_first_read", [True, False])
def test_a_stream_in_the_middle_of_a_read_or_a_commit_is_not_resynced(
    place: Place, *, is_first_read: bool
) -> None:
    """What it has yet to read of that is in no difference of snapshots."""
    reader = place.reader(dataclasses.replace(RESYNCING, limits=Limits(rows=1)))
    if is_first_read:
        place.append(1)
        place.append(2)
    else:
        reader.drain()
        place.append(1)
        place.overwrite(2)
    reader.run()
    while reader.start is None or reader.start.index == 0:
        reader.run()
    for key in (3, 4, 5):
        place.overwrite(key)
    place.clock.advance(DAY_S)
    place.expire(5)

    with pytest.raises(SnapshotExpiredError):
        reader.run()


def test_resync_on_another_history_is_refused(place: Place) -> None:
    place.append(1)
    reader = place.reader(RESYNCING)
    reader.drain()
    assert reader.start is not None
    reader.start = dataclasses.replace(reader.start, snapshot_id="f" * 32)
    for key in (3, 4, 5):
        place.overwrite(key)
    place.clock.advance(DAY_S)
    place.expire(4)
    reader.restart()

    with pytest.raises(StreamIdentityError):
        reader.run()


def test_after_a_resync_nothing_new_is_no_batch(place: Place) -> None:
    place.append(1)
    reader = place.reader(RESYNCING)
    reader.drain()
    place.overwrite(3)
    place.overwrite(4)
    place.clock.advance(DAY_S)
    place.expire(3)
    reader.run()
    end = reader.start

    assert end is not None
    assert end.index == RESYNC
    assert reader.next_end() == end


def test_resync_skips_what_equals_whatever_a_compaction_did(place: Place) -> None:
    """Rows that stand in both snapshots, in other blocks, are not sent."""
    place.append(1, 2, 3)
    reader = place.reader(RESYNCING)
    reader.drain()
    place.overwrite(1, 2, 3)
    place.overwrite(3, 2, 1, 7)
    place.clock.advance(DAY_S)
    place.expire(3)

    assert short(reader.drain()) == [(7, "insert", 4)]


# ---- the law


STEPS = ("append", "overwrite", "expire", "vacuum", "read", "restart", "replay", "wait")


def take(step: str, number: int, place: Place, reader: Reader) -> list[Row]:
    """Take one step; return what was read."""
    found: list[Row] = []
    match step:
        case "append":
            place.append(number, number + 500)
        case "overwrite":
            place.overwrite(number, number + 500)
        case "expire":
            place.expire(place.table.head().version)
        case "vacuum":
            place.vacuum()
        case "read":
            found = reader.run()
        case "restart":
            reader.restart()
        case "replay":
            end = reader.next_end()
            reader.restart()
            if end != reader.start:
                found = reader.read(end)
                reader.start = end
        case _:
            place.clock.advance(DAY_S / 5)
            found = reader.run()  # often enough
    return found


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=30),
    limits=st.sampled_from([Limits(commits=1), Limits(rows=1), Limits(rows=3)]),
)
def test_a_slow_consumer_with_a_live_lease_gets_every_row_once(
    steps: list[str], limits: Limits
) -> None:
    place = Place()
    reader = place.reader(dataclasses.replace(REQUEST, limits=limits))
    found = reader.run()
    for number, step in enumerate(steps):
        found += take(step, number, place, reader)
    found += reader.drain()
    total: Counter[object] = Counter()
    for row in found:
        total[row[0]] += 1 if row[-3] == "insert" else -1

    assert all(count >= 0 for count in total.values())
    assert +total == Counter(place.table.to_arrow().column("k").to_pylist())
