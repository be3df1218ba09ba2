"""Whatever is done to a table, an aggregate equals a loop over the rows, at every version."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from fuse_stream.format.layout import AGGREGATES_PREFIX, MAIN
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table
from tests.kit.indexes import expected, group_of, grouped, is_close
from tests.kit.strides import seeds
from tests.recovery.by_hand import rewind

SCHEMA = pa.schema([("g", pa.float64()), ("h", pa.string()), ("x", pa.int64()), ("k", pa.int64())])
FUNCTIONS = ["count", "sum", "min", "max", "avg", "stddev", "var_pop"]
ITEMS = ", ".join(f"{function}(x) AS {function}_x" for function in FUNCTIONS)
SQL = f"SELECT g AS grp, h, count(*) AS n, {ITEMS} FROM t GROUP BY g, h"
STEPS = 25


class Course:
    """Random steps on one table."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._clock = ManualClock(seed=seed)
        self.store = MemoryStore(clock=self._clock)
        self._next = 0
        table = temporary_table(
            SCHEMA, store=self.store, clock=self._clock, properties={"fuse.block.rows": "150"}
        )
        table.create_aggregate("a", SQL)
        self._branches = [MAIN]

    def opened(self) -> Table:
        name = self._random.choice(self._branches)
        return open_table_in(self.store, branch=name, clock=self._clock)

    def rows(self) -> pa.Table:
        count = self._random.choice([3, 150, 150, 320])
        values = [0.0, -0.0, 1.5, float("nan"), None]
        numbers = range(self._next, self._next + count)
        self._next += count
        return pa.table(
            {
                "g": [self._random.choice(values) for _ in numbers],
                "h": [self._random.choice(["a", "b", None]) for _ in numbers],
                "x": [self._random.choice([None, number, -number]) for number in numbers],
                "k": list(numbers),
            },
            schema=SCHEMA,
        )

    def step(self) -> None:  # noqa: C901 - a list of steps
        table, act = self.opened(), self._random.randrange(13)
        at = self._random.randrange(self._next + 1)
        match act:
            case 0 | 1 | 2:
                table.append(self.rows())
            case 3:
                table.delete(f"k = {at}")
            case 4:
                table.delete(f"k BETWEEN {at} AND {at + 5}")
            case 5:
                table.update(f"k = {at}", {"x": 77})
            case 6:
                table.compact()
            case 7 | 8 | 9:
                table.refresh_indexes(self._random.choice([None, 1, 2]))
            case 10:
                rewind(table, self._random.randrange(table.head().version + 1))
            case 11 if len(self._branches) < 3:
                self._branches.append(f"branch-{len(self._branches)}")
                table.create_branch(self._branches[-1])
            case 12 if self._random.random() < 0.3:
                parts = [key for key in self.store.objects if key.startswith(AGGREGATES_PREFIX)]
                if parts:
                    del self.store.objects[self._random.choice(parts)]

    def check(self) -> None:
        table = self.opened()
        version = self._random.choice([None, self._random.randrange(table.head().version + 1)])
        where = self._random.choice([None, "grp = 0.0", "h IS NULL OR grp > 1", "h = 'b'"])
        rows = table.to_arrow(version=version)
        found = table.aggregate("a", version=version, where=where).to_pylist()
        assert_equal(found, rows.to_pylist(), where)


Rows = list[dict[str, Any]]


def assert_equal(found: Rows, rows: Rows, where: str | None) -> None:
    groups = {key: held for key, held in grouped(rows, ["g", "h"]).items() if kept(key, where)}
    by_key = {(group_of(row["grp"]), row["h"]): row for row in found}

    assert by_key.keys() == groups.keys()
    assert len(found) == len(by_key)
    for key, held in groups.items():
        row, values = by_key[key], [one["x"] for one in held]
        assert row["n"] == len(held)
        for function in FUNCTIONS:
            right = expected(function, values)
            assert is_close(row[f"{function}_x"], right), (key, function, row, right)


def kept(key: tuple[Any, ...], where: str | None) -> bool:
    number, text = key
    is_nan = number == "NaN"
    found: dict[str | None, bool] = {
        None: True,
        "grp = 0.0": number == 0.0,
        "h IS NULL OR grp > 1": text is None
        or (number is not None and (is_nan or float(number) > 1)),
        "h = 'b'": text == "b",
    }
    return found[where]


@seeds(4, 40)
def test_an_aggregate_equals_a_loop_over_the_rows(seed: int) -> None:
    course = Course(seed)
    for _ in range(STEPS):
        course.step()
        course.check()


def test_courses_reach_answers_from_parts() -> None:
    covered = 0
    for seed in range(3):
        course = Course(seed)
        for _ in range(STEPS):
            course.step()
            covered += sum(state.covered_blocks for state in course.opened().indexes())

    assert covered > 20
