"""`changes` and `diff`: what came and went, in numbers, blocks or rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import click
import pyarrow as pa

from fuse_stream.cli.as_json import change_document, diff_counts, row_documents
from fuse_stream.cli.grid import Page, iter_pages
from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.output import Meter, Output
from fuse_stream.cli.render import (
    change_blocks_view,
    changes_view,
    diff_view,
    rows_view,
)
from fuse_stream.cli.text import plural, printable
from fuse_stream.errors import InvalidInputError
from fuse_stream.feed.changes import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    INSERT,
    Change,
    iter_changes,
)
from fuse_stream.table.handle import Table
from fuse_stream.table.reads import history_of

DEFAULT_ROW_LIMIT = 100
_MANY = 8
"""From so many commits or blocks on, progress is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows to show, not yet read."""

    read: Callable[[], pa.RecordBatchReader]
    first: int | None = None
    """Of a feed: the version it starts at."""
    total: int | None = None
    """Of a feed: its commits, if they are many."""


_limit = click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"The most rows with --rows, {DEFAULT_ROW_LIMIT} if left out; 0 for all.",
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
    *,
    start: str,
    end: str | None,
    show: str | None,
    limit: int | None,
    columns: tuple[str, ...],
    where: str | None,
) -> None:
    """Show what each commit did, from START to END.

    Both are inclusive; END is the newest version if left out.

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
    if (columns or where or limit is not None) and show != "rows":
        raise click.UsageError("--columns, --where and --limit choose rows: add --rows")
    table = target.open()
    first = _version_here(table, start)
    last = _version_here(table, end) if end else table.head().version
    if first > last:
        raise InvalidInputError("START lies past END", start=first, end=last)
    head: dict[str, object] = {"path": target.path, "branch": target.branch}
    head |= {"starting_version": first, "ending_version": last}
    if show == "rows":
        chosen = _split(columns)
        rows = _Rows(
            read=lambda: table.changes(first, last, columns=chosen, where=where),
            first=first,
            total=_total(first, last),
        )
        _show_rows(target, head, rows, limit)
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
    target: Target, *, a: str, b: str, rows: bool, limit: int | None, columns: tuple[str, ...]
) -> None:
    """Show what turns version A into version B.

    Without --rows, rows are counted as the blocks hold them: one that was only rewritten counts on
    both sides. With --rows they are read and compared, in memory.

    \b
    Example:
      fuse-stream diff /lake/flights 3 9 --rows --limit 20

    With --json: path, branch, from_version, to_version, inserted_row_count, inserted_block_count,
    removed_row_count, removed_block_count, row_count_change; with --rows: rows (the columns,
    _change_type), more.
    """  # noqa: D301 - the same
    if (columns or limit is not None) and not rows:
        raise click.UsageError("--columns and --limit choose what rows show: add --rows")
    table = target.open()
    old, new = table.snapshot(a), table.snapshot(b)
    found = table.block_diff(a, b)
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
        chosen = _split(columns)
        read = _Rows(read=lambda: table.diff(a, b, columns=chosen))
        _show_rows(target, head, read, limit)
    elif target.json:
        target.output.show_json(head)


def _version_here(table: Table, version: str) -> int:
    return history_of(table).get_own(version, branch=table.branch).snapshot.version


def _load_changes(output: Output, table: Table, first: int, last: int) -> list[Change]:
    found = []
    with output.progress("reading commits", _total(first, last)) as meter:
        for change in iter_changes(history_of(table), first, last):
            found.append(change)
            meter.reach(len(found))
    return found


def _show_rows(target: Target, head: dict[str, object], rows: _Rows, limit: int | None) -> None:
    output = target.output
    most = DEFAULT_ROW_LIMIT if limit is None else limit
    documents: list[dict[str, object]] = []
    inserted = removed = 0
    left_out: tuple[str, ...] = ()
    more = False
    with output.progress("reading rows", rows.total) as meter:
        reader = rows.read()
        batches = _metered(reader, meter, rows.first)
        for page in iter_pages(tuple(reader.schema.names), batches, limit=most or None):
            more = page.more
            arrived = _inserted(page)
            inserted, removed = inserted + arrived, removed + len(page.rows) - arrived
            if target.json:
                documents += row_documents(page.names, page.rows)
            elif page.rows:
                view, left_out = rows_view(page, output.width)
                with meter.paused():
                    output.show(view)
    if target.json:
        output.show_json({**head, "rows": documents, "more": more})
        return
    if left_out:
        output.note(
            f"not wide enough for: {', '.join(map(printable, left_out))}; --columns A,B chooses"
        )
    shown = f"{plural(inserted, 'row')} inserted, {removed:,} removed"
    output.note(f"shown: {shown}; there are more, --limit 0 shows all" if more else shown)


def _metered(
    batches: Iterable[pa.RecordBatch], meter: Meter, first: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield `batches` of a feed that starts at version `first`, and say how far it is."""
    for batch in batches:
        yield batch
        if first is not None and len(batch):
            meter.reach(batch[COMMIT_VERSION][-1].as_py() - first + 1)


def _inserted(page: Page) -> int:
    at = page.names.index(CHANGE_TYPE)
    return sum(row[at] == INSERT for row in page.rows)


def _total(first: int, last: int) -> int | None:
    """Return how many commits progress counts; None for so few that a sign of life will do."""
    number = last - first + 1
    return number if number >= _MANY else None


def _split(columns: tuple[str, ...]) -> list[str] | None:
    names = [name.strip() for text in columns for name in text.split(",") if name.strip()]
    return names or None
