"""A shop's orders in SQLite, and the log of their changes: seeded, so that each run has the same.

The log is what the database would write: each change has its place, the LSN, and the transaction
that it is part of. `replica` makes a database of any part of the log; it is what tables are held
against.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypedDict

SEEDED = 1_000
"""Orders that are there before the first round; Debezium reads them as a snapshot."""
CHANGES = 2_500
"""A round has this many changes."""
CUSTOMERS = 40

_CREATE = (
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer INTEGER, status TEXT, "
    "amount_cents INTEGER, note TEXT, updated_at INTEGER)"
)
_INSERT = "INSERT OR REPLACE INTO orders VALUES (:id, :customer, :status, :amount_cents, :note, "
_INSERT += ":updated_at)"
_STATUSES = ("new", "paid", "PAID", " shipped", "test")
"""As different programs of the shop write them."""
_NOTES = (None, "gift", "leave at the door", 'fragile, "glass"', "größer als erwartet")
_START_US = 1_767_225_600_000_000
_FIRST_LSN = 33_554_432
_MOST_IN_TRANSACTION = 5


class Order(TypedDict):
    """A row of the database."""

    id: int
    customer: int
    status: str
    amount_cents: int
    note: str | None
    updated_at: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the log."""

    lsn: int
    last_commit: int | None
    """The LSN of the last commit before it; None for rows of the snapshot."""
    transaction: int
    at_us: int
    op: str
    """Debezium's: `r`, `c`, `u`, `d`, `t`."""
    key: int | None
    """None for a truncate."""
    after: Order | None


class Shop:
    """The source database, while it lives."""

    def __init__(self, file: Path, seed: int, truncated_in: int) -> None:
        """Create the database, with its first orders.

        Args:
            file: of SQLite.
            seed: decides all changes.
            truncated_in: the round in which all orders are deleted at once.
        """
        self._chance = random.Random(seed)
        self._file = file
        self._truncated_in = truncated_in
        self._orders: dict[int, Order] = {}
        self._gone: list[int] = []
        self._next_id, self._lsn, self._transaction = 1, _FIRST_LSN, 700
        self._at_us, self._last_commit = _START_US, _FIRST_LSN
        self._snapshot = [
            self._log("r", order["id"], order)
            for order in (self._new_order(self._new_id()) for _ in range(SEEDED))
        ]
        for change in self._snapshot:
            assert change.after is not None
            self._orders[change.after["id"]] = change.after
        self._store(self._snapshot)

    def run_round(self, number: int, changes: int = CHANGES) -> list[Change]:
        """Make the changes of a round, the first being 1, and return their log."""
        made = self._snapshot if number == 1 else []
        truncate_at = changes // 2 if number == self._truncated_in else -1
        log: list[Change] = []
        while len(log) < changes:
            self._lsn += 1_000
            self._last_commit, self._transaction = self._lsn, self._transaction + 1
            if 0 <= truncate_at <= len(log):
                truncate_at = -1
                self._gone += self._orders
                self._orders.clear()
                log.append(self._log("t", None, None))
                continue
            for _ in range(self._chance.randint(1, _MOST_IN_TRANSACTION)):
                log += self._change()
        self._store(log)
        return [*made, *log]

    def _change(self) -> Iterator[Change]:
        """Change one order; a new id is a delete and an insert, as Debezium sends it."""
        chance = self._chance
        kind = chance.random()
        if kind < 0.45 or len(self._orders) < SEEDED // 5:
            is_again = kind < 0.04 and bool(self._gone)
            key = self._gone.pop(chance.randrange(len(self._gone))) if is_again else self._new_id()
            yield self._put("c", self._new_order(key))
            return
        recent = chance.randrange(min(SEEDED, len(self._orders)))
        order = self._orders[next(islice(reversed(self._orders), recent, None))]
        if kind < 0.86:
            yield self._put("u", self._changed(order))
            return
        del self._orders[order["id"]]
        self._gone.append(order["id"])
        gone = self._log("d", order["id"], None)
        yield gone
        if kind > 0.98:  # both are one change of the log
            moved = self._put("c", replace_id(self._changed(order), self._new_id()))
            yield replace(moved, lsn=gone.lsn)

    def _put(self, op: str, order: Order) -> Change:
        self._orders[order["id"]] = order
        return self._log(op, order["id"], order)

    def _log(self, op: str, key: int | None, after: Order | None) -> Change:
        self._at_us += self._chance.randint(1_000, 900_000)
        if op != "r":  # the rows of a snapshot are read at one place of the log
            self._lsn += self._chance.randint(40, 400)
        if after is not None:
            after = {**after, "updated_at": self._at_us}
            self._orders[after["id"]] = after
        return Change(
            lsn=self._lsn,
            last_commit=None if op == "r" else self._last_commit,
            transaction=self._transaction,
            at_us=self._at_us,
            op=op,
            key=key,
            after=after,
        )

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _new_order(self, key: int) -> Order:
        chance = self._chance
        return {
            "id": key,
            "customer": chance.randint(1, CUSTOMERS),
            "status": chance.choice(_STATUSES),
            "amount_cents": chance.randint(100, 50_000),
            "note": chance.choice(_NOTES),
            "updated_at": 0,
        }

    def _changed(self, order: Order) -> Order:
        fresh = self._new_order(order["id"])
        fresh["customer"] = order["customer"]
        return fresh

    def _store(self, log: Iterable[Change]) -> None:
        with sqlite3.connect(self._file) as database:
            make(database, log)
        database.close()


def replace_id(order: Order, key: int) -> Order:
    """Return an order with another id."""
    return {**order, "id": key}


def make(database: sqlite3.Connection, log: Iterable[Change]) -> None:
    """Make the changes of a log in a database, in the log's order."""
    database.execute(_CREATE)
    for change in sorted(log, key=lambda one: one.lsn):
        if change.op == "t":
            database.execute("DELETE FROM orders")
        elif change.op == "d":
            database.execute("DELETE FROM orders WHERE id = ?", (change.key,))
        else:
            assert change.after is not None
            database.execute(_INSERT, change.after)


def replica(log: Iterable[Change]) -> sqlite3.Connection:
    """Return a database in memory in which just these changes were made."""
    database = sqlite3.connect(":memory:")
    make(database, log)
    return database
