"""`blocks` and `stats`: the blocks of a snapshot, and the numbers of a branch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, block_document, json_value, pick
from fuse_stream.cli.grid import QUIET, VERSION_STYLE, Cell, Grid, Heading, facts_view
from fuse_stream.cli.openmetrics import Observed, openmetrics_text
from fuse_stream.cli.options import Target, on_table, version_option
from fuse_stream.cli.text import bound, count, hidden_text, iso, plural, printable, short_id
from fuse_stream.errors import InvalidInputError
from fuse_stream.expiry.vacuum import VacuumReport
from fuse_stream.format.names import pin
from fuse_stream.format.properties import DEFAULTS
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Leaf, Schema
from fuse_stream.format.sizes import size
from fuse_stream.table.stats import OperationTotals, SideStats, TableStats

BLOCK_HEADINGS = ("block", ">rows", ">size", ">stored")

_STATS_HEADINGS = ("~min", "~max", ">nulls", ">NaN", ">distinct", ">stored")
_LONGEST_BOUND = 24
_MOST_RANGES = 4
_NONE = "-"


@click.command()
@on_table
@version_option
@click.option(
    "--stats",
    metavar="COLUMN",
    help="The statistics of this column; a.b is the field b of the struct a.",
)
def blocks(target: Target, version: str | None, stats: str | None) -> None:
    """List the blocks of a snapshot.

    Rows are those that can be read. Deleted rows that are still in a block are hidden; sizes and
    statistics include them. Ranges are those of the cluster key, or of the first columns where
    there is no key.

    \b
    Example:
      fuse-stream blocks /lake/flights --stats dep_delay
    """  # noqa: D301 - click's mark for lines to keep
    table = target.open()
    snapshot = table.snapshot(version)
    leaf = _find_leaf(snapshot.schema, stats) if stats else None
    found = table.blocks(pin(version, snapshot.version, branch=table.branch))
    if target.json:
        only = leaf.column.id if leaf else None
        documents = [
            {**block_document(block, snapshot.schema, only), "hidden_row_count": _hidden(block)}
            for block in found
        ]
        target.show_json({"version": snapshot.version, "blocks": documents}, branch=False)
        return
    if found:
        if leaf is None:
            target.output.show(_blocks_view(found, snapshot, target.output.width))
        else:
            cells = [_stats_cells(block, leaf) for block in found]
            target.output.show(_blocks_grid(found, _STATS_HEADINGS, cells).table())
    stored = size(sum(block.file_size for block in found))
    rows = plural(snapshot.summary.row_count, "row")
    if snapshot.hidden_rows:
        rows += f", {count(snapshot.hidden_rows)} hidden"
    target.output.note(
        f"version {snapshot.version}: {plural(len(found), 'block')}, {rows}, {stored} stored"
    )


@click.command()
@on_table
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "openmetrics"]),
    default="text",
    show_default=True,
    help="openmetrics: for a scraper such as Prometheus.",
)
@click.option(
    "--garbage",
    is_flag=True,
    help="Also find out what nothing needs any more: reads every version of every branch.",
)
def stats(target: Target, *, form: str, garbage: bool) -> None:
    """Show the sizes of a table, what compaction, expiry and vacuum did, and its properties.

    Small blocks are those that compaction may merge. The commits of the newest 1,000 versions are
    counted; a vacuum commits too, as `expire`. The last vacuum is that of an optimizer: one that
    the command `vacuum` ran is not recorded.

    With --garbage it shows the files that no version, branch, tag, clone or consumer needs: those
    that a vacuum deletes now, and those that it deletes later. Nothing is written.

    \b
    Example:
      fuse-stream stats /lake/flights
      fuse-stream stats /lake/flights --garbage
      fuse-stream stats /lake/flights --format openmetrics > /var/metrics/flights.prom
    """  # noqa: D301 - the same
    if form == "openmetrics":
        if target.json:
            raise click.UsageError("--json and --format openmetrics are two formats")
        target.output.show_text(openmetrics_text(_observed(target, garbage=garbage)))
        return
    table = target.open()
    with target.output.progress("reading the history"):
        found = table.stats()
    unused = None
    if garbage:
        with target.output.progress("looking for objects") as meter:
            unused = table.vacuum(dry_run=True, progress=meter.say)
    if target.json:
        target.show_json({**_document(found), "garbage": unused and _garbage_document(unused)})
        return
    target.output.show(_table_view(found, target.output.width))
    if unused is not None:
        target.output.show(Text(), _garbage_view(unused))
    if found.searched_count < found.retained_count:
        searched = plural(found.searched_count, "version")
        target.output.note(f"the commits of the newest {searched} are counted")


def _observed(target: Target, *, garbage: bool) -> Observed:
    table = target.open()
    with target.output.progress("reading the history"):
        return Observed(
            table_id=table.table_id,
            path=target.path,
            branch=target.branch,
            now_us=table.metadata.clock.now_us(),
            head=table.head(),
            stats=table.stats(),
            ledger=table.ledger(),
            consumers=tuple(table.consumers()),
            garbage=table.vacuum(dry_run=True) if garbage else None,
        )


def _find_leaf(schema: Schema, name: str) -> Leaf:
    """Return the column with a dotted name.

    Raises:
        InvalidInputError: no such column has statistics; names the nearest one.
    """
    leaves = {".".join(leaf.path): leaf for leaf in schema.leaves() if not leaf.repeated}
    if name in leaves:
        return leaves[name]
    near = difflib.get_close_matches(name, leaves, n=1)
    raise InvalidInputError(
        "no column of this name has statistics; those inside lists and maps have none",
        column=name,
        nearest=near[0] if near else None,
        columns=list(leaves),
    )


def _blocks_view(blocks: Sequence[Block], snapshot: Snapshot, width: int | None) -> RenderableType:
    """Return a line for each block, with the ranges of the cluster key or of the first columns."""
    leaves = [leaf for leaf in snapshot.schema.leaves() if not leaf.repeated]
    key = [leaf for leaf in leaves if leaf.column.id in snapshot.cluster_key]
    leaves = key or leaves[:_MOST_RANGES]
    ranges = [Heading(text=printable(".".join(leaf.path))) for leaf in leaves]
    cells = [
        [*block_cells(block)[2:], *(_range(block, leaf) for leaf in leaves)] for block in blocks
    ]
    return _blocks_grid(blocks, (*BLOCK_HEADINGS[2:], *ranges), cells).fit(width)[0].table()


def _blocks_grid(
    blocks: Sequence[Block], headings: Sequence[str | Heading], cells: Sequence[Sequence[Cell]]
) -> Grid:
    """Return a line for each block: its id and rows, how many more are hidden, and its `cells`.

    The column of hidden rows is left out if there are none.
    """
    hidden = [[count(_hidden(block)) if block.hidden else ""] for block in blocks]
    has_hidden = any(block.hidden for block in blocks)
    rows = [
        [*block_cells(block)[:2], *(more if has_hidden else ()), *others]
        for block, more, others in zip(blocks, hidden, cells, strict=True)
    ]
    first = (*BLOCK_HEADINGS[:2], *((">hidden",) if has_hidden else ()))
    return Grid.of(*first, *headings, rows=rows)


def block_cells(block: Block) -> list[Text | str]:
    """Return the cells of a block below `BLOCK_HEADINGS`; its rows are those that it shows."""
    return [
        Text(short_id(block.id), style=VERSION_STYLE),
        count(block.live_rows),
        size(block.block_size),
        size(block.file_size),
    ]


def _hidden(block: Block) -> int:
    return block.row_count - block.live_rows


def shortened(text: str, most: int) -> str:
    """Return `text`, cut to `most` characters with an ellipsis at the end if it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _range(block: Block, leaf: Leaf) -> Text:
    stats = block.col_stats.get(leaf.column.id)
    if stats is None or stats.null_count + stats.nan_count == block.row_count:
        return Text("no values", style=QUIET)
    low, high = (
        shortened(bound(side, leaf.column.type), _LONGEST_BOUND) for side in (stats.min, stats.max)
    )
    return Text(f"{low} .. {high}")


def _stats_cells(block: Block, leaf: Leaf) -> list[Text | str]:
    stats, meta = block.col_stats.get(leaf.column.id), block.col_metas.get(leaf.column.id)
    if stats is None:
        return [""] * len(_STATS_HEADINGS)
    return [
        bound(stats.min, leaf.column.type),
        bound(stats.max, leaf.column.type),
        count(stats.null_count),
        count(stats.nan_count),
        "" if stats.distinct_of_values is None else count(stats.distinct_of_values),
        size(meta.len) if meta else "",
    ]


def _table_view(stats: TableStats, width: int | None) -> RenderableType:
    a_block = size(round(stats.metadata_bytes_per_block)) if stats.block_count else ""
    per_block = f", {a_block} a block" if a_block else ""
    made_of = facts_view(
        {
            "version": Text(str(stats.version), style=VERSION_STYLE),
            "rows": count(stats.row_count),
            "hidden rows": hidden_text(stats.hidden_rows, stats.deletion_files),
            "blocks": f"{count(stats.block_count)} in {plural(stats.segment_count, 'segment')}, "
            f"{count(stats.perfect_block_count)} perfect, "
            f"{count(stats.imperfect_block_count)} small",
            "bytes": f"{size(stats.compressed_bytes)} stored, "
            f"{size(stats.uncompressed_bytes)} uncompressed",
            **{f"side {name}": _side_text(side) for name, side in stats.sides.items()},
            "metadata": f"{size(stats.metadata_bytes)} of the newest version{per_block}",
            "history": f"{plural(stats.retained_count, 'version')} from {stats.floor} on, "
            f"epoch {stats.epoch}",
        }
    )
    work = {
        "compact": stats.compaction,
        "recluster": stats.reclustering,
        "expire": stats.expiry,
    }
    policy = {
        name: Text(printable(text) or _NONE, style=QUIET if text == DEFAULTS.get(name, "") else "")
        for name, text in sorted(stats.policy.items())
    }
    grid = work_grid(work, stats.vacuumed_us, width)
    return Group(made_of, Text(), grid.table(), Text(), facts_view(policy))


def _side_text(side: SideStats) -> str:
    hidden = f", {count(side.hidden_rows)} hidden" if side.hidden_rows else ""
    blocks = f"{plural(side.block_count, 'block')}, {size(side.compressed_bytes)} stored"
    return f"{plural(side.row_count, 'row')} in {blocks}{hidden}"


def work_grid(
    work: Mapping[str, OperationTotals], vacuumed_us: int | None, width: int | None
) -> Grid:
    """Return what operations and the last vacuum did; with a `width`, as much as a line holds."""
    never = Text("never by an optimizer", style=QUIET)
    vacuumed = never if vacuumed_us is None else iso(vacuumed_us)
    rows: list[list[Text | str]] = [
        *(_totals_cells(name, totals) for name, totals in work.items()),
        ["vacuum", *[Text(_NONE, style=QUIET)] * 5, vacuumed],
    ]
    headings = (">commits", ">blocks saved", ">bytes rewritten", ">bytes saved", ">last version")
    grid = Grid.of("operation", *headings, "last time (UTC)", rows=rows)
    if width is None or grid.narrowest_width() <= width:
        return grid
    narrow = grid.with_broken_headings()
    return narrow if narrow.narrowest_width() <= width else narrow.without("last\nversion")


def _document(stats: TableStats) -> Json:
    metadata = (
        "snapshot_byte_size=snapshot_bytes segment_byte_size=segment_bytes "
        "deletion_file_byte_size=deletion_bytes"
    )
    return {
        **pick(stats, "version row_count block_count perfect_block_count imperfect_block_count"),
        **pick(stats, "hidden_row_count=hidden_rows deletion_file_count=deletion_files"),
        **pick(stats, "segment_count compressed_byte_size=compressed_bytes"),
        **pick(stats, "uncompressed_byte_size=uncompressed_bytes"),
        "sides": {
            name: pick(
                side,
                "row_count hidden_row_count=hidden_rows block_count "
                "compressed_byte_size=compressed_bytes",
            )
            for name, side in stats.sides.items()
        },
        "metadata": {
            **pick(stats, f"{metadata} byte_size=metadata_bytes"),
            "bytes_per_block": round(stats.metadata_bytes_per_block, 1),
        },
        "history": pick(stats, "retained_count floor epoch"),
        "upkeep": {
            "searched_count": stats.searched_count,
            "compact": _totals_document(stats.compaction),
            "recluster": _totals_document(stats.reclustering),
            "expire": _totals_document(stats.expiry),
            "vacuum": pick(stats, "last_timestamp=vacuumed_us"),
        },
        "policy": json_value(stats.policy),
    }


def _garbage_view(report: VacuumReport) -> RenderableType:
    """Return what nothing needs, and when it goes."""
    waiting = sum(removed.byte_size for removed in report.waiting.values())
    later = ""
    if report.waiting_count:
        later = f"{plural(report.waiting_count, 'object')}, {size(waiting)}: may belong to commits "
        later += f"in flight; two vacuums delete them, the first from {iso(report.due_us)} on"
    now = f"{plural(report.object_count, 'object')}, {size(report.byte_size)}: the next vacuum"
    return facts_view({"garbage": now if report.object_count else _NONE, "garbage later": later})


def _garbage_document(report: VacuumReport) -> Json:
    return {
        "deleted": json_value(report.deleted),
        "waiting": json_value(report.waiting),
        "due": iso(report.due_us),
    }


def _totals_cells(name: str, totals: OperationTotals) -> list[Text | str]:
    if not totals.commit_count:
        return [name, "0", *[Text(_NONE, style=QUIET)] * 5]
    saved = totals.bytes_saved
    return [
        name,
        count(totals.commit_count),
        count(totals.blocks_saved),
        size(totals.bytes_rewritten),
        f"-{size(-saved)}" if saved < 0 else size(saved),
        Text(str(totals.last_version), style=VERSION_STYLE),
        iso(totals.last_us or 0),
    ]


def _totals_document(totals: OperationTotals) -> Json:
    counts = "commit_count blocks_saved bytes_rewritten bytes_saved last_version"
    return pick(totals, f"{counts} last_timestamp=last_us")
