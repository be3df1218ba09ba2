"""`delete` and `update`: change the rows for which a predicate is true."""

from __future__ import annotations

from typing import Any

import click

from fuse_stream.cli.as_json import json_value, pick
from fuse_stream.cli.options import Target, described, dry_run_option, on_table, writes
from fuse_stream.cli.text import plural
from fuse_stream.dml.literals import read_values
from fuse_stream.dml.result import ChangeResult

_WORK = "looking for rows"


@click.command()
@on_table
@click.argument("where")
@dry_run_option
@described
@writes
def delete(target: Target, *, where: str, dry_run: bool, **options: Any) -> None:
    """Delete the rows for which the predicate WHERE is true, as one commit.

    No block is rewritten: the rows are hidden, and the next compaction of their blocks leaves them
    out. Older versions still have them, so this erases nothing. Times without a zone are in UTC.

    \b
    Example:
      fuse-stream delete /lake/flights "carrier = 'XX' AND dep_delay IS NULL" --dry-run
    """  # noqa: D301 - click's mark for lines to keep
    table = target.open()
    with target.output.progress(_WORK) as meter:
        done = table.delete(where, dry_run=dry_run, progress=meter.reach, **options)
    if target.json:
        document = pick(done, "version=snapshot.version deleted")
        target.show_json({"where": where, "dry_run": dry_run, **document})
    else:
        target.output.note(_said(done, done.deleted, "deleted", dry_run=dry_run))


@click.command()
@on_table
@click.argument("where")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    required=True,
    metavar="COLUMN=VALUE",
    help="The new value of a column, as a SQL literal; repeatable.",
)
@dry_run_option
@described
@writes
def update(
    target: Target, *, where: str, assignments: tuple[str, ...], dry_run: bool, **options: Any
) -> None:
    """Set columns of the rows for which the predicate WHERE is true, as one commit.

    VALUE is a SQL literal: a number, a text in quotes, TRUE, NULL, DATE '2026-01-31'. Rows that
    have these values already are left alone. No block is rewritten: the others are hidden, and
    written to new blocks. Times without a zone are in UTC.

    \b
    Example:
      fuse-stream update /lake/flights "carrier = 'XX'" --set "carrier='YY'" --set dep_delay=NULL
    """  # noqa: D301 - the same
    texts = _split(assignments)
    table = target.open()
    values = read_values(table.head().schema, texts)
    with target.output.progress(_WORK) as meter:
        done = table.update(where, values, dry_run=dry_run, progress=meter.reach, **options)
    if target.json:
        named = {name: json_value(value.as_py()) for name, value in values.items()}
        document = pick(done, "version=snapshot.version updated")
        target.show_json({"where": where, "set": named, "dry_run": dry_run, **document})
    else:
        target.output.note(_said(done, done.updated, "updated", dry_run=dry_run))


def _split(assignments: tuple[str, ...]) -> dict[str, str]:
    """Return the texts of the new values, by column."""
    texts: dict[str, str] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        name = name.strip()
        if not separator or not name or not text.strip():
            raise click.BadParameter(
                f"{assignment}: write COLUMN=VALUE, such as delay=0 or \"carrier='YY'\"",
                param_hint="--set",
            )
        if name in texts:
            raise click.BadParameter(f"{name} is set twice", param_hint="--set")
        texts[name] = text.strip()
    return texts


def _said(done: ChangeResult, rows: int, verb: str, *, dry_run: bool) -> str:
    if dry_run:
        return f"{plural(rows, 'row')} would be {verb}"
    if done.snapshot is None:
        return f"no row was {verb}: none matches, or all are so already; no version was made"
    return f"version {done.snapshot.version}: {plural(rows, 'row')} {verb}"
