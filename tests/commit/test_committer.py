"""The slot says what happened: puts that are lost, late, slow or beaten."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.commit.committer import ATTEMPTS, Examined, Outcome
from fuse_stream.commit.ledger import Batch, Verdict, judge, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.commit.slot_put import DOUBT_SECONDS, SLOT_ATTEMPTS
from fuse_stream.commit.stage import stage_rows
from fuse_stream.errors import (
    ClockSkewError,
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    StreamIdentityError,
    UnsupportedFormatError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.layout import floor_key, slot_key
from fuse_stream.format.records import Operation, Parent
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import rows_of
from tests.kit.calls import counted
from tests.recovery.histories import rewind

Create = Callable[..., Table]
ROWS = pa.table({"k": [1]})
BATCH = Batch(query_id="q", batch_id=0)
SEEDS = itertools.count(100)


class SlotStore(FaultyStore):
    """Does to puts of slots what a test says; `on_put` gets the put itself to carry out or not."""

    def __init__(self, store: MemoryStore, on_put: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(store)
        self.sent: list[tuple[str, bytes]] = []
        self._on_put = on_put

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if not key.startswith("_ss/"):
            super().put_if_absent(key, data)
            return
        self.sent.append((key, bytes(data)))
        put = super().put_if_absent
        self._on_put(lambda: put(key, data))


def opened(store: Store, clock: ManualClock | None = None) -> Table:
    return open_table(store, clock=clock or ManualClock(seed=next(SEEDS)), probe_store=False)


def lose_reply(put: Callable[[], None]) -> None:
    put()
    raise StorageError("the reply was lost")


def fail(_put: Callable[[], None]) -> None:
    raise StorageError("the disk is full")


def committed(table: Table, batch: Batch, examined: Examined | None = None) -> Outcome:
    """Append `ROWS` as the batch."""
    return table.committer.commit(
        Intent(operation=Operation.APPEND, batch=batch),
        lambda head, before: stage_rows(table.metadata, head, before, ROWS),
        examined=examined,
    )


def test_a_put_whose_reply_was_lost_is_adopted(create: Create, store: MemoryStore) -> None:
    create()
    table = opened(SlotStore(store, lose_reply))

    snapshot = table.append(ROWS)

    assert snapshot.version == 1
    assert opened(store).head() == snapshot


@pytest.mark.parametrize("error", [StorageError("x"), ValueError("x"), OSError(5, "x")])
def test_no_type_of_error_decides(create: Create, store: MemoryStore, error: Exception) -> None:
    create()

    def lose(put: Callable[[], None]) -> None:
        put()
        raise error

    assert opened(SlotStore(store, lose)).append(ROWS).version == 1
    assert opened(store).head().version == 1


def test_every_attempt_on_a_slot_sends_the_same_bytes(create: Create, store: MemoryStore) -> None:
    create()
    clock = ManualClock(seed=8)
    failures = iter([True, True, True, False])

    def act(put: Callable[[], None]) -> None:
        clock.advance(3)  # a new time must not get into the bytes
        if next(failures):
            raise StorageError("try again")
        put()

    faulty = SlotStore(store, act)
    opened(faulty, clock).append(ROWS)

    assert len(faulty.sent) == 4
    assert len(set(faulty.sent)) == 1


def test_a_snapshot_keeps_its_id_over_the_slots_that_it_loses(
    create: Create, store: MemoryStore
) -> None:
    create()
    rival = opened(store)
    waits = [True]

    def once(put: Callable[[], None]) -> None:
        if waits:
            waits.clear()
            rival.append(ROWS)
        put()

    faulty = SlotStore(store, once)
    snapshot = opened(faulty).append(ROWS)

    assert snapshot.version == 2
    assert [key for key, _ in faulty.sent] == [slot_key("main", 1), slot_key("main", 2)]
    assert all(snapshot.snapshot_id.encode() in data for _, data in faulty.sent)


def test_a_store_that_never_creates_the_slot_leaves_the_outcome_open(
    create: Create, store: MemoryStore
) -> None:
    create()
    faulty = SlotStore(store, fail)

    with pytest.raises(CommitStateUnknownError, match="the disk is full"):
        opened(faulty).append(ROWS)

    assert len(faulty.sent) == SLOT_ATTEMPTS


@pytest.mark.parametrize("lands", [True, False])
def test_a_slot_that_cannot_be_read_leaves_the_outcome_open(
    create: Create, store: MemoryStore, *, lands: bool
) -> None:
    create()
    faulty = SlotStore(store, lambda put: put())
    table = opened(faulty)
    blind = FaultyStore(store, at_call=1, keep_failing=True)

    def act(put: Callable[[], None]) -> None:
        if lands:
            put()
        table.metadata.store = blind
        raise StorageError("the network is gone")

    faulty = SlotStore(store, act)
    table.metadata.store = faulty

    with pytest.raises(CommitStateUnknownError) as caught:
        table.append(ROWS)

    assert caught.value.context["version"] == 1
    assert "the network is gone" in str(caught.value)
    assert [verb for verb, _ in blind.calls] == ["get"] * SLOT_ATTEMPTS
    assert opened(store).head().version == (1 if lands else 0)


@pytest.mark.parametrize("slow", ["put_if_absent", "get"])
def test_a_store_that_hangs_is_asked_for_a_limited_time(
    create: Create, store: MemoryStore, slow: str
) -> None:
    create()
    clock = ManualClock(seed=9)
    call_s = 20.0

    def hang(_put: Callable[[], None]) -> None:
        hanging.append("put")
        clock.advance(call_s)
        raise StorageError("no answer")

    class Hanging(SlotStore):
        def get(self, key: str) -> bytes:
            if hanging and slow == "get":
                clock.advance(call_s)
                raise StorageError("no answer")
            return super().get(key)

    hanging: list[str] = []
    table = opened(Hanging(store, hang), clock)
    began_s = clock.monotonic_s()
    with pytest.raises(CommitStateUnknownError):
        table.append(ROWS)

    assert DOUBT_SECONDS < clock.monotonic_s() - began_s <= DOUBT_SECONDS + 2 * call_s + 5
    assert opened(store).head().version == 0


def test_an_unknown_outcome_deletes_nothing(create: Create, store: MemoryStore) -> None:
    create()
    faulty = SlotStore(store, fail)
    with pytest.raises(CommitStateUnknownError):
        opened(faulty).append(ROWS)

    assert "delete" not in {verb for verb, _ in faulty.calls}
    assert {key.split("/")[0] for key in store.objects} == {"_b", "_sg", "_ss", "_fuse.json"}


def test_losing_every_slot_is_a_conflict_and_ends(create: Create, store: MemoryStore) -> None:
    create()
    rival = opened(store)

    def lose(put: Callable[[], None]) -> None:
        rival.set_properties({"rival": "again"})
        put()

    faulty = SlotStore(store, lose)
    with pytest.raises(ConflictError):
        opened(faulty).append(ROWS)

    assert len(faulty.sent) == ATTEMPTS
    assert rows_of(opened(store).to_arrow()) == {}


def test_losing_slots_for_minutes_is_a_conflict(create: Create, store: MemoryStore) -> None:
    create()
    clock = ManualClock(seed=8)
    rival = opened(store)

    def lose(put: Callable[[], None]) -> None:
        clock.advance(60)
        rival.set_properties({"rival": "again"})
        put()

    faulty = SlotStore(store, lose)
    with pytest.raises(ConflictError):
        opened(faulty, clock).append(ROWS)

    assert len(faulty.sent) < 10


# ---- slots that were freed


def expire_first_chunk(store: MemoryStore, table: Table, freed: range) -> None:
    """Make chunk 0 expired, its slots in `freed` gone, and its content stand as version 1000."""
    head = table.committer.head().snapshot
    parent = Parent(branch_id="main", version=999, sha256="0" * 64)
    later = dataclasses.replace(head, version=1000, parent=parent, snapshot_id="f" * 32)
    store.put(floor_key("main", 0), b"expired")
    for version in freed:
        store.delete(slot_key("main", version))
    store.put(slot_key("main", 1000), encode_snapshot(later))


@pytest.mark.parametrize("first_freed", [1, 2, 3])
@pytest.mark.parametrize("reply", ["kept", "lost"])
def test_a_handle_that_slept_past_an_expiry_does_not_commit_into_a_freed_slot(
    create: Create, store: MemoryStore, clock: ManualClock, reply: str, first_freed: int
) -> None:
    """Also if the slot after its head stays, where it learns that another writer was first."""
    table = create()
    table.append(ROWS)
    for _ in range(3):
        opened(store).append(ROWS)
    expire_first_chunk(store, opened(store), range(first_freed, 5))
    clock.advance(3600)
    if reply == "lost":
        table.metadata.store = SlotStore(store, lose_reply)

    snapshot = table.append(ROWS)

    assert snapshot.version == 1001
    assert opened(store).head() == snapshot


@pytest.mark.parametrize("land_first", [True, False])
@pytest.mark.parametrize("is_batch", [True, False])
def test_a_slow_put_whose_slot_was_freed_is_done_again_only_under_a_batch(
    create: Create, store: MemoryStore, *, is_batch: bool, land_first: bool
) -> None:
    create(properties={"fuse.grace": "8m"})
    clock = ManualClock(seed=8)
    slept: list[bool] = []

    def sleep_through_an_expiry(put: Callable[[], None]) -> None:
        if not slept:
            slept.append(True)
            if land_first:
                put()
            for _ in range(2):
                opened(store).append(ROWS)
            expire_first_chunk(store, opened(store), range(3))
            clock.advance(3 * 60)
            if land_first:
                return
        put()

    table = opened(SlotStore(store, sleep_through_an_expiry), clock)
    if is_batch:
        table.append(ROWS, app_id="a", batch_id=0)
    else:
        with pytest.raises(CommitStateUnknownError, match="done again it might count twice"):
            table.append(ROWS)

    assert len(opened(store).to_arrow()) == 2 + (is_batch or land_first)


def test_a_slow_put_that_keeps_all_rows_is_done_again(create: Create, store: MemoryStore) -> None:
    create(properties={"fuse.grace": "8m"})
    clock = ManualClock(seed=8)

    def sleep_through_an_expiry(put: Callable[[], None]) -> None:
        if not store.objects.keys() & {floor_key("main", 0)}:
            expire_first_chunk(store, opened(store), range(1))
            clock.advance(3 * 60)
        put()

    table = opened(SlotStore(store, sleep_through_an_expiry), clock)
    table.set_properties({"fuse.vacuum.age": "2d"}, on_conflict="replan")

    assert opened(store).head().version == 1001


def test_a_slow_put_whose_chunk_stands_is_believed(create: Create, store: MemoryStore) -> None:
    create()
    clock = ManualClock(seed=8)

    def dawdle(put: Callable[[], None]) -> None:
        clock.advance(16 * 60)
        put()

    faulty = SlotStore(store, dawdle)
    snapshot = opened(faulty, clock).append(ROWS)

    assert snapshot.version == 1
    assert ("get", floor_key("main", 1)) in faulty.calls


def test_a_slow_put_whose_marker_cannot_be_asked_for_leaves_the_outcome_open(
    create: Create, store: MemoryStore
) -> None:
    create()
    clock = ManualClock(seed=8)
    table = opened(store, clock)

    def dawdle(put: Callable[[], None]) -> None:
        clock.advance(16 * 60)
        put()
        table.metadata.store = FaultyStore(store, at_call=1, keep_failing=True)

    table.metadata.store = SlotStore(store, dawdle)

    with pytest.raises(CommitStateUnknownError):
        table.append(ROWS)


def test_a_quick_put_costs_no_look_up(create: Create, store: MemoryStore) -> None:
    create()
    faulty = FaultyStore(store)
    table = opened(faulty)
    faulty.calls.clear()

    table.append(ROWS)

    assert [(verb, key.split("/")[0]) for verb, key in faulty.calls] == [
        ("get", "_ss"),
        ("put", "_b"),
        ("put", "_sg"),
        ("put_if_absent", "_ss"),
    ]


def test_a_batch_is_judged_once_and_its_columns_are_resolved_once(
    create: Create, store: MemoryStore
) -> None:
    create().append(ROWS, app_id="a", batch_id=0)
    table = opened(store)

    with counted(judge, resolve) as calls:
        table.append(ROWS, app_id="a", batch_id=1)

    assert calls == {"judge": 1, "resolve": 1}


def test_a_batch_that_was_examined_reads_the_head_once_and_is_judged_once(
    create: Create, store: MemoryStore
) -> None:
    create()
    faulty = FaultyStore(store)
    table = opened(faulty)
    faulty.calls.clear()

    with counted(judge) as calls:
        examined = table.committer.examine(BATCH)
        committed(table, BATCH, examined)

    assert calls == {"judge": 1}
    assert [key for verb, key in faulty.calls if verb == "get"] == [slot_key("main", 0)]


def test_a_batch_that_another_writer_commits_after_it_was_examined_is_a_replay(
    create: Create, store: MemoryStore
) -> None:
    create()
    table = opened(store)
    examined = table.committer.examine(BATCH)
    committed(opened(store), BATCH)

    outcome = committed(table, BATCH, examined)

    assert examined.verdict is Verdict.NEW
    assert (outcome.verdict, outcome.stored.snapshot.version) == (Verdict.REPLAY, 1)
    assert rows_of(table.to_arrow()) == {(1,): 1}


def test_a_batch_that_was_examined_is_refused_if_its_query_was_retired_meanwhile(
    create: Create, store: MemoryStore
) -> None:
    create()
    table = opened(store)
    committed(table, BATCH)
    later = dataclasses.replace(BATCH, batch_id=1)
    examined = table.committer.examine(later)
    committed(opened(store), dataclasses.replace(BATCH, query_id="heir", adopt="q"))

    with pytest.raises(StreamIdentityError, match="retired"):
        committed(table, later, examined)


def test_nothing_is_put_where_the_table_was_replaced_after_a_batch_was_examined(
    create: Create, store: MemoryStore
) -> None:
    create()
    table = opened(store)
    examined = table.committer.examine(BATCH)
    other = MemoryStore(clock=store.clock)
    create_table(
        other,
        first_schema(columns_of_arrow(ROWS.schema)),
        clock=ManualClock(seed=next(SEEDS)),
        probe_store=False,
    )
    store.objects = dict(other.objects)

    with pytest.raises(NotFoundError, match="another table now"):
        committed(table, BATCH, examined)
    assert store.objects == other.objects


def test_a_branch_deleted_after_a_batch_was_examined_takes_nothing(
    create: Create, store: MemoryStore
) -> None:
    main = create()
    main.create_branch("x")
    table = open_table(store, branch="x", clock=ManualClock(seed=5), probe_store=False)
    examined = table.committer.examine(BATCH)
    main.delete_branch("x")
    main.create_branch("x")
    before = dict(store.objects)

    with pytest.raises(NotFoundError, match="was deleted while in use"):
        committed(table, BATCH, examined)
    assert store.objects == before


# ---- what may not become history


@pytest.mark.parametrize(
    "values",
    [
        {"message": 5},
        {"message": None},
        {"author": None},
        {"message": "\ud800"},
        {"app_id": 5, "batch_id": 0},
        {"app_id": "a", "batch_id": 0, "writer": None},
        {"app_id": "\udfff", "batch_id": 0},
        {"app_id": "a", "batch_id": 2**63},
        {"app_id": "a", "batch_id": -1},
        {"app_id": "a", "batch_id": True},
    ],
    ids=str,
)
def test_what_could_not_be_read_again_is_refused(
    create: Create, store: MemoryStore, values: dict[str, object]
) -> None:
    table = create()

    with pytest.raises(InvalidInputError):
        table.append(ROWS, **values)  # type: ignore[arg-type]

    assert opened(store).head().version == 0
    assert not any(key.startswith("_b/") for key in store.objects)


def test_a_newer_release_in_the_slot_is_named(create: Create, store: MemoryStore) -> None:
    create()

    def upgrade(put: Callable[[], None]) -> None:
        data = store.get(slot_key("main", 0)).replace(b'"format_version":1', b'"format_version":2')
        store.put(slot_key("main", 1), data)
        put()

    with pytest.raises(UnsupportedFormatError):
        opened(SlotStore(store, upgrade)).append(ROWS)


# ---- time


def test_times_grow_under_a_clock_that_jumps_back(create: Create, clock: ManualClock) -> None:
    table = create()
    walls = [clock.wall_us]
    for jump in (0, -5_000_000, 0, 10_000_000, -60_000_000):
        clock.wall_us += jump
        walls.append(clock.wall_us)
        table.append(ROWS)

    log = list(table.log())[::-1]
    times = [snapshot.timestamp_us for snapshot in log]
    assert times == sorted(set(times))
    assert [snapshot.clock_us for snapshot in log] == walls


def test_a_machine_that_is_minutes_ahead_of_the_store_may_not_stamp(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    ahead = ManualClock(seed=1)
    store.clock = ManualClock(wall_us=ahead.wall_us - 5 * 60 * 1_000_000)
    table = open_table(store, clock=ahead)

    assert table.append(ROWS).version == 1
    ahead.wall_us += 1
    with pytest.raises(ClockSkewError):
        table.append(ROWS)

    assert opened(store).head().version == 1


def test_a_clock_that_jumps_ahead_after_the_first_commit_may_not_stamp(
    create: Create, store: MemoryStore, clock: ManualClock
) -> None:
    create()
    jumping = ManualClock(seed=1)
    table = open_table(store, clock=jumping)
    table.append(ROWS)
    jumping.wall_us += 400 * 86_400_000_000
    with pytest.raises(ClockSkewError, match="set it right"):
        table.append(ROWS)
    jumping.wall_us = clock.wall_us

    assert table.append(ROWS).timestamp_us <= clock.wall_us + 1_000_000


def test_a_machine_that_was_paused_asks_the_store_before_it_refuses(
    create: Create, store: MemoryStore, clock: ManualClock
) -> None:
    create()
    paused = ManualClock(seed=1)
    table = open_table(store, clock=paused)
    table.append(ROWS)
    clock.advance(3600)
    paused.wall_us += 3600 * 1_000_000  # its monotonic clock stood still meanwhile

    assert table.append(ROWS).timestamp_us == paused.wall_us


def test_a_machine_that_is_minutes_ahead_creates_no_table(store: MemoryStore) -> None:
    ahead = ManualClock(wall_us=store.clock.now_us() + 6 * 60 * 1_000_000)
    with pytest.raises(ClockSkewError):
        create_table(store, first_schema(columns_of_arrow(ROWS.schema)), clock=ahead)

    assert not store.objects


# ---- the ledger in the loop


def deliver(table: Table, batch: Batch, *keys: int) -> Verdict:
    intent = Intent(operation=Operation.APPEND, batch=batch)
    return table.commit_rows(intent, pa.table({"k": list(keys)})).verdict


def test_an_adopted_batch_whose_rows_stand_passes_the_entry_and_adds_no_row(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    old = Batch(query_id="old", batch_id=3, offsets=offsets_of(3, "here"))
    deliver(table, old, 1, 2)
    new = dataclasses.replace(old, query_id="new", adopt="old")

    verdict = deliver(table, new, 1, 2)

    head = opened(store).head()
    entry = head.ledger.entries["default", ""]
    assert verdict is Verdict.ADOPTED_REPLAY
    assert sorted(rows_of(table.to_arrow())) == [(1,), (2,)]
    assert (head.operation, head.data_change) == (Operation.ALTER, False)
    assert (entry.query_id, entry.batch_id, entry.rows) == ("new", 3, 2)
    assert head.ledger.retired["old"].fork == "new"


def test_a_stale_handle_does_not_refuse_what_the_newest_ledger_allows(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(ROWS, app_id="a", batch_id=5)
    opened(store).forget("a")

    snapshot = table.append(ROWS, app_id="a", batch_id=0)

    assert snapshot.version == 3


def test_a_stale_handle_refuses_what_the_newest_ledger_refuses(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    opened(store).append(ROWS, app_id="a", batch_id=5)

    with pytest.raises(StreamIdentityError):
        table.append(ROWS, app_id="a", batch_id=4)


def test_a_first_batch_that_is_not_number_0_is_warned_of(
    create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    table = create()
    with caplog.at_level(logging.WARNING):
        table.append(ROWS, app_id="a", batch_id=0)
        table.append(ROWS, app_id="a", batch_id=9)
        quiet = list(caplog.records)
        table.append(ROWS, app_id="b", batch_id=4)

    assert quiet == []
    assert "'b'" in caplog.text
    assert "number 4" in caplog.text


def test_empty_batches_before_the_first_one_are_known_in_the_same_run(
    create: Create, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that starts on an empty table delivers batches without rows at first."""
    create()

    def deliver(table: Table, empty: range, name: str) -> None:
        for batch_id in empty:
            table.committer.examine(Batch(application=name, query_id=name, batch_id=batch_id))
        batch = Batch(application=name, query_id=name, batch_id=empty.stop)
        table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), ROWS)

    with caplog.at_level(logging.WARNING):
        deliver(opened(store), range(3), "from the first one on")
        quiet = list(caplog.records)
        deliver(opened(store), range(1, 3), "restarted")

    assert quiet == []
    assert "'restarted'" in caplog.text


@pytest.mark.parametrize("is_replayed", [False, True])
def test_batches_that_a_rewind_undid_do_not_count_as_empty(
    create: Create, store: MemoryStore, caplog: pytest.LogCaptureFixture, *, is_replayed: bool
) -> None:
    table = rewinder = create()
    table.append(ROWS, app_id="a", batch_id=0)
    if is_replayed:
        table = opened(store)
        assert table.append(ROWS, app_id="a", batch_id=0).replayed
    rewind(rewinder.committer, Goal(version=0), retire=["a"])

    with caplog.at_level(logging.WARNING):
        table.append(ROWS, app_id="a", batch_id=1)
    assert "number 1" in caplog.text


def test_a_batch_that_another_writer_of_the_query_has_is_warned_of(
    create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing tells a sink that was renamed from one that was added."""
    table = create()

    def commit(batch_id: int, writer: str) -> None:
        batch = Batch(query_id="q", batch_id=batch_id, writer=writer)
        table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), ROWS)

    with caplog.at_level(logging.WARNING):
        commit(0, "")
        commit(0, "second")
        commit(1, "")
        quiet = list(caplog.records)
        commit(1, "third")

    assert quiet == []
    (said,) = [text for text in caplog.messages if "in the table twice" in text]
    assert "batch 1 as writer ''" in said
    assert "'third'" in said


def test_objects_staged_two_epochs_ago_are_put_again(create: Create, store: MemoryStore) -> None:
    create()
    rival = opened(store)
    waits = [True]

    def lose(put: Callable[[], None]) -> None:
        if waits:
            waits.clear()
            head = rival.committer.head()
            later = dataclasses.replace(
                head.snapshot, version=1, epoch=2, snapshot_id="e" * 32, operation=Operation.EXPIRE
            )
            store.put(slot_key("main", 1), encode_snapshot(later))
        put()

    snapshot = opened(SlotStore(store, lose)).append(ROWS)

    assert snapshot.version == 2
    assert len([key for key in store.objects if key.startswith("_b/")]) == 2
