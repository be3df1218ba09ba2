"""What is in the three tables of the CDC demo, beside what SQLite says. Without Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text

import fuse_stream as fuse
from demo.cdc_topic import Delivery

TABLES = ("bronze", "silver", "gold")

_SILVER = (
    "SELECT id, customer, lower(trim(status)), amount_cents FROM orders "
    "WHERE lower(trim(status)) <> 'test'"
)
QUERIES = {
    "bronze": "SELECT id, customer, status, amount_cents, note, updated_at FROM orders ORDER BY id",
    "silver": f"{_SILVER} ORDER BY id",
    "gold": f"SELECT customer, count(*), sum(amount_cents) FROM ({_SILVER}) GROUP BY customer "
    "ORDER BY customer",
}
"""What each table must have, asked of a database."""
_CENTS_AT = {"bronze": 3, "silver": 3, "gold": 2}


_MANY = 10
"""A table with more columns is set closer."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one of the tables, in the order of their keys."""

    name: str
    rows: Sequence[tuple[Any, ...]]

    @property
    def cents(self) -> int:
        """The sum of the amounts."""
        return sum(row[_CENTS_AT[self.name]] for row in self.rows)


class Tables:
    """The three tables of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return the folder of a table."""
        return self.folder / name

    def open(self, name: str) -> fuse.Table:
        """Open a table."""
        return fuse.Table.open(self.path(name))

    def rows(self, name: str, version: int | None = None) -> Rows:
        """Return the rows of a table, as `QUERIES` gives them, at a version or now."""
        found = self.open(name).to_arrow(version=version)
        if name == "bronze":
            micros = found["updated_at"].cast(pa.int64())
            found = found.set_column(5, "updated_at", micros)
        rows = [tuple(row.values()) for row in found.to_pylist()]
        if name != "bronze":
            rows = [(*row[:-1], int(row[-1] * 100)) for row in rows]
        if name == "gold":  # a customer whose orders are all gone has a row with 0
            rows = [row for row in rows if row[1]]
        return Rows(name, sorted(rows))

    def versions_of_rounds(self) -> list[dict[str, int]]:
        """Return the version of each table that has the rounds up to each one.

        Of a round that ran again after the rewind, it is the later one.
        """
        versions: dict[int, dict[str, int]] = {}
        for snapshot in reversed(list(self.open("bronze").log())):
            for entry in snapshot.batches.values():
                if snapshot.counts is not None:
                    versions[entry.batch_id] = {"bronze": snapshot.version}
        for name, source in (("silver", "bronze"), ("gold", "silver")):
            read = self._versions_by_source(name)
            for found in versions.values():
                # Compactions may have come in between: they change no row.
                at = min(version for version in read if version >= found[source])
                found[name] = read[at]
        return [found for _, found in sorted(versions.items())]

    def _versions_by_source(self, name: str) -> dict[int, int]:
        found = {}
        for snapshot in reversed(list(self.open(name).log())):
            for entry in snapshot.batches.values():
                for position in entry.sources or ():
                    found[position.version] = snapshot.version
        return found


def rows_in(database: sqlite3.Connection, name: str) -> Rows:
    """Return the rows that a table must have, by a database."""
    return Rows(name, database.execute(QUERIES[name]).fetchall())


def sums_of(tables: Tables, database: sqlite3.Connection) -> Table:
    """Return counts and sums of the three tables beside those of a database."""
    grid = _grid("table", ">version", ">rows", ">SQLite", ">euros", ">SQLite", "")
    for name in TABLES:
        found, right = tables.rows(name), rows_in(database, name)
        grid.add_row(
            name,
            str(tables.open(name).head().version),
            f"{len(found.rows):,}",
            f"{len(right.rows):,}",
            _euros(found),
            _euros(right),
            _mark(is_same=found == right),
        )
    return grid


def picture_of(
    tables: Tables, deliveries: Sequence[Delivery], databases: Sequence[sqlite3.Connection]
) -> tuple[Table, bool]:
    """Return a line a round, each table at the end of it beside SQLite; true if all are the same.

    Args:
        tables: the tables.
        deliveries: what arrived in each round.
        databases: SQLite with the changes that had arrived at the end of each round.
    """
    grid = _grid(
        *("\nround", ">\nevents", ">\nlate", ">\ntwice"),
        *(">bronze\nrows", ">SQLite\nrows", ">bronze\neuros", ">SQLite\neuros"),
        *(">silver\nrows", ">SQLite\nrows", ">gold\neuros", ">SQLite\neuros", ""),
    )
    all_same = True
    versions = tables.versions_of_rounds()
    for number, delivery in enumerate(deliveries):
        found = {name: tables.rows(name, versions[number][name]) for name in TABLES}
        right = {name: rows_in(databases[number], name) for name in TABLES}
        all_same = all_same and found == right
        grid.add_row(
            str(number + 1),
            f"{delivery.events:,}",
            f"{delivery.late:,}",
            f"{delivery.twice:,}",
            *(f"{len(rows['bronze'].rows):,}" for rows in (found, right)),
            *(_euros(rows["bronze"]) for rows in (found, right)),
            *(f"{len(rows['silver'].rows):,}" for rows in (found, right)),
            *(_euros(rows["gold"]) for rows in (found, right)),
            _mark(is_same=found == right),
        )
    return grid, all_same


def counts_of(tables: Tables, deliveries: Sequence[Delivery]) -> tuple[Table, bool]:
    """Return what became of the events of each round; true if every event is counted."""
    bronze = tables.open("bronze")
    grid = _grid("round", ">events", ">applied", ">superseded", ">duplicate", ">quarantined", "")
    all_counted = True
    for number, found in enumerate(tables.versions_of_rounds()):
        counts = bronze.snapshot(found["bronze"]).counts
        assert counts is not None
        parts = (counts.applied, counts.superseded, counts.duplicate, counts.quarantined)
        is_counted = sum(parts) == deliveries[number].events
        all_counted = all_counted and is_counted
        mark = Text("add up", style="green") if is_counted else Text("do NOT", style="red")
        events = f"{deliveries[number].events:,}"
        grid.add_row(str(number + 1), events, *(f"{part:,}" for part in parts), mark)
    return grid, all_counted


def _grid(*headings: str) -> Table:
    grid = Table(box=None, padding=(0, 1, 0, 0) if len(headings) > _MANY else (0, 1))
    for heading in headings:
        right = heading.startswith(">")
        grid.add_column(heading.removeprefix(">"), justify="right" if right else "left")
    return grid


def _euros(rows: Rows) -> str:
    return f"{rows.cents // 100:,}"


def _mark(*, is_same: bool) -> Text:
    return Text("same", style="green") if is_same else Text("NOT the same", style="red")
