"""How blocks, changes and rows look: records -> renderables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.render import (
    INSERTED_STYLE,
    QUIET,
    REMOVED_STYLE,
    VERSION_STYLE,
    facts_view,
    operation_text,
)
from fuse_stream.cli.rows import Page
from fuse_stream.cli.text import bound, cell, count, iso, plural, printable, short_id, signed, size
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Leaf
from fuse_stream.reading.diff import BlockDiff
from fuse_stream.reading.feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, INSERT, Change

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
