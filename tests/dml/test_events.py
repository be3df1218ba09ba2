"""Events with sequences: a table depends on the set of its events alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.dml.events import ENVELOPE
from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    StreamIdentityError,
)
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.clock import ManualClock
from tests.dml.event_model import (
    COLUMNS,
    DELETED,
    SCHEMA,
    TRUNCATED,
    Event,
    History,
    State,
    batches_of,
    history_of,
    log_of,
    state_of,
    table_of,
)
from tests.kit.strides import seeds

Create = Callable[..., Table]


NEEDED = SCHEMA.set(1, pa.field("a", pa.int64(), nullable=False))


def send(table: Table, events: list[Event], *, partial: bool = False, **more: object) -> None:
    table.upsert(
        table_of(events, partial=partial),
        keys=["k"],
        sequence_by="_seq",
        apply_as_deletes=DELETED,
        apply_as_truncates=TRUNCATED,
        except_column_list=[] if partial else ["_op", "_seq"],
        **more,  # type: ignore[arg-type]
    )


def shown(table: Table, **which: object) -> list[dict[str, Any]]:
    """Return the rows of a table, with null in the columns that it does not have yet."""
    rows = table.to_arrow(**which).to_pylist()  # type: ignore[arg-type]
    return [dict.fromkeys(COLUMNS) | row for row in rows]


def state(table: Table, **which: object) -> State:
    rows = shown(table, **which)
    found = {row["k"]: tuple(row[name] for name in COLUMNS) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seqs", [4, 1000], ids=["equal sequences", "different sequences"])
@seeds(5, 12)
def test_a_table_depends_on_the_set_of_events_alone(
    create: Create,
    seed: int,
    seqs: int,
    partial: bool,  # noqa: FBT001 - a parameter
) -> None:
    chance = random.Random(f"{seed} {seqs} {partial}")
    log = log_of(chance, 40, keys=5, seqs=seqs, partial=partial, truncates=chance.random() < 0.5)
    table = create(SCHEMA)
    sent: list[Event] = []

    for batch in batches_of(chance, log):
        before = table.head().version
        send(table, batch, partial=partial)
        sent += batch

        assert state(table) == state_of(sent)
        counts = table.head().counts
        if table.head().version > before:
            assert counts is not None
            assert counts.events == len(batch)
    assert state(table) == state_of(log)


@pytest.mark.parametrize("tracked", [None, ["a"]], ids=["all tracked", "one tracked"])
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seqs", [8, 1000], ids=["equal sequences", "different sequences"])
@seeds(4, 8)
def test_a_history_depends_on_the_set_of_events_alone(
    create: Create,
    seed: int,
    seqs: int,
    partial: bool,  # noqa: FBT001 - a parameter
    tracked: list[str] | None,
) -> None:
    chance = random.Random(f"{seed} {seqs} {partial} {tracked}")
    log = log_of(chance, 40, keys=4, seqs=seqs, partial=partial, truncates=chance.random() < 0.5)
    table = create(SCHEMA)
    sent: list[Event] = []

    for batch in batches_of(chance, log):
        send(table, batch, partial=partial, stored_as_scd_type=2, track_history_column_list=tracked)
        sent += batch

        assert histories(table) == history_of(sent, tuple(tracked or COLUMNS))


def histories(table: Table) -> History:
    found: History = {}
    for row in sorted(shown(table), key=lambda row: row["__START_AT"]):
        values = tuple(row[name] for name in COLUMNS)
        found.setdefault(row["k"], []).append((row["__START_AT"], row["__END_AT"], values))
    return found


WHOLE = (("a", 1), ("b", 1), ("c", 1))


def side(table: Table, name: str) -> list[dict[str, object]]:
    if name not in table.head().sides:
        return []
    rows: list[dict[str, object]] = table.to_arrow(side=name).to_pylist()
    return rows


@seeds(3, 6)
def test_there_is_a_tombstone_of_each_key_that_was_deleted(create: Create, seed: int) -> None:
    chance = random.Random(seed)
    log = log_of(chance, 60, keys=8, seqs=1000, partial=False, truncates=seed % 2 == 0)
    table = create(SCHEMA)
    for batch in batches_of(chance, log):
        send(table, batch)

    truncated = max((event.seq for event in log if event.op == "t"), default=-1)
    deleted = {event.key: 0 for event in log if event.op == "d"}
    for key in deleted:
        deleted[key] = max(e.seq for e in log if e.key == key and e.op == "d")
    rows = table.to_arrow(side="tombstones", columns=["k", "_fuse_seq", "_fuse_kind"]).to_pylist()
    found = {row["k"]: row["_fuse_seq"] for row in rows if row["_fuse_kind"] == "delete"}
    marks = [row["_fuse_seq"] for row in rows if row["_fuse_kind"] == "truncate"]
    assert len(found) + len(marks) == len(rows)
    assert marks == ([truncated] if truncated >= 0 else [])
    assert found.items() <= deleted.items()
    above = {key: seq for key, seq in deleted.items() if seq > truncated}
    assert above.items() <= found.items()


def test_an_event_older_than_a_forgotten_delete_is_kept_apart_until_it_is_named(
    create: Create, clock: ManualClock
) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE), Event(1, 7, "d")], tombstones="1d")
    clock.advance(2 * 86_400)
    send(table, [Event(2, 9, "u", WHOLE)], tombstones="1d")
    send(table, [Event(1, 6, "u", WHOLE), Event(3, 8, "u", WHOLE)], tombstones="1d")

    assert set(state(table)) == {2, 3}
    assert [row["reason"] for row in side(table, "quarantine")] == ["too late"]
    assert table.retry().snapshot is None
    result = table.retry(too_late=True)
    assert (result.inserted, result.quarantined) == (1, 0)
    assert set(state(table)) == {1, 2, 3}
    assert side(table, "quarantine") == []


def test_bad_events_are_counted_and_kept(create: Create) -> None:
    table = create(SCHEMA)
    rows = table_of([Event(1, 5, "u", WHOLE), Event(None, 6, "u", WHOLE)], partial=True)
    null = pa.array([None, 6], pa.int64())
    table.upsert(rows.set_column(5, "_seq", null), keys=["k"])

    counts = table.head().counts
    assert counts is not None
    assert (counts.applied, counts.quarantined) == (0, 2)
    assert sorted(str(row["reason"]) for row in side(table, "quarantine")) == [
        "no key",
        "no sequence",
    ]


def test_events_that_go_to_the_quarantine_are_one_warning_that_a_replay_does_not_repeat(
    create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(SCHEMA)
    bad = [Event(None, 5, "u", WHOLE), Event(None, 6, "d"), Event(1, 5, "u", WHOLE)]
    send(table, [Event(1, 4, "u", WHOLE)], app_id="a", batch_id=0)
    assert not caplog.messages

    for _ in range(2):
        send(table, bad, app_id="a", batch_id=1)
    table.retry()

    (text,) = caplog.messages
    assert text.startswith("2 of 3 events could not be applied")
    assert "2 of them because of: no key." in text
    assert f"fuse-stream quarantine {table.metadata.store.url}" in text


def test_the_warning_of_bad_events_names_the_reason_of_most_and_the_branch(
    create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(SCHEMA)
    table.create_branch("try")
    rows = table_of([Event(number, 5, "u", WHOLE) for number in range(3)], partial=True)
    errors = pa.array(["unreadable", 'failed cast: a="1"', 'failed cast: a="2"'])
    at = rows.column_names.index("_error")
    branch = open_table(table.metadata.store, branch="try", probe_store=False)
    branch.upsert(rows.set_column(at, "_error", errors), keys=["k"])

    (record,) = caplog.records
    assert "2 of them because of: failed cast: a." in record.getMessage()
    assert record.getMessage().endswith("--branch try")
    assert record.__dict__["fuse"]["reasons"] == {"unreadable": 1, "failed cast: a": 2}


def test_events_with_equal_sequences_are_told(create: Create) -> None:
    table = create(SCHEMA)
    greater = (("a", 2), ("b", 1), ("c", 1))
    batches = [
        [Event(1, 5, "u", WHOLE)],
        [Event(1, 5, "u", WHOLE)],
        [Event(1, 5, "u", greater)],
        [Event(2, 5, "u", WHOLE), Event(2, 5, "u", WHOLE), Event(2, 5, "d")],
    ]
    for number, batch in enumerate(batches):
        send(table, batch, app_id="a", batch_id=number)

    log = [table.snapshot(version).counts for version in range(1, 5)]
    assert [(c.applied, c.duplicate, c.quarantined) for c in log if c] == [
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 1),
    ]
    assert state(table) == {1: (2, 1, 1), 2: (1, 1, 1)}
    assert [row["reason"] for row in side(table, "quarantine")] == ["tie", "tie"]


def test_an_event_that_lacks_a_needed_value_is_applied_when_it_is_not_needed_any_more(
    create: Create,
) -> None:
    table = create(NEEDED)
    send(table, [Event(1, 5, "u", (("a", None), ("b", 1), ("c", 1)))])

    assert [row["reason"] for row in side(table, "quarantine")] == ["no value: a"]
    assert table.retry("reason = 'tie'").snapshot is None
    assert table.retry(dry_run=True).events == 1
    result = table.retry()
    assert (result.events, result.quarantined) == (1, 1)
    assert len(side(table, "quarantine")) == 1


def test_a_history_keeps_the_columns_that_it_tracks(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], stored_as_scd_type=2, track_history_column_list=["a"])

    with pytest.raises(InvalidInputError, match="tracked"):
        send(
            table, [Event(1, 6, "u", WHOLE)], stored_as_scd_type=2, track_history_column_list=["b"]
        )
    with pytest.raises(SchemaMismatchError, match="pass stored_as_scd_type=2"):
        send(table, [Event(1, 6, "u", WHOLE)])
    with pytest.raises(SchemaMismatchError, match=r"Table\.upsert \[operation="):
        table.append(pa.Table.from_pylist([{"k": 1}], schema=SCHEMA))


def test_a_sequence_keeps_its_type(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)])
    texts = table_of([Event(1, 6, "u", WHOLE)], partial=False)
    texts = texts.set_column(5, "_seq", pa.array(["6"]))

    with pytest.raises(SchemaMismatchError, match="sequence"):
        table.upsert(texts, sequence_by="_seq", except_column_list=["_seq", "_op"])
    with pytest.raises(InvalidInputError, match="sequence"):
        table.upsert(
            texts.set_column(5, "_seq", pa.array([1.5])),
            sequence_by="_seq",
            except_column_list=["_seq", "_op"],
        )
    with pytest.raises(SchemaMismatchError, match="sequence_by"):
        table.upsert(pa.Table.from_pylist([{"k": 1}], schema=SCHEMA))


def test_a_numbered_batch_of_events_is_repeated_safely(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], app_id="a", batch_id=0)
    version = table.head().version
    send(table, [Event(1, 5, "u", WHOLE)], app_id="a", batch_id=0)

    assert table.head().version == version
    with pytest.raises(StreamIdentityError):
        send(table, [Event(1, 6, "u", WHOLE)], app_id="a", batch_id=0)


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_the_error_for_rows_that_are_no_events_says_what_changes_the_table(
    create: Create, verb: str
) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)])

    with pytest.raises(SchemaMismatchError, match=r'mode="upsert".* by delete and update'):
        getattr(table, verb)(pa.Table.from_pylist([{"k": 1}], schema=SCHEMA))


@pytest.mark.parametrize(
    "given",
    [{"sequence_by": "SEQ"}, {"sequence_by": "seq", "except_column_list": ["OP"]}],
)
def test_the_error_for_a_column_that_events_lack_names_the_nearest(
    create: Create, given: dict[str, object]
) -> None:
    rows = pa.table({"k": [1], "a": [1], "seq": [1], "op": ["u"]})

    with pytest.raises(InvalidInputError) as raised:
        create(SCHEMA).upsert(rows, keys=["k"], **given)  # type: ignore[arg-type]
    assert raised.value.context["nearest"] == str(raised.value.context["column"]).lower()


@pytest.mark.parametrize("columns", [[], ["a"], ["k"]])
def test_the_key_of_events_stays(create: Create, columns: list[str]) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE), Event(2, 5, "u", (("a", 7),))])

    with pytest.raises(SchemaMismatchError, match="events"):
        table.set_key(columns)


@pytest.mark.parametrize("column", ["k", "__START_AT", "__END_AT"])
def test_what_a_history_makes_of_events_is_not_updated(create: Create, column: str) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE), Event(2, 5, "u", WHOLE)], stored_as_scd_type=2)

    with pytest.raises(SchemaMismatchError, match="history"):
        table.update("k = 1", {column: 2})


def test_the_key_of_an_event_is_not_updated(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)])

    with pytest.raises(InvalidInputError, match="key"):
        table.update("k = 1", {"k": 2})


def test_an_event_that_goes_back_to_the_quarantine_keeps_its_batch(
    create: Create, clock: ManualClock
) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], app_id="a", batch_id=0)
    send(table, [Event(1, 5, "u", (("a", 0),))], app_id="a", batch_id=1)
    names = ["reason", "app_id", "writer", "batch_id", "at"]
    before = [{name: row[name] for name in names} for row in side(table, "quarantine")]
    clock.advance(60)
    table.retry()

    assert [{name: row[name] for name in names} for row in side(table, "quarantine")] == before
    assert before[0]["batch_id"] == 1


def test_events_are_retried_after_the_table_got_a_column(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE), Event(1, 5, "u", (("a", 0),))])
    wide = table_of([Event(1, 9, "u", WHOLE)], partial=False).append_column("z", pa.array([1]))
    rules = {"sequence_by": "_seq", "except_column_list": ["_op", "_seq"]}
    table.upsert(wide, merge_schema=True, **rules)  # type: ignore[arg-type]

    result = table.retry()
    assert result.events == 1
    assert result.quarantined == 0
    assert table.to_arrow().to_pylist()[0]["z"] == 1


def test_a_null_among_the_names_of_unset_columns_names_none(create: Create) -> None:
    table = create(SCHEMA)
    rows = table_of([Event(1, 5, "u", WHOLE)], partial=True)
    at = rows.column_names.index("_unset")
    lists = pa.array([[None, "a"]], pa.list_(pa.string()))
    table.upsert(rows.set_column(at, "_unset", lists), keys=["k"])

    assert state(table)[1][0] is None
    assert state(table)[1][1] is not None


@pytest.mark.parametrize("name", ["a", "_seq"])
def test_events_with_two_columns_of_a_name_are_refused(create: Create, name: str) -> None:
    rows = table_of([Event(1, 5, "u", WHOLE)], partial=False)

    with pytest.raises(InvalidInputError, match="name"):
        create(SCHEMA).upsert(
            rows.append_column(name, pa.array([1])),
            keys=["k"],
            sequence_by="_seq",
            except_column_list=["_op", "_seq"],
        )


def test_a_column_that_a_frame_of_a_reader_lacks_is_not_given(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], partial=True)
    later = table_of([Event(1, 6, "u", (("a", 2), ("b", 2), ("c", 2)))], partial=True)
    none = pa.array([[]], pa.list_(pa.string()))
    unset = later.schema.get_field_index("_unset")
    later = later.set_column(unset, "_unset", none).drop_columns(["c"])
    table.upsert(later, merge_schema=True)

    assert state(table) == {1: (2, 2, 1)}


def test_columns_of_the_envelope_have_the_types_of_a_reader(create: Create) -> None:
    rows = table_of([Event(1, 5, "u", WHOLE)], partial=True)
    at = rows.schema.get_field_index("_unset")

    with pytest.raises(InvalidInputError, match="_unset"):
        create(SCHEMA).upsert(rows.set_column(at, "_unset", pa.array(["a"])), keys=["k"])


def test_rows_of_a_history_are_not_changed_by_hand(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], stored_as_scd_type=2)

    with pytest.raises(SchemaMismatchError, match="history"):
        table.delete("k = 1")
    with pytest.raises(SchemaMismatchError, match="history"):
        table.update("k = 1", {"a": 7})


@pytest.mark.parametrize("name", ["_fuse_sequence", "__START_AT", "__end_at"])
def test_a_column_with_a_name_of_the_tables_own_is_refused(create: Create, name: str) -> None:
    rows = table_of([Event(1, 5, "u", WHOLE)], partial=False).append_column(name, pa.array([1]))
    options = {"keys": ["k"], "sequence_by": "_seq", "except_column_list": ["_op", "_seq"]}

    with pytest.raises(InvalidInputError, match="name"):
        create(SCHEMA).upsert(rows, merge_schema=True, **options)  # type: ignore[arg-type]


def test_a_history_tracks_some_column(create: Create) -> None:
    with pytest.raises(InvalidInputError, match="leave it out"):
        send(create(SCHEMA), [], stored_as_scd_type=2, track_history_column_list=[])


def test_what_a_row_had_before_the_first_event_stays_until_an_event_gives_the_column_a_value(
    create: Create,
) -> None:
    table = create(SCHEMA)
    table.append(pa.Table.from_pylist([{"k": 1, "a": 1, "b": 2, "c": 3}], schema=SCHEMA))
    for seq, value in ((1, 5), (2, 6)):
        send(table, [Event(1, seq, "u", (("a", value),))], partial=True)

    assert state(table) == {1: (6, 2, 3)}
    send(table, [Event(1, 0, "d")], partial=True)
    assert state(table) == {1: (6, None, None)}


@pytest.mark.parametrize("scd", [1, 2])
@pytest.mark.parametrize("seqs", [6, 1000], ids=["equal sequences", "different sequences"])
@seeds(5, 12)
def test_rows_that_lack_a_needed_value_are_not_shown_whatever_came_first(
    create: Create, seed: int, seqs: int, scd: int
) -> None:
    chance = random.Random(f"{seed} {seqs} {scd}")
    log = log_of(chance, 40, keys=4, seqs=seqs, partial=True, truncates=chance.random() < 0.5)
    log = [event for event in log if ("a", None) not in event.values]
    table = create(NEEDED)
    sent: list[Event] = []

    for batch in batches_of(chance, log):
        send(table, batch, partial=True, stored_as_scd_type=scd)
        sent += batch
        if chance.random() < 0.3:
            table.retry()

        check_whole(table, sent, scd)
        counts = table.head().counts
        assert counts is not None
    send(table, log, partial=True, stored_as_scd_type=scd)
    check_whole(table, log, scd)


def check_whole(table: Table, events: list[Event], scd: int) -> None:
    """Check that a table with `NEEDED` columns has the rows that events leave, if they fit."""
    if scd == 1:
        rows = state_of(events)
        assert state(table) == {key: row for key, row in rows.items() if row[0] is not None}
        return
    whole = {
        key: [row for row in rows if row[2][0] is not None]
        for key, rows in history_of(events).items()
    }
    assert histories(table) == {key: rows for key, rows in whole.items() if rows}


@pytest.mark.parametrize("scd", [1, 2])
def test_an_event_whose_row_lacks_a_needed_value_is_kept_until_others_bring_it(
    create: Create, scd: int
) -> None:
    table = create(NEEDED)
    batch = [Event(1, 5, "u", (("b", 2),)), Event(2, 5, "u", WHOLE)]
    with pytest.raises(InvalidInputError, match="no value: a"):
        send(table, batch, partial=True, stored_as_scd_type=scd, on_bad="error")
    send(table, batch, partial=True, stored_as_scd_type=scd)

    counts = table.head().counts
    assert counts is not None
    assert (counts.applied, counts.quarantined) == (1, 1)
    assert [row["reason"] for row in side(table, "quarantine")] == ["no value: a"]
    assert table.to_arrow(columns=["k"]).to_pylist() == [{"k": 2}]
    assert table.retry().snapshot is None
    send(table, [Event(1, 3, "u", WHOLE)], partial=True, stored_as_scd_type=scd)
    rows = table.to_arrow(where="k = 1", columns=["a", "b"]).to_pylist()
    assert {"a": 1, "b": 2} in rows
    assert table.retry().quarantined == 0
    assert side(table, "quarantine") == []


def test_a_late_delete_takes_a_row_away_that_lacks_a_needed_value_then(create: Create) -> None:
    table = create(NEEDED)
    send(table, [Event(1, 1, "u", WHOLE), Event(1, 3, "u", (("b", 2),))], partial=True)
    send(table, [Event(1, 2, "d")], partial=True)

    assert state(table) == {}
    assert [(row["op"], row["reason"]) for row in side(table, "quarantine")] == [
        ("d", "no value: a")
    ]
    send(table, [Event(1, 4, "u", (("a", 7),))], partial=True)
    assert state(table) == {1: (7, 2, None)}


def test_a_null_that_is_ignored_is_no_bad_value(create: Create) -> None:
    table = create(NEEDED)
    send(table, [Event(1, 1, "u", WHOLE)], ignore_null_updates=True)
    send(table, [Event(1, 2, "u", (("a", None), ("b", 2)))], ignore_null_updates=True)

    assert state(table) == {1: (1, 2, 1)}


def schema_of(parts: pa.DataType) -> pa.Schema:
    """Return a key, and columns that hold values of a type."""
    return pa.schema(
        [
            pa.field("k", pa.int64()),
            pa.field("s", parts),
            pa.field("l", pa.list_(parts)),
            pa.field("m", pa.map_(pa.string(), parts)),
        ]
    )


def test_an_event_that_lacks_a_needed_value_inside_another_is_kept(create: Create) -> None:
    needed = schema_of(pa.struct([pa.field("x", pa.int64(), nullable=False)]))
    given = schema_of(pa.struct([("x", pa.int64())]))
    table = create(needed)
    rows = [
        {"k": 1, "s": {"x": 1}, "l": [{"x": 1}], "m": [("a", {"x": 1})]},
        {"k": 2, "s": None, "l": None, "m": None},
        {"k": 3, "s": {"x": None}, "l": None, "m": None},
        {"k": 4, "s": None, "l": [None, {"x": 1}, {"x": None}], "m": None},
        {"k": 5, "s": None, "l": [], "m": [("a", None), ("b", {"x": None})]},
    ]
    numbered = pa.Table.from_pylist(rows, schema=given).append_column("n", pa.array([1] * 5))
    table.upsert(numbered, keys=["k"], sequence_by="n", except_column_list=["n"])

    assert sorted(table.to_arrow().column("k").to_pylist()) == [1, 2]
    assert sorted(str(row["reason"]) for row in side(table, "quarantine")) == [
        "no value: l",
        "no value: m",
        "no value: s",
    ]


@pytest.mark.parametrize(("op", "reason"), [("x", "unknown op: x"), (None, "unknown op")])
def test_an_event_with_an_operation_that_is_not_known_is_bad(
    create: Create, op: str | None, reason: str
) -> None:
    table = create(SCHEMA)
    rows = table_of([Event(1, 5, "u", WHOLE), Event(2, 5, "u", WHOLE)], partial=True)
    at = rows.schema.get_field_index("_op")
    rows = rows.set_column(at, "_op", pa.array(["u", op], pa.string()))
    with pytest.raises(InvalidInputError, match=reason):
        table.upsert(rows, keys=["k"], on_bad="error")
    table.upsert(rows, keys=["k"])

    assert set(state(table)) == {1}
    assert [row["reason"] for row in side(table, "quarantine")] == [reason]


def test_what_events_do_is_left_to_predicates_that_are_given(create: Create) -> None:
    table = create(SCHEMA)
    rows = table_of([Event(1, 5, "c", WHOLE), Event(2, 5, "gone")], partial=True)
    table.upsert(rows, keys=["k"], apply_as_deletes="_op = 'gone'")

    assert set(state(table)) == {1}


@pytest.mark.parametrize(("keys", "nearest"), [(["K"], "k"), (["zz"], None)])
def test_a_key_that_is_no_column_is_told_with_the_nearest_one(
    create: Create, keys: list[str], nearest: str | None
) -> None:
    rows = table_of([Event(1, 5, "u", WHOLE)], partial=False)
    options = {"sequence_by": "_seq", "except_column_list": ["_op", "_seq"]}
    with pytest.raises(InvalidInputError, match="there is no such column") as raised:
        create(SCHEMA).upsert(rows, keys=keys, **options)  # type: ignore[arg-type]

    assert raised.value.context["nearest"] == nearest
    assert raised.value.context["columns"] == ["k", *COLUMNS]


def test_hidden_columns_are_not_named_as_the_nearest_ones(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)])
    with pytest.raises(InvalidInputError) as raised:
        table.to_arrow(where="zz = 2")

    assert raised.value.context["nearest"] == ["k", *COLUMNS]


@pytest.mark.parametrize("scd", [1, 2])
def test_a_side_to_which_events_brought_nothing_yet_is_empty(create: Create, scd: int) -> None:
    table = create(NEEDED)
    send(table, [Event(1, 5, "u", WHOLE)], partial=True, stored_as_scd_type=scd)
    names = ["coalesced", "quarantine", "tombstones"]
    empty = {name: table.to_arrow(side=name) for name in names}
    assert table.head().sides == {}
    assert {name: len(rows) for name, rows in empty.items()} == dict.fromkeys(names, 0)
    events = [Event(1, 5, "d"), Event(2, 5, "u", (("b", 1),)), Event(3, 5, "d")]
    send(table, events, partial=True, stored_as_scd_type=scd)

    assert sorted(table.head().sides) == names
    for name, rows in empty.items():
        assert rows.schema.names == table.to_arrow(side=name).schema.names
        assert rows.schema.types == table.to_arrow(side=name).schema.types
    with pytest.raises(NotFoundError, match="no such side"):
        table.to_arrow(side="quarantined")


def test_a_truncate_of_a_history_is_one_event_that_ends_rows(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(key, 1, "u", WHOLE) for key in range(5)], stored_as_scd_type=2)
    for number in range(2):
        truncate = [Event(None, 3, "t")]
        send(table, truncate, stored_as_scd_type=2, app_id="a", batch_id=number)

    log = [table.snapshot(version).counts for version in (2, 3)]
    assert [(c.applied, c.duplicate, c.updated, c.deleted) for c in log if c] == [
        (1, 0, 5, 0),
        (0, 1, 0, 0),
    ]


def test_an_empty_batch_without_a_number_changes_a_table_of_events_once(create: Create) -> None:
    table = create(SCHEMA)
    for _ in range(2):
        send(table, [])

    assert table.head().version == 1
    assert table.head().sequence is not None


@pytest.mark.parametrize("lost", ENVELOPE[1:])
def test_events_that_lack_a_part_of_their_reader_are_refused(lost: str, create: Create) -> None:
    table = create(SCHEMA)
    rows = table_of([Event(1, 5, "u", WHOLE)], partial=True)
    before = table.head()

    with pytest.raises(InvalidInputError, match="pass _op to _source as the reader gives them"):
        table.upsert(rows.drop_columns([lost]), keys=["k"])
    assert table.head() == before
