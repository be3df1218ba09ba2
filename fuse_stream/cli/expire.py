"""`expire` and `vacuum`: forgetting old snapshots, and deleting what nothing needs any more."""

from __future__ import annotations

from collections.abc import Mapping

import click
from rich.text import Text

from fuse_stream.cli.as_json import Json, log_entry
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.options import Target, on_table, writes
from fuse_stream.cli.text import (
    count,
    iso,
    plural,
    printable,
    size,
)
from fuse_stream.expiry.expire import Expiry
from fuse_stream.expiry.vacuum import Removed, VacuumReport
from fuse_stream.format.properties import duration_us

_dry_run = click.option("--dry-run", is_flag=True, help="Only tell what would be done.")


@click.command()
@on_table
@click.option("--older-than", metavar="AGE", help='Superseded so long ago, such as "7d"; and')
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    metavar="N",
    help="not among the newest N. Without both: the table's property fuse.retain.",
)
@_dry_run
@writes
def expire(target: Target, *, older_than: str | None, keep_last: int | None, dry_run: bool) -> None:
    """Let the old snapshots of a branch expire: they cannot be read or gone back to any more.

    What tags, clones and other branches need stays readable by these. Nothing is deleted before the
    next vacuum. The newest snapshot stays, and what was superseded within the table's grace.

    \b
    Example:
      fuse-stream expire /lake/flights --older-than 30d --keep-last 100 --dry-run

    With --json: path, branch, dry_run, snapshot (as in log, or null), floor_before, floor,
    expired_count, dropped (application, writer), left_behind (consumers).
    """  # noqa: D301 - click's mark for lines to keep
    if older_than is not None:
        duration_us(older_than)
    done = target.open().expire(older_than, keep_last, dry_run=dry_run)
    output = target.output
    if target.json:
        place = {"path": target.path, "branch": target.branch, "dry_run": dry_run}
        output.show_json({**place, **expiry_document(done)})
        return
    would = "would expire" if dry_run else "expired"
    if done.expired_count:
        first, last = done.floor_before, done.floor - 1
        versions = str(first) if first == last else f"{first} to {last}"
        output.show(Text(f"{plural(done.expired_count, 'version')} {would}: {versions}"))
    else:
        output.show(Text("no version is old enough to expire"))
    for application, writer in done.dropped:
        name = printable(f"{application}/{writer}" if writer else application)
        output.note(f"{'would leave' if dry_run else 'left'} the ledger, idle for long: {name}")
    for name in done.left_behind:
        output.note(
            f"the consumer {printable(name)} has yet to read what expired: it can, for as long as "
            "its lease lives"
        )


@click.command()
@on_table
@_dry_run
@writes
def vacuum(target: Target, *, dry_run: bool) -> None:
    """Delete what nothing needs any more, of all branches.

    Safe beside writers, readers and other vacuums. What may belong to a commit in flight waits: run
    it again after the table's fuse.vacuum.age (24h). A vacuum that died is finished by the next.

    \b
    Example:
      fuse-stream vacuum /lake/flights --dry-run

    With --json: path, dry_run, deleted and waiting (by kind: object_count, byte_size), raised
    (branches), due (from then on the next vacuum can delete more).
    """  # noqa: D301 - the same
    table = target.open()
    with target.output.progress("looking") as meter:
        report = table.vacuum(dry_run=dry_run, progress=meter.say)
    if target.json:
        target.output.show_json({"path": target.path, **vacuum_document(report)})
        return
    output = target.output
    if report.object_count:
        output.show(_removed_grid(report).table())
    would = "would be deleted" if dry_run else "deleted"
    output.note(f"{plural(report.object_count, 'object')}, {size(report.byte_size)} {would}")
    waiting = sum(removed.object_count for removed in report.waiting.values())
    if waiting:
        output.note(
            f"{plural(waiting, 'object')} that nothing names may belong to commits in flight; "
            f"vacuum again after {iso(report.due_us)}"
        )


def expiry_document(done: Expiry) -> Json:
    """Return an expiry as JSON values."""
    return {
        "snapshot": None if done.snapshot is None else log_entry(done.snapshot, 0),
        "floor_before": done.floor_before,
        "floor": done.floor,
        "expired_count": done.expired_count,
        "dropped": [{"application": app, "writer": writer} for app, writer in done.dropped],
        "left_behind": list(done.left_behind),
    }


def vacuum_document(report: VacuumReport) -> Json:
    """Return what a vacuum did as JSON values."""
    return {
        "dry_run": report.dry_run,
        "deleted": _counts(report.deleted),
        "waiting": _counts(report.waiting),
        "raised": list(report.raised),
        "due": iso(report.due_us),
    }


def _counts(removed: Mapping[str, Removed]) -> Json:
    return {
        kind: {"object_count": item.object_count, "byte_size": item.byte_size}
        for kind, item in removed.items()
    }


def _removed_grid(report: VacuumReport) -> Grid:
    headings = (
        Heading(text="kind"),
        Heading(text="objects", right=True),
        Heading(text="bytes", right=True),
    )
    rows = [
        [Text(kind), Text(count(item.object_count)), Text(size(item.byte_size))]
        for kind, item in report.deleted.items()
        if item.object_count
    ]
    return Grid(headings=headings, rows=rows)
