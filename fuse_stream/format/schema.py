"""The table's schema: columns with ids that never change and are never reused.

Rules:
- The types are Spark's, with Spark's names. Each column says whether it is nullable.
- A widened column keeps its id; the id of a dropped column is never reused.
- The Arrow schema has the ids as `PARQUET:field_id`, so blocks have them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

STRUCT, ARRAY, MAP = "struct", "array", "map"
NESTED = frozenset({STRUCT, ARRAY, MAP})
PRIMITIVES = frozenset(
    "boolean byte short integer long float double".split()
    + "string binary date timestamp timestamp_ntz".split()
)
MAX_DEPTH = 32
"""Levels of nested types; Parquet readers fail at about 50."""
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


HIDDEN_PREFIX = "_fuse_"
"""Of the names of hidden columns, in any case."""

_CHILD_COUNTS = {STRUCT: range(1, sys.maxsize), ARRAY: range(1, 2), MAP: range(2, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, or a child of a nested column."""

    id: int
    name: str
    """`element` in an array; `key` and `value` in a map."""
    type: str
    """One of `PRIMITIVES`, `decimal(p,s)`, or one of `NESTED`."""
    nullable: bool = True
    children: tuple[Column, ...] = ()
    """A struct's columns; an array's element; a map's key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A primitive column as Parquet stores it."""

    path: tuple[str, ...]
    column: Column
    repeated: bool
    """True if it is inside an array or a map; such a leaf has no statistics."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a table in one snapshot."""

    id: int
    """Increases with every change of the columns."""
    last_column_id: int
    """The largest id that any column ever had; never decreases."""
    columns: tuple[Column, ...]

    def leaves(self) -> Iterator[Leaf]:
        """Yield the primitive columns, depth first, in Parquet's order."""
        for column in self.columns:
            yield from _leaves(column, (column.name,), repeated=False)

    @cached_property
    def leaf_types(self) -> Mapping[int, str]:
        """The type of every leaf, by column id."""
        return {leaf.column.id: leaf.column.type for leaf in self.leaves()}

    @cached_property
    def bounded_ids(self) -> Mapping[tuple[str, ...], int]:
        """The ids of the leaves with reliable statistics, by path.

        A struct's field whose name begins with a dot, and the fields inside it, may have the
        statistics of another field (`docs/format.md`, section "Statistics").
        """
        return {
            leaf.path: leaf.column.id
            for leaf in self.leaves()
            if not leaf.repeated and not any(name.startswith(".") for name in leaf.path[1:])
        }

    def names(self) -> tuple[str, ...]:
        """Return the names of the top columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def visible(self) -> Schema:
        """The schema without hidden columns: those are read only by readers that name them."""
        shown = tuple(column for column in self.columns if not is_hidden(column.name))
        return self if len(shown) == len(self.columns) else replace(self, columns=shown)


def is_hidden(name: str) -> bool:
    """True if a top column of this name is a hidden one."""
    return name[: len(HIDDEN_PREFIX)].casefold() == HIDDEN_PREFIX


def with_columns(schema: Schema, ids: Sequence[int], names: Sequence[str]) -> Schema:
    """Return the columns with these ids, then those with these names, in their order."""
    by_id = {column.id: column for column in schema.columns}
    by_name = {column.name: column for column in schema.columns}
    columns = (*(by_id[column] for column in ids), *(by_name[name] for name in names))
    return replace(schema, columns=columns)


def decimal_of(type_name: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type; None for any other type."""
    match = _DECIMAL.fullmatch(type_name)
    return (int(match[1]), int(match[2])) if match else None


@lru_cache(maxsize=256)
def flaw_of(schema: Schema) -> str | None:
    """Return what is wrong with a stored schema; None if it is valid."""
    ids: list[int] = []
    try:
        if not schema.columns:
            return "there are no columns"
        _check_columns(schema.columns, ids, 0)
    except ValueError as error:
        return str(error)
    if len(set(ids)) != len(ids):
        return "two columns have the same id"
    return (
        None if min(ids) >= 1 and max(ids) <= schema.last_column_id else "a column id out of range"
    )


def _check_columns(columns: tuple[Column, ...], ids: list[int], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels of nested types")
    if len({column.name for column in columns}) != len(columns):
        raise ValueError("two columns have the same name")
    for column in columns:
        ids.append(column.id)
        decimal = decimal_of(column.type)
        known = column.type in PRIMITIVES or column.type in NESTED
        if not known and not (decimal and 1 <= decimal[0] <= 38 and decimal[1] <= decimal[0]):
            raise ValueError(f"there is no type {column.type[:50]}")
        counts = _CHILD_COUNTS.get(column.type, range(1))
        if len(column.children) not in counts:
            raise ValueError(f"{column.type} has {len(column.children)} parts")
        _check_columns(column.children, ids, depth + 1)


def _leaves(column: Column, path: tuple[str, ...], *, repeated: bool) -> Iterator[Leaf]:
    if column.type not in NESTED:
        yield Leaf(path=path, column=column, repeated=repeated)
        return
    for child in column.children:
        yield from _leaves(
            child, (*path, child.name), repeated=repeated or column.type in {ARRAY, MAP}
        )
