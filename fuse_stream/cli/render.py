"""How snapshots look: records -> renderables. Pure: no console, no table is touched.

Every text that others wrote goes through `Text`, never through rich's markup.

How blocks, changes and rows look: records -> renderables. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.grid import Grid, Heading, Page
from fuse_stream.cli.names import Names
from fuse_stream.cli.text import (
    bound,
    cell,
    count,
    first_line,
    iso,
    plural,
    printable,
    short_id,
    signed,
    size,
)
from fuse_stream.feed.changes import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    INSERT,
    Change,
)
from fuse_stream.feed.diff import BlockDiff
from fuse_stream.format.records import (
    Block,
    Ledger,
    Operation,
    SegmentRef,
    Snapshot,
)
from fuse_stream.format.schema import Column, Leaf, Schema

INSERTED_STYLE, REMOVED_STYLE, QUIET, VERSION_STYLE = "green", "red", "dim", "yellow"
_OPERATION_STYLES = {
    Operation.APPEND: "green",
    Operation.UPSERT: "green",
    Operation.OVERWRITE: "magenta",
    Operation.UPDATE: "magenta",
    Operation.DELETE: "red",
    Operation.REWIND: "red",
    Operation.REVERT: "red",
    Operation.PUBLISH: "cyan",
    Operation.CREATE: "cyan",
    Operation.ALTER: "cyan",
}
_TARGET_WORDS = {
    Operation.REWIND: " to ",
    Operation.REVERT: " of ",
    Operation.PUBLISH: " ",
}
_INDENT = "  "

LogLine = tuple[Snapshot, int | None]
"""A snapshot, and by how many rows it differs from the one before; None where that has expired."""


def log_view(lines: Sequence[LogLine], names: Names, width: int | None) -> RenderableType:
    """Return the log: on a wide line all in columns, on a short one messages below."""
    headings = (
        Heading(text="version", right=True),
        Heading(text="names"),
        Heading(text="time (UTC)"),
        Heading(text="operation"),
        Heading(text="rows", right=True),
        Heading(text="change", right=True),
        Heading(text="blocks", right=True),
        Heading(text="batch"),
        Heading(text="message", shrinks=True),
        Heading(text="author"),
    )
    cells = [_log_cells(snapshot, change, names) for snapshot, change in lines]
    whole = Grid(headings=headings, rows=cells).without_empty()
    if width is None or whole.narrowest_width() <= width:
        return whole.table()
    facts = Grid(headings=headings[:-2], rows=[row[:-2] for row in cells]).without_empty()
    head, *rows = facts.lines()
    return Group(head, *_with_notes(rows, [row[-2:] for row in cells], facts.widths()[0]))


def snapshot_view(snapshot: Snapshot, change: int | None, names: Names) -> RenderableType:
    """Return one snapshot whole."""
    summary = snapshot.summary
    columns = {column.id: column.name for column in snapshot.schema.columns}
    parent = snapshot.parent
    facts = {
        "version": Text(str(snapshot.version), style=f"bold {VERSION_STYLE}"),
        "snapshot": Text(snapshot.snapshot_id),
        "names": Text(printable(_explained(snapshot, names))),
        "parent": Text(f"version {parent.version}" if parent else ""),
        "its sha256": Text(parent.sha256 if parent else ""),
        "table": Text(snapshot.table_id),
        "branch": Text(names.find_name(snapshot.branch_id) or snapshot.branch_id),
        "time": Text(iso(snapshot.timestamp_us, exact=True)),
        "operation": full_operation_text(snapshot, names),
        "batch": _batch(snapshot),
        "author": Text(printable(snapshot.author)),
        "message": Text("\n".join(printable(line) for line in snapshot.message.splitlines())),
        "rows": Text(_with_change(summary.row_count, change)),
        "blocks": Text(
            f"{count(summary.block_count)}, of the right size {count(summary.perfect_block_count)}"
        ),
        "size": Text(
            f"{size(summary.compressed_byte_size)} stored, "
            f"{size(summary.uncompressed_byte_size)} uncompressed"
        ),
        "cluster key": Text(
            ", ".join(printable(columns.get(at, str(at))) for at in snapshot.cluster_key)
        ),
        "features": Text(", ".join(snapshot.required_features)),
        "expired": Text(f"before version {snapshot.floor}" if snapshot.floor else ""),
    }
    sections: list[RenderableType] = [
        facts_view({name: text for name, text in facts.items() if text})
    ]
    sections += section("schema", _schema_grid(snapshot.schema).table())
    if snapshot.properties:
        named = {printable(k): Text(printable(v)) for k, v in sorted(snapshot.properties.items())}
        sections += section("properties", facts_view(named))
    if snapshot.segments:
        sections += section("segments", _segment_grid(snapshot.segments).table())
    if snapshot.ledger.entries or snapshot.ledger.retired:
        sections += section("ledger", ledger_view(snapshot.ledger))
    return Group(*sections)


def ledger_view(ledger: Ledger) -> RenderableType:
    """Return who committed what last, and who is retired."""
    headings = (
        Heading(text="application"),
        Heading(text="writer"),
        Heading(text="batch", right=True),
        Heading(text="rows", right=True),
        Heading(text="version", right=True),
        Heading(text="time (UTC)"),
        Heading(text="query", shrinks=True),
    )
    rows = [
        [
            Text(printable(application), style="bold"),
            Text(printable(writer)),
            Text(str(entry.batch_id)),
            Text(count(entry.rows)),
            Text(str(entry.version), style=VERSION_STYLE),
            Text(iso(entry.timestamp_us)),
            Text(printable(entry.query_id or "")),
        ]
        for (application, writer), entry in sorted(ledger.entries.items())
    ]
    parts: list[RenderableType] = [Grid(headings=headings, rows=rows).without_empty().table()]
    if ledger.retired:
        parts += section("retired queries", _retired_grid(ledger).table())
    return Group(*parts)


def section(title: str, body: RenderableType) -> list[RenderableType]:
    """Return `body` below a title, apart from what stands above."""
    return [Text(""), Text(title, style="bold underline"), body]


def operation_text(operation: Operation) -> Text:
    """Return the name of an operation in its colour."""
    return Text(operation.value, style=_OPERATION_STYLES.get(operation, QUIET))


def full_operation_text(snapshot: Snapshot, names: Names) -> Text:
    """Return what a snapshot did, and to which other one: "rewind to 12", "publish fix@14"."""
    text = operation_text(snapshot.operation)
    word = _TARGET_WORDS.get(snapshot.operation)
    if word is None or snapshot.target is None:
        return text
    return text.append(word + names.spell(snapshot.target, seen_from=snapshot.branch_id))


def labels_text(snapshot: Snapshot, names: Names) -> Text:
    """Return the names of a snapshot: "(main, tag: good)"."""
    branches = [Text(name, style="bold green") for name in names.branches_at(snapshot)]
    tags = [Text(f"tag: {tag.name}", style="bold yellow") for tag in names.tags_at(snapshot)]
    if not branches and not tags:
        return Text("")
    return Text("(").append_text(Text(", ").join([*branches, *tags])).append(")")


def change_text(change: int | None) -> Text:
    """Return a difference of rows in its colour; nothing where it is not known."""
    difference = signed(change) if change is not None else ""
    return Text(difference, style=REMOVED_STYLE if difference.startswith("-") else INSERTED_STYLE)


def facts_view(facts: Mapping[str, Text]) -> Table:
    """Return named facts, one a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts.items():
        grid.add_row(name, text)
    return grid


def _log_cells(snapshot: Snapshot, change: int | None, names: Names) -> list[Text]:
    return [
        Text(str(snapshot.version), style=VERSION_STYLE),
        labels_text(snapshot, names),
        Text(iso(snapshot.timestamp_us)),
        full_operation_text(snapshot, names),
        Text(count(snapshot.summary.row_count)),
        change_text(change),
        Text(count(snapshot.summary.block_count)),
        _batch(snapshot),
        Text(first_line(snapshot.message)),
        Text(printable(snapshot.author)),
    ]


def _with_notes(rows: list[Text], notes: list[list[Text]], indent: int) -> Iterable[Text]:
    for row, texts in zip(rows, notes, strict=True):
        yield row
        said = [text.plain for text in texts if text]
        if said:
            note = Text(" " * indent + _INDENT, no_wrap=True, overflow="ellipsis")
            yield note.append(" - ".join(said), style=QUIET)


def _batch(snapshot: Snapshot) -> Text:
    """Return which batch this commit was: the ledger entry that names its version."""
    batches = [
        f"{application}{'/' if writer else ''}{writer} #{entry.batch_id}"
        for (application, writer), entry in snapshot.ledger.entries.items()
        if entry.version == snapshot.version
    ]
    return Text(printable(", ".join(batches)))


def _explained(snapshot: Snapshot, names: Names) -> str:
    heads = [f"head of {name}" for name in names.branches_at(snapshot)]
    tags = [
        f"tag {tag.name}" + (f" until {iso(tag.expires_us)}" if tag.expires_us else "")
        for tag in names.tags_at(snapshot)
    ]
    return ", ".join([*heads, *tags])


def _with_change(row_count: int, change: int | None) -> str:
    return f"{count(row_count)}  {signed(change)}".rstrip() if change else count(row_count)


def _schema_grid(schema: Schema) -> Grid:
    def lines(columns: Iterable[Column], depth: int) -> Iterable[list[Text]]:
        for column in columns:
            yield [
                Text(str(column.id), style=QUIET),
                Text(_INDENT * depth + printable(column.name)),
                Text(column.type, style="cyan"),
                Text("" if column.nullable else "not null"),
            ]
            yield from lines(column.children, depth + 1)

    names = ("column", "type", "")
    headings = (Heading(text="id", right=True), *(Heading(text=name) for name in names))
    return Grid(headings=headings, rows=list(lines(schema.columns, 0)))


def _segment_grid(segments: Sequence[SegmentRef]) -> Grid:
    headings = tuple(
        Heading(text=text, right=True) for text in ("level", "segments", "blocks", "rows", "stored")
    )
    levels = sorted({ref.level for ref in segments})
    at = {level: [ref for ref in segments if ref.level == level] for level in levels}
    return Grid(
        headings=headings,
        rows=[
            [
                Text(str(level)),
                Text(count(len(refs))),
                Text(count(sum(ref.block_count for ref in refs))),
                Text(count(sum(ref.row_count for ref in refs))),
                Text(size(sum(ref.byte_size for ref in refs))),
            ]
            for level, refs in at.items()
        ],
    )


def _retired_grid(ledger: Ledger) -> Grid:
    headings = (
        Heading(text="query"),
        Heading(text="application"),
        Heading(text="version", right=True),
        Heading(text="goes on as"),
    )
    rows = [
        [
            Text(printable(query_id)),
            Text(printable(retired.application)),
            Text(str(retired.version), style=VERSION_STYLE),
            Text(printable(retired.fork or "nothing")),
        ]
        for query_id, retired in sorted(ledger.retired.items())
    ]
    return Grid(headings=headings, rows=rows)


_LONGEST_BOUND = 24
_LONGEST_CELL = 32
_MOST_RANGES = 4
_SHOWN_APART = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
_BLOCK_HEADINGS = (
    Heading(text="block"),
    Heading(text="rows", right=True),
    Heading(text="size", right=True),
    Heading(text="stored", right=True),
)


def blocks_view(blocks: Sequence[Block], snapshot: Snapshot, width: int | None) -> RenderableType:
    """Return one line a block, with the ranges of the cluster key or of the first columns."""
    leaves = _range_leaves(snapshot)
    headings = (
        *_BLOCK_HEADINGS,
        *(Heading(text=printable(".".join(leaf.path))) for leaf in leaves),
    )
    rows = [[*_block_cells(block), *(_range(block, leaf) for leaf in leaves)] for block in blocks]
    return Grid(headings=headings, rows=rows).fit(width)[0].table()


def stats_view(blocks: Sequence[Block], leaf: Leaf) -> RenderableType:
    """Return the statistics of one column, one line a block."""
    headings = (
        Heading(text="block"),
        Heading(text="rows", right=True),
        Heading(text="min", shrinks=True),
        Heading(text="max", shrinks=True),
        Heading(text="nulls", right=True),
        Heading(text="NaN", right=True),
        Heading(text="distinct", right=True),
        Heading(text="stored", right=True),
    )
    return Grid(headings=headings, rows=[_stats_cells(block, leaf) for block in blocks]).table()


def changes_view(changes: Iterable[Change]) -> RenderableType:
    """Return one line a commit."""
    headings = (
        Heading(text="version", right=True),
        Heading(text="time (UTC)"),
        Heading(text="operation"),
        Heading(text="+rows", right=True),
        Heading(text="-rows", right=True),
        Heading(text="+blocks", right=True),
        Heading(text="-blocks", right=True),
    )
    rows = [
        [
            Text(str(change.version), style=VERSION_STYLE),
            Text(iso(change.timestamp_us)),
            operation_text(change.operation),
            *_in_and_out(*(_rows(side) for side in (change.diff.inserted, change.diff.removed))),
            *_in_and_out(len(change.diff.inserted), len(change.diff.removed)),
        ]
        for change in changes
    ]
    return Grid(headings=headings, rows=rows).table()


def change_blocks_view(changes: Iterable[Change]) -> RenderableType:
    """Return one line for each block that came or went."""
    rows = []
    for change in changes:
        for kind, block in change.blocks:
            style = INSERTED_STYLE if kind == INSERT else REMOVED_STYLE
            sign = Text("+" if kind == INSERT else "-", style=style)
            version = Text(str(change.version), style=VERSION_STYLE)
            rows.append([sign, version, *_block_cells(block)])
    headings = (Heading(text=""), Heading(text="version", right=True), *_BLOCK_HEADINGS)
    return Grid(headings=headings, rows=rows).table()


def diff_view(old: Snapshot, new: Snapshot, diff: BlockDiff) -> RenderableType:
    """Return the difference in numbers."""
    before, after = old.summary.row_count, new.summary.row_count

    def side(blocks: Sequence[Block]) -> str:
        return f"{plural(len(blocks), 'block')} with {plural(_rows(blocks), 'row')}"

    return facts_view(
        {
            "from": Text(f"version {old.version}  {iso(old.timestamp_us)}"),
            "to": Text(f"version {new.version}  {iso(new.timestamp_us)}"),
            "rows": Text(f"{count(before)} -> {count(after)}  {signed(after - before)}".rstrip()),
            "inserted": Text(side(diff.inserted), style=INSERTED_STYLE if diff.inserted else QUIET),
            "removed": Text(side(diff.removed), style=REMOVED_STYLE if diff.removed else QUIET),
        }
    )


def rows_view(page: Page, width: int | None) -> tuple[RenderableType, tuple[str, ...]]:
    """Return rows with their signs, and the names of the columns that did not fit.

    On a line that is limited, long values are cut; otherwise all is shown.
    """
    at = {name: place for place, name in enumerate(page.names)}
    shown = [place for name, place in at.items() if name not in _SHOWN_APART]
    versioned = COMMIT_VERSION in at
    headings = [Heading(text="")]
    headings += [Heading(text="version", right=True)] if versioned else []
    headings += [
        Heading(text=printable(page.names[place]), right=_is_number(page, place)) for place in shown
    ]
    rows = []
    for row in page.rows:
        arrived = row[at[CHANGE_TYPE]] == INSERT
        style = INSERTED_STYLE if arrived else REMOVED_STYLE
        cells = [Text("+" if arrived else "-", style=style)]
        cells += [Text(str(row[at[COMMIT_VERSION]]), style=VERSION_STYLE)] if versioned else []
        cells += [_cell(row[place], style, limited=width is not None) for place in shown]
        rows.append(cells)
    grid, left_out = Grid(headings=tuple(headings), rows=rows).fit(width)
    return grid.table(), left_out


def _block_cells(block: Block) -> list[Text]:
    return [
        Text(short_id(block.id), style=VERSION_STYLE),
        Text(count(block.row_count)),
        Text(size(block.block_size)),
        Text(size(block.file_size)),
    ]


def _range_leaves(snapshot: Snapshot) -> list[Leaf]:
    leaves = [leaf for leaf in snapshot.schema.leaves() if not leaf.repeated]
    key = [leaf for leaf in leaves if leaf.column.id in snapshot.cluster_key]
    return key or leaves[:_MOST_RANGES]


def _range(block: Block, leaf: Leaf) -> Text:
    stats = block.col_stats.get(leaf.column.id)
    if stats is None or stats.null_count + stats.nan_count == block.row_count:
        return Text("no values", style=QUIET)
    low, high = (
        _cut(bound(side, leaf.column.type), _LONGEST_BOUND) for side in (stats.min, stats.max)
    )
    return Text(f"{low} .. {high}")


def _stats_cells(block: Block, leaf: Leaf) -> list[Text]:
    stats, meta = block.col_stats.get(leaf.column.id), block.col_metas.get(leaf.column.id)
    names = [Text(short_id(block.id), style=VERSION_STYLE), Text(count(block.row_count))]
    if stats is None:
        return [*names, *(Text("") for _ in range(6))]
    return [
        *names,
        Text(bound(stats.min, leaf.column.type)),
        Text(bound(stats.max, leaf.column.type)),
        Text(count(stats.null_count)),
        Text(count(stats.nan_count)),
        Text("" if stats.distinct_of_values is None else count(stats.distinct_of_values)),
        Text(size(meta.len) if meta else ""),
    ]


def _in_and_out(arrived: int, gone: int) -> tuple[Text, Text]:
    return Text(signed(arrived), style=INSERTED_STYLE), Text(signed(-gone), style=REMOVED_STYLE)


def _rows(blocks: Sequence[Block]) -> int:
    return sum(block.row_count for block in blocks)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cell(value: object, style: str, *, limited: bool) -> Text:
    if value is None:
        return Text(cell(value), style=QUIET)
    text = cell(value)
    return Text(_cut(text, _LONGEST_CELL) if limited else text, style=style)


def _is_number(page: Page, place: int) -> bool:
    kinds = {type(row[place]) for row in page.rows} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}
