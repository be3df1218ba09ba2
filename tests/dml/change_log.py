"""A database whose rows change for a month, and its change log, drawn from a seed.

The table is `CUSTOMER` of TPC-C (standard specification, clause 1.3.1; without some of the columns
of names and addresses). Its shape has what is hard about events: a key of three columns; two
transactions, Payment and Delivery, that set different columns of a row and share one; amounts of
money, whose sums show a change that is lost or applied twice; and a long text, which databases
leave out of the log when it does not change. TPC-C itself never deletes a customer. Here customers
also leave, come back, and move to another district, which changes their key.

The database is SQLite, and SQL statements compute each change. Triggers write the log, as a
database does, so that it says what a statement did and not what this module expects of it. The
positions are those of Maxwell's daemon for MySQL: the binlog's file, the place of the transaction
in it, and the row in the transaction. A file has the transactions of a day; in each one the places
start anew.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

KEY = ("c_w_id", "c_d_id", "c_id")
COLUMNS = {
    "c_w_id": "INTEGER NOT NULL",
    "c_d_id": "INTEGER NOT NULL",
    "c_id": "INTEGER NOT NULL",
    "c_last": "TEXT NOT NULL",
    "c_middle": "TEXT",
    "c_since": "INTEGER NOT NULL",
    "c_credit": "TEXT NOT NULL",
    "c_balance": "INTEGER NOT NULL",
    "c_ytd_payment": "INTEGER NOT NULL",
    "c_payment_cnt": "INTEGER NOT NULL",
    "c_delivery_cnt": "INTEGER NOT NULL",
    "c_data": "TEXT",
}
"""`c_since` in microseconds, amounts in cents: SQLite has neither times nor decimals."""

DAY_US = 86_400_000_000
START_US = 1_700_006_400_000_000
"""A midnight."""
LOAD = [1, 1, 1, 1, 1, 2, 4, 8, 12, 16, 18, 18, 16, 17, 18, 17, 15, 13, 10, 8, 6, 4, 3, 2]
"""How many transactions there are in an hour, in proportion."""
FIRST_PLACE, MOST_BYTES = 4, 900
"""Of the places in a binlog's file, and of a transaction in it."""
TRUNCATES_AT = (0.45, 0.8)
"""The parts of the transactions after which the table is truncated."""

Row = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the log says of a changed row, or of a truncate."""

    position: tuple[int, int, int]
    """The number of the binlog's file, the place in it, and the row in the transaction."""
    time_us: int
    before: Row | None
    """The row as it was; None for an insert and a truncate."""
    after: Row | None
    """The row as it is; None for a delete and a truncate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How long a log is."""

    days: int
    changes: int
    """About how many."""


class Database:
    """The table `customer` in SQLite, and the log of what changes it."""

    def __init__(self) -> None:
        self.rows = sqlite3.connect(":memory:", isolation_level=None)
        names = list(COLUMNS)
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.rows.execute(f"CREATE TABLE customer ({columns}, PRIMARY KEY ({', '.join(KEY)}))")
        images = ", ".join(f"{side}_{name}" for side in ("old", "new") for name in names)
        self.rows.execute(f"CREATE TABLE log (n INTEGER PRIMARY KEY, {images})")
        self.rows.execute("CREATE TABLE capture (is_on INTEGER)")
        self.rows.execute("INSERT INTO capture VALUES (1)")
        for event, sides in {
            "INSERT": ["new"],
            "UPDATE": ["old", "new"],
            "DELETE": ["old"],
        }.items():
            to = ", ".join(f"{side}_{name}" for side in sides for name in names)
            values = ", ".join(f"{side}.{name}" for side in sides for name in names)
            self.rows.execute(
                f"CREATE TRIGGER on_{event} AFTER {event} ON customer "
                "WHEN (SELECT is_on FROM capture) "
                f"BEGIN INSERT INTO log ({to}) VALUES ({values}); END"
            )

    def run(self, statement: str, *values: object) -> tuple[Row | None, Row | None]:
        """Run a statement that changes one row; return what the log says: before and after."""
        self.rows.execute("DELETE FROM log")
        self.rows.execute(statement, values)
        ((_, *images),) = self.rows.execute("SELECT * FROM log").fetchall()
        count = len(COLUMNS)
        old, new = tuple(images[:count]), tuple(images[count:])
        return (None if old[0] is None else old), (None if new[0] is None else new)

    def truncate(self) -> None:
        """Delete all rows; the log does not name them."""
        self.rows.execute("UPDATE capture SET is_on = 0")
        self.rows.execute("DELETE FROM customer")
        self.rows.execute("UPDATE capture SET is_on = 1")


class Month:
    """Draws transactions, and runs them."""

    def __init__(self, chance: random.Random, span: Span, *, sets_null: bool = True) -> None:
        """Prepare the transactions of a span; `sets_null`: they also set values to null."""
        self.database = Database()

        self._chance = chance
        self._sets_null = sets_null
        self._times = sorted(self._time(span.days) for _ in range(span.changes // 2))
        self._keys: list[tuple[int, int, int]] = []
        self._gone: list[tuple[int, int, int]] = []
        self._next_id = 1

    def iter_changes(self) -> Iterator[Change]:
        """Yield the changes in the order of their commits; the database has a yielded one."""
        count = len(self._times)
        truncates = {int(count * part) for part in TRUNCATES_AT}
        file, place = 0, FIRST_PLACE
        for number, time_us in enumerate(self._times):
            day = (time_us - START_US) // DAY_US + 1
            place = FIRST_PLACE if day > file else place + self._chance.randint(60, MOST_BYTES)
            file = day
            for row in range(self._chance.choice([1, 2, 2, 3])):
                position = (file, place, row)
                if number in truncates and row == 0:
                    self.database.truncate()
                    self._gone += self._keys
                    self._keys = []
                    before = after = None
                else:
                    before, after = self._change(time_us)
                yield Change(position=position, time_us=time_us, before=before, after=after)

    def _time(self, days: int) -> int:
        (hour,) = self._chance.choices(range(24), weights=LOAD)
        second = hour * 3600 + self._chance.random() * 3600
        return START_US + self._chance.randrange(days) * DAY_US + round(second * 1_000_000)

    def _change(self, time_us: int) -> tuple[Row | None, Row | None]:
        acts = {
            self._enter: 18,
            self._come_back: 10 if self._gone else 0,
            self._leave: 12,
            self._move: 5,
            self._pay: 30,
            self._deliver: 18,
            self._correct: 7,
        }
        if not self._keys:
            return self._enter(time_us)
        (act,) = self._chance.choices(list(acts), weights=list(acts.values()))
        return act(time_us)

    def _enter(self, time_us: int) -> tuple[Row | None, Row | None]:
        key = (self._chance.randint(1, 3), self._chance.randint(1, 10), self._next_id)
        self._next_id += 1
        return self._insert(key, time_us)

    def _come_back(self, time_us: int) -> tuple[Row | None, Row | None]:
        return self._insert(self._gone.pop(self._chance.randrange(len(self._gone))), time_us)

    def _insert(self, key: tuple[int, int, int], time_us: int) -> tuple[Row | None, Row | None]:
        self._keys.append(key)
        values = (
            self._chance.choice(["BARBAR", "OUGHTPRES", "ANTIESE", "CALLYATION"]),
            self._chance.choice(["OE", None]),
            time_us,
            self._chance.choice(["GC", "BC"]),
            self._chance.choice([f"{self._chance.getrandbits(256):x}", None]),
        )
        return self.database.run(
            "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?, -1000, 1000, 1, 0, ?)", *key, *values
        )

    def _leave(self, _: int) -> tuple[Row | None, Row | None]:
        key = self._keys.pop(self._chance.randrange(len(self._keys)))
        self._gone.append(key)
        return self.database.run(f"DELETE FROM customer WHERE {_IS_KEY}", *key)

    def _move(self, time_us: int) -> tuple[Row | None, Row | None]:
        """Give a customer another key, at times one that another customer had."""
        at = self._chance.randrange(len(self._keys))
        old = self._keys[at]
        if self._gone and self._chance.random() < 0.5:
            new = self._gone.pop(self._chance.randrange(len(self._gone)))
        else:
            new = (old[0], old[1] % 10 + 1, self._next_id)
            self._next_id += 1
        self._keys[at] = new
        self._gone.append(old)
        sets = "c_w_id = ?, c_d_id = ?, c_id = ?, c_since = ?"
        return self.database.run(f"UPDATE customer SET {sets} WHERE {_IS_KEY}", *new, time_us, *old)

    def _pay(self, _: int) -> tuple[Row | None, Row | None]:
        """As Payment: a customer with bad credit also gets a new text."""
        amount = self._chance.randint(100, 500_000)
        return self.database.run(
            "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, "
            "c_payment_cnt = c_payment_cnt + 1, c_data = CASE c_credit WHEN 'BC' "
            "THEN substr(c_id || ' ' || ? || ' ' || ifnull(c_data, ''), 1, 200) ELSE c_data END "
            f"WHERE {_IS_KEY}",
            *(amount, amount, amount),
            *self._chance.choice(self._keys),
        )

    def _deliver(self, _: int) -> tuple[Row | None, Row | None]:
        """As Delivery."""
        return self.database.run(
            "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 "
            f"WHERE {_IS_KEY}",
            self._chance.randint(1, 999_999),
            *self._chance.choice(self._keys),
        )

    def _correct(self, _: int) -> tuple[Row | None, Row | None]:
        """Set a value by hand: also to null, and to what it is already."""
        texts: dict[str, list[str | None]] = {
            "c_middle": ["OE", "AN", None],
            "c_data": ["", None],
            "c_credit": ["BC", "GC"],
        }
        name = self._chance.choice(list(texts))
        values = texts[name]
        if not self._sets_null:
            values = [value for value in values if value is not None]
        return self.database.run(
            f"UPDATE customer SET {name} = ? WHERE {_IS_KEY}",
            self._chance.choice(values),
            *self._chance.choice(self._keys),
        )


_IS_KEY = "c_w_id = ? AND c_d_id = ? AND c_id = ?"
