"""`import` and `copy`: a table made of Parquet files, and whole copies of a table."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from fuse_stream.cli.as_json import json_value, pick
from fuse_stream.cli.grid import facts_view
from fuse_stream.cli.options import Target, json_flag, on_table, opening, storage_option, writes
from fuse_stream.cli.output import Output
from fuse_stream.cli.text import count, plural, printable
from fuse_stream.format.sizes import size
from fuse_stream.table.transfer import copy as copy_table
from fuse_stream.table.transfer import import_parquet


def _properties(
    _context: click.Context, _: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    properties = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter("a property is NAME=VALUE, such as fuse.retain=30d")
        properties[name] = value
    return properties


@click.command("import")
@click.argument("path")
@click.argument("new_path")
@click.option(
    "--cluster-by",
    multiple=True,
    metavar="COLUMN",
    help="A column that the rows of a block are sorted by; repeatable, in their order.",
)
@click.option(
    "--key",
    multiple=True,
    metavar="COLUMN",
    help="A column of the key: the rows must be unique by the key; repeatable.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_properties,
    help="A property of the table; repeatable.",
)
@json_flag
@storage_option
@writes
def import_files(path: str, new_path: str, as_json: bool, **others: Any) -> None:
    """Make a table in the folder NEW_PATH of the Parquet files in PATH.

    PATH is a Parquet file, a folder of such files, whose folders k=v become columns, or a Delta
    table. A file that is what a block has to be becomes a block as it is; of the others the rows
    are written anew. PATH is only read, and the table does not need it. If the command is
    interrupted, run it again: it goes on.

    \b
    Example:
      fuse-stream import /data/flights /lake/flights --cluster-by day
      fuse-stream import s3://bucket/delta/flights /lake/flights --key id
    """  # noqa: D301 - click's mark for lines to keep
    output = Output(json=as_json)
    with output.progress("looking for files") as meter:
        made = import_parquet(path, new_path, progress=meter.say, **others, **opening())
    if as_json:
        keys = "table_id location source file_count taken_count rewritten_count reasons"
        document = {"import": pick(made, keys), "snapshot": json_value(made.snapshot)}
        output.show_json({"path": path, **document})
        return
    facts: dict[str, str | Text] = {
        "table": Text(printable(made.location), style="bold"),
        "id": made.table_id,
        "of": f"{made.source}, {plural(made.file_count, 'file')}",
        "holds": plural(made.snapshot.summary.row_count, "row"),
        "taken": f"{count(made.taken_count)} as they are",
        "rewritten": count(made.rewritten_count),
    }
    output.show(facts_view(facts))
    for reason, number in sorted(made.reasons.items(), key=lambda item: -item[1]):
        output.note(f"rewritten since {reason}: {plural(number, 'file')}")


@click.command()
@on_table
@click.argument("new_path")
@click.option(
    "--head-only",
    is_flag=True,
    help="Copy the newest version of the branch alone, to a table with an id of its own.",
)
@writes
def copy(target: Target, *, new_path: str, head_only: bool) -> None:
    """Copy a whole table into the folder NEW_PATH, such as a backup.

    The copy has all versions, branches and tags, and the table's id. It needs no other folder, also
    if PATH is a clone: name its origins with --origin. Commits may run meanwhile. Run the command
    again after an interruption, which copies what lacks, or later, which brings the copy up to
    date. Do not write to a copy that is to be brought up to date.

    \b
    Example:
      fuse-stream copy /lake/flights /backup/flights
      fuse-stream copy /lake/flights /lake/trial --head-only
    """  # noqa: D301 - the same
    with target.output.progress("looking for objects") as meter:
        made = copy_table(
            target.path, new_path, history=not head_only, progress=meter.say, **target.keywords
        )
    if target.json:
        keys = "table_id location has_history object_count byte_count"
        document = {"copy": pick(made, keys), "snapshot": json_value(made.snapshot)}
        target.show_json(document)
        return
    facts: dict[str, str | Text] = {
        "copy": Text(printable(made.location), style="bold"),
        "id": made.table_id,
        "version": str(made.snapshot.version),
        "holds": plural(made.snapshot.summary.row_count, "row"),
        "copied": f"{plural(made.object_count, 'object')}, {size(made.byte_count)}",
    }
    target.output.show(facts_view(facts))
