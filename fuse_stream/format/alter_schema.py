"""Changes of a table's columns, one at a time: from a schema to the next. Pure.

A path names a column: its name, or the names from the top column down. The parts of an array and of
a map have names too: `element`, `key` and `value`.

Rules:
- No file is rewritten. A column keeps its id and its name in files; a new column is null in the
  rows that are there.
- A new column never gets a name in files that a column of its level has, or that any dropped column
  had. If its name is one, it has its id behind the name in files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fuse_stream.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from fuse_stream.format.evolve import added, check_names, is_widening
from fuse_stream.format.names import nearest
from fuse_stream.format.names_in_files import name_in_files, with_unique_stored_names
from fuse_stream.format.schema import (
    ARRAY,
    MAP,
    MAX_COMMENT,
    MAX_RETIRED,
    NESTED,
    STRUCT,
    Column,
    Schema,
    flaw_of,
    is_hidden,
)

Path = tuple[str, ...]
Columns = tuple[Column, ...]


def path_of(schema: Schema, path: str | Sequence[Any]) -> Path:
    """Return the names of a path that a user gives; dots divide the names in a text.

    A text that is the name of a top column is that column, also with dots in it.

    Raises:
        InvalidInputError: it is no path.
    """
    if isinstance(path, str):
        known = path in schema.names()
        names: tuple[Any, ...] = (path,) if known else tuple(path.split("."))
    else:
        names = tuple(path)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidInputError("a column is named by a text, or by the names of a path", path=path)
    return names


def find_column(schema: Schema, path: Path) -> Column | None:
    """Return the column at a path; None if there is none."""
    columns, found = schema.columns, None
    for name in path:
        found = next((column for column in columns if column.name == name), None)
        if found is None:
            return None
        columns = found.children
    return found


def get_column(schema: Schema, path: Path) -> Column:
    """Return the column at a path.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: it is a column that the table keeps for itself.
    """
    if is_hidden(path[0]):
        raise InvalidInputError(
            "the table keeps this column for itself, and it cannot be changed", column=path[0]
        )
    found = find_column(schema, path)
    if found is None:
        above = find_column(schema, path[:-1]) if len(path) > 1 else None
        siblings = schema.visible.columns if above is None else above.children
        names = [column.name for column in siblings]
        raise NotFoundError(
            "the table has no such column",
            column=".".join(path),
            nearest=nearest(path[-1], names),
            columns=names,
        )
    return found


def rename_column(schema: Schema, path: Path, name: str) -> Schema:
    """Return the schema with another name for a column; its name in files stays.

    Raises:
        NotFoundError: there is no such column.
        AlreadyExistsError: a column of its level has the name.
        InvalidInputError: the name is not valid, or the column is a part of an array or a map.
    """
    column = get_column(schema, path)
    _check_is_field(schema, path)
    if name == column.name:
        return schema

    def renamed(columns: Columns) -> Columns:
        others = tuple(one for one in columns if one.id != column.id)
        _check_free(others, name, path)
        _check_names(Column(id=1, name=name, type="long"), path)
        stored = column.stored_name
        new = dataclasses.replace(column, name=name, stored=None if stored == name else stored)
        return tuple(new if one.id == column.id else one for one in columns)

    found = _edited(schema, path[:-1], renamed)
    if found.has_stored_names:
        return found
    # With its first name the column has no other one in files; but a version has had.
    return dataclasses.replace(found, retired=(column.name,))


def delete_column(schema: Schema, path: Path) -> Schema:
    """Return the schema without a column; its name in files is given to no other.

    Raises:
        NotFoundError: there is no such column.
        InvalidInputError: it is the last column of its level, or a part of an array or a map; or
            too many columns have been dropped.
    """
    column = get_column(schema, path)
    _check_is_field(schema, path)
    if len(schema.retired) >= MAX_RETIRED // 10:
        raise InvalidInputError(
            "the table keeps the names of dropped columns, and has too many: write its rows to a "
            "new table",
            dropped=len(schema.retired),
        )

    def without(columns: Columns) -> Columns:
        left = tuple(one for one in columns if one.id != column.id)
        if not left or (len(path) == 1 and all(is_hidden(one.name) for one in left)):
            raise InvalidInputError(
                "a table, and a struct, has at least one column: add another one first",
                column=".".join(path),
            )
        return left

    retired = tuple(sorted({*schema.retired, column.stored_name}))
    return dataclasses.replace(_edited(schema, path[:-1], without), retired=retired)


def add_column(
    schema: Schema,
    path: Path,
    column: Column,
    *,
    first: bool = False,
    after: str | None = None,
) -> Schema:
    """Return the schema with a new column at a path, nullable, with new ids.

    The last name of the path is its name; those before name a struct.

    Raises:
        NotFoundError: there is no such struct, or no column `after`.
        AlreadyExistsError: a column of its level has the name.
        InvalidInputError: the name is not valid, or the parent is no struct.
    """
    name = path[-1]
    if len(path) == 1 and is_hidden(name):
        raise InvalidInputError(
            "names of this form are of columns that the table keeps for itself", column=name
        )
    if len(path) > 1:
        parent = get_column(schema, path[:-1])
        if parent.type != STRUCT:
            raise InvalidInputError(
                "only a struct can get a field; of an array or a map, name its part: `element`, "
                "`key` or `value`. A column whose name has a dot is named by a tuple",
                column=".".join(path[:-1]),
                type=parent.type,
            )
        if _is_in_key(schema, path):
            raise InvalidInputError("the key of a map cannot change", column=".".join(path))
    new_id = iter(range(schema.last_column_id + 1, 1_000_000_000)).__next__
    new = added(dataclasses.replace(column, name=name, stored=None), new_id)
    new = with_unique_stored_names(new)
    last_id = max(_ids((new,)))

    def with_new(columns: Columns) -> Columns:
        _check_free(columns, name, path)
        _check_names(new, path)
        taken = {one.stored_name for one in columns}
        stored = name_in_files(new, taken, schema.retired)
        return _placed((*columns, stored), stored, first=first, after=after)

    schema = _edited(schema, path[:-1], with_new)
    schema = dataclasses.replace(schema, last_column_id=last_id)
    _check_flaws(schema)
    return schema


def move_column(
    schema: Schema,
    path: Path,
    *,
    first: bool = False,
    after: str | None = None,
    before: str | None = None,
) -> Schema:
    """Return the schema with a column at another place of its level.

    Raises:
        NotFoundError: there is no such column, or no column `after` or `before` beside it.
        InvalidInputError: the column is a part of an array or a map.
    """
    column = get_column(schema, path)
    _check_is_field(schema, path)

    def moved(columns: Columns) -> Columns:
        return _placed(columns, column, first=first, after=after, before=before)

    return _edited(schema, path[:-1], moved)


def update_column(
    schema: Schema,
    path: Path,
    *,
    type: str | None = None,  # noqa: A002 - the word of the public method
    nullable: bool | None = None,
    comment: str | None = None,
) -> Schema:
    """Return the schema with another type, nullability or comment of a column.

    An empty comment removes it. Whether old rows have nulls is not looked at.

    Raises:
        NotFoundError: there is no such column.
        InvalidInputError: the type is no wider one, or the column cannot become so.
    """
    column = get_column(schema, path)
    text = ".".join(path)
    new = column
    if type is not None and type != column.type:
        if not is_widening(column.type, type):
            raise InvalidInputError(
                "the type of a column can only become a wider one, such as bigint from int: write "
                "the rows to a new table, or cast the column where it is read",
                column=text,
                type=column.type,
                to=type,
            )
        if _is_in_key(schema, path):
            raise InvalidInputError("the key of a map cannot change", column=text)
        new = dataclasses.replace(new, type=type)
    if nullable is not None and nullable != column.nullable:
        if not nullable and (len(path) > 1 or column.type in NESTED):
            raise InvalidInputError(
                "only a top column that is not nested can be set NOT NULL: no statistics count "
                "the nulls of others",
                column=text,
            )
        if nullable and _is_in_key(schema, path):
            raise InvalidInputError("the key of a map is never null", column=text)
        new = dataclasses.replace(new, nullable=nullable)
    if comment is not None:
        if len(comment) > MAX_COMMENT:
            raise InvalidInputError(
                f"a comment has at most {MAX_COMMENT} characters", column=text, length=len(comment)
            )
        new = dataclasses.replace(new, comment=comment or None)

    def updated(columns: Columns) -> Columns:
        return tuple(new if one.id == column.id else one for one in columns)

    return _edited(schema, path[:-1], updated)


def _edited(schema: Schema, above: Path, edit: Callable[[Columns], Columns]) -> Schema:
    """Return the schema with the columns below the path `above` edited."""

    def at(columns: Columns, names: Path) -> Columns:
        if not names:
            return edit(columns)
        return tuple(
            dataclasses.replace(one, children=at(one.children, names[1:]))
            if one.name == names[0]
            else one
            for one in columns
        )

    return dataclasses.replace(schema, columns=at(schema.columns, above))


def _placed(
    columns: Columns,
    column: Column,
    *,
    first: bool = False,
    after: str | None = None,
    before: str | None = None,
) -> Columns:
    """Return the columns with one of them at another place; its own without any."""
    asked = [first, after is not None, before is not None].count(True)
    if not asked:
        return columns
    if asked > 1:
        raise InvalidInputError("a column has one place: give first, after or before")
    others = [one for one in columns if one.id != column.id]
    at = 0
    if not first:
        beside = after if before is None else before
        names = [one.name for one in others]
        if beside not in names:
            raise NotFoundError(
                "there is no such column beside it",
                column=beside,
                nearest=nearest(str(beside), names),
                columns=names,
            )
        at = names.index(beside) + (before is None)
    return (*others[:at], column, *others[at:])


def _check_is_field(schema: Schema, path: Path) -> None:
    """Raise unless a path is of a top column or of a field of a struct, not within a map's key."""
    above = find_column(schema, path[:-1]) if len(path) > 1 else None
    if above is not None and above.type in {ARRAY, MAP}:
        raise InvalidInputError(
            f"the {path[-1]} is a part of the {above.type} and stays as it is",
            column=".".join(path),
        )
    if _is_in_key(schema, path):
        raise InvalidInputError("the key of a map cannot change", column=".".join(path))


def _is_in_key(schema: Schema, path: Path) -> bool:
    """True if a path leads into the key of a map."""
    above = (find_column(schema, path[:at]) for at in range(1, len(path)))
    return any(
        one is not None and one.type == MAP and path[at] == "key"
        for at, one in enumerate(above, start=1)
    )


def _check_free(columns: Iterable[Column], name: str, path: Path) -> None:
    folded = name.casefold()
    for column in columns:
        if column.name.casefold() == folded:
            raise AlreadyExistsError(
                "the table has a column of this name, or one that differs only in case: choose "
                "another name",
                column=".".join((*path[:-1], column.name)),
                name=name,
            )


def _check_names(column: Column, path: Path) -> None:
    check_names((column,), f"{'.'.join(path[:-1])}." if len(path) > 1 else "")


def _check_flaws(schema: Schema) -> None:
    if flaw := flaw_of(schema):
        raise InvalidInputError("the table cannot have such a column", reason=flaw)


def _ids(columns: Iterable[Column]) -> Iterable[int]:
    for column in columns:
        yield column.id
        yield from _ids(column.children)
