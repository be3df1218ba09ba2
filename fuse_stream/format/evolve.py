"""Compare a batch's schema with the table's, and compute the table's next schema. Pure.

Columns match by their exact names. A batch's column may have a narrower type than the table's: its
values are widened as they are written. A write changes the table's columns only with
`merge_schema`, which adds nullable columns and widens types.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

from fuse_stream.errors import InvalidInputError, SchemaMismatchError, printable
from fuse_stream.format.names_in_files import other_names, with_names_in_files
from fuse_stream.format.schema import HIDDEN_PREFIX, Column, Schema, decimal_of, is_hidden

_WIDENINGS: frozenset[tuple[str, str]] = frozenset(
    {
        ("byte", "short"),
        ("byte", "integer"),
        ("byte", "long"),
        ("short", "integer"),
        ("short", "long"),
        ("integer", "long"),
        ("float", "double"),
    }
)
RESERVED_PREFIX = "_commit_"
RESERVED_NAMES = frozenset({"_change_type"})
"""Compared without case, as in most SQL."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""The column that Arrow makes of the index of a pandas frame."""


def first_schema(
    columns: tuple[Column, ...],
    *,
    nullable: bool = False,
    case_sensitive: bool = False,
    with_hidden: bool = False,
) -> Schema:
    """Return the schema of a new table; with `nullable`, every column may hold nulls.

    With `with_hidden` some may be hidden columns, which no user may name.

    Raises:
        InvalidInputError: there are no columns, or `check_names` refuses their names.
    """
    check_names(columns, case_sensitive=case_sensitive, with_hidden=with_hidden)
    if nullable:
        columns = tuple(_nullable(column) for column in columns)
    return Schema(id=0, last_column_id=max(_ids(columns)), columns=columns)


def check_names(
    columns: tuple[Column, ...],
    path: str = "",
    *,
    table: tuple[Column, ...] = (),
    case_sensitive: bool = False,
    with_hidden: bool = False,
) -> None:
    """Raise unless the names of `columns` are valid and unique, at every depth.

    A name that `table`, the columns of an existing table, has already is valid; it is refused only
    if `columns` has it twice. The names of hidden columns are valid only with `with_hidden`.

    Raises:
        InvalidInputError: a name is empty, has a null character, is reserved, or is not unique;
            without `case_sensitive` names that differ only in case are the same.
    """
    if not columns and not path:
        raise InvalidInputError("the schema is empty; a table needs at least one column")
    if not path and not with_hidden:
        check_not_hidden(column.name for column in columns)
    known = {column.name: column for column in table}
    seen: dict[str, str] = {}
    for name in known:
        seen.setdefault(name if case_sensitive else name.casefold(), f"{path}{name}")
    exact: set[str] = set()
    for column in columns:
        name = f"{path}{column.name}"
        key = column.name if case_sensitive else column.name.casefold()
        if column.name not in known:
            _check_new_name(column.name, path)
        if column.name in exact or (column.name not in known and key in seen):
            raise InvalidInputError(
                "two columns have the same name, or differ only in case; rename one. Names that "
                "differ in case need a case-sensitive Spark session, and in a write by the format "
                "the option `caseSensitive`",
                columns=[seen[key], name],
            )
        exact.add(column.name)
        seen.setdefault(key, name)
        of_table = known[column.name].children if column.name in known else ()
        check_names(column.children, f"{name}.", table=of_table, case_sensitive=case_sensitive)


def check_not_hidden(names: Iterable[str]) -> None:
    """Raise InvalidInputError if a user named a hidden column, to write it."""
    for name in names:
        if is_hidden(name):
            raise InvalidInputError(
                f"column names that begin with {HIDDEN_PREFIX} are reserved for columns that the "
                "table keeps for itself; rename the column, or leave it out",
                column=name,
            )


def _check_new_name(name: str, path: str) -> None:
    if not name:
        raise InvalidInputError("a column has no name; rename it", within=path)
    if "\0" in name:
        raise InvalidInputError(
            "a column's name has a null character; rename it", column=f"{path}{name}"
        )
    folded = name.casefold()
    if not path and (folded in RESERVED_NAMES or folded.startswith(RESERVED_PREFIX)):
        raise InvalidInputError(
            "the change feed uses this column name; rename the column, or read the source "
            "with option feed=append",
            column=name,
        )


def differences(table: Schema, columns: tuple[Column, ...]) -> list[str]:
    """Return one line for each difference between `columns` and the table's columns.

    A narrower type of a column is none: every value of it fits the table's. A hidden column of the
    table that `columns` lack is none either.
    """
    return list(_differences(table.columns, columns, ""))


def resolve(
    table: Schema,
    columns: tuple[Column, ...],
    *,
    merge_schema: bool = False,
    case_sensitive: bool = False,
    with_hidden: bool = False,
) -> tuple[Schema, tuple[Column, ...]]:
    """Return the table's schema after a write of `columns`, and `columns` with its ids.

    Hidden columns that `columns` lack are null in the new rows. With `with_hidden` they may have
    some, also new ones: for rows that no user made.

    Raises:
        SchemaMismatchError: the columns differ from the table's, and `merge_schema` is off or
            cannot merge them.
        InvalidInputError: `check_names` refuses the columns, or those of the merged schema.
    """
    check_names(
        columns, table=table.columns, case_sensitive=case_sensitive, with_hidden=with_hidden
    )
    lines = differences(table, columns)
    if lines and not merge_schema:
        remedy = "select or cast its columns"
        known = {column.name for column in table.columns}
        if any(_PANDAS_INDEX.fullmatch(one.name) for one in columns if one.name not in known):
            remedy = "leave out the index of the data frame: frame.reset_index(drop=True)"
        elif _can_merge(table, columns):
            remedy += ", or pass merge_schema=True to add columns and widen types"
        raise SchemaMismatchError(
            f"the batch's schema differs from the table's; {remedy}:\n  " + "\n  ".join(lines)
        )
    next_id = iter(range(table.last_column_id + 1, 1_000_000_000)).__next__
    merged = _merge(table.columns, columns, next_id, "")
    merged = with_names_in_files(merged, table)
    if merged == table.columns:
        return table, with_ids_of(merged, columns, next_id)
    # The names of `columns` are checked: a hidden one here is the table's.
    check_names(merged, table=table.columns, case_sensitive=case_sensitive, with_hidden=True)
    last_id = max(_ids(merged))
    schema = dataclasses.replace(table, id=table.id + 1, last_column_id=last_id, columns=merged)
    if schema.last_column_id < table.last_column_id:
        schema = dataclasses.replace(schema, last_column_id=table.last_column_id)
    return schema, with_ids_of(merged, columns, next_id)


def next_schema(head: Schema, content: Schema) -> Schema:
    """Return the schema after `head` of a commit that gives the table the columns of `content`."""
    last = max(head.last_column_id, content.last_column_id)  # ids are never reused
    retired = {*head.retired, *content.retired}
    if content.columns == head.columns:
        return dataclasses.replace(head, last_column_id=last, retired=tuple(sorted(retired)))
    return Schema(
        id=max(head.id, content.id) + 1,
        last_column_id=last,
        columns=content.columns,
        retired=tuple(sorted(retired.union(other_names(head.columns)))),
    )


def restored(schema: Schema, past: Schema, held: frozenset[int]) -> Schema:
    """Return `schema` extended so that it can read blocks of the older schema `past`.

    Both schemas are of one branch's history, so columns match by id. `held` are the ids of the
    leaf columns of those blocks. A column of which they hold a leaf, and which a rewind took away,
    is added again: with its id, nullable, after the other columns of its level. A narrower type is
    widened.

    Raises:
        SchemaMismatchError: a column of which they hold a leaf was dropped; another column has the
            name of one that is added again, or two types of one column do not fit each other.
    """
    columns = _restored(schema.columns, past.columns, held, frozenset(schema.retired), "")
    if columns == schema.columns:
        return schema
    return dataclasses.replace(schema, id=schema.id + 1, columns=columns)


def merged(schema: Schema, other: Schema) -> Schema:
    """Return a schema that can hold the rows of both: all their columns, types widened.

    If the two differ, every column is nullable, and the ids have no meaning.

    Raises:
        SchemaMismatchError: columns of one name have types that do not fit each other.
    """
    if not other.columns or schema.columns == other.columns:
        return schema
    columns = tuple(_nullable(column) for column in schema.columns)
    relaxed = dataclasses.replace(schema, columns=columns)
    return resolve(
        relaxed, other.columns, merge_schema=True, case_sensitive=True, with_hidden=True
    )[0]


def relaxed(schema: Schema) -> Schema:
    """Return a schema with every column nullable, at each depth."""
    return dataclasses.replace(schema, columns=tuple(map(_nullable, schema.columns)))


def unreadable(
    columns: tuple[Column, ...], target: tuple[Column, ...], path: str = ""
) -> Iterator[str]:
    """Yield one line for each reason why rows of `columns` cannot be read as `target`.

    Columns match by name. A column that `columns` lacks is null, and a narrower type is widened.
    """
    wanted = {column.name: column for column in target}
    for column in columns:
        name, other = f"{path}{column.name}", wanted.pop(column.name, None)
        if other is None:
            yield f"+ {name} {column.type}"
        elif column.type != other.type and not is_widening(column.type, other.type):
            yield f"~ {name}: {column.type}, not {other.type}"
        else:
            if column.nullable and not other.nullable:
                yield f"~ {name}: nullable"
            yield from unreadable(column.children, other.children, f"{name}.")
    yield from (
        f"- {path}{column.name} {column.type}" for column in wanted.values() if not column.nullable
    )


def with_ids_of(
    columns: tuple[Column, ...], target: tuple[Column, ...], new_id: Callable[[], int]
) -> tuple[Column, ...]:
    """Return `target` with the ids of the columns of the same names; other columns get new ids."""
    known = {column.name: column for column in columns}
    return tuple(
        _renumbered(column, new_id)
        if (other := known.get(column.name)) is None
        else dataclasses.replace(
            column,
            id=other.id,
            stored=other.stored,
            children=with_ids_of(other.children, column.children, new_id),
        )
        for column in target
    )


def completed(
    columns: Iterable[Column], other: Iterable[Column], new_id: Callable[[], int]
) -> tuple[Column, ...]:
    """Return `columns`, and after them those of `other` whose names they lack, at every depth.

    A column of both keeps its own type.
    """
    lacking = {column.name: column for column in other}
    found = []
    for column in columns:
        wanted = lacking.pop(column.name, column)
        fits = wanted.type == column.type
        children = completed(column.children, wanted.children if fits else (), new_id)
        found.append(dataclasses.replace(column, children=children))
    return (*found, *(added(column, new_id) for column in lacking.values()))


def added(column: Column, new_id: Callable[[], int]) -> Column:
    """Return `column` as a new column of a schema: nullable, with new ids."""
    return _renumbered(_nullable(column), new_id)


def is_widening(narrow: str, wide: str) -> bool:
    """True if `wide` has every value of `narrow` exactly, and Spark can read it so."""
    from_decimal, to_decimal = decimal_of(narrow), decimal_of(wide)
    if from_decimal and to_decimal:
        digits = to_decimal[0] - to_decimal[1] >= from_decimal[0] - from_decimal[1]
        return digits and to_decimal[1] >= from_decimal[1]
    return (narrow, wide) in _WIDENINGS


def _differences(
    table: tuple[Column, ...], columns: tuple[Column, ...], path: str
) -> Iterator[str]:
    arriving = {column.name: column for column in columns}
    for column in table:
        name = printable(f"{path}{column.name}")  # the text of the error has a line for each
        other = arriving.pop(column.name, None)
        if other is None:
            if not path and is_hidden(column.name):
                continue
            yield f"- {name} {column.type}: the table has it, the batch does not"
        elif other.type == column.type:
            yield from _differences(column.children, other.children, f"{name}.")
        elif not is_widening(other.type, column.type):
            yield f"~ {name}: the table has {column.type}, the batch {other.type}"
    for column in arriving.values():
        name = printable(f"{path}{column.name}")
        yield f"+ {name} {column.type}: the batch has it, the table does not"


def _can_merge(table: Schema, columns: tuple[Column, ...]) -> bool:
    try:
        _merge(table.columns, columns, lambda: 0, "")
    except SchemaMismatchError:
        return False
    return True


def _merge(
    table: tuple[Column, ...], columns: tuple[Column, ...], next_id: Callable[[], int], path: str
) -> tuple[Column, ...]:
    arriving = {column.name: column for column in columns}
    merged = []
    for column in table:
        other = arriving.pop(column.name, None)
        if other is None and not column.nullable:
            raise SchemaMismatchError(
                "the batch lacks a column that is not nullable", column=f"{path}{column.name}"
            )
        merged.append(column if other is None else _merge_column(column, other, next_id, path))
    return (*merged, *(added(column, next_id) for column in arriving.values()))


def _merge_column(column: Column, other: Column, next_id: Callable[[], int], path: str) -> Column:
    name = f"{path}{column.name}"
    if column.type == other.type:
        children = _merge(column.children, other.children, next_id, f"{name}.")
        return dataclasses.replace(column, children=children)
    if is_widening(column.type, other.type):
        return dataclasses.replace(column, type=other.type)
    if is_widening(other.type, column.type):
        return column
    raise SchemaMismatchError(
        "a column's type can neither be widened to the batch's nor hold it; cast the column",
        column=name,
        table=column.type,
        batch=other.type,
    )


def _restored(
    columns: tuple[Column, ...],
    past: tuple[Column, ...],
    held: frozenset[int],
    dropped: frozenset[str],
    path: str,
) -> tuple[Column, ...]:
    lost = {column.id: column for column in past}
    found = []
    for column in columns:
        before = lost.pop(column.id, None)
        found.append(
            column if before is None else _restored_column(column, before, held, dropped, path)
        )
    together = {column.id for column in past}
    for before in lost.values():
        if held.isdisjoint(_ids((before,))):
            continue
        if before.stored_name in dropped:
            raise SchemaMismatchError(
                "the blocks have a column that was dropped since", column=f"{path}{before.name}"
            )
        for column in columns:
            is_same = column.name.casefold() == before.name.casefold()
            # In files of the two, one name would be of two columns.
            is_same = is_same or column.stored_name == before.stored_name
            if column.name == before.name or (is_same and column.id not in together):
                raise SchemaMismatchError(
                    "the blocks have a dropped column whose name another column has now",
                    column=f"{path}{before.name}",
                )
        found.append(_nullable(before))
    return tuple(found)


def _restored_column(
    column: Column, before: Column, held: frozenset[int], dropped: frozenset[str], path: str
) -> Column:
    if column.type == before.type:
        name = f"{path}{column.name}."
        children = _restored(column.children, before.children, held, dropped, name)
        return dataclasses.replace(column, children=children)
    if is_widening(before.type, column.type):
        return column
    if is_widening(column.type, before.type):
        return dataclasses.replace(column, type=before.type)
    raise SchemaMismatchError(
        "the type of a column in the blocks cannot be widened to its type in the table",
        column=f"{path}{column.name}",
        table=column.type,
        blocks=before.type,
    )


def _nullable(column: Column) -> Column:
    children = tuple(_nullable(child) for child in column.children)
    if column.type == "map":  # a map's key is never null
        children = (dataclasses.replace(children[0], nullable=False), children[1])
    return dataclasses.replace(column, nullable=True, children=children)


def _renumbered(column: Column, next_id: Callable[[], int]) -> Column:
    column_id = next_id()
    children = tuple(_renumbered(child, next_id) for child in column.children)
    return dataclasses.replace(column, id=column_id, children=children)


def _ids(columns: Iterable[Column]) -> Iterator[int]:
    for column in columns:
        yield column.id
        yield from _ids(column.children)
