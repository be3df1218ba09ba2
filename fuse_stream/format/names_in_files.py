"""The names that columns have in files, where these are not their names. Pure.

Rules:
- A column's name in files never changes.
- No two columns of one level, of any version that shares files, have one name in files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator

from fuse_stream.format.schema import Column, Schema


def name_in_files(column: Column, taken: Collection[str], retired: Collection[str]) -> Column:
    """Return a new column with a name in files that is none of `taken` and `retired`."""
    stored = column.name
    if stored in taken or stored in retired:
        stored = f"{column.name}__{column.id}"  # no dot: Spark takes it for a field
    while stored in taken or stored in retired:
        stored += "_"
    return dataclasses.replace(column, stored=None if stored == column.name else stored)


def with_unique_stored_names(column: Column) -> Column:
    """Return a new column whose children, at each depth, have their own names in files."""
    children = tuple(
        with_unique_stored_names(dataclasses.replace(child, stored=None))
        for child in column.children
    )
    return dataclasses.replace(column, children=children)


def clashes(old: Schema, new: Schema) -> list[str]:
    """Return one line for each name that means one column in `old` and another one in `new`.

    Also for each column that has another name. There are none unless one of the two schemas has
    columns that were renamed or dropped: in other tables, columns match by their names.
    """
    if not (old.has_stored_names or new.has_stored_names):
        return []
    return list(_clashes(old.columns, new.columns, ""))


def with_names_in_files(merged: tuple[Column, ...], table: Schema) -> tuple[Column, ...]:
    """Return merged columns, the new ones with names in files that no other column had."""
    if not table.has_stored_names:
        return merged
    return _named_in_files(merged, table.columns, table.retired)


def other_names(columns: Iterable[Column]) -> Iterator[str]:
    """Yield the names of columns that have other names in files.

    As retired names they show that names may mean other columns in other versions.
    """
    for column in columns:
        if column.stored is not None:
            yield column.name
        yield from other_names(column.children)


def _clashes(old: Iterable[Column], new: Iterable[Column], path: str) -> Iterator[str]:
    old = tuple(old)
    by_id, by_name = ({one.id: one for one in old}, {one.name: one for one in old})
    for column in new:
        name = f"{path}{column.name}"
        before, same_name = by_id.get(column.id), by_name.get(column.name)
        if same_name is not None and same_name.id != column.id:
            yield f"~ {name}: another column"
        elif before is not None and before.name != column.name:
            yield f"~ {path}{before.name}: {column.name}"
        elif before is not None:
            yield from _clashes(before.children, column.children, f"{name}.")


def _named_in_files(
    merged: tuple[Column, ...], table: tuple[Column, ...], retired: Collection[str]
) -> tuple[Column, ...]:
    known = {column.id: column for column in table}
    taken = {column.stored_name for column in table}
    found = []
    for column in merged:
        before = known.get(column.id)
        if before is None:
            named = name_in_files(with_unique_stored_names(column), taken, retired)
            taken.add(named.stored_name)
        else:
            children = _named_in_files(column.children, before.children, retired)
            named = dataclasses.replace(column, children=children)
        found.append(named)
    return tuple(found)
