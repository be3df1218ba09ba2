"""A snapshot is found by number in two reads and by time in a few, or the error says why not."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_snapshot, sha256_hex
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import floor_key, slot_key
from fuse_stream.format.records import Parent
from fuse_stream.format.times import timestamp_us
from fuse_stream.reading import history as finding
from fuse_stream.reading.history import SEARCHED_SNAPSHOTS
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore

Create = Callable[..., Table]
COUNT = 120


@pytest.fixture
def history(create: Create, store: MemoryStore, clock: ManualClock) -> MemoryStore:
    """Return a table of `COUNT` versions, ten seconds apart; two of them at the same time."""
    table = create()
    for number in range(1, COUNT):
        clock.advance(10)
        table.append(pa.table({"k": [number]}))
    table.append(pa.table({"k": [COUNT]}))
    return store


def opened(store: MemoryStore) -> tuple[Table, FaultyStore]:
    counted = FaultyStore(store)
    return open_table(counted, clock=ManualClock(seed=3), probe_store=False), counted


def at(us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=us)


def test_every_version_is_found_by_number_in_two_reads(history: MemoryStore) -> None:
    table, counted = opened(history)
    for version in (0, 1, 57, COUNT - 1):
        table.head()
        counted.calls.clear()
        snapshot = table.snapshot(version)

        assert snapshot.version == version
        assert counted.calls.count(("get", slot_key("main", version))) <= 1
        assert len(counted.calls) <= 5  # three find the head


@pytest.mark.parametrize("version", [5, "5", "005"])
def test_a_version_may_be_text(history: MemoryStore, version: int | str) -> None:
    table, _ = opened(history)

    assert table.snapshot(version).version == 5
    assert table.to_arrow(version=version).num_rows == 5


@pytest.mark.parametrize("spelt", [str, str.upper, lambda name: name[:7]])
def test_a_snapshot_is_found_by_its_id(history: MemoryStore, spelt: Callable[[str], str]) -> None:
    table, _ = opened(history)
    snapshot = table.snapshot(41)
    name = spelt(snapshot.snapshot_id)
    # An id of digits alone would be read as a number; the seed draws none.
    assert not name.isdigit()

    assert table.snapshot(name) == snapshot
    assert table.to_arrow(version=name).num_rows == 41
    assert table.diff(name, 44).read_all().num_rows == 3
    assert table.changes(name, 44).read_all().num_rows == 4


def test_an_id_of_no_snapshot_is_not_found(history: MemoryStore) -> None:
    with pytest.raises(NotFoundError, match="newest 1,000"):
        opened(history)[0].snapshot("abcdef0")


class _AlikeClock(ManualClock):
    """Draws ids with one common prefix."""

    def new_id(self) -> str:
        return "abcdef0" + super().new_id()[7:]


def test_an_ambiguous_prefix_of_ids_is_refused_and_the_ids_are_named(store: MemoryStore) -> None:
    table = create_table(
        store,
        first_schema(columns_of_arrow(pa.schema([("k", pa.int64())]))),
        clock=_AlikeClock(),
        probe_store=False,
    )
    last = table.append(pa.table({"k": [1]}))

    with pytest.raises(InvalidInputError, match="more digits") as caught:
        table.snapshot("abcdef0")

    assert last.snapshot_id in caught.value.context["ids"]  # type: ignore[operator]
    assert table.snapshot(last.snapshot_id) == last


def test_an_abbreviated_id_is_searched_among_the_newest_snapshots_only(
    history: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "SEARCHED_SNAPSHOTS", 10)
    table, counted = opened(history)
    old, new = table.snapshot(COUNT - 10), table.snapshot(COUNT - 9)
    fresh, counted = opened(history)

    assert fresh.snapshot(new.snapshot_id[:12]) == new
    with pytest.raises(NotFoundError, match="newest 10"):
        fresh.snapshot(old.snapshot_id[:12])
    assert len(counted.calls) <= 32
    assert SEARCHED_SNAPSHOTS == 1000
    assert fresh.snapshot(old.snapshot_id) == old  # a whole id is searched among all


def test_a_time_finds_the_last_version_at_or_before_it(history: MemoryStore) -> None:
    table, _ = opened(history)
    times = [snapshot.timestamp_us for snapshot in table.log()][::-1]
    for version in (0, 1, 2, 63, COUNT - 1):
        assert table.snapshot(timestamp=at(times[version])).version == version
        assert table.snapshot(timestamp=at(times[version + 1] - 1)).version == version
    assert table.snapshot(timestamp=at(times[COUNT])).version == COUNT


def test_a_time_is_found_in_few_reads(history: MemoryStore) -> None:
    table, counted = opened(history)
    middle = table.snapshot(60).timestamp_us
    fresh, counted = opened(history)
    counted.calls.clear()
    fresh.snapshot(timestamp=at(middle + 5))

    assert len(counted.calls) <= 3 + COUNT.bit_length() + 1


@pytest.mark.parametrize(
    ("version", "error"), [(COUNT + 1, NotFoundError), ("99999", NotFoundError)]
)
def test_a_version_past_the_head_is_not_found(
    history: MemoryStore, version: int | str, error: type[Exception]
) -> None:
    with pytest.raises(error, match="past the head"):
        opened(history)[0].snapshot(version)


def test_a_time_outside_the_history_is_not_found(history: MemoryStore) -> None:
    table, _ = opened(history)
    first, last = table.snapshot(0).timestamp_us, table.head().timestamp_us

    with pytest.raises(NotFoundError, match="past the head"):
        table.snapshot(timestamp=at(last + 1))
    with pytest.raises(NotFoundError, match="before the first"):
        table.snapshot(timestamp=at(first - 1))


@pytest.mark.parametrize(
    "timestamp", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", 5, dt.date(2026, 1, 1), None]
)
def test_anything_but_a_time_with_an_offset_is_refused(timestamp: object) -> None:
    with pytest.raises(InvalidInputError):
        timestamp_us(timestamp)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "timestamp",
    [
        "1970-01-01T00:00:01.000002Z",
        "1970-01-01T01:00:01.000002+01:00",
        dt.datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=dt.UTC),
    ],
)
def test_a_time_is_converted_to_exact_microseconds(timestamp: str | dt.datetime) -> None:
    assert timestamp_us(timestamp) == 1_000_002


def test_a_parent_that_was_replaced_is_damage(history: MemoryStore) -> None:
    table, _ = opened(history)
    child, parent = table.snapshot(5), table.snapshot(4)
    assert finding.load_parent(table.metadata, child) == parent

    history.replace(
        slot_key("main", 4), encode_snapshot(dataclasses.replace(parent, message="another"))
    )
    table, _ = opened(history)

    with pytest.raises(CorruptObjectError, match="its slot was changed"):
        finding.load_parent(table.metadata, child)


def test_a_version_together_with_a_time_is_refused(history: MemoryStore) -> None:
    with pytest.raises(InvalidInputError, match="not both"):
        opened(history)[0].snapshot(1, timestamp="2026-01-01T00:00:00Z")


@pytest.mark.parametrize("floor", [0, 1000])
def test_the_error_for_an_expired_version_names_the_oldest_readable_one(
    history: MemoryStore, floor: int
) -> None:
    head = opened(history)[0].head()
    parent = None
    for version in (1000, 1001):
        later = dataclasses.replace(head, version=version, floor=floor, parent=parent)
        data = encode_snapshot(later)
        history.put(slot_key("main", version), data)
        parent = Parent(branch_id="main", version=version, sha256=sha256_hex(data))
    history.put(floor_key("main", 0), b"expired")
    history.delete(slot_key("main", 4))
    table, _ = opened(history)

    with pytest.raises(SnapshotExpiredError) as caught:
        table.snapshot(4)

    assert caught.value.context == {"version": 4, "first": floor}
    assert table.snapshot(1000).version == 1000


def test_the_log_is_lazy_and_newest_first_and_takes_a_limit(history: MemoryStore) -> None:
    table, counted = opened(history)
    counted.calls.clear()
    newest = [snapshot.version for snapshot in table.log(limit=3)]

    assert newest == [COUNT, COUNT - 1, COUNT - 2]
    assert len(counted.calls) <= 6
    assert list(table.log(limit=0)) == []
    assert [snapshot.version for snapshot in table.log()] == list(range(COUNT, -1, -1))


@pytest.mark.parametrize("limit", [-1, "5", 1.5, True])
def test_anything_but_a_whole_number_from_0_is_refused_as_a_limit(
    history: MemoryStore, limit: object
) -> None:
    with pytest.raises(InvalidInputError):
        list(opened(history)[0].log(limit=limit))  # type: ignore[arg-type]


def test_an_old_version_reads_as_it_was_committed(history: MemoryStore) -> None:
    table, _ = opened(history)

    for version in (0, 1, 16, 17, 100):
        assert table.to_arrow(version=version).column("k").to_pylist() == list(
            range(1, version + 1)
        )
