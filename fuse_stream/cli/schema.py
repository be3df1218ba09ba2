"""`schema`: show the columns of a table, and change them by one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from rich.text import Text

from fuse_stream.cli.as_json import schema_document
from fuse_stream.cli.grid import Grid
from fuse_stream.cli.options import Target, author_option, message_option, on_table, writes
from fuse_stream.cli.text import printable
from fuse_stream.format.schema import Column, Schema
from fuse_stream.table.alter import SchemaUpdate


def _pairs(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, nargs=2, multiple=True, metavar=metavar, help=f"{text}; repeatable.")


def _names(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, metavar="COLUMN", help=f"{text}; repeatable.")


@click.command()
@on_table
@_names("--drop", "Drop a column")
@_pairs("--rename", "COLUMN NAME", "Give a column another name")
@_pairs("--add", "COLUMN TYPE", "Add a column, such as gate string")
@_pairs("--type", "COLUMN TYPE", "Give a column a wider type")
@_names("--nullable", "Let a column hold nulls")
@_names("--not-null", "Refuse nulls in a column, if no row has one")
@_pairs("--comment", "COLUMN TEXT", "Set a comment; an empty TEXT removes it")
@_names("--move-first", "Move a column before the others of its level")
@_pairs("--move-after", "COLUMN OTHER", "Move a column behind another one")
@_pairs("--move-before", "COLUMN OTHER", "Move a column before another one")
@message_option
@author_option
@writes
def schema(target: Target, *, message: str, author: str, **changes: Any) -> None:
    """Show the columns of a table, or change them by one commit.

    The changes are made in the order of the options above, whatever the order in which they are
    given. A field of a struct is named with dots, as in at.gate. No file is rewritten: old rows
    have a renamed column under its new name, and null in a new one. Older versions keep their
    columns.

    \b
    Example:
      fuse-stream schema /lake/flights
      fuse-stream schema /lake/flights --rename dest destination --drop tailnum
      fuse-stream schema /lake/flights --add gate string --move-after gate destination
    """  # noqa: D301 - click's mark for lines to keep
    table = target.open()
    snapshot = table.head()
    if any(changes.values()):
        update = table.update_schema(on_conflict="replan", message=message, author=author)
        with update:
            _apply(update, changes)
        snapshot = update.snapshot or snapshot
    elif message or author:
        raise click.UsageError("--message and --author are for a change of the columns")
    if target.json:
        document = schema_document(snapshot.schema)
        target.show_json({"version": snapshot.version, "schema": document})
        return
    target.output.show(_grid(snapshot.schema.visible).table())
    if any(changes.values()):
        target.output.note(f"the columns of version {snapshot.version}")


def _apply(update: SchemaUpdate, changes: Mapping[str, Iterable[Any]]) -> None:
    acts: Mapping[str, Callable[[Any], object]] = {
        "drop": update.delete_column,
        "rename": lambda pair: update.rename_column(*pair),
        "add": lambda pair: update.add_column(*pair),
        "type": lambda pair: update.update_column(pair[0], type=pair[1]),
        "nullable": lambda name: update.update_column(name, nullable=True),
        "not_null": lambda name: update.update_column(name, nullable=False),
        "comment": lambda pair: update.update_column(pair[0], comment=pair[1]),
        "move_first": update.move_first,
        "move_after": lambda pair: update.move_after(*pair),
        "move_before": lambda pair: update.move_before(*pair),
    }
    for kind, act in acts.items():
        for given in changes[kind]:
            act(given)


def _grid(shown: Schema) -> Grid:
    def lines(columns: Iterable[Column], depth: int) -> Iterable[list[Text | str]]:
        for column in columns:
            yield [
                str(column.id),
                Text("  " * depth + printable(column.name)),
                column.type,
                "" if column.nullable else "not null",
                Text("" if column.stored is None else printable(column.stored)),
                Text(printable(column.comment or "")),
            ]
            yield from lines(column.children, depth + 1)

    return Grid.of(">id", "column", "type", "", "in files", "comment", rows=lines(shown.columns, 0))
