"""Messages of which only the text was kept are read again, and leave the quarantine."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.commit.plan import Intent
from fuse_stream.dml.event_rules import EventRules
from fuse_stream.dml.events import Events
from fuse_stream.dml.messages import Messages, Reread, apply_messages, find_messages
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Operation
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.dml.event_model import COLUMNS, SCHEMA
from tests.dml.two_writers import copy_of, interleavings
from tests.kit.envelopes import envelope_of
from tests.recovery.histories import rewind

Create = Callable[..., Table]
Mend = Callable[[str], str]

ENVELOPE = envelope_of(SCHEMA)


def text(*rows: tuple[int, Any, int]) -> str:
    """Return a message that sets column `a` of keys, at sequences."""
    return json.dumps([{"k": k, "a": a, "s": seq} for k, a, seq in rows])


def read(messages: Iterable[tuple[str, str]]) -> pa.Table:
    """Return the events in messages, given as source and text, as a reader makes them."""
    found: list[dict[str, Any]] = []
    for source, raw in messages:
        try:
            rows = json.loads(raw)
        except ValueError:
            found.append({"_error": "unreadable", "_raw": raw, "_source": source})
            continue
        for row in rows:
            event = {"_op": "u", "_seq": row["s"], "_unset": [], "_raw": raw, "_source": source}
            if isinstance(row["a"], int):
                found.append({**event, "k": row["k"], "a": row["a"], "b": 1, "c": 1})
            else:
                found.append({**event, "_op": None, "_error": f"failed cast: a={row['a']}"})
    return pa.Table.from_pylist(found, schema=ENVELOPE)


def send(table: Table, *messages: tuple[str, str], **more: Any) -> None:
    table.upsert(read(messages), keys=["k"], **more)


def reread(messages: Messages, mend: Mend) -> Events:
    frame = messages.frame.to_pylist()
    places = [
        "/".join("" if at is None else str(at) for at in (m["topic"], m["partition"], m["offset"]))
        for m in frame
    ]
    texts = (mend(m["value"].decode()) for m in frame)
    return EventRules().read(read(zip(places, texts, strict=True)))


def retry(
    table: Table, mend: Mend = str, where: str | None = None, how: Reread | None = None
) -> ChangeResult:
    found = find_messages(table.metadata, table.committer.head().snapshot, where)
    intent = Intent(operation=Operation.RETRY)
    events = reread(found, mend)
    return apply_messages(table.committer, found, events, how or Reread(), intent)


def values(table: Table) -> dict[int, int]:
    rows = table.to_arrow(columns=["k", COLUMNS[0]]).to_pylist()
    return {row["k"]: row["a"] for row in rows}


def kept(table: Table) -> list[str]:
    if "quarantine" not in table.head().sides:  # a compaction takes an empty one away
        return []
    rows = table.to_arrow(side="quarantine", columns=["reason", "source"]).to_pylist()
    return sorted(f"{row['source']} {row['reason']}" for row in rows)


def whole(raw: str) -> str:
    return raw if raw.endswith("]") else raw + "]"


CUT = text((1, 7, 5))[:-1]


def test_a_message_that_can_be_read_now_leaves_the_quarantine_in_the_commit_of_its_events(
    create: Create,
) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT), ("t/0/2", text((2, "x", 6))), ("t/0/3", text((3, 1, 7))))
    version = table.head().version
    result = retry(table, whole)

    assert (result.inserted, result.events, result.quarantined) == (1, 2, 1)
    assert result.snapshot is not None
    assert (result.snapshot.version, result.snapshot.operation) == (version + 1, Operation.RETRY)
    assert values(table) == {1: 7, 3: 1}
    assert kept(table) == ["t/0/2 failed cast: a=x"]
    again = retry(table, whole)
    assert (again.snapshot, again.events, again.quarantined) == (None, 1, 1)
    assert retry(table, lambda raw: raw.replace('"x"', "9")).inserted == 1
    assert retry(table) == ChangeResult()
    assert kept(table) == []


def test_a_message_with_a_bad_event_keeps_all_of_its_rows(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", text((1, "x", 5), (2, "y", 5), (3, 3, 5))))
    before = kept(table)
    first = retry(table, lambda raw: raw.replace('"x"', "9"))

    assert (first.inserted, first.quarantined) == (1, 1)
    assert values(table) == {1: 9, 3: 3}
    assert kept(table) == before == ["t/0/1 failed cast: a=x", "t/0/1 failed cast: a=y"]
    assert retry(table, lambda raw: raw.replace('"x"', "9")).snapshot is None
    retry(table, lambda raw: raw.replace('"x"', "9").replace('"y"', "8"))
    assert values(table) == {1: 9, 2: 8, 3: 3}
    assert kept(table) == []


def test_an_event_of_a_message_that_ties_keeps_the_message(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", text((1, 7, 5))), ("t/0/2", text((1, "x", 5), (2, "x", 5))))
    result = retry(table, lambda raw: raw.replace('"x"', "1"))

    assert (result.inserted, result.quarantined) == (1, 1)
    assert values(table) == {1: 7, 2: 1}
    assert len(kept(table)) == 2
    assert retry(table, lambda raw: raw.replace('"x"', "1")).snapshot is None


def test_messages_that_stay_bring_no_column(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT))
    found = find_messages(table.metadata, table.head(), None)
    wide = read([("t/0/1", CUT)]).add_column(0, "z", pa.array([None], pa.int64()))
    how, intent = Reread(merge_schema=True), Intent(operation=Operation.RETRY)
    result = apply_messages(table.committer, found, EventRules().read(wide), how, intent)

    assert (result.snapshot, result.quarantined) == (None, 1)
    assert "z" not in table.head().schema.names()


def test_a_message_of_which_no_event_is_made_stays(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT), ("t/0/2", CUT.replace("7", "8").replace("5", "6")))
    result = retry(table, lambda raw: "[]" if "8" in raw else whole(raw))

    assert (result.inserted, result.quarantined) == (1, 0)
    assert kept(table) == ["t/0/2 unreadable"]
    assert retry(table, lambda _: "[]").snapshot is None


def test_a_late_message_changes_nothing_that_a_later_event_has_set(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT), ("t/0/2", text((1, 9, 6))))
    result = retry(table, whole)

    assert (result.inserted, result.updated, result.quarantined) == (0, 0, 0)
    assert values(table) == {1: 9}
    assert kept(table) == []


def test_messages_without_a_place_in_kafka_are_told_apart(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("//", CUT), ("//", CUT), ("a/b", text((2, "x", 6))), ("//", text((3, "x", 6))))
    found = find_messages(table.metadata, table.head(), None)
    topics = [row["topic"] for row in found.frame.to_pylist()]
    result = retry(table, whole)

    assert topics == [None, "a/b", None]
    assert len({*found.places}) == 3
    assert (result.inserted, result.quarantined) == (1, 2)
    assert kept(table) == ["// failed cast: a=x", "a/b failed cast: a=x"]


def test_a_message_keeps_its_place_and_its_bytes(create: Create) -> None:
    table = create(SCHEMA)
    binary = f"base64:{base64.b64encode(bytes([255, 0])).decode()}"
    send(
        table,
        ("to/pic/3/41", binary),
        ("t//42", "base64:bm8="),
        ("t/0/43", "base64:?"),
        ("t/0/44", "é["),
    )
    found = find_messages(table.metadata, table.head(), None)

    assert sorted(found.frame.to_pylist(), key=lambda row: row["offset"]) == [
        {"key": None, "value": value, "topic": topic, "partition": partition, "offset": offset}
        for value, topic, partition, offset in [
            (bytes([255, 0]), "to/pic", 3, 41),
            (b"base64:bm8=", "t", None, 42),
            (b"base64:?", "t", 0, 43),
            ("é[".encode(), "t", 0, 44),
        ]
    ]


def test_a_predicate_chooses_messages_with_all_of_their_rows(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", text((1, "x", 5), (2, "y", 5))), ("t/0/2", CUT))
    where = "reason = 'failed cast: a=y'"
    found = find_messages(table.metadata, table.head(), where)
    retry(table, lambda raw: raw.replace('"x"', "1").replace('"y"', "2"), where)

    assert (len(found.frame), len(found.ids)) == (1, 2)
    assert values(table) == {1: 1, 2: 2}
    assert kept(table) == ["t/0/2 unreadable"]
    with pytest.raises(InvalidInputError):
        retry(table, where="nix = 1")


def test_events_with_values_stay_in_the_quarantine(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", text((1, 7, 5))), ("t/0/2", text((1, 1, 5))), ("t/0/3", CUT[:-1] + ","))

    assert retry(table, lambda raw: raw[:-1] + "}]").quarantined == 0
    assert kept(table) == ["t/0/2 tie"]


def test_a_retry_of_events_with_values_counts_the_messages_that_it_leaves_out(
    create: Create,
) -> None:
    table = create(SCHEMA)
    assert table.retry().unread == 0
    send(table, ("t/0/1", text((1, 7, 5))), ("t/0/2", text((1, 1, 5))), ("t/0/3", CUT[:-1] + ","))

    for dry_run in (True, False):
        done = table.retry(dry_run=dry_run)
        assert (done.events, done.unread) == (1, 1)
    assert table.retry("reason = 'tie'").unread == 0
    assert retry(table, lambda raw: raw[:-1] + "}]").unread is None


def test_an_event_of_another_source_is_refused(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT))
    found = find_messages(table.metadata, table.head(), None)
    strange = EventRules().read(read([("t/0/9", text((1, 1, 1)))]))

    with pytest.raises(InvalidInputError, match="_source"):
        apply_messages(table.committer, found, strange, Reread(), Intent(operation=Operation.RETRY))


def test_a_message_older_than_a_forgotten_delete_stays_until_it_is_named(
    create: Create, clock: ManualClock
) -> None:
    table = create(SCHEMA)
    delete = {"k": 1, "_op": "d", "_seq": 6, "_source": "t/0/0"}
    table.upsert(pa.Table.from_pylist([delete], schema=ENVELOPE), keys=["k"], tombstones="1d")
    clock.advance(2 * 86_400)
    send(table, ("t/0/1", CUT), ("t/0/2", text((2, 2, 9))), tombstones="1d")

    assert retry(table, whole).quarantined == 1
    assert values(table) == {2: 2}
    assert retry(table, whole, how=Reread(too_late=True)).inserted == 1
    assert values(table) == {1: 7, 2: 2}


def test_nulls_that_give_no_value_leave_columns_as_they_are(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT), ("t/0/2", text((1, 3, 1))))
    found = find_messages(table.metadata, table.head(), None)
    null = {"k": 1, "_op": "u", "_seq": 5, "_unset": [], "_source": "t/0/1", "b": 4}
    events = EventRules().read(pa.Table.from_pylist([null], schema=ENVELOPE))
    apply_messages(
        table.committer,
        found,
        events,
        Reread(ignore_null_updates=True),
        Intent(operation=Operation.RETRY),
    )

    assert table.to_arrow().to_pylist() == [{"k": 1, "a": 3, "b": 4, "c": 1}]


def test_a_history_takes_messages(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", CUT), ("t/0/2", text((1, 9, 6))), stored_as_scd_type=2)
    retry(table, whole)

    rows = table.to_arrow(columns=["a", "__START_AT", "__END_AT"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(7, 5, 6), (9, 6, None)]


def test_what_was_taken_back_while_messages_were_read_is_not_applied(create: Create) -> None:
    table = create(SCHEMA)
    send(table, ("t/0/1", text((3, 3, 1))))
    send(table, ("t/0/2", CUT))
    found = find_messages(table.metadata, table.head(), None)
    rewind(table.committer, Goal(version=1))
    intent = Intent(operation=Operation.RETRY)
    result = apply_messages(table.committer, found, reread(found, whole), Reread(), intent)

    assert result == ChangeResult()
    assert values(table) == {3: 3}


def stored() -> MemoryStore:
    """Return a table with one row, and in quarantine two messages, one of them in two rows."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    schema = first_schema(columns_of_arrow(SCHEMA))
    table = create_table(store, schema, clock=clock, probe_store=False)
    send(table, ("t/0/1", CUT), ("t/0/2", text((2, "x", 6), (3, "x", 6), (4, 4, 6))))
    return store


def mended(raw: str) -> str:
    return whole(raw).replace('"x"', "1")


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_REPLY])
def test_a_crash_leaves_all_or_nothing(fault: Fault) -> None:
    base, ends = stored(), set()
    free = FaultyStore(copy_of(base))
    retry(open_table(free, clock=ManualClock(seed=3), probe_store=False), mended)
    for call in range(1, len(free.calls) + 1):
        store = copy_of(base)
        with contextlib.suppress(Crash, FuseError):
            faulty = FaultyStore(store, at_call=call, fault=fault)
            retry(open_table(faulty, clock=ManualClock(seed=3), probe_store=False), mended)
        table = open_table(store, clock=ManualClock(seed=5), probe_store=False)
        ends.add((tuple(sorted(values(table).items())), len(kept(table))))
        retry(table, mended)
        assert (values(table), kept(table)) == ({1: 7, 2: 1, 3: 1, 4: 4}, [])
        assert retry(table, mended).snapshot is None

    whole_ends = {(((4, 4),), 3), (((1, 7), (2, 1), (3, 1), (4, 4)), 0)}
    assert ends <= whole_ends
    assert fault is Fault.CRASH_BEFORE or ends == whole_ends


OTHERS: dict[str, Callable[[Table], object]] = {
    "the same": lambda table: retry(table, mended),
    "a batch with a bad message": lambda table: send(
        table, ("t/0/2", text((2, "x", 6))), ("t/0/9", text((1, 9, 9)))
    ),
    "compaction": lambda table: table.compact(),
}


@pytest.mark.parametrize("other", OTHERS)
def test_two_writers_end_as_one_after_the_other(other: str) -> None:
    for end in interleavings(stored(), lambda table: retry(table, mended), OTHERS[other]):
        assert not [one for one in end.results if isinstance(one, BaseException)], end.schedule
        is_batch = other.startswith("a batch")
        assert values(end.table) == {1: 9 if is_batch else 7, 2: 1, 3: 1, 4: 4}
        # What came after the messages were read stays; before, it went with its message.
        assert (
            kept(end.table) in ([], ["t/0/2 failed cast: a=x"]) if is_batch else not kept(end.table)
        )
