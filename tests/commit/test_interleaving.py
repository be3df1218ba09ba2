"""Two committers, interleaved at every pair of their storage calls.

Each scenario runs once for every schedule in which the first committer makes `i` calls, then the
second `j`, then each runs out. Whatever the order, both commit or one is told why not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from fuse_stream.commit import rollup
from fuse_stream.commit.ledger import Batch, Verdict
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import ConflictError, StreamIdentityError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Operation
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.kit.interleave import iter_schedules, run_interleaved

PLAIN = pa.schema([("k", pa.int64())])
Act = Callable[[Table], object]
Outcome = tuple[Table, MemoryStore, list[object]]


def rows(*keys: int, **columns: object) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), **columns})


def made(appends: int = 1) -> MemoryStore:
    """Return a table with `appends` appends, of rows 0, 1, …"""
    store = MemoryStore(clock=ManualClock())
    clock = ManualClock()
    table = create_table(
        store, first_schema(columns_of_arrow(PLAIN)), clock=clock, probe_store=False
    )
    for number in range(appends):
        table.append(rows(number))
    return store


def opened(store: Store, seed: int) -> Table:
    table = open_table(store, clock=ManualClock(seed=seed), probe_store=False)
    table.blocks()  # what a long-lived handle has at hand
    return table


def calls_of(base: MemoryStore, act: Act) -> int:
    store = FaultyStore(copy_of(base))
    table = opened(store, 1)
    opening = len(store.calls)
    act(table)
    return len(store.calls) - opening


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore(clock=store.clock)
    copy.objects = dict(store.objects)
    return copy


def interleavings(base: MemoryStore, first: Act, second: Act) -> Iterator[Outcome]:
    """Yield how the table ends, and what each committer returned or raised, for all schedules."""
    calls = max(calls_of(base, first), calls_of(base, second))
    for schedule in iter_schedules(calls):
        store = copy_of(base)
        relays = [StoreWrapper(store), StoreWrapper(store)]  # so that opening takes no turns
        tables = [opened(relay, seed) for seed, relay in enumerate(relays, 11)]

        def actor(index: int, act: Act, tables=tables, relays=relays) -> Callable[[Store], object]:  # type: ignore[no-untyped-def]
            def run(turns: Store) -> object:
                relays[index].store = turns
                return act(tables[index])

            return run

        results = run_interleaved(store, [actor(0, first), actor(1, second)], schedule)
        table = opened(store, 21)
        assert_sound(store, table)
        yield table, store, results


def errors_of(results: list[object]) -> list[type]:
    return sorted(
        (type(result) for result in results if isinstance(result, BaseException)), key=str
    )


def test_two_appends_both_land() -> None:
    for table, _, results in interleavings(
        made(), lambda t: t.append(rows(10)), lambda t: t.append(rows(20))
    ):
        assert errors_of(results) == []
        assert sorted(rows_of(table.to_arrow())) == [(0,), (10,), (20,)]
        assert table.head().version == 3


def test_an_overwrite_removes_what_stood_before_it_and_nothing_after() -> None:
    ends = set()
    for table, _, results in interleavings(
        made(), lambda t: t.append(rows(10)), lambda t: t.overwrite(rows(20))
    ):
        order = [item.operation for item in table.log()][:2]
        expected = [(20,)] if order[0] is Operation.OVERWRITE else [(10,), (20,)]
        ends.add(order[0])

        assert errors_of(results) == []
        assert sorted(rows_of(table.to_arrow())) == expected
        assert table.head().version == 3

    assert ends == {Operation.APPEND, Operation.OVERWRITE}


def test_columns_that_two_writers_add_have_ids_of_their_own() -> None:
    for table, _, results in interleavings(
        made(),
        lambda t: t.append(rows(1, a=["x"]), merge_schema=True),
        lambda t: t.append(rows(2, b=[0.5]), merge_schema=True),
    ):
        schema = table.head().schema
        found = table.to_arrow().sort_by("k").select(["k", "a", "b"])

        assert errors_of(results) == []
        assert sorted(column.id for column in schema.columns) == [1, 2, 3]
        assert schema.last_column_id == 3
        assert found.to_pylist() == [
            {"k": 0, "a": None, "b": None},
            {"k": 1, "a": "x", "b": None},
            {"k": 2, "a": None, "b": 0.5},
        ]


def test_one_column_that_two_writers_add_is_one_column() -> None:
    for table, _, results in interleavings(
        made(),
        lambda t: t.append(rows(1, a=pa.array([1], pa.int32())), merge_schema=True),
        lambda t: t.append(rows(2, a=pa.array([2**40])), merge_schema=True),
    ):
        found = table.to_arrow().sort_by("k")

        assert errors_of(results) == []
        assert [column.type for column in table.head().schema.columns] == ["long", "long"]
        assert found.column("a").to_pylist() == [None, 1, 2**40]


def test_a_batch_that_two_processes_of_one_query_deliver_is_committed_once() -> None:
    batch = Batch(query_id="q", batch_id=4)
    intent = Intent(operation=Operation.APPEND, batch=batch)
    for table, _, results in interleavings(
        made(),
        lambda t: t.commit_rows(intent, rows(10, 11)).verdict,
        lambda t: t.commit_rows(intent, rows(10, 11)).verdict,
    ):
        assert Counter(results) == {Verdict.NEW: 1, Verdict.REPLAY: 1}
        assert sorted(rows_of(table.to_arrow())) == [(0,), (10,), (11,)]
        assert table.ledger()["default", ""].rows == 2


def test_a_killed_drivers_late_batch_meets_the_next_one_of_its_successor() -> None:
    def deliver(*batches: int) -> Act:
        def act(table: Table) -> None:
            for number in batches:
                table.append(rows(10 + number), app_id="a", batch_id=number)

        return act

    for table, _, results in interleavings(made(), deliver(0), deliver(0, 1)):
        assert sorted(rows_of(table.to_arrow())) == [(0,), (10,), (11,)]
        assert set(errors_of(results)) <= {StreamIdentityError}
        assert not isinstance(results[1], BaseException)


@pytest.mark.parametrize("on_conflict", ["error", "replan"])
def test_properties_meet_an_append(on_conflict: str) -> None:
    outcomes = Counter[bool]()
    for table, _, results in interleavings(
        made(),
        lambda t: t.set_properties({"owner": "me"}, on_conflict=on_conflict),
        lambda t: t.append(rows(10)),
    ):
        refused = errors_of(results) == [ConflictError]
        outcomes[refused] += 1

        assert sorted(rows_of(table.to_arrow())) == [(0,), (10,)]
        assert refused or errors_of(results) == []
        assert table.properties == ({} if refused else {"owner": "me"})

    assert outcomes[False] > 0
    assert (outcomes[True] > 0) == (on_conflict == "error")


def _rows_after(appends: int) -> list[tuple[int]]:
    return [*[(100,), (101,)][2 - appends :], (200,)]


def test_a_pending_roll_up_meets_an_overwrite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "FAN_IN", 3)

    def append_twice(table: Table) -> None:
        table.append(rows(100))
        table.append(rows(101))

    seen = set()
    for table, _, results in interleavings(made(2), append_twice, lambda t: t.overwrite(rows(200))):
        order = [item.operation for item in table.log()][:3]
        after = order.index(Operation.OVERWRITE)
        seen.add((after, max(ref.level for ref in table.segments())))

        assert errors_of(results) == []
        assert sorted(rows_of(table.to_arrow())) == _rows_after(after)
        assert sum(rows_of(table.changes(0).read_all().select(["k"])).values()) >= 5

    assert {after for after, _ in seen} == {0, 1, 2}


def test_a_roll_up_that_two_writers_prepare_is_folded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollup, "FAN_IN", 3)

    def append_twice(*keys: int) -> Act:
        def act(table: Table) -> None:
            for key in keys:
                table.append(rows(key))

        return act

    for table, _, results in interleavings(made(2), append_twice(100, 101), append_twice(200, 201)):
        assert errors_of(results) == []
        assert sorted(rows_of(table.to_arrow()))[-4:] == [(100,), (101,), (200,), (201,)]
        assert table.head().summary.row_count == 6
