"""A law of changes of columns: each version has the rows and the columns of a model.

Columns are renamed, dropped, added under names that others had, and moved, beside appends, deletes,
compactions, branches and rewinds. The model knows rows by the ids of columns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from fuse_stream.errors import SchemaMismatchError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.kit.strides import seeds
from tests.recovery.by_hand import rewind

NAMES = ("a", "b", "c", "d")
FIELDS = ("x", "y", "z")


@dataclass
class State:
    """A version: the names of its columns, in order, with what they hold; and its rows."""

    columns: list[tuple[str, int]]
    """Names and the model's own ids."""
    fields: list[tuple[str, int]]
    """Those of the struct `s`, which is the last column."""
    rows: list[dict[int, int | None]] = field(default_factory=list)

    def copy(self) -> State:
        return State(list(self.columns), list(self.fields), [dict(row) for row in self.rows])

    def shown(self) -> list[dict[str, object]]:
        return [
            {
                **{name: row.get(id_) for name, id_ in self.columns},
                "s": {name: row.get(id_) for name, id_ in self.fields},
            }
            for row in self.rows
        ]


class Run:
    """A table and its model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        schema = pa.schema(
            [("a", pa.int64()), ("b", pa.int64()), ("s", pa.struct([("x", pa.int64())]))]
        )
        self.table: Table = create_table(
            self.store,
            first_schema(columns_of_arrow(schema)),
            clock=self.clock,
            probe_store=False,
        )
        self.ids = iter(range(1, 10_000))
        self.state = State([(name, next(self.ids)) for name in "ab"], [("x", next(self.ids))])
        self.versions = {0: self.state.copy()}

    def step(self) -> None:
        names = ["append"] * 3 + ["rename", "drop", "add", "move", "delete", "compact", "rewind"]
        getattr(self, self.random.choice(names))()
        self.clock.advance(seconds=1)
        self.versions[self.table.head().version] = self.state.copy()

    def append(self) -> None:
        count = self.random.randint(1, 3)
        rows = [
            {
                id_: self.random.choice([None, *range(5)])
                for _, id_ in (*self.state.columns, *self.state.fields)
            }
            for _ in range(count)
        ]
        new = State(self.state.columns, self.state.fields, rows)
        kinds = pa.struct([(name, pa.int64()) for name, _ in self.state.fields])
        schema = pa.schema([*((name, pa.int64()) for name, _ in self.state.columns), ("s", kinds)])
        self.table.append(pa.Table.from_pylist(new.shown(), schema=schema))
        self.state.rows += rows

    def rename(self) -> None:
        level, names, path = self.level()
        free = [name for name in names if name not in dict(level)]
        if free:
            at = self.random.randrange(len(level))
            new = self.random.choice(free)
            with self.table.update_schema() as change:
                change.rename_column((*path, level[at][0]), new)
            level[at] = (new, level[at][1])

    def drop(self) -> None:
        level, _, path = self.level()
        if len(level) > 1:
            name, _ = level.pop(self.random.randrange(len(level)))
            with self.table.update_schema() as change:
                change.delete_column((*path, name))

    def add(self) -> None:
        level, names, path = self.level()
        free = [name for name in names if name not in dict(level)]
        if free:
            name = self.random.choice(free)
            with self.table.update_schema() as change:
                change.add_column((*path, name), "long", first=True)
            level.insert(0, (name, next(self.ids)))

    def move(self) -> None:
        level, _, path = self.level()
        if len(level) > 1:
            moved = level.pop()
            with self.table.update_schema() as change:
                change.move_before((*path, moved[0]), level[0][0])
            level.insert(0, moved)

    def delete(self) -> None:
        name, id_ = self.random.choice(self.state.columns)
        value = self.random.randrange(5)
        self.table.delete(f"{name} = {value}")
        self.state.rows = [row for row in self.state.rows if row.get(id_) != value]

    def compact(self) -> None:
        self.table.compact()

    def rewind(self) -> None:
        version = self.random.choice(sorted(self.versions))
        rewind(self.table, version)
        self.state = self.versions[version].copy()

    def level(self) -> tuple[list[tuple[str, int]], tuple[str, ...], tuple[str, ...]]:
        if self.random.random() < 0.7:
            return self.state.columns, NAMES, ()
        return self.state.fields, FIELDS, ("s",)

    def check(self) -> None:
        opened = open_table(self.store, clock=self.clock, probe_store=False)
        for table in (self.table, opened):
            for version in self.random.sample(sorted(self.versions), k=len(self.versions)):
                check_version(table, version, self.versions[version])
        assert opened.fsck(deep=True).is_sound


def check_version(table: Table, version: int, state: State) -> None:
    wanted = state.shown()
    assert ordered(table.to_arrow(version=version)) == ordered(wanted), version
    tops = {name: [row[name] for row in wanted] for name, _ in state.columns}
    parts: dict[str, list[object]] = {
        f"s.{name}": [row.get(id_) for row in state.rows] for name, id_ in state.fields
    }
    for name, values in {**tops, **parts}.items():
        for test, value in (("IS NULL", None), ("= 3", 3)):
            found = table.to_arrow(version=version, where=f"{name} {test}")
            right = [row for row, held in zip(wanted, values, strict=True) if held == value]
            assert ordered(found) == ordered(right), (version, name)


def ordered(rows: pa.Table | list[dict[str, object]]) -> list[str]:
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted(map(repr, listed))


@seeds(4, 60)
def test_each_version_has_the_rows_and_the_columns_of_the_model(seed: int) -> None:
    run = Run(seed)
    for _ in range(25):
        run.step()
    run.check()


def test_a_revert_never_brings_back_a_dropped_column() -> None:
    run = Run(0)
    run.table.append(
        pa.Table.from_pylist([{"a": 1, "b": 2, "s": {"x": 3}}], schema=run.table.schema)
    )
    run.table.delete("a = 1")
    with run.table.update_schema() as change:
        change.delete_column("b")

    with pytest.raises(SchemaMismatchError, match="was dropped since"):
        run.table.revert(2)
