"""`fsck` and `audit`: is the table whole, and does it hold what a checkpoint says.

And `restore-table-file`, for the one lost object that the rest of a table can make again.

How the findings of `fsck` and `audit`, and a file made again, look, and their JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.check.audit import AuditReport
from fuse_stream.check.findings import (
    BranchState,
    Finding,
    FindingKind,
    FsckReport,
    VersionRange,
)
from fuse_stream.check.fsck import check_table
from fuse_stream.check.table_file import RestoredTableFile
from fuse_stream.check.table_file import restore_table_file as restore
from fuse_stream.cli.as_json import Json
from fuse_stream.cli.options import (
    Target,
    describe_place,
    json_flag,
    on_table,
    opening,
    origin_option,
    storage_option,
    writes,
)
from fuse_stream.cli.output import Output
from fuse_stream.cli.render import facts_view
from fuse_stream.cli.text import plural, printable, size
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import NotFoundError
from fuse_stream.storage.open import open_store
from fuse_stream.table.location import TableLocation
from fuse_stream.table.verbs import audit as audit_table


@click.command()
@click.argument("path")
@click.option("--deep", is_flag=True, help="Read every byte of every block, too.")
@json_flag
@storage_option
def fsck(path: str, *, deep: bool, as_json: bool) -> int:
    """Check that a table is whole, all branches and tags; say what is lost where it is not.

    Nothing is written. Works on a table that cannot be opened any more, too. The exit code is 1 if
    anything is damaged or missing.

    \b
    Example:
      fuse-stream fsck /lake/flights --deep

    With --json: path, deep, sound, findings (kind: missing, damaged, broken, unreadable or note;
    key, wrong, lost, row_count, versions: branch, first, last), branches (name, head, floor,
    last_good, takes_commits), snapshot_count, segment_count, block_count, unreachable (by kind:
    object_count, byte_size).
    """  # noqa: D301 - click's mark for lines to keep
    output = Output()
    store = open_store(path, storage_options=opening().get("storage_options"))
    with output.progress("checking", 1) as meter:
        try:
            report = check_table(store, SYSTEM_CLOCK, deep=deep, progress=meter.reach)
        except NotFoundError as error:
            found = describe_place(store)
            if found is None:
                raise
            raise NotFoundError(found, path=path) from error
    if as_json:
        output.show_json(fsck_document(report))
    else:
        output.show(fsck_view(report))
        for note in fsck_notes(report):
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

    Looks at all of the table before, as fsck does, and creates that one object. Of a clone, name
    the tables that hold its blocks with --origin, first the one that it was made of. One that is
    damaged, or another table's as fsck says, has to be moved away by hand before.

    \b
    Example:
      fuse-stream restore-table-file /lake/flights

    With --json: path, table_id, version (that it was made from), origins (table_id, location).
    """  # noqa: D301 - the same
    output = Output()
    store = TableLocation.of(path, **opening()).store()
    with output.progress("reading the history"):
        restored = restore(store, SYSTEM_CLOCK, origins=store.allowed)
    if as_json:
        output.show_json(restored_document(store.url, restored))
    else:
        output.show(restored_view(restored))


@click.command()
@on_table
@click.argument("checkpoint")
@click.option(
    "--app-id",
    default=DEFAULT_APPLICATION,
    show_default=True,
    metavar="APP",
    help="As given to the sink.",
)
@click.option("--writer", metavar="NAME", help="One of the query's sinks; all if left out.")
def audit(target: Target, *, checkpoint: str, app_id: str, writer: str | None) -> int:
    """Compare the table with the checkpoint of a query that writes to it.

    CHECKPOINT is the query's checkpointLocation. The exit code is 1 if anything differs: batches
    that are missing, doubled, of another query, out of order, or of other source offsets.

    \b
    Example:
      fuse-stream audit /lake/flights /ckpt/flights

    With --json: path, branch, checkpoint, query_id, application, head, first_version, agrees,
    planned, writers (writer, batch_count, row_count, last_batch, empty), findings (kind, writer,
    batches, versions, wrong, remedy), notes.
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
        target.output.show_json(audit_document(report))
    else:
        target.output.show(audit_view(report))
        for note in audit_notes(report):
            target.output.note(note)
    return int(not report.agrees)


MOST_FINDINGS = 100
"""Lines for people; JSON has all."""

_STYLES = {FindingKind.NOTE: "cyan", FindingKind.UNREADABLE: "bold yellow"}


def fsck_view(report: FsckReport) -> RenderableType:
    """Return the findings, damage first, and what can be done with each branch."""
    parts: list[RenderableType] = []
    if report.findings:
        parts += [_findings_table(report.findings[:MOST_FINDINGS]), Text()]
    parts.append(_branches_table(report.branches))
    return Group(*parts)


def fsck_notes(report: FsckReport) -> list[str]:
    """Return what is said beside the findings, the summary last."""
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
                else "some may belong to what is damaged, so mend that before a vacuum"
            )
        )
    looked_at = (
        f"{plural(report.snapshot_count, 'snapshot')}, {plural(report.segment_count, 'segment')}, "
        f"{plural(report.block_count, 'block')}{' read whole' if report.deep else ''}"
    )
    damage = sum(finding.kind is not FindingKind.NOTE for finding in report.findings)
    verdict = "sound" if report.is_sound else f"damaged, {plural(damage, 'finding')}"
    notes.append(f"{verdict}: {looked_at}")
    return notes


def fsck_document(report: FsckReport) -> Json:
    """Return a report as JSON values.

    Keys: `path deep sound findings` (`kind key wrong lost row_count versions`: `branch first last`)
    `branches` (`name head floor last_good takes_commits`) `snapshot_count segment_count
    block_count unreachable` (by kind: `object_count byte_size`).
    """
    return {
        "path": report.path,
        "deep": report.deep,
        "sound": report.is_sound,
        "findings": [_finding_document(finding) for finding in report.findings],
        "branches": [
            {
                "name": state.name,
                "head": state.head,
                "floor": state.floor,
                "last_good": state.last_good,
                "takes_commits": state.takes_commits,
            }
            for state in report.branches
        ],
        "snapshot_count": report.snapshot_count,
        "segment_count": report.segment_count,
        "block_count": report.block_count,
        "unreachable": {
            kind: {"object_count": left.object_count, "byte_size": left.byte_size}
            for kind, left in report.unreachable.items()
        },
    }


def restored_view(restored: RestoredTableFile) -> RenderableType:
    """Return which table has its file again, and what that was made from."""
    made = restored.table_file
    facts = {"table": Text(made.table_id), "from": Text(f"version {restored.version}")}
    if made.origins:
        facts["origins"] = Text(", ".join(printable(place) for _, place in made.origins))
    return facts_view(facts)


def restored_document(path: str, restored: RestoredTableFile) -> Json:
    """Return it as JSON values. Keys: `path table_id version origins` (`table_id location`)."""
    made = restored.table_file
    return {
        "path": path,
        "table_id": made.table_id,
        "version": restored.version,
        "origins": [{"table_id": held, "location": place} for held, place in made.origins],
    }


def audit_view(report: AuditReport) -> RenderableType:
    """Return the findings, and a line for each writer."""
    parts: list[RenderableType] = []
    for finding in report.findings:
        text = Text(finding.kind.value, style="bold red")
        who = f" (writer {printable(finding.writer)})" if finding.writer else ""
        batches = f" batches {_numbers(finding.batches)}" if finding.batches else ""
        versions = f" in versions {_numbers(finding.versions)}" if finding.versions else ""
        text.append(f"{batches}{versions}{who}", style="bold")
        text.append(f"\n{printable(finding.wrong)}", style="default")
        text.append(f"\n-> {printable(finding.remedy)}", style="bold")
        parts += [text, Text()]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("writer", "batches", "last", "rows", "empty"):
        table.add_column(heading)
    for item in report.writers:
        last = "none" if item.last_batch is None else str(item.last_batch)
        row_count, batch_count = f"{item.row_count:,}", f"{item.batch_count:,}"
        empty = _numbers(item.empty)
        table.add_row(Text(printable(item.writer) or "-"), batch_count, last, row_count, empty)
    return Group(*parts, table)


def audit_notes(report: AuditReport) -> list[str]:
    """Return what is said beside the findings, the summary last."""
    verdict = (
        "the table holds what the checkpoint says"
        if report.agrees
        else plural(len(report.findings), "difference")
    )
    query = f"query {printable(report.query_id)}, application {printable(report.application)}"
    return [*report.notes, f"{verdict}: version {report.head}, {query}"]


def audit_document(report: AuditReport) -> Json:
    """Return a report as JSON values; the keys are those of `AuditReport`, and `agrees`."""
    return {
        "path": report.path,
        "branch": report.branch,
        "checkpoint": report.checkpoint,
        "query_id": report.query_id,
        "application": report.application,
        "head": report.head,
        "first_version": report.first_version,
        "agrees": report.agrees,
        "planned": list(report.planned),
        "writers": [
            {
                "writer": item.writer,
                "batch_count": item.batch_count,
                "row_count": item.row_count,
                "last_batch": item.last_batch,
                "empty": list(item.empty),
            }
            for item in report.writers
        ],
        "findings": [
            {
                "kind": finding.kind.value,
                "writer": finding.writer,
                "batches": list(finding.batches),
                "versions": list(finding.versions),
                "wrong": finding.wrong,
                "remedy": finding.remedy,
            }
            for finding in report.findings
        ],
        "notes": list(report.notes),
    }


def _numbers(numbers: Sequence[int]) -> str:
    """Return numbers as "1-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _finding_document(finding: Finding) -> Json:
    return {
        "kind": finding.kind.value,
        "key": finding.key,
        "wrong": finding.wrong,
        "lost": finding.lost,
        "row_count": finding.row_count,
        "versions": [
            {"branch": run.branch, "first": run.first, "last": run.last} for run in finding.versions
        ],
    }


def _findings_table(findings: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        style = _STYLES.get(finding.kind, "bold red")
        text = Text(printable(finding.key), style="bold")
        text.append(f"\n{printable(finding.wrong)}", style="default")
        text.append(f"\nlost: {printable(finding.lost)}", style="default")
        if finding.versions:
            text.append(f"\nversions: {_ranges(finding.versions)}", style="default")
        grid.add_row(Text(finding.kind.value, style=style), text)
    return grid


def _branches_table(branches: Sequence[BranchState]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("branch", "versions", "last good", "new commits"):
        table.add_column(heading)
    for state in branches:
        versions = "?" if state.head is None else f"{state.floor}-{state.head}"
        good = "none" if state.last_good is None else str(state.last_good)
        table.add_row(
            Text(printable(state.name)),
            versions,
            Text(good, style="default" if state.last_good == state.head else "bold red"),
            Text("possible") if state.takes_commits else Text("no", style="bold red"),
        )
    return table


def _ranges(runs: Sequence[VersionRange]) -> str:
    by_branch: dict[str, list[str]] = {}
    for run in runs:
        text = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
        by_branch.setdefault(run.branch, []).append(text)
    return "; ".join(
        f"{printable(branch)} {', '.join(texts)}" for branch, texts in by_branch.items()
    )
