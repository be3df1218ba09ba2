"""`upsert`, `quarantine` and `retry`: rows from files, and events that could not be applied."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from fuse_stream.cli.as_json import Json, json_value, pick
from fuse_stream.cli.grid import Grid, facts_view
from fuse_stream.cli.options import (
    Target,
    described,
    dry_run_option,
    on_table,
    version_option,
    writes,
)
from fuse_stream.cli.text import cell, count, plural
from fuse_stream.dml.events import without_values
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.sides import SideName
from fuse_stream.table.handle import Table

_KEYS = "version=snapshot.version inserted updated deleted events quarantined"
_READERS = {
    ".parquet": pq.read_table,
    ".csv": pyarrow.csv.read_csv,
    ".json": pyarrow.json.read_json,
    ".jsonl": pyarrow.json.read_json,
}
_SHOWN = 20


@click.command()
@on_table
@click.argument("file")
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="Of the key; repeatable.")
@click.option(
    "--sequence-by",
    multiple=True,
    metavar="COLUMN",
    help="Rows are events in the order of this column; repeatable.",
)
@click.option("--deletes", metavar="WHERE", help="Which events are deletes: a predicate.")
@click.option("--truncates", metavar="WHERE", help="Which events are truncates: a predicate.")
@click.option(
    "--except", "leave_out", multiple=True, metavar="COLUMN", help="Not for the table; repeatable."
)
@click.option("--merge-schema", is_flag=True, help="Let the file add columns and widen types.")
@described
@writes
def upsert(
    target: Target,
    *,
    file: str,
    keys: tuple[str, ...],
    sequence_by: tuple[str, ...],
    deletes: str | None,
    truncates: str | None,
    leave_out: tuple[str, ...],
    **options: Any,
) -> None:
    """Upsert the rows of FILE, as one commit: each replaces the row that has its key.

    FILE is Parquet, CSV, or JSON with a row a line, by its ending. With --sequence-by the rows are
    events: late ones and repeated ones change nothing.

    \b
    Example:
      fuse-stream upsert /lake/accounts accounts.parquet --key id
      fuse-stream upsert /lake/orders log.jsonl --key id --sequence-by lsn --deletes "op = 'd'"
    """  # noqa: D301 - click's mark for lines to keep
    done = target.open().upsert(
        _rows(file),
        keys=keys or None,
        sequence_by=sequence_by or None,
        apply_as_deletes=deletes,
        apply_as_truncates=truncates,
        except_column_list=leave_out,
        **options,
    )
    if target.json:
        target.show_json({"file": file, **pick(done, _KEYS)})
    else:
        target.output.note(_said(done))


@click.command()
@on_table
@version_option
@click.option("--where", metavar="WHERE", help="Only these: a predicate on the columns.")
@click.option(
    "--since", metavar="VERSION", help="Only those that this older version does not have."
)
@click.option("--limit", type=click.IntRange(min=0), default=_SHOWN, help="The most events shown.")
@click.option(
    "--exit-code",
    "fails",
    is_flag=True,
    help="For monitors: exit with 1 if there is such an event.",
)
def quarantine(
    target: Target,
    *,
    version: str | None,
    where: str | None,
    since: str | None,
    limit: int,
    fails: bool,
) -> int:
    """Show the events that could not be applied, and why.

    The columns are id, reason, op, sequence, event, unset, raw, source, app_id, writer, batch_id
    and at. What a reader of events could not read has no op and no event, only its raw text. The
    source is the topic, the partition and the offset of the message.

    \b
    Example:
      fuse-stream quarantine /lake/orders --where "reason = 'tie'"
      fuse-stream quarantine /lake/orders --where "at > '2026-03-01'"
      fuse-stream quarantine /lake/orders --since good-run --limit 0 --exit-code
    """  # noqa: D301 - the same
    table = target.open()
    rows = _kept(table, version, where)
    if since is not None:
        known = {row["id"] for row in _kept(table, since, None)}
        rows = [row for row in rows if row["id"] not in known]
    _show(target, rows, limit, is_part=not (where is None and since is None))
    return int(fails and bool(rows))


def _show(target: Target, rows: list[Json], limit: int, *, is_part: bool) -> None:
    """Show events; `is_part` if only some events of the quarantine were asked for."""
    # Without the values that some reasons show: they would be a line for each event.
    reasons = Counter(without_values(row["reason"]) for row in rows)
    shown = rows[:limit]
    if target.json:
        events = [{name: json_value(value) for name, value in row.items()} for row in shown]
        target.show_json({"count": len(rows), "reasons": dict(reasons), "events": events})
        return
    if not rows:
        target.output.note(
            "there is no such event in the quarantine" if is_part else "the quarantine is empty"
        )
        return
    target.output.show(facts_view({reason: count(n) for reason, n in reasons.most_common()}))
    grid = Grid.of(
        "reason",
        "op",
        "sequence",
        "~event",
        "source",
        ">batch",
        rows=[
            [
                str(row["reason"]),
                str(row["op"] or ""),
                cell(row["sequence"]),
                cell(row["event"]) if row["op"] else str(row["raw"]),
                str(row["source"] or ""),
                "" if row["batch_id"] is None else str(row["batch_id"]),
            ]
            for row in shown
        ],
    )
    target.output.show("", grid.without_empty().table())
    if len(shown) < len(rows):
        target.output.note(f"{plural(len(rows) - len(shown), 'event')} not shown; see --limit")


@click.command()
@on_table
@click.option("--where", metavar="WHERE", help="Only these events of the quarantine.")
@click.option("--too-late", is_flag=True, help="Also events of keys that are forgotten.")
@dry_run_option
@described
@writes
def retry(
    target: Target, *, where: str | None, too_late: bool, dry_run: bool, **options: Any
) -> None:
    """Apply events of the quarantine again, as one commit.

    Safe at any time: an event that the table has already changes nothing, and one that still cannot
    be applied goes back. Events of which only the text was kept stay: fuse.retry, in Python, reads
    the text again, as docs/cdc.md shows.

    \b
    Example:
      fuse-stream retry /lake/orders --where "reason = 'no value: amount'" --dry-run
    """  # noqa: D301 - the same
    done = target.open().retry(where, too_late=too_late, dry_run=dry_run, **options)
    if target.json:
        target.show_json({"where": where, "dry_run": dry_run, **pick(done, f"{_KEYS} unread")})
        return
    if dry_run:
        target.output.note(f"{plural(done.events, 'event')} would be applied again")
    else:
        target.output.note(_said(done))
    if done.unread:
        target.output.note(
            f"{plural(done.unread, 'event')} left out, of which only the text was kept: "
            "fuse.retry(spark, path, read) reads it again, see docs/cdc.md"
        )


def _kept(table: Table, version: str | None, where: str | None) -> list[Json]:
    if SideName.QUARANTINE not in table.snapshot(version or "HEAD").sides:
        return []
    rows: list[Json] = table.to_arrow(
        side=SideName.QUARANTINE.value, version=version, where=where
    ).to_pylist()
    return rows


def _rows(file: str) -> pa.Table:
    read = _READERS.get(Path(file).suffix.lower())
    if read is None:
        raise InvalidInputError(
            "the file is none of those that can be read", file=file, endings=list(_READERS)
        )
    try:
        return read(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError("the file cannot be read", file=file, reason=str(error)) from error


def _said(done: ChangeResult) -> str:
    if done.snapshot is None:
        return "nothing was changed; no version was made"
    facts = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
    said = [f"{plural(number, 'row')} {verb}" for verb, number in facts.items() if number]
    if done.quarantined:
        said.append(f"{plural(done.quarantined, 'event')} in the quarantine")
    return f"version {done.snapshot.version}: {', '.join(said) or 'no row changed'}"
