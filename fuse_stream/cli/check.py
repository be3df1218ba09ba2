"""`fsck`, `audit` and `restore-table-file`: check a table, and make a lost `_fuse.json` again."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.check.audit import AuditReport
from fuse_stream.check.findings import BranchState, Finding, FindingKind, FsckReport, VersionRange
from fuse_stream.check.fsck import check_table
from fuse_stream.check.table_file import restore_table_file as restore
from fuse_stream.cli.as_json import json_value, located, pick
from fuse_stream.cli.grid import ALARM, Grid, facts_view
from fuse_stream.cli.options import (
    Target,
    describe_place,
    in_flags,
    json_flag,
    on_table,
    opening,
    origin_option,
    storage_option,
    writes,
)
from fuse_stream.cli.output import Output
from fuse_stream.cli.text import count, plural, printable
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import NotFoundError
from fuse_stream.format.sizes import size
from fuse_stream.storage.open import open_store
from fuse_stream.table.location import TableLocation
from fuse_stream.table.verbs import audit as audit_table


@click.command()
@click.argument("path")
@click.option("--deep", is_flag=True, help="Also read every byte of every block.")
@json_flag
@storage_option
def fsck(path: str, *, deep: bool, as_json: bool) -> int:
    """Check that no object of a table is missing or damaged; say what is lost.

    It checks all branches and tags, and writes nothing. It also works on a table that cannot be
    opened any more. The exit code is 1 if anything is damaged or missing.

    \b
    Example:
      fuse-stream fsck /lake/flights --deep
    """  # noqa: D301 - click's mark for lines to keep
    output = Output(json=as_json)
    store = open_store(path, storage_options=opening().get("storage_options"))
    with output.progress("checking") as meter:
        try:
            report = check_table(store, SYSTEM_CLOCK, deep=deep, progress=meter.reach)
        except NotFoundError as error:
            found = describe_place(store)
            if found is None:
                raise
            raise NotFoundError(found, path=path) from error
    if as_json:
        counts = "snapshot_count segment_count block_count deletion_file_count unreachable"
        keys = f"path deep sound=is_sound findings branches {counts}"
        output.show_json(pick(report, keys))
    else:
        if report.findings:
            output.show(_findings_table(report.findings[:MOST_FINDINGS]), Text())
        output.show(_branches_table(report.branches))
        for note in _fsck_notes(report):
            output.note(note)
    return int(not report.is_sound)


@click.command("restore-table-file")
@click.argument("path")
@json_flag
@origin_option
@storage_option
@writes
def restore_table_file(path: str, *, as_json: bool) -> None:
    """Make a lost _fuse.json again, from the history of the table.

    It reads the whole table first, as fsck does, and then creates that one object. For a clone,
    name with --origin the tables that hold its blocks, first the one that it was made of. If fsck
    says that the file is damaged or belongs to another table, move the file away first.

    \b
    Example:
      fuse-stream restore-table-file /lake/flights
    """  # noqa: D301 - the same
    output = Output(json=as_json)
    store = TableLocation.of(path, **opening()).store()
    with output.progress("reading the history"):
        restored = restore(store, SYSTEM_CLOCK, origins=store.allowed)
    if as_json:
        keys = "table_id=table_file.table_id version origins"
        document = pick(restored, keys, origins=located(restored.table_file.origins))
        output.show_json({"path": store.url, **document})
    else:
        made = restored.table_file
        origins = ", ".join(place for _, place in made.origins)
        from_version = f"version {restored.version}"
        facts = {"table": made.table_id, "from": from_version, "origins": origins}
        output.show(facts_view(facts))


@click.command()
@on_table
@click.argument("checkpoint")
@click.option(
    "--app-id",
    metavar="APP",
    help="The application of the query; found by the query id if left out.",
)
@click.option(
    "--writer", metavar="NAME", help="Only this sink of the query; all sinks if left out."
)
def audit(target: Target, *, checkpoint: str, app_id: str | None, writer: str | None) -> int:
    """Compare the table with the checkpoint of a query that writes to it.

    CHECKPOINT is the query's checkpointLocation. The exit code is 1 if anything differs: a batch is
    missing, doubled or out of order, or is of another query or of other source offsets.

    \b
    Example:
      fuse-stream audit /lake/flights /ckpt/flights
    """  # noqa: D301 - the same
    with target.output.progress("reading the history"):
        report = audit_table(
            target.path,
            checkpoint,
            app_id=app_id,
            writer=writer,
            branch=target.branch,
            storage_options=target.location.storage_options,
            checkpoint_options=target.location.storage_options,
            origins=target.location.origins,
        )
    if target.json:
        target.output.show_json(json_value(report))
    else:
        target.output.show(_audit_view(report))
        for note in report.notes:
            target.output.note(note)
        query = f"query {printable(report.query_id)}, application {printable(report.application)}"
        differences = plural(len(report.findings), "difference")
        verdict = "the table holds what the checkpoint says" if report.agrees else differences
        target.output.note(f"{verdict}: version {report.head}, {query}")
    return int(not report.agrees)


MOST_FINDINGS = 100
"""The most findings that are shown; JSON has all."""

_STYLES = {FindingKind.NOTE: "cyan", FindingKind.UNREADABLE: "bold yellow"}


def _fsck_notes(report: FsckReport) -> list[str]:
    """Return the notes below the findings; the summary is the last one."""
    notes = []
    if len(report.findings) > MOST_FINDINGS:
        notes.append(f"{len(report.findings) - MOST_FINDINGS:,} more findings: --json has all")
    left = [
        f"{left.object_count:,} {kind} ({size(left.byte_size)})"
        for kind, left in report.unreachable.items()
        if left.object_count
    ]
    if left:
        notes.append(
            f"named by no retained snapshot: {', '.join(left)}; "
            + (
                "vacuum removes them"
                if report.is_sound
                else "some may belong to damaged objects, so restore those before a vacuum"
            )
        )
    looked_at = (
        f"{plural(report.snapshot_count, 'snapshot')}, {plural(report.segment_count, 'segment')}, "
        f"{plural(report.block_count, 'block')}{' read completely' if report.deep else ''}"
    )
    if report.deletion_file_count:
        looked_at += f", {plural(report.deletion_file_count, 'deletion file')}"
    damage = sum(finding.kind is not FindingKind.NOTE for finding in report.findings)
    verdict = "sound" if report.is_sound else f"damaged, {plural(damage, 'finding')}"
    notes.append(f"{verdict}: {looked_at}")
    return notes


def _audit_view(report: AuditReport) -> RenderableType:
    parts: list[RenderableType] = []
    for finding in report.findings:
        text = Text(finding.kind.value, style=ALARM)
        who = f" (writer {printable(finding.writer)})" if finding.writer else ""
        batches = f" batches {_numbers(finding.batches)}" if finding.batches else ""
        versions = f" in versions {_numbers(finding.versions)}" if finding.versions else ""
        text.append(f"{batches}{versions}{who}", style="bold")
        text.append(f"\n{printable(finding.wrong)}", style="default")
        text.append(f"\n-> {printable(in_flags(finding.remedy, audit))}", style="bold")
        parts += [text, Text()]
    rows = [
        (
            item.writer or "-",
            count(item.batch_count),
            "none" if item.last_batch is None else str(item.last_batch),
            count(item.row_count),
            _numbers(item.empty),
        )
        for item in report.writers
    ]
    return Group(*parts, Grid.of("~writer", "batches", "last", "rows", "empty", rows=rows).table())


def _numbers(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text such as "1-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _findings_table(findings: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        style = _STYLES.get(finding.kind, ALARM)
        text = Text(printable(finding.key), style="bold")
        text.append(f"\n{printable(finding.wrong)}", style="default")
        text.append(f"\nlost: {printable(finding.lost)}", style="default")
        if finding.versions:
            text.append(f"\nversions: {_ranges(finding.versions)}", style="default")
        grid.add_row(Text(finding.kind.value, style=style), text)
    return grid


def _branches_table(branches: Sequence[BranchState]) -> Table:
    rows = [
        (
            state.name,
            "?" if state.head is None else f"{state.floor}-{state.head}",
            Text(
                "none" if state.last_good is None else str(state.last_good),
                style="default" if state.last_good == state.head else ALARM,
            ),
            "possible" if state.takes_commits else Text("no", style=ALARM),
        )
        for state in branches
    ]
    return Grid.of("~branch", "versions", "last good", "new commits", rows=rows).table()


def _ranges(runs: Sequence[VersionRange]) -> str:
    by_branch: dict[str, list[str]] = {}
    for run in runs:
        text = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
        by_branch.setdefault(run.branch, []).append(text)
    return "; ".join(
        f"{printable(branch)} {', '.join(texts)}" for branch, texts in by_branch.items()
    )
