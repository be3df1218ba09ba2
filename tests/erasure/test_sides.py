"""Erasing rows from the sides: tombstones, events of the quarantine, and coalesced rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.dml.result import ChangeResult
from fuse_stream.erasure.rewrite_head import ErasedSide
from fuse_stream.erasure.sought import Sought
from fuse_stream.format.raw_text import text_of
from fuse_stream.format.sides import side_views
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import temporary_table
from tests.erasure.contents import bytes_of, holding
from tests.kit.envelopes import envelope_of

SCHEMA = pa.schema([("email", pa.string()), ("phone", pa.string()), ("n", pa.int64())])
EVENTS = envelope_of(SCHEMA)
ADA, BOB, EVE = "ada@example.org", "bob@example.org", "eve@example.org"
WHERE = f"email = '{ADA}'"
HOUR = 3_600_000_000


def event(email: str | None, seq: int | None, op: str = "u", **more: object) -> dict[str, object]:
    return {"email": email, "_op": op, "_seq": seq, "_unset": [], **more}


def text(raw: str) -> dict[str, object]:
    """A message that could not be read as an event."""
    return {"_op": "u", "_unset": [], "_error": "unreadable", "_raw": raw}


def send(table: Table, *events: dict[str, object], **more: Any) -> ChangeResult:
    rows = pa.Table.from_pylist(list(events), schema=EVENTS)
    return table.upsert(rows, keys=["email"], sequence_by="_seq", **more)


def made(**more: Any) -> tuple[Table, MemoryStore, ManualClock]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    quick = {"fuse.grace": "1s", "fuse.vacuum.age": "1s"}
    properties = {**quick, **more.pop("properties", {})}
    return (
        temporary_table(SCHEMA, store=store, clock=clock, properties=properties, **more),
        store,
        clock,
    )


def held(table: Table, side: str) -> list[dict[str, Any]]:
    """Return the rows in the blocks of a side, hidden ones included."""
    view = side_views(table.head()).get(side)
    return [
        row
        for block in (iter_blocks(table.metadata, view) if view else ())
        for row in load_block(
            table.metadata.store, block.hiding(None), view.schema if view else table.head().schema
        ).to_pylist()
    ]


def side_of(report: Any, name: str) -> ErasedSide:
    (found,) = (side for side in report.branches[0].sides if side.name == name)
    assert isinstance(found, ErasedSide)
    return found


def emptied(table: Table, clock: ManualClock) -> None:
    clock.advance(HOUR)
    table.expire(keep_last=1)
    for _ in range(2):
        clock.advance(HOUR)
        table.vacuum()


def test_a_tombstone_goes_with_the_rows_of_its_key() -> None:
    table, store, clock = made()
    send(table, event(ADA, 1), event(BOB, 1), event(EVE, 1))
    send(table, event(ADA, 2, "d"), event(BOB, 2, "d"))
    report = table.erase(WHERE)

    assert [row["email"] for row in held(table, "tombstones")] == [BOB]
    assert side_of(report, "tombstones") == ErasedSide(
        name="tombstones", row_count=1, block_count=1
    )
    assert table.head().operation == "erase"
    assert "sides" in table.head().required_features
    assert table.fsck(deep=True).is_sound
    found = table.erase(WHERE, verify=True).verification
    assert found is not None
    assert any("rows that match: 1" in item.found for item in found.findings)
    emptied(table, clock)
    again = table.erase(WHERE, verify=True).verification
    assert again is not None
    assert [item for item in again.objects if item.kind == "block" and item.found] == []
    blocks = {key: data for key, data in bytes_of(store).items() if key.startswith("_b/")}
    assert holding(blocks, ADA.encode()) == []


def test_rows_without_a_column_are_judged_in_a_table_with_a_map() -> None:
    mapped = pa.schema([("email", pa.string()), ("tags", pa.map_(pa.string(), pa.string()))])
    table = temporary_table(mapped)
    narrow = temporary_table(pa.schema([("n", pa.int64())])).head().schema
    sought = Sought(WHERE, table.head().schema, time_zone="UTC")

    assert sought.matches(narrow).predicate is not None


def test_what_only_a_tombstone_holds_is_erased_by_a_commit_that_changes_no_data() -> None:
    table, _, _ = made()
    send(table, event(ADA, 2, "d"), event(BOB, 1))
    before = table.head()
    done = table.erase(WHERE).branches[0]

    assert done.row_count == 0
    assert done.snapshot is not None
    assert done.snapshot.data_change is False
    assert done.snapshot.segments == before.segments
    assert "tombstones" not in done.snapshot.sides
    assert table.erase(WHERE).branches[0].snapshot is None


def test_a_predicate_on_other_columns_leaves_the_tombstones_and_counts_them() -> None:
    table, _, _ = made()
    send(table, event(ADA, 1, phone="123456"), event(BOB, 2, "d"), event(EVE, 2, "d"))
    report = table.erase("phone = '123456'")

    assert side_of(report, "tombstones") == ErasedSide(name="tombstones", unjudged_count=2)
    assert {row["email"] for row in held(table, "tombstones")} == {BOB, EVE}
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("where", ["email IS NULL", f"NOT (email <=> '{BOB}')"])
def test_markers_without_a_key_are_never_erased(where: str) -> None:
    table, _, _ = made()
    truncates = {"apply_as_truncates": "_op = 't'"}
    send(table, event(BOB, 1), **truncates)
    send(table, event(None, 3, "t"), event(ADA, 4, "d"), **truncates)
    table.erase(where)

    assert "truncate" in {row["_fuse_kind"] for row in held(table, "tombstones")}


def test_after_an_erasure_the_law_of_events_holds_for_other_keys() -> None:
    table, _, _ = made()
    send(table, event(ADA, 1), event(BOB, 1, n=1), event(EVE, 1))
    send(table, event(ADA, 5, "d"), event(BOB, 5, "d"))
    table.erase(WHERE)
    send(table, event(BOB, 3, n=3), event(EVE, 2, n=2), event(EVE, 1, n=1))

    assert table.to_arrow(columns=["email", "n"]).to_pylist() == [{"email": EVE, "n": 2}]
    send(table, event(BOB, 6, n=6))
    assert sorted(table.to_arrow()["email"].to_pylist()) == [BOB, EVE]


def test_an_event_of_the_quarantine_is_judged_by_its_fields() -> None:
    table, _, _ = made()
    send(table, event(EVE, 1))
    send(table, event(ADA, None), event(BOB, None))
    assert len(held(table, "quarantine")) == 2
    report = table.erase(WHERE)

    assert side_of(report, "quarantine") == ErasedSide(
        name="quarantine", row_count=1, block_count=1
    )
    assert [row["event"]["email"] for row in held(table, "quarantine")] == [BOB]
    assert table.fsck(deep=True).is_sound


def test_a_text_of_the_quarantine_goes_if_it_has_the_value_as_a_word() -> None:
    table, _, _ = made()
    send(table, event(EVE, 1))
    send(table, text(f'{{"email": "{ADA}"}}'), text(f"x{ADA}"), text("{"))
    report = table.erase(WHERE)

    assert [row["raw"] for row in held(table, "quarantine")] == [f"x{ADA}", "{"]
    assert side_of(report, "quarantine") == ErasedSide(
        name="quarantine", row_count=1, block_count=1, unjudged_count=2
    )
    found = table.erase(WHERE, verify=True).verification
    assert found is not None
    assert any(f"a value of column raw has '{ADA}'" in item.found for item in found.findings)


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (f"email = '{ADA}' AND phone = '123456'", 1),
        (f"email = '{ADA}' AND n > 3", 2),
        (f"email LIKE '{ADA}%'", 2),
        (f"email IN ('{ADA}', '{EVE}') OR n > 3", 1),
        ("n = 12", 2),
    ],
)
def test_a_text_goes_only_by_equalities_of_which_it_has_the_values(where: str, left: int) -> None:
    table, _, _ = made()
    send(table, event(BOB, 1))
    send(table, text(f"{ADA} 123456 12"), text(f"{BOB} 123456 12"))
    table.erase(where)

    assert len(held(table, "quarantine")) == left


def test_a_message_that_is_kept_in_base64_is_searched_as_what_it_was() -> None:
    table, _, clock = made()
    mine, shared = (text(text_of(b"\xff" + word.encode())) for word in (ADA, f"{ADA} 2"))
    send(table, event(BOB, 1), mine)
    report = table.erase(WHERE)

    assert side_of(report, "quarantine").row_count == 1
    assert held(table, "quarantine") == []
    send(table, shared)
    table.erase(f"{WHERE} AND phone = '555-0199'")
    emptied(table, clock)
    found = table.erase(f"{WHERE} AND phone = '555-0199'", verify=True).verification
    assert found is not None
    assert [row["raw"] for row in held(table, "quarantine")] == [shared["_raw"]]
    assert [f"a value of column raw has '{ADA}'" in item.found for item in found.findings] == [True]


ZOE = 'Zoë "Z" \U0001f600'


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps({"note": ZOE}, ensure_ascii=False),
        json.dumps({"note": ZOE}),
        json.dumps({"note": ZOE}).replace("\\ud83d", "\\uD83D"),
        json.dumps({"payload": json.dumps({"note": f"to\n{ZOE}"})}),
        "".join(f"\\u{ord(char):04x}" for char in "Zo") + json.dumps(ZOE[2:])[1:-1],
    ],
    ids=["plain", "escaped", "capitals", "within a text", "all escaped"],
)
def test_a_value_is_found_in_a_text_as_json_escapes_it(raw: str) -> None:
    table, _, clock = made(properties={"fuse.private": "email"})  # records show no bounds
    send(table, event(BOB, 1), text(raw), text(raw.replace("Z", "Y").replace("\\u005a", "Y")))
    where = f"email = '{ZOE}'"
    both = f"{where} AND phone = '555-0199'"
    table.erase(both)
    emptied(table, clock)
    proof = table.erase(both, verify=True).verification
    assert proof is not None
    found = [text for item in proof.findings for text in item.found]
    assert found.count(f"a value of column raw has {ZOE!r}") == 1

    table.erase(where)
    assert len(held(table, "quarantine")) == 1
    emptied(table, clock)
    proof = table.erase(where, verify=True).verification
    assert proof is not None
    assert proof.is_clean


def test_coalesced_rows_go_by_the_predicate_too() -> None:
    table, _, _ = made()
    history = {"stored_as_scd_type": 2, "track_history_column_list": ["phone"]}
    send(table, event(ADA, 1, phone="1", n=1), event(BOB, 1, phone="2", n=1), **history)
    send(table, event(ADA, 2, phone="1", n=2), event(BOB, 2, phone="2", n=2), **history)
    assert {row["email"] for row in held(table, "coalesced")} == {ADA, BOB}
    table.erase(WHERE)

    assert {row["email"] for row in held(table, "coalesced")} == {BOB}
    assert set(table.to_arrow()["email"].to_pylist()) == {BOB}
    assert table.fsck(deep=True).is_sound


def test_older_versions_hold_what_a_side_had() -> None:
    table, _, _ = made()
    send(table, event(ADA, 2, "d"), event(BOB, 1))
    table.erase(WHERE)
    report = table.erase(WHERE)

    (holder,) = report.holders
    assert (str(holder.kind), holder.row_count) == ("versions", 1)


def test_a_dry_run_counts_the_sides_and_writes_nothing() -> None:
    table, store, _ = made()
    send(table, event(ADA, 2, "d"), event(BOB, 1))
    before = bytes_of(store)
    report = table.erase(WHERE, dry_run=True)

    assert side_of(report, "tombstones").row_count == 1
    assert bytes_of(store) == before


def test_no_record_of_a_side_shows_a_bound_of_a_private_column() -> None:
    table, store, _ = made(properties={"fuse.private": "email"})
    send(table, event(EVE, 1), event(ADA, 2, "d"), event(BOB, None), text(f"raw {ADA}"))
    send(table, event(EVE, 2, "d"))

    assert set(table.head().sides) == {"quarantine", "tombstones"}
    records = {key: data for key, data in bytes_of(store).items() if not key.startswith("_b/")}
    for name in (ADA, BOB, EVE):
        assert holding(records, name.encode()) == []
    shown = side_views(table.head())["quarantine"]
    bounded = {leaf.column.id: leaf.path for leaf in shown.schema.leaves()}
    paths = {bounded[at] for at, item in shown.summary.col_stats.items() if item.max is not None}
    assert ("event", "email") not in paths
    assert ("raw",) not in paths
