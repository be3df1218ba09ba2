"""The table's schema: columns with ids that never change or return.

Rules:
- Types are Spark's, under Spark's names. Nothing is nullable by accident: a column says so.
- A widened column keeps its id; the ids of dropped columns are not given again.
- The Arrow form carries the ids as `PARQUET:field_id`, so blocks hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

STRUCT, ARRAY, MAP = "struct", "array", "map"
NESTED = frozenset({STRUCT, ARRAY, MAP})
PRIMITIVES = frozenset(
    "boolean byte short integer long float double".split()
    + "string binary date timestamp timestamp_ntz".split()
)
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, or a part of a nested one."""

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
    """Stands below an array or a map, where there are no statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of a table at one time."""

    id: int
    """Grows with every change of the columns."""
    last_column_id: int
    """The largest id ever given; never falls."""
    columns: tuple[Column, ...]

    def leaves(self) -> Iterator[Leaf]:
        """Yield the primitive columns, depth first, in Parquet's order."""
        for column in self.columns:
            yield from _leaves(column, (column.name,), repeated=False)

    def leaf_types(self) -> dict[int, str]:
        """Return the type of every leaf, by column id."""
        return {leaf.column.id: leaf.column.type for leaf in self.leaves()}

    def names(self) -> tuple[str, ...]:
        """Return the names of the top columns."""
        return tuple(column.name for column in self.columns)


def decimal_of(type_name: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type, None for any other type."""
    match = _DECIMAL.fullmatch(type_name)
    return (int(match[1]), int(match[2])) if match else None


def _leaves(column: Column, path: tuple[str, ...], *, repeated: bool) -> Iterator[Leaf]:
    if column.type not in NESTED:
        yield Leaf(path=path, column=column, repeated=repeated)
        return
    for child in column.children:
        yield from _leaves(
            child, (*path, child.name), repeated=repeated or column.type in {ARRAY, MAP}
        )
