"""`changes` and `diff`: what came and went, in numbers, blocks or rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import pyarrow as pa
from rich.progress import Progress

from fuse_stream.cli.as_json import change_document, diff_counts, row_documents
from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.output import Output
from fuse_stream.cli.render_blocks import change_blocks_view, changes_view, diff_view, rows_view
from fuse_stream.cli.rows import Page, Row, iter_pages
from fuse_stream.cli.text import plural
from fuse_stream.errors import InvalidInputError
from fuse_stream.read.diff import diff_snapshots
from fuse_stream.read.feed import CHANGE_TYPE, COMMIT_VERSION, INSERT, Change, iter_changes
from fuse_stream.table import Table

DEFAULT_ROW_LIMIT = 100
_MANY = 8
"""From so many commits or blocks on, progress is shown."""

_limit = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_ROW_LIMIT,
    show_default=True,
    metavar="N",
    help="The most rows with --rows; 0 for all.",
)
_columns = click.option(
    "--columns", metavar="A,B", multiple=True, help="These columns only, with --rows; repeatable."
)


@click.command()
@on_table
@click.argument("start")
@click.argument("end", required=False)
@click.option("--rows", "show", flag_value="rows", help="Show the rows themselves.")
@click.option("--blocks", "show", flag_value="blocks", help="Show the blocks.")
@_limit
@_columns
@click.option("--where", metavar="SQL", help="Rows for which this predicate holds, with --rows.")
def changes(
    target: Target,
    start: str,
    end: str | None,
    show: str | None,
    limit: int,
    columns: tuple[str, ...],
    where: str | None,
) -> None:
    """Show what each commit from START to END did, both inclusive; END is the newest if left out.

    Rows are counted as the blocks hold them: a row that was only rewritten counts on both sides.

    \b
    Example:
      fuse-stream changes /lake/flights 3 9
      fuse-stream changes /lake/flights 3 --rows --columns carrier --where "dep_delay > 60"

    With --json: path, branch, starting_version, ending_version, commits (version, timestamp,
    operation, inserted_row_count, inserted_block_count, removed_row_count, removed_block_count;
    with --blocks: blocks). With --rows, in place of commits: rows (the columns, _change_type,
    _commit_version, _commit_timestamp), more.
    """  # noqa: D301 - click's mark for lines to keep
    if (columns or where) and show != "rows":
        raise click.UsageError("--columns and --where choose rows: add --rows")
    table = target.open()
    first = table.snapshot(start).version
    last = (table.snapshot(end) if end else table.head()).version
    if first > last:
        raise InvalidInputError("START lies past END", start=first, end=last)
    head: dict[str, object] = {"path": target.path, "branch": target.branch}
    head |= {"starting_version": first, "ending_version": last}
    if show == "rows":
        reader = table.changes(first, last, columns=_split(columns), where=where)
        _show_rows(target, head, lambda: reader, limit, commits=(first, last))
        return
    found = _load_changes(target.output, table, first, last)
    if target.json:
        schema = table.snapshot(last).schema
        commits = [change_document(item, schema, blocks=show == "blocks") for item in found]
        target.output.show_json({**head, "commits": commits})
    elif show == "blocks":
        target.output.show(change_blocks_view(found))
    else:
        target.output.show(changes_view(found))


@click.command()
@on_table
@click.argument("a")
@click.argument("b")
@click.option("--rows", is_flag=True, help="Show the rows, those in both left out.")
@_limit
@_columns
def diff(
    target: Target, a: str, b: str, rows: bool, limit: int, columns: tuple[str, ...]
) -> None:
    """Show what turns version A into version B, net.

    Without --rows, rows are counted as the blocks hold them: one that was only rewritten counts on
    both sides. With --rows they are read and compared, in memory.

    \b
    Example:
      fuse-stream diff /lake/flights 3 9 --rows --limit 20

    With --json: path, branch, from_version, to_version, inserted_row_count, inserted_block_count,
    removed_row_count, removed_block_count, row_count_change; with --rows: rows (the columns,
    _change_type), more.
    """  # noqa: D301 - the same
    if columns and not rows:
        raise click.UsageError("--columns chooses what rows show: add --rows")
    table = target.open()
    old, new = table.snapshot(a), table.snapshot(b)
    found = diff_snapshots(table.metadata, old, new)
    if not target.json:
        target.output.show(diff_view(old, new, found))
    head = {
        "path": target.path,
        "branch": target.branch,
        "from_version": old.version,
        "to_version": new.version,
        **diff_counts(found),
        "row_count_change": new.summary.row_count - old.summary.row_count,
    }
    if rows:
        if not target.json:
            target.output.show("")
        read = lambda: table.diff(old.version, new.version, columns=_split(columns))  # noqa: E731
        _show_rows(target, head, read, limit, commits=None)
    elif target.json:
        target.output.show_json(head)


def _load_changes(output: Output, table: Table, first: int, last: int) -> list[Change]:
    number = last - first + 1
    found = []
    with output.progress("reading commits", number if number >= _MANY else None) as bar:
        for change in iter_changes(table.metadata, table.committer.head(), first, last):
            found.append(change)
            bar.advance(bar.task_ids[0])
    return found


def _show_rows(
    target: Target,
    head: dict[str, object],
    read: Callable[[], pa.RecordBatchReader],
    limit: int,
    *,
    commits: tuple[int, int] | None,
) -> None:
    """Show what `read` returns; `commits` are the first and last version of a feed."""
    output = target.output
    number = commits[1] - commits[0] + 1 if commits else 0
    total = number if number >= _MANY else None
    rows: list[Row] = []
    counts = {True: 0, False: 0}
    page, left_out = None, ()

    def pages() -> Iterator[Page]:
        yield from iter_pages(_counted(read(), bar, commits), limit=limit or None)

    bar = output.progress_bar("reading rows", total)
