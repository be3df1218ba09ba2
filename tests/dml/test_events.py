"""Events with sequences: a table depends on the set of its events alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError, SchemaMismatchError, StreamIdentityError
from fuse_stream.table.handle import Table
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

Create = Callable[..., Table]


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


def state(table: Table, **which: object) -> State:
    rows = table.to_arrow(columns=["k", *COLUMNS], **which).to_pylist()  # type: ignore[arg-type]
    found = {row["k"]: tuple(row[name] for name in COLUMNS) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seqs", [4, 1000], ids=["equal sequences", "different sequences"])
@pytest.mark.parametrize("seed", range(12))
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
@pytest.mark.parametrize("seed", range(8))
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
    names = ["k", "__START_AT", "__END_AT", *COLUMNS]
    found: History = {}
    for row in sorted(table.to_arrow(columns=names).to_pylist(), key=lambda row: row["__START_AT"]):
        values = tuple(row[name] for name in COLUMNS)
        found.setdefault(row["k"], []).append((row["__START_AT"], row["__END_AT"], values))
    return found


WHOLE = (("a", 1), ("b", 1), ("c", 1))


def side(table: Table, name: str) -> list[dict[str, object]]:
    if name not in table.head().sides:
        return []
    rows: list[dict[str, object]] = table.to_arrow(side=name).to_pylist()
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_there_is_a_tombstone_of_each_deleted_key_and_of_no_other(
    create: Create, seed: int
) -> None:
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
    held = state(table)
    assert len(found) + len(marks) == len(rows)
    assert marks == ([truncated] if truncated >= 0 else [])
    assert found == {
        key: seq for key, seq in deleted.items() if key not in held and seq > truncated
    }


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
    needed = SCHEMA.set(1, pa.field("a", pa.int64(), nullable=False))
    table = create(needed)
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
    with pytest.raises(SchemaMismatchError, match="another way"):
        send(table, [Event(1, 6, "u", WHOLE)])
    with pytest.raises(SchemaMismatchError, match="events"):
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
