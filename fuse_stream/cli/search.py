"""`blame` and `bisect`: which commits wrote certain rows, and the first version with one."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.text import Text

from fuse_stream.cli.as_json import json_value, log_entry, pick
from fuse_stream.cli.grid import QUIET, VERSION_STYLE, Cells, Grid
from fuse_stream.cli.history import Names, with_change
from fuse_stream.cli.log import log_view, operation_text
from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.text import count, first_line, iso, plural, short_id
from fuse_stream.commit.ledger import Batch
from fuse_stream.format.records import Snapshot
from fuse_stream.format.refs import owner_of
from fuse_stream.table.handle import Table
from fuse_stream.trace.bisect import BisectResult
from fuse_stream.trace.blame import BlamedCommit

_MANY = 8
"""From this many commits on, progress is counted."""


@click.command()
@on_table
@click.argument("where")
def blame(target: Target, where: str) -> None:
    """Show which commits wrote the rows that match WHERE.

    WHERE is a SQL predicate on the newest version. A compaction does not count as writing a row. A
    row that was written again counts for the last commit that wrote it. A commit is marked with <=
    (is_exact is false in JSON) if its rows may be older: older versions have expired.

    \b
    Example:
      fuse-stream blame /lake/flights "dep_delay > 1440"
    """  # noqa: D301 - click's mark for lines to keep
    table = target.open()
    head = table.head()
    commits = head.version - head.floor + 1
    total = commits if commits >= _MANY else None
    with target.output.progress("reading commits", total) as meter:

        def reach(snapshot: Snapshot) -> None:
            meter.reach(head.version - snapshot.version + 1)

        found = table.blame(where, progress=reach)
    row_count = sum(commit.row_count for commit in found)
    if target.json:
        facts = {"where": where, "version": head.version, "row_count": row_count}
        target.show_json({**facts, "commits": json_value(found)})
        return
    if found:
        branches = _branch_names(table, found)
        rows = [_cells(commit, branch) for commit, branch in zip(found, branches, strict=True)]
        headings = (">rows", ">version", "branch", "time (UTC)", "operation", "batch")
        grid = Grid.of(*headings, "~message", "author", "query", rows=rows).without_empty()
        moves = (("message", "author", "query"), ("batch",), ("branch",))
        target.output.show(grid.stacked(target.output.width, *moves, notes=_notes_below))
    by = f", by {plural(len(found), 'commit')}" if found else ""
    target.output.note(f"version {head.version}: {plural(row_count, 'row')} found{by}")
    if any(not commit.is_exact for commit in found):
        target.output.note("<=: in this version or before; older ones have expired or are deleted")


@click.command()
@on_table
@click.argument("where")
@click.option("--first", metavar="VERSION", help="The oldest version to search.")
@click.option("--last", metavar="VERSION", help="The newest version to search; else the head.")
def bisect(target: Target, where: str, first: str | None, last: str | None) -> None:
    """Find the first version with a row that matches WHERE.

    WHERE is a SQL predicate. As in git, the answer is right if all later versions have such rows
    too. Otherwise it is one of the versions in which such rows came. Few versions are tested, and
    blocks are read only if statistics do not decide.

    \b
    Example:
      fuse-stream bisect /lake/flights "dep_delay > 1440" --last 900
    """  # noqa: D301 - the same
    table = target.open()
    with target.output.progress("searching"):
        result = table.bisect(where, first=first, last=last)
    line = None if result.snapshot is None else with_change(table, result.snapshot)
    if target.json:
        keys = (
            "where first_version=first last_version=last snapshot may_be_older tested blocks_read"
        )
        snapshot = None if line is None else log_entry(*line)
        target.show_json(pick(result, keys, where=where, snapshot=snapshot))
        return
    if line is not None:
        target.output.show(log_view([line], Names(), target.output.width))
    for note in _notes(result):
        target.output.note(note)


def _notes(result: BisectResult) -> list[str]:
    asked = result.last - result.first + 1
    answers = ", ".join(f"{one.version} {'yes' if one.matches else 'no'}" for one in result.tested)
    tested = f"{len(result.tested)} of {plural(asked, 'version')} tested"
    notes = [f"{tested}: {answers}; {plural(result.blocks_read, 'block')} read"]
    if result.snapshot is None:
        notes.insert(0, f"no version up to {result.last} that was tested has such a row")
    elif result.may_be_older:
        notes.append("this is the oldest version of the search; the row may be older")
    return notes


def _branch_names(table: Table, found: tuple[BlamedCommit, ...]) -> list[str]:
    """Return the branch of each commit; an empty text for commits on this branch."""
    forks = table.metadata.forks_of(table.committer.branch_id)
    away = [
        commit.branch_id != owner_of(forks, table.committer.branch_id, commit.version)
        for commit in found
    ]
    names = {ref.branch_id: ref.name for ref in table.branches()} if any(away) else {}
    return [
        names.get(commit.branch_id, short_id(commit.branch_id)) if is_away else ""
        for commit, is_away in zip(found, away, strict=True)
    ]


def _cells(commit: BlamedCommit, branch: str) -> list[Text | str]:
    # The other facts of an inexact commit need not be true of the rows.
    exact, batch = commit.is_exact, commit.batch
    mark = "" if exact else "<= "
    return [
        count(commit.row_count),
        Text(f"{mark}{commit.version}", style=VERSION_STYLE),
        branch,
        f"{mark}{iso(commit.timestamp_us)}",
        operation_text(commit.operation) if exact else "",
        _spelled(batch) if exact and batch else "",
        first_line(commit.message) if exact else "",
        commit.author if exact else "",
        (batch.query_id or "") if exact and batch else "",
    ]


def _notes_below(cells: Cells) -> Iterator[Text]:
    """Yield the lines below a row: a message may be cut, so it has a line of its own."""
    query = f"query {cells['query']}" if "query" in cells else ""
    first = [query, *(str(cells[name]) for name in ("branch", "batch") if name in cells)]
    said = [str(cells[name]) for name in ("message", "author") if name in cells]
    for text in ("  ".join(filter(None, first)), " - ".join(said)):
        if text:
            yield Text(text, style=QUIET)


def _spelled(batch: Batch) -> str:
    writer = f"/{batch.writer}" if batch.writer else ""
    return f"{batch.application}{writer} #{batch.batch_id}"
