"""A month of a database's change log leaves what the database holds, at every hundredth change.

The events come in shuffled and overlapping batches. Some batches come twice, and events of older
windows come again at any time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from tests.dml.change_log import (
    COLUMNS,
    DAY_US,
    KEY,
    TRUNCATES_AT,
    Change,
    Database,
    Month,
    Row,
    Span,
)
from tests.kit.envelopes import envelope_of
from tests.kit.strides import NIGHT

Create = Callable[..., Table]

WINDOW = 100
DAY, MONTH = Span(days=1, changes=500), Span(days=30, changes=30_000)
CENTS = pa.decimal128(12, 2)
TYPES = {"c_since": pa.timestamp("us", "UTC"), "c_balance": CENTS, "c_ytd_payment": CENTS}
SUMMED = ("c_balance", "c_ytd_payment", "c_payment_cnt", "c_delivery_cnt")
SCHEMA = pa.schema(
    [
        (name, TYPES.get(name, pa.string() if "TEXT" in kind else pa.int64()))
        for name, kind in COLUMNS.items()
    ]
)
PLACE = {"file": pa.int64(), "place": pa.int64(), "row": pa.int64()}
PARTIAL = envelope_of(SCHEMA, pa.struct(PLACE))
NULLS = pa.schema([*SCHEMA, ("op", pa.string()), *PLACE.items()])


# ---- events of changes


def in_arrow(rows: list[Row]) -> pa.Table:
    """Return rows of the database in the types of the table."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    arrays = []
    for field, values in zip(SCHEMA, columns, strict=True):
        if field.type == CENTS:
            whole = pa.array(values, pa.int64()).cast(pa.decimal128(19, 0))
            arrays.append(
                pc.multiply(whole, pa.scalar("0.01").cast(pa.decimal128(2, 2))).cast(CENTS)
            )
        elif field.type == TYPES["c_since"]:
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=SCHEMA)


def unset_of(change: Change) -> list[str]:
    """Return the columns that the event of a changed row leaves out; the log of some has all."""
    if change.before is None or change.after is None or change.position[1] % 3 == 0:
        return []
    images = zip(COLUMNS, change.before, change.after, strict=True)
    return [name for name, old, new in images if old == new and name not in KEY]


def key_of(row: Row | None) -> Row | None:
    return None if row is None else row[: len(KEY)]


def events_of(changes: list[Change], *, partial: bool) -> pa.Table:
    """Return the events of changes: of a changed key both a delete and an upsert.

    Values that an event does not give are in `_unset` if `partial`, else they are null.
    """
    rows: list[Row] = []
    marks: list[tuple[str, tuple[int, int, int], list[str]]] = []
    nothing: Row = (None,) * len(COLUMNS)
    for change in changes:
        if key_of(change.before) != key_of(change.after) and change.before is not None:
            rows.append((*change.before[: len(KEY)], *nothing[len(KEY) :]))
            marks.append(("d", change.position, []))
        if change.after is not None:
            unset = unset_of(change) if key_of(change.before) == key_of(change.after) else []
            row = zip(COLUMNS, change.after, strict=True)
            rows.append(tuple(None if name in unset else value for name, value in row))
            marks.append(("u", change.position, unset))
        elif change.before is None:
            rows.append(nothing)
            marks.append(("t", change.position, []))
    data = in_arrow(rows)
    places = [dict(zip(PLACE, position, strict=True)) for _, position, _ in marks]
    ops = pa.array([op for op, _, _ in marks])
    if not partial:
        parts = [pa.array([place[name] for place in places], pa.int64()) for name in PLACE]
        return pa.table([*data.columns, ops, *parts], schema=NULLS)
    unset_lists = pa.array([unset for _, _, unset in marks], pa.list_(pa.string()))
    text = pa.nulls(len(marks), pa.string())
    order = pa.array(places, pa.struct(PLACE))
    return pa.table([*data.columns, ops, order, unset_lists, text, text, text], schema=PARTIAL)


def deliveries(
    chance: random.Random, window: list[Change], older: list[Change]
) -> Iterator[list[Change]]:
    """Yield batches that have all of the changes in `window`, and some of the older ones."""
    rest = chance.sample(window, len(window))
    last: list[Change] = []
    while rest:
        size = chance.choice([20, 50, WINDOW])
        again = chance.sample(last, min(len(last), chance.choice([0, 0, 10])))
        late = chance.sample(older, min(len(older), chance.choice([0, 0, 5, 40])))
        batch = again + rest[:size] + late
        chance.shuffle(batch)
        yield batch
        if chance.random() < 0.1:
            yield batch
        rest, last = rest[size:], batch


# ---- the table beside the database


class Copy:
    """A table that gets the events of a database, and is compared with it."""

    def __init__(self, table: Table, *, partial: bool, scd: int) -> None:
        self.table = table
        self._partial, self._scd = partial, scd
        self._sums: Counter[str] = Counter()
        self._summed = 0

    def send(self, batch: list[Change]) -> None:
        events = events_of(batch, partial=self._partial)
        options: dict[str, object] = {"keys": KEY, "stored_as_scd_type": self._scd}
        if not self._partial:
            options |= {
                "sequence_by": list(PLACE),
                "apply_as_deletes": "op = 'd'",
                "apply_as_truncates": "op = 't'",
                "except_column_list": ["op", *PLACE],
                "ignore_null_updates": True,
            }
        before = self.table.head().version
        self.table.upsert(events, on_bad="error", **options)  # type: ignore[arg-type]
        head = self.table.head()
        if head.version > before:
            assert head.counts is not None
            assert head.counts.events == len(events)
            assert head.counts.quarantined == 0

    def rows(self) -> pa.Table:
        current = "true" if self._scd == 1 else "__END_AT IS NULL"
        found = self.table.to_arrow(columns=list(COLUMNS), where=current)
        return found.sort_by([(name, "ascending") for name in KEY])

    def sums(self) -> dict[str, object]:
        """Return what the changes of the table add up to, since it was created."""
        head = self.table.head().version
        if head > self._summed:
            feed = self.table.changes(self._summed + 1).read_all()
            if self._scd == 2:
                feed = feed.filter(feed["__END_AT"].is_null())
            is_new = pc.is_in(feed["_change_type"], pa.array(["insert", "update_postimage"]))
            for sign, part in ((1, feed.filter(is_new)), (-1, feed.filter(pc.invert(is_new)))):
                self._sums["rows"] += sign * len(part)
                for name in SUMMED:
                    total = pc.sum(part[name]).as_py() or 0
                    self._sums[name] += sign * int(total * (100 if name in TYPES else 1))
            self._summed = head
        return {"rows": self._sums["rows"], **{name: self._sums[name] for name in SUMMED}}


def rows_of(database: Database) -> pa.Table:
    rows = database.rows.execute(f"SELECT * FROM customer ORDER BY {', '.join(KEY)}").fetchall()
    return in_arrow(rows)


def sums_of(database: Database) -> dict[str, object]:
    totals = ", ".join(f"ifnull(sum({name}), 0)" for name in SUMMED)
    row = database.rows.execute(f"SELECT count(*), {totals} FROM customer").fetchone()
    return dict(zip(("rows", *SUMMED), row, strict=True))


def check(copy: Copy, database: Database, where: Change) -> None:
    found, expected = copy.rows(), rows_of(database)
    if found != expected:
        ours, theirs = (set(map(str, rows.to_pylist())) for rows in (found, expected))
        raise AssertionError(
            f"after {where.position}, rows that only the table has: {sorted(ours - theirs)[:3]}, "
            f"rows that only the database has: {sorted(theirs - ours)[:3]}"
        )
    assert copy.sums() == sums_of(database), where.position


def follow(
    month: Month, copy: Copy, clock: ManualClock, chance: random.Random
) -> tuple[int, Counter[str]]:
    """Send a month to a table, and compare it at every hundredth change.

    Returns:
        How many times they were compared, and how many changes of each kind there were.
    """
    older: list[Change] = []
    compared = 0
    kinds: Counter[str] = Counter()
    for window in windows_of(month):
        day = clock.wall_us // DAY_US
        clock.wall_us = max(clock.wall_us, window[-1].time_us)
        if clock.wall_us // DAY_US > day:
            copy.table.optimize()
        for batch in deliveries(chance, window, older):
            copy.send(batch)
        check(copy, month.database, window[-1])
        compared += 1
        kinds.update(map(kind_of, window))
        older += window
    return compared, kinds


def windows_of(month: Month) -> Iterator[list[Change]]:
    """Yield the changes in windows; the database has those up to the last yielded one."""
    window: list[Change] = []
    for change in month.iter_changes():
        window.append(change)
        if len(window) == WINDOW:
            yield window
            window = []
    if window:
        yield window


def kind_of(change: Change) -> str:
    before, after = key_of(change.before), key_of(change.after)
    if before is None:
        return "truncate" if after is None else "insert"
    if after is None:
        return "delete"
    return "update" if before == after else "change of key"


@pytest.mark.parametrize("scd", [1, 2])
@pytest.mark.parametrize(
    ("span", "partial"),
    [
        pytest.param(DAY, True, id="a day, unset"),
        pytest.param(DAY, False, id="a day, nulls"),
        pytest.param(MONTH, True, id="a month", marks=NIGHT),
    ],
)
def test_a_month_of_a_change_log_ends_equal_to_the_database_at_every_hundredth_change(
    create: Create,
    clock: ManualClock,
    span: Span,
    partial: bool,  # noqa: FBT001 - a parameter
    scd: int,
) -> None:
    month = Month(random.Random(f"{span} {partial}"), span, sets_null=partial)
    copy = Copy(create(SCHEMA), partial=partial, scd=scd)
    compared, kinds = follow(month, copy, clock, random.Random(scd))

    assert compared >= 0.9 * span.changes / WINDOW
    assert kinds.keys() == {"insert", "update", "delete", "change of key", "truncate"}
    assert kinds["truncate"] == len(TRUNCATES_AT)
    assert kinds["change of key"] > span.changes / 50
