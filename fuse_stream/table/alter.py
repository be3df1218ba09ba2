"""Change the columns of a table by themselves: add some, or widen the type of one.

Rules:
- Nothing is rewritten: a new column is null in the rows that are there, and values of a narrower
  type are widened as they are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.format.evolve import is_widening, resolve
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.slots import Stored
from fuse_stream.table.handle import Table


def add_columns(table: Table, columns: tuple[Column, ...]) -> Snapshot:
    """Add columns after those of the table, as one commit; their ids are new.

    Raises:
        InvalidInputError: the table has such a column, or a name is not valid.
        ConflictError: other writers won every attempt.
    """

    def extended(schema: Schema) -> tuple[Column, ...]:
        taken = {column.name.casefold() for column in schema.columns}
        if doubled := [one.name for one in columns if one.name.casefold() in taken]:
            raise InvalidInputError("the table has these columns already", columns=doubled)
        return (*schema.visible.columns, *columns)

    names = ", ".join(column.name for column in columns)
    return _change(table, extended, f"add columns {names}")


def widen_column(table: Table, name: str, type_name: str) -> Snapshot:
    """Give a column a type that holds all of its values, as one commit.

    Raises:
        NotFoundError: there is no such column.
        InvalidInputError: the type is no wider one.
        ConflictError: other writers won every attempt.
    """

    def widened(schema: Schema) -> tuple[Column, ...]:
        known = {column.name: column for column in schema.visible.columns}
        if name not in known:
            raise NotFoundError("the table has no such column", column=name, columns=[*known])
        column = known[name]
        if column.type != type_name and not is_widening(column.type, type_name):
            raise InvalidInputError(
                "the type of a column can only become a wider one, such as bigint from int: write "
                "the rows to a new table, or cast the column where it is read",
                column=name,
                type=column.type,
                to=type_name,
            )
        return tuple(
            dataclasses.replace(one, type=type_name) if one is column else one
            for one in schema.visible.columns
        )

    return _change(table, widened, f"widen {name} to {type_name}")


def _change(
    table: Table, columns_of: Callable[[Schema], tuple[Column, ...]], message: str
) -> Snapshot:
    def stage(head: Stored, _before: Staged | None) -> Staged:
        schema = head.snapshot.schema
        columns = columns_of(schema)
        changed, _ = resolve(schema, columns, merge_schema=True, case_sensitive=True)
        return Staged(schema=changed)

    intent = Intent(operation=Operation.ALTER, message=message)
    return table.committer.commit(intent, stage).snapshot
