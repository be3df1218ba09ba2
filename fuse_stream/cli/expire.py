"""`expire` and `vacuum`: expire old snapshots, and delete the objects that nothing needs."""

from __future__ import annotations

import click
from rich.text import Text

from fuse_stream.cli.as_json import json_value, log_entry, pick
from fuse_stream.cli.grid import Grid
from fuse_stream.cli.options import Target, WholeNumber, dry_run_option, on_table, writes
from fuse_stream.cli.text import count, duration, iso, plural, printable
from fuse_stream.format.properties import duration_us
from fuse_stream.format.sizes import size


@click.command()
@on_table
@click.option(
    "--older-than", metavar="AGE", help="Only versions superseded this long ago, such as 7d."
)
@click.option(
    "--keep-last",
    type=WholeNumber(min=1),
    metavar="N",
    help="Only versions not among the newest N. Without both: as the property fuse.retain says.",
)
@dry_run_option
@writes
def expire(target: Target, *, older_than: str | None, keep_last: int | None, dry_run: bool) -> None:
    """Expire old snapshots of a branch: they cannot be read any more.

    Tags, clones and other branches keep the snapshots that they need. The next vacuum deletes the
    rest. The newest snapshot never expires, nor does one that was superseded less than the table's
    property fuse.grace ago.

    \b
    Example:
      fuse-stream expire /lake/flights --older-than 30d --keep-last 100 --dry-run
    """  # noqa: D301 - click's mark for lines to keep
    if older_than is not None:
        duration_us(older_than)
    table = target.open()
    done = table.expire(older_than, keep_last, dry_run=dry_run)
    output = target.output
    if target.json:
        document = pick(
            done,
            "dry_run snapshot floor_before floor expired_count kept_by_grace dropped left_behind",
            dry_run=dry_run,
            snapshot=None if done.snapshot is None else log_entry(done.snapshot, 0),
            dropped=[{"application": app, "writer": writer} for app, writer in done.dropped],
        )
        target.show_json(document)
        return
    would = "would expire" if dry_run else "expired"
    if done.expired_count:
        first, last = done.floor_before, done.floor - 1
        versions = str(first) if first == last else f"{first} to {last}"
        output.show(Text(f"{plural(done.expired_count, 'version')} {would}: {versions}"))
    else:
        why = ""
        grace_us, count_kept = table.committer.grace_us, table.head().version - done.floor + 1
        asked_us = grace_us if older_than is None else duration_us(older_than)
        is_asked = (older_than, keep_last) != (None, None)  # else it was fuse.retain
        if is_asked and asked_us <= grace_us and count_kept > (keep_last or 1):
            why = f": none was superseded more than fuse.grace ({duration(grace_us)}) ago"
        output.show(Text(f"no version is old enough to expire{why}"))
    for application, writer in done.dropped:
        name = printable(f"{application}/{writer}" if writer else application)
        output.note(f"{'would leave' if dry_run else 'left'} the ledger, idle for long: {name}")
    for name in done.left_behind:
        output.note(
            f"the consumer {printable(name)} has not read all expired versions yet: it can until "
            "its lease lapses"
        )


@click.command()
@on_table
@dry_run_option
@writes
def vacuum(target: Target, *, dry_run: bool) -> None:
    """Delete the objects that no snapshot of any branch needs.

    Safe beside writers, readers and other vacuums. On every branch it makes two commits, its
    fences, which the log shows as expire. Objects that may belong to a commit in flight are kept:
    run vacuum again after the table's property fuse.vacuum.age (24h). If a vacuum is interrupted,
    the next one finishes it.

    \b
    Example:
      fuse-stream vacuum /lake/flights --dry-run
    """  # noqa: D301 - the same
    table = target.open()
    with target.output.progress("looking for objects") as meter:
        report = table.vacuum(dry_run=dry_run, progress=meter.say)
    if target.json:
        document = {**json_value(report), "due": iso(report.due_us)}
        target.show_json(document, branch=False)
        return
    output = target.output
    if report.object_count:
        rows = [
            (kind, count(item.object_count), size(item.byte_size))
            for kind, item in report.deleted.items()
            if item.object_count
        ]
        output.show(Grid.of("kind", ">objects", ">bytes", rows=rows).table())
    would = "would be deleted" if dry_run else "deleted"
    output.note(f"{plural(report.object_count, 'object')}, {size(report.byte_size)} {would}")
    if report.waiting_count:
        output.note(
            f"next: vacuum again after {iso(report.due_us)}; "
            f"{plural(report.waiting_count, 'object')} that nothing names may belong to commits in "
            "flight, and a later vacuum deletes them"
        )
