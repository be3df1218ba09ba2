"""`changes` and `diff`: inserted and removed rows, as counts, blocks or rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import click
import pyarrow as pa
from rich.console import RenderableType
from rich.style import Style
from rich.text import Text

from fuse_stream.cli.as_json import Json, block_document, pick, row_documents
from fuse_stream.cli.grid import (
    INSERTED_STYLE,
    QUIET,
    REMOVED_STYLE,
    VERSION_STYLE,
    Grid,
    Heading,
    facts_view,
)
from fuse_stream.cli.log import operation_text
from fuse_stream.cli.options import Target, WholeNumber, on_table
from fuse_stream.cli.output import Meter
from fuse_stream.cli.stats import BLOCK_HEADINGS, block_cells, shortened
from fuse_stream.cli.text import bound, cell, count, iso, plural, printable, signed
from fuse_stream.errors import InvalidInputError
from fuse_stream.feed.changes import Change, iter_changes
from fuse_stream.feed.diff import BlockDiff
from fuse_stream.format.feed_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, INSERT
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.table.handle import Table
from fuse_stream.table.reads import history_of

DEFAULT_ROW_LIMIT = 100
PAGE_ROWS = 500
_MANY = 8
"""From this many commits or blocks on, progress is shown."""
_LONGEST_CELL = 32
_SHOWN_APART = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of rows."""

    names: tuple[str, ...]
    rows: list[Row]
    more: bool
    """True if the limit leaves out later rows."""


def _iter_pages(
    names: tuple[str, ...], batches: Iterable[pa.RecordBatch], *, limit: int | None
) -> Iterator[Page]:
    """Yield rows in pages, at most `limit` in all; at least one page, perhaps empty."""
    rows: list[Row] = []
    left = limit
    for batch in batches:
        for piece in (batch.slice(at, PAGE_ROWS) for at in range(0, len(batch), PAGE_ROWS)):
            taken = len(piece) if left is None else min(left, len(piece))
            columns = piece.slice(0, taken).columns
            rows += zip(*(_values(column) for column in columns), strict=True)
            if left is not None:
                left -= taken
            if taken < len(piece):
                yield Page(names=names, rows=rows, more=True)
                return
            if len(rows) >= PAGE_ROWS:
                yield Page(names=names, rows=rows, more=False)
                rows = []
    yield Page(names=names, rows=rows, more=False)


_limit = click.option(
    "--limit",
    type=WholeNumber(min=0),
    metavar="N",
    help=f"With --rows: the most rows, {DEFAULT_ROW_LIMIT} if left out; 0 for all.",
)
_columns = click.option(
    "--columns", metavar="A,B", multiple=True, help="With --rows: only these columns; repeatable."
)


@click.command()
@on_table
@click.argument("start")
@click.argument("end", required=False)
@click.option("--rows", "show", flag_value="rows", help="Show the rows themselves.")
@click.option("--blocks", "show", flag_value="blocks", help="Show the blocks.")
@_limit
@_columns
@click.option(
    "--where", metavar="SQL", help="With --rows: only rows for which this predicate is true."
)
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
    """Show what each commit did, from version START to version END.

    Both are included; END is the newest version if left out. All rows of inserted and removed
    blocks are counted, so a row that was only rewritten counts as inserted and as removed.

    \b
    Example:
      fuse-stream changes /lake/flights 3 9
      fuse-stream changes /lake/flights 3 --rows --columns carrier --where "dep_delay > 60"

    """  # noqa: D301 - click's mark for lines to keep
    if (columns or where or limit is not None) and show != "rows":
        raise click.UsageError("--columns, --where and --limit are for rows: add --rows")
    table = target.open()
    first = _version_here(table, start)
    last = _version_here(table, end) if end else table.head().version
    if first > last:
        raise InvalidInputError("START lies past END", start=first, end=last)
    head: Json = {"starting_version": first, "ending_version": last}
    if show == "rows":
        chosen = _split(columns)
        read = partial(table.changes, first, last, columns=chosen, where=where)
        _show_rows(target, head, read, limit, versions=(first, last))
        return
    found: list[Change] = []
    with target.output.progress("reading commits", _total(first, last)) as meter:
        for change in iter_changes(history_of(table), first, last):
            found.append(change)
            meter.reach(len(found))
    if target.json:
        schema = table.snapshot(last).schema if show == "blocks" else None
        commits = [_change_document(item, schema) for item in found]
        target.show_json({**head, "commits": commits})
    elif show == "blocks":
        rows = [
            (_sign(kind), Text(str(change.version), style=VERSION_STYLE), *block_cells(block))
            for change in found
            for kind, block in change.blocks
        ]
        target.output.show(Grid.of("", ">version", *BLOCK_HEADINGS, rows=rows).table())
    else:
        target.output.show(_changes_view(found))


@click.command()
@on_table
@click.argument("a")
@click.argument("b")
@click.option("--rows", is_flag=True, help="Show the rows that are not in both versions.")
@_limit
@_columns
def diff(
    target: Target, *, a: str, b: str, rows: bool, limit: int | None, columns: tuple[str, ...]
) -> None:
    """Show the net difference from version A to version B.

    All rows of inserted and removed blocks are counted, so a row that was only rewritten counts as
    inserted and as removed. With --rows the rows are read and compared, in memory.

    \b
    Example:
      fuse-stream diff /lake/flights 3 9 --rows --limit 20

    """  # noqa: D301 - the same
    if (columns or limit is not None) and not rows:
        raise click.UsageError("--columns and --limit are for rows: add --rows")
    table = target.open()
    old, new = table.snapshot(a), table.snapshot(b)
    found = table.block_diff(a, b)
    if not target.json:
        target.output.show(_diff_view(old, new, found))
    head = {
        "from_version": old.version,
        "to_version": new.version,
        **_diff_counts(found),
        "row_count_change": new.summary.row_count - old.summary.row_count,
    }
    if rows:
        if not target.json:
            target.output.show("")
        chosen = _split(columns)
        _show_rows(target, head, partial(table.diff, a, b, columns=chosen), limit)
    elif target.json:
        target.show_json(head)


def _version_here(table: Table, version: str) -> int:
    return history_of(table).get_own(version, branch=table.branch).snapshot.version


def _show_rows(
    target: Target,
    head: Json,
    read: Callable[[], pa.RecordBatchReader],
    limit: int | None,
    *,
    versions: tuple[int, int] | None = None,
) -> None:
    """Show the rows that `read` loads; `versions` are the first and the last one of a feed."""
    output = target.output
    most = DEFAULT_ROW_LIMIT if limit is None else limit
    documents: list[Json] = []
    inserted = removed = 0
    left_out: tuple[str, ...] = ()
    more = False
    with output.progress("reading rows", versions and _total(*versions)) as meter:
        reader = read()
        batches = _metered(reader, meter, versions and versions[0])
        for page in _iter_pages(tuple(reader.schema.names), batches, limit=most or None):
            more = page.more
            kind = page.names.index(CHANGE_TYPE)
            arrived = sum(row[kind] == INSERT for row in page.rows)
            inserted, removed = inserted + arrived, removed + len(page.rows) - arrived
            if target.json:
                documents += row_documents(page.names, page.rows)
            elif page.rows:
                view, left_out = _rows_view(page, output.width)
                with meter.paused():
                    output.show(view)
    if target.json:
        target.show_json({**head, "rows": documents, "more": more})
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
    """Yield `batches` of a feed from version `first` on, and show its progress."""
    for batch in batches:
        yield batch
        if first is not None and len(batch):
            meter.reach(batch[COMMIT_VERSION][-1].as_py() - first + 1)


def _total(first: int, last: int) -> int | None:
    """Return the number of commits for the progress bar; None for few, which need no bar."""
    number = last - first + 1
    return number if number >= _MANY else None


def _split(columns: tuple[str, ...]) -> list[str] | None:
    names = [name.strip() for text in columns for name in text.split(",") if name.strip()]
    return names or None


def _changes_view(changes: Iterable[Change]) -> RenderableType:
    rows = [
        (
            Text(str(change.version), style=VERSION_STYLE),
            iso(change.timestamp_us),
            operation_text(change.operation),
            *_in_and_out(_row_count(change.diff.inserted), _row_count(change.diff.removed)),
            *_in_and_out(len(change.diff.inserted), len(change.diff.removed)),
        )
        for change in changes
    ]
    counts = (">+rows", ">-rows", ">+blocks", ">-blocks")
    return Grid.of(">version", "time (UTC)", "operation", *counts, rows=rows).table()


def _diff_view(old: Snapshot, new: Snapshot, diff: BlockDiff) -> RenderableType:
    before, after = old.summary.row_count, new.summary.row_count

    def side(blocks: Sequence[Block], style: str) -> Text:
        held = f"{plural(len(blocks), 'block')} with {plural(_row_count(blocks), 'row')}"
        return Text(held, style=style if blocks else QUIET)

    return facts_view(
        {
            "from": f"version {old.version}  {iso(old.timestamp_us)}",
            "to": f"version {new.version}  {iso(new.timestamp_us)}",
            "rows": f"{count(before)} -> {count(after)}  {signed(after - before)}".rstrip(),
            "inserted": side(diff.inserted, INSERTED_STYLE),
            "removed": side(diff.removed, REMOVED_STYLE),
        }
    )


def _rows_view(page: Page, width: int | None) -> tuple[RenderableType, tuple[str, ...]]:
    """Return rows with their signs, and the names of the columns that did not fit.

    With a `width`, long values are cut.
    """
    at = {name: place for place, name in enumerate(page.names)}
    shown = [place for name, place in at.items() if name not in _SHOWN_APART]
    versioned = COMMIT_VERSION in at
    rows = []
    for row in page.rows:
        sign = _sign(row[at[CHANGE_TYPE]])
        version = [Text(str(row[at[COMMIT_VERSION]]), style=VERSION_STYLE)] if versioned else []
        values = (_cell(row[place], sign.style, limited=width is not None) for place in shown)
        rows.append([sign, *version, *values])
    named = [
        Heading(text=printable(page.names[place]), right=_is_number(page, place)) for place in shown
    ]
    headings = ("", ">version") if versioned else ("",)
    grid, left_out = Grid.of(*headings, *named, rows=rows).fit(width)
    return grid.table(), left_out


def _change_document(change: Change, schema: Schema | None) -> Json:
    """Return the JSON object of one commit; with a schema, also its blocks."""
    document = {**pick(change, "version timestamp_us operation"), **_diff_counts(change.diff)}
    if schema is not None:
        document["blocks"] = [
            {CHANGE_TYPE: kind, **block_document(block, schema)} for kind, block in change.blocks
        ]
    return document


def _diff_counts(diff: BlockDiff) -> Json:
    """Return the counts of rows and blocks; a row that was only rewritten counts on both sides."""
    return {
        "inserted_row_count": _row_count(diff.inserted),
        "inserted_block_count": len(diff.inserted),
        "removed_row_count": _row_count(diff.removed),
        "removed_block_count": len(diff.removed),
    }


def _sign(kind: object) -> Text:
    return Text("+", style=INSERTED_STYLE) if kind == INSERT else Text("-", style=REMOVED_STYLE)


def _in_and_out(arrived: int, gone: int) -> tuple[Text, Text]:
    return Text(signed(arrived), style=INSERTED_STYLE), Text(signed(-gone), style=REMOVED_STYLE)


def _row_count(blocks: Sequence[Block]) -> int:
    return sum(block.live_rows for block in blocks)


def _cell(value: object, style: str | Style, *, limited: bool) -> Text:
    text = shortened(cell(value), _LONGEST_CELL) if limited else cell(value)
    return Text(text, style=QUIET if value is None else style)


def _is_number(page: Page, place: int) -> bool:
    kinds = {type(row[place]) for row in page.rows} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _values(column: pa.Array) -> list[object]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # a value that Python cannot hold
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    """Return a Python value, with text for a time outside the calendar or bytes not UTF-8."""
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.StructScalar():
            return {name: _value(scalar[name]) for name in scalar}
        case pa.MapScalar():
            keys, values = (_values(scalar.values.field(at)) for at in (0, 1))
            return list(zip(keys, values, strict=True))
        case pa.ListScalar():
            return _values(scalar.values)
        case pa.StringScalar():
            return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
    try:
        return scalar.as_py()
    except OverflowError:
        return bound(scalar.value, "date" if pa.types.is_date(scalar.type) else "timestamp")
