"""`erase`: remove rows from every block, and say what still holds them."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from fuse_stream.cli.as_json import Json, json_value, pick
from fuse_stream.cli.grid import ALARM, Grid
from fuse_stream.cli.options import Target, described, dry_run_option, on_table, writes
from fuse_stream.cli.text import count, iso, plural, printable
from fuse_stream.erasure.erase import ErasureReport
from fuse_stream.erasure.holders import Holder
from fuse_stream.erasure.rewrite_head import ErasedSide
from fuse_stream.erasure.verify import Verification

MOST_OBJECTS = 50
"""The most objects that are listed for people."""


@click.command()
@on_table
@click.argument("where")
@click.option(
    "--verify",
    is_flag=True,
    help="Write nothing: read every object of the table, and say what it holds of the rows.",
)
@dry_run_option
@described
@writes
def erase(target: Target, *, where: str, verify: bool, dry_run: bool, **options: Any) -> int:
    """Erase the rows for which the predicate WHERE is true, deleted ones included.

    One commit on each branch rewrites the blocks that hold them. Older versions still do: the
    report names them, and the tags, clones and consumers that keep them, with the command that
    releases each. After expire and two vacuums run it again with --verify, whose exit code is 1 if
    an object still holds something of the rows, or cannot be read. Times without a zone are in UTC.

    \b
    Example:
      fuse-stream erase /lake/flights "email = 'ada@example.org'" --dry-run
      fuse-stream erase /lake/flights "email = 'ada@example.org'" --verify
    """  # noqa: D301 - click's mark for lines to keep
    if verify and dry_run:
        raise click.UsageError("--verify writes nothing: leave --dry-run out")
    table = target.open()
    with target.output.progress("searching") as meter:
        report = table.erase(where, verify=verify, dry_run=dry_run, progress=meter.say, **options)
    if report.verification is not None:
        if target.json:
            target.show_json(_verification_document(where, report.verification), branch=False)
        else:
            _show_verification(target, report.verification)
        return int(not report.verification.is_clean)
    if target.json:
        target.show_json(_document(where, report))
    else:
        _show(target, report)
    return 0


def _document(where: str, report: ErasureReport) -> Json:
    return {
        "where": where,
        **pick(
            report,
            "dry_run row_count hidden_count branches holders unreadable",
            branches=[
                pick(
                    one,
                    "branch version=snapshot.version row_count hidden_count block_count sides",
                    sides=[json_value(side) for side in one.sides],
                )
                for one in report.branches
            ],
            holders=[_holder_document(holder) for holder in report.holders],
        ),
    }


def _holder_document(holder: Holder) -> Json:
    return pick(
        holder,
        "kind name first_version last_version row_count command after_us until_us remedy",
    )


def _verification_document(where: str, verification: Verification) -> Json:
    return {
        "where": where,
        "clean": verification.is_clean,
        "object_count": len(verification.objects),
        "searched": list(verification.searched),
        "unsearched": list(verification.unsearched),
        "shared": list(verification.shared),
        "objects": [json_value(item) for item in verification.objects],
    }


def _show(target: Target, report: ErasureReport) -> None:
    output = target.output
    would = "would be erased" if report.dry_run else "erased"
    for branch in report.branches:
        at = f"version {branch.snapshot.version}" if branch.snapshot else "no version"
        hidden = f" and {plural(branch.hidden_count, 'deleted row')}" if branch.hidden_count else ""
        output.note(
            f"{printable(branch.branch)}: {plural(branch.row_count, 'row')}{hidden} {would} from "
            f"{plural(branch.block_count, 'block')}" + ("" if report.dry_run else f"; {at}")
        )
        for side in branch.sides:
            _show_side(target, side, would)
    if report.holders:
        output.show(_holders_table(report.holders))
        for holder in report.holders:
            command = f": {printable(holder.command)}" if holder.command else ""
            output.note(f"{printable(holder.name)}: {printable(holder.remedy)}{command}")
    else:
        output.note("nothing else holds the rows; --verify reads every object")
    for key in report.unreadable:
        output.note(f"not searched, because it cannot be read: {printable(key)}")


def _show_side(target: Target, side: ErasedSide, would: str) -> None:
    if side.block_count:
        hidden = f" and {plural(side.hidden_count, 'deleted row')}" if side.hidden_count else ""
        target.output.note(f"side {side.name}: {plural(side.row_count, 'row')}{hidden} {would}")
    if side.unjudged_count:
        target.output.note(
            f"side {side.name}: {plural(side.unjudged_count, 'row')} kept, because the predicate "
            "cannot judge them; --verify searches their bytes"
        )


def _holders_table(holders: tuple[Holder, ...]) -> Any:
    rows = [
        (
            str(holder.kind),
            printable(holder.name),
            _versions(holder),
            count(holder.row_count),
            "" if holder.after_us is None else iso(holder.after_us),
            "" if holder.until_us is None else iso(holder.until_us),
        )
        for holder in holders
    ]
    headings = ("still held by", "name", "versions", ">rows", "releasable from", "until")
    return Grid.of(*headings, rows=rows).without_empty().table()


def _versions(holder: Holder) -> str:
    first, last = holder.first_version, holder.last_version
    return str(first) if first == last else f"{first}-{last}"


def _show_verification(target: Target, verification: Verification) -> None:
    output = target.output
    bad = [item for item in verification.objects if item.found or item.problem is not None]
    if bad:
        rows = [
            (
                item.kind,
                printable(item.key),
                Text(printable("; ".join([*item.found, item.problem or ""]).strip("; ")), ALARM),
            )
            for item in bad[:MOST_OBJECTS]
        ]
        output.show(Grid.of("kind", "object", "what it holds", rows=rows).table())
        if len(bad) > MOST_OBJECTS:
            output.note(f"{len(bad) - MOST_OBJECTS:,} more; --json shows all")
    read = f"{plural(len(verification.objects), 'object')} read, pages and segments decoded"
    rows_read = sum(item.row_count for item in verification.objects)
    output.note(f"{read}: {plural(rows_read, 'row')}")
    if verification.searched:
        output.note(f"searched in all bytes: {printable(', '.join(verification.searched))}")
    for value in verification.unsearched:
        output.note(f"too short to be searched in bytes: {printable(value)}")
    for value in verification.shared:
        output.note(f"other rows hold {printable(value)}, too: where it was found is left out")
    if verification.is_clean:
        output.note("no object holds anything of the rows")
    else:
        output.note(
            f"{plural(len(verification.findings), 'object')} with something of the rows, "
            f"{plural(len(verification.unreadable), 'object')} not readable"
        )
