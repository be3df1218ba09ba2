"""The table's schema: columns with ids that never change and are never reused.

Rules:
- The types are Spark's, with Spark's names. Each column says whether it is nullable.
- A widened column keeps its id; the id of a dropped column is never reused.
- The Arrow schema has the ids as `PARQUET:field_id`, so blocks have them.
- The name of a column in files never changes, and no other column of its level gets it: Spark's
  reader prunes nested columns, and filters rows, by names. `stored_form` has these names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from fuse_stream.format.stored_fields import IF_ANY

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

MAX_RETIRED = 100_000
"""The most names of dropped columns that a schema has; a writer drops no column at a tenth of it,
since the histories of branches may come together."""
MAX_COMMENT = 10_000
"""The most characters of a comment."""

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
    stored: str | None = None
    """The name in files; None if it is `name`."""
    comment: str | None = None

    @property
    def stored_name(self) -> str:
        """The name in files."""
        return self.name if self.stored is None else self.stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A primitive column as Parquet stores it."""

    path: tuple[str, ...]
    stored_path: tuple[str, ...]
    """The path in files."""
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
    retired: tuple[str, ...] = field(default=(), metadata=IF_ANY)
    """The names in files of dropped columns, sorted: no new column of any level gets one."""

    def leaves(self) -> Iterator[Leaf]:
        """Yield the primitive columns, depth first, in Parquet's order."""
        for column in self.columns:
            yield from _leaves(column, (), (), repeated=False)

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
            if not leaf.repeated and not any(name.startswith(".") for name in leaf.stored_path[1:])
        }

    def names(self) -> tuple[str, ...]:
        """Return the names of the top columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def has_stored_names(self) -> bool:
        """True if a column has, or had, another name than in files: names may mean other columns.

        Then a name may be that of another column in another version.
        """
        return bool(self.retired) or any(map(_is_renamed, self.columns))

    @cached_property
    def has_comments(self) -> bool:
        """True if a column has a comment."""
        return any(map(_is_commented, self.columns))

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
        _check_retired(schema.retired)
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
    if len({column.stored_name for column in columns}) != len(columns):
        raise ValueError("two columns have the same name in files")
    for column in columns:
        if column.stored is not None and (
            column.stored == column.name or not column.stored or "\0" in column.stored
        ):
            raise ValueError("a column's name in files is none")
        if column.comment is not None and not 0 < len(column.comment) <= MAX_COMMENT:
            raise ValueError("a comment is empty or too long")
        ids.append(column.id)
        decimal = decimal_of(column.type)
        known = column.type in PRIMITIVES or column.type in NESTED
        if not known and not (decimal and 1 <= decimal[0] <= 38 and decimal[1] <= decimal[0]):
            raise ValueError(f"there is no type {column.type[:50]}")
        counts = _CHILD_COUNTS.get(column.type, range(1))
        if len(column.children) not in counts:
            raise ValueError(f"{column.type} has {len(column.children)} parts")
        if column.type in {ARRAY, MAP} and any(child.stored for child in column.children):
            raise ValueError(f"a part of {column.type} has another name in files")
        _check_columns(column.children, ids, depth + 1)


def _check_retired(retired: tuple[str, ...]) -> None:
    if len(retired) > MAX_RETIRED:
        raise ValueError(f"more than {MAX_RETIRED} names of dropped columns")
    if list(retired) != sorted(set(retired)) or "" in retired:
        raise ValueError("the names of dropped columns are out of order")


def stored_form(schema: Schema) -> Schema:
    """Return the schema with the names that its columns have in files, at every depth."""
    if not any(map(_is_renamed, schema.columns)):
        return schema
    return _stored_form(schema)


@lru_cache(maxsize=256)
def _stored_form(schema: Schema) -> Schema:
    return replace(schema, columns=tuple(map(stored_column, schema.columns)))


def stored_column(column: Column) -> Column:
    """Return a column with the names that it and its children have in files."""
    if not _is_renamed(column):
        return column
    children = tuple(map(stored_column, column.children))
    return replace(column, name=column.stored_name, stored=None, children=children)


def current_paths(schema: Schema) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the paths of all columns, at every depth, by their paths in files."""
    return dict(_current_paths(schema.columns, (), ()))


def _current_paths(
    columns: tuple[Column, ...], stored: tuple[str, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for column in columns:
        in_files, current = (*stored, column.stored_name), (*path, column.name)
        yield in_files, current
        yield from _current_paths(column.children, in_files, current)


def _is_renamed(column: Column) -> bool:
    return column.stored is not None or any(map(_is_renamed, column.children))


def _is_commented(column: Column) -> bool:
    return column.comment is not None or any(map(_is_commented, column.children))


def _leaves(
    column: Column, above: tuple[str, ...], stored: tuple[str, ...], *, repeated: bool
) -> Iterator[Leaf]:
    path, stored_path = (*above, column.name), (*stored, column.stored_name)
    if column.type not in NESTED:
        yield Leaf(path=path, stored_path=stored_path, column=column, repeated=repeated)
        return
    for child in column.children:
        yield from _leaves(
            child, path, stored_path, repeated=repeated or column.type in {ARRAY, MAP}
        )
