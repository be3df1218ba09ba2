"""`log`, `show` and `ledger`: the snapshots of a branch, one of them, and its ledger.

Other commands use the views of snapshots, ledgers and graphs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, ledger_document, log_entry, pick, snapshot_document
from fuse_stream.cli.graph import Graph, draw, load_graph
from fuse_stream.cli.grid import (
    INSERTED_STYLE,
    QUIET,
    REMOVED_STYLE,
    VERSION_STYLE,
    Cells,
    Grid,
    facts_view,
    section,
)
from fuse_stream.cli.history import (
    Branch,
    LogLine,
    Names,
    find_names,
    load_names,
    log_lines,
    with_change,
)
from fuse_stream.cli.options import Target, WholeNumber, on_table
from fuse_stream.cli.text import count, first_line, hidden_text, iso, printable, signed
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import (
    DeletionFileRef,
    Ledger,
    LedgerEntry,
    Operation,
    Parent,
    SegmentRef,
    Snapshot,
)
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.sides import side_views
from fuse_stream.format.sizes import size
from fuse_stream.optimize.compact import find_compacted_side

DEFAULT_LOG_LIMIT = 20
_MORE = "older snapshots are not shown; --limit N shows more"

_OPERATION_STYLES = {
    Operation.APPEND: "green",
    Operation.UPSERT: "green",
    Operation.MERGE: "green",
    Operation.REPLICATE: "green",
    Operation.RETRY: "green",
    Operation.OVERWRITE: "magenta",
    Operation.UPDATE: "magenta",
    Operation.DELETE: "red",
    Operation.ERASE: "red",
    Operation.REWIND: "red",
    Operation.REVERT: "red",
    Operation.PUBLISH: "cyan",
    Operation.CREATE: "cyan",
    Operation.ALTER: "cyan",
    Operation.INDEX: "cyan",
}
_TARGET_WORDS = {Operation.REWIND: " to ", Operation.REVERT: " of ", Operation.PUBLISH: " "}
_TIME = "time (UTC)"
_INDENT, _LANE_STYLE = "  ", "cyan"


@click.command()
@on_table
@click.option(
    "--limit",
    type=WholeNumber(min=1),
    default=DEFAULT_LOG_LIMIT,
    show_default=True,
    metavar="N",
    help="The most snapshots to show.",
)
@click.option(
    "--graph", is_flag=True, help="Draw the branches and tags; with --branch only that branch."
)
def log(target: Target, limit: int, graph: bool) -> None:
    """List the snapshots, newest first.

    A vacuum makes two commits on each branch, its fences, whose operation is expire, too.

    With --graph each branch has its own lane. So has a deleted branch to which a tag or a publish
    leads; its name is the first digits of its id. A dotted lane is cut: the snapshots below have
    expired, or are past the limit.

    \b
    Example:
      fuse-stream log /lake/flights --limit 50
      fuse-stream log /lake/flights --graph
    """  # noqa: D301 - click's mark for lines to keep
    if graph:
        _show_graph(target, limit)
        return
    table = target.open()
    lines, more = log_lines(table, limit)
    names = find_names(table, target.output)
    if target.json:
        snapshots = [log_entry(snapshot, change, names) for snapshot, change in lines]
        target.show_json({"snapshots": snapshots, "more": more})
        return
    target.output.show(log_view(lines, names, target.output.width))
    if more:
        target.output.note(_MORE)


def _show_graph(target: Target, limit: int) -> None:
    table, output = target.open(), target.output
    names = load_names(table)
    only = None
    if target.is_branch_given:
        only = Branch(ref=table.committer.branch, head=table.committer.head())
    total = limit if limit > DEFAULT_LOG_LIMIT else None
    with output.progress("reading snapshots", total) as meter:
        found = load_graph(table.metadata, names, limit=limit, only=only, reach=meter.reach)
    if target.json:
        branch = target.branch if only else None
        documents = graph_documents(found, names)
        target.show_json({"branch": branch, "snapshots": documents, "more": found.more})
        return
    seen_from = only.ref.branch_id if only else MAIN
    output.show(graph_view(found, names, seen_from=seen_from, ascii_only=output.ascii_only))
    if found.more:
        output.note(_MORE)


@click.command()
@on_table
@click.argument("version", required=False)
def show(target: Target, version: str | None) -> None:
    """Show all fields of one snapshot: the newest, or VERSION.

    \b
    Example:
      fuse-stream show /lake/flights 12
      fuse-stream show /lake/flights good-run
      fuse-stream show /lake/flights fix@
    """  # noqa: D301 - the same
    table = target.open()
    snapshot, change = with_change(table, table.snapshot(version))
    names = find_names(table, target.output)
    if target.json:
        target.output.show_json(snapshot_document(snapshot, change, names))
    else:
        target.output.show(snapshot_view(snapshot, change, names, target.output.width))


@click.command()
@on_table
def ledger(target: Target) -> None:
    """List the last batch that each application and writer has committed.

    Below are the queries that a rewind, a publish or `adopt` has retired.

    \b
    Example:
      fuse-stream ledger /lake/flights
    """  # noqa: D301 - the same
    head = target.open().head()
    if target.json:
        document = {"version": head.version, **ledger_document(head.ledger)}
        target.show_json(document, branch=False)
    elif head.ledger.entries or head.ledger.retired:
        target.output.show(ledger_view(head.ledger, target.output.width))
    else:
        target.output.note("the ledger is empty: no stream and no numbered batch was committed")


def log_view(lines: Sequence[LogLine], names: Names, width: int | None) -> RenderableType:
    """Return the log; if lines are too short for all columns, messages are below the rows."""
    headings = (">version", "names", _TIME, "operation", ">rows", ">change", ">blocks")
    cells = [_log_cells(snapshot, change, names) for snapshot, change in lines]
    grid = Grid.of(*headings, "batch", "read", "~message", "author", rows=cells).without_empty()
    moves = (("read", "message", "author"), ("blocks",), ("names",), ("batch",))
    return grid.stacked(width, *moves, notes=_log_notes)


def snapshot_view(
    snapshot: Snapshot, change: int | None, names: Names, width: int | None
) -> RenderableType:
    """Return all fields of a snapshot."""
    summary, parent, message = snapshot.summary, snapshot.parent, snapshot.message
    columns = {column.id: column.name for column in snapshot.schema.columns}
    facts = facts_view(
        {
            "version": Text(str(snapshot.version), style=f"bold {VERSION_STYLE}"),
            "snapshot": snapshot.snapshot_id,
            "names": _explained(snapshot, names),
            "parent": f"version {parent.version}" if parent else "",
            "its sha256": parent.sha256 if parent else "",
            "table": snapshot.table_id,
            "branch": names.find_name(snapshot.branch_id) or snapshot.branch_id,
            "time": iso(snapshot.timestamp_us, exact=True),
            "operation": full_operation_text(snapshot, names),
            "batch": _batch(snapshot),
            "read": "; ".join(filter(None, map(sources_text, snapshot.batches.values()))),
            "author": snapshot.author,
            "message": Text("\n".join(printable(line) for line in message.splitlines())),
            "events": _events(snapshot),
            "rows": f"{count(summary.row_count)}  {signed(change or 0)}".rstrip(),
            "hidden rows": hidden_text(snapshot.hidden_rows, len(snapshot.deletion_files)),
            "blocks": f"{count(summary.block_count)}, of the right size "
            f"{count(summary.perfect_block_count)}",
            "size": f"{size(summary.compressed_byte_size)} stored, "
            f"{size(summary.uncompressed_byte_size)} uncompressed",
            "key": ", ".join(columns.get(at, str(at)) for at in snapshot.key),
            "cluster key": ", ".join(columns.get(at, str(at)) for at in snapshot.cluster_key),
            "features": ", ".join(snapshot.required_features),
            "expired": f"before version {snapshot.floor}" if snapshot.floor else "",
        }
    )
    sections = [facts, *section("schema", _schema_grid(snapshot.schema.visible).table())]
    if snapshot.properties:
        named = {name: value or " " for name, value in sorted(snapshot.properties.items())}
        sections += section("properties", facts_view(named))
    if snapshot.segments:
        grid = _segment_grid(snapshot.segments, has_hidden=bool(snapshot.deletion_files))
        sections += section("segments", grid.table())
    if snapshot.deletion_files:
        sections += section("deletion files", _deletion_grid(snapshot.deletion_files).table())
    if snapshot.sides:
        sections += section("sides", _side_grid(snapshot).table())
    if snapshot.ledger.entries or snapshot.ledger.retired:
        sections += section("ledger", ledger_view(snapshot.ledger, width))
    return Group(*sections)


def _side_grid(snapshot: Snapshot) -> Grid:
    rows = [
        (
            name,
            count(view.summary.row_count),
            count(view.hidden_rows),
            count(view.summary.block_count),
            size(view.summary.compressed_byte_size),
            ", ".join(map(printable, view.schema.visible.names())),
        )
        for name, view in side_views(snapshot).items()
    ]
    return Grid.of("side", ">rows", ">hidden", ">blocks", ">stored", "columns", rows=rows)


def ledger_view(ledger: Ledger, width: int | None) -> RenderableType:
    """Return the ledger's entries and its retired queries; no id is cut in lines of `width`."""
    headings = ("application", "writer", ">batch", ">rows", ">version", _TIME, "read", "query")
    rows = [
        (
            Text(printable(application), style="bold"),
            writer,
            str(entry.batch_id),
            count(entry.rows),
            Text(str(entry.version), style=VERSION_STYLE),
            iso(entry.timestamp_us),
            sources_text(entry),
            entry.query_id or "",
        )
        for (application, writer), entry in sorted(ledger.entries.items())
    ]
    grid = Grid.of(*headings, rows=rows).without_empty()
    moves = (("query",), (_TIME,), ("rows",))
    parts = [grid.stacked(width, *moves, notes=_ledger_notes)]
    if ledger.retired:
        retired = [
            (
                query_id,
                passed.application,
                Text(str(passed.version), style=VERSION_STYLE),
                passed.fork or "nothing",
            )
            for query_id, passed in sorted(ledger.retired.items())
        ]
        columns = ("query", "application", ">version", "continues as")
        grid = Grid.of(*columns, rows=retired)
        shown = grid.stacked(width, ("continues as",), ("version",), notes=_ledger_notes)
        parts += section("retired queries", shown)
    return Group(*parts)


def graph_view(
    graph: Graph, names: Names, *, seen_from: str, ascii_only: bool = False
) -> RenderableType:
    """Return the drawing of a graph, with the facts of each snapshot beside it.

    `seen_from` is the id of the branch whose versions are shown without its name.
    """
    headings = ("", "version", _TIME, "operation", ">change", "names and message")
    rows: list[list[Text | str]] = []
    for line in draw(graph.steps, ascii_only=ascii_only):
        cells: list[Text | str] = [Text(line.lanes, style=_LANE_STYLE)]
        if line.step is None:
            remark = Text("expired" if line.has_expired else "", style=QUIET)
            cells += [remark, *("" for _ in headings[2:])]
        else:
            cells += _graph_cells(graph.lines[line.step], names, seen_from)
        rows.append(cells)
    lines = Grid.of(*headings, rows=rows).lines()
    for text in lines:
        text.rstrip()
    return Group(*lines)


def graph_documents(graph: Graph, names: Names) -> list[Json]:
    """Return the snapshots of a graph as JSON values.

    `parents` has the snapshot before and, for a publish of another branch, the one whose content it
    took; `lane` is the number of its lane, from 0.
    """
    documents = []
    for (snapshot, change), step in zip(graph.lines, graph.steps, strict=True):
        parents = [snapshot.parent, names.published_from(snapshot)]
        documents.append(
            {
                **log_entry(snapshot, change, names),
                **place_document(snapshot, names),
                "parents": [place_document(parent, names) for parent in parents if parent],
                "lane": step.lane,
            }
        )
    return documents


def place_document(at: Parent | Snapshot, names: Names) -> Json:
    """Return the version and the branch of a snapshot; the branch is null if it was deleted."""
    return pick(at, "version branch branch_id", branch=names.find_name(at.branch_id))


def sources_text(entry: LedgerEntry) -> str:
    """Return how far a batch has read its sources, such as "bronze@26, orders@7"."""
    return ", ".join(printable(source.name) for source in entry.sources or ())


def operation_text(operation: Operation) -> Text:
    """Return the name of an operation in its colour."""
    return Text(operation.value, style=_OPERATION_STYLES.get(operation, QUIET))


def full_operation_text(snapshot: Snapshot, names: Names) -> Text:
    """Return the operation with what it is about: "rewind to 12", "compact of tombstones"."""
    text = operation_text(snapshot.operation)
    if side := find_compacted_side(snapshot):
        return text.append(f" of {side}")
    word = _TARGET_WORDS.get(snapshot.operation)
    if word is None or snapshot.target is None:
        return text
    return text.append(word + names.spell(snapshot.target, seen_from=snapshot.branch_id))


def labels_text(snapshot: Snapshot, names: Names) -> Text:
    """Return the branches and tags of a snapshot, such as "(main, tag: good)"."""
    branches = [Text(name, style="bold green") for name in names.branches_at(snapshot)]
    tags = [Text(f"tag: {tag.name}", style="bold yellow") for tag in names.tags_at(snapshot)]
    if not branches and not tags:
        return Text("")
    return Text("(").append_text(Text(", ").join([*branches, *tags])).append(")")


def change_text(change: int | None) -> Text:
    """Return a row change in its colour; an empty text if it is not known."""
    difference = signed(change) if change is not None else ""
    return Text(difference, style=REMOVED_STYLE if difference.startswith("-") else INSERTED_STYLE)


def _log_cells(snapshot: Snapshot, change: int | None, names: Names) -> list[Text | str]:
    return [
        Text(str(snapshot.version), style=VERSION_STYLE),
        labels_text(snapshot, names),
        iso(snapshot.timestamp_us),
        full_operation_text(snapshot, names),
        count(snapshot.summary.row_count),
        change_text(change),
        count(snapshot.summary.block_count),
        _batch(snapshot),
        ", ".join(filter(None, map(sources_text, snapshot.batches.values()))),
        first_line(snapshot.message),
        printable(snapshot.author),
    ]


def _graph_cells(line: LogLine, names: Names, seen_from: str) -> list[Text | str]:
    snapshot, change = line
    said = " - ".join(
        text for text in (first_line(snapshot.message), printable(snapshot.author)) if text
    )
    parts = [text for text in (labels_text(snapshot, names), Text(said)) if text]
    return [
        Text(names.spell(snapshot, seen_from=seen_from), style=VERSION_STYLE),
        iso(snapshot.timestamp_us),
        full_operation_text(snapshot, names),
        change_text(change),
        Text(" ").join(parts),
    ]


def _log_notes(cells: Cells) -> Iterator[Text]:
    parts = [cells[name] for name in ("batch", "names") if name in cells]
    if parts:
        yield Text("  ").join(parts)
    said = " - ".join(str(cells[name]) for name in ("read", "message", "author") if name in cells)
    if said:
        yield Text(said, style=QUIET)


def _ledger_notes(cells: Cells) -> Iterator[Text]:
    said = [
        str(cell) if heading == _TIME else f"{heading} {cell}"
        for heading, cell in reversed([*cells.items()])
    ]
    if said:
        yield Text(", ".join(said), style=QUIET)


def _events(snapshot: Snapshot) -> str:
    """Return what became of the events that a commit brought, if it brought any."""
    counts = snapshot.counts
    if counts is None:
        return ""
    named = {
        "applied": counts.applied,
        "superseded": counts.superseded,
        "duplicate": counts.duplicate,
        "quarantined": counts.quarantined,
    }
    return ", ".join(f"{count(number)} {name}" for name, number in named.items() if number)


def _batch(snapshot: Snapshot) -> str:
    return ", ".join(
        f"{application}{'/' if writer else ''}{writer} #{entry.batch_id}"
        for (application, writer), entry in snapshot.batches.items()
    )


def _explained(snapshot: Snapshot, names: Names) -> str:
    heads = [f"head of {name}" for name in names.branches_at(snapshot)]
    tags = [
        f"tag {tag.name}" + (f" until {iso(tag.expires_us)}" if tag.expires_us else "")
        for tag in names.tags_at(snapshot)
    ]
    return ", ".join([*heads, *tags])


def _schema_grid(schema: Schema) -> Grid:
    def lines(columns: Iterable[Column], depth: int) -> Iterable[list[Text | str]]:
        for column in columns:
            yield [
                Text(str(column.id), style=QUIET),
                _INDENT * depth + column.name,
                Text(column.type, style="cyan"),
                "" if column.nullable else "not null",
            ]
            yield from lines(column.children, depth + 1)

    return Grid.of(">id", "column", "type", "", rows=lines(schema.columns, 0))


def _segment_grid(segments: Sequence[SegmentRef], *, has_hidden: bool) -> Grid:
    levels = sorted({ref.level for ref in segments})
    at = {level: [ref for ref in segments if ref.level == level] for level in levels}
    rows = [
        (
            str(level),
            count(len(refs)),
            count(sum(ref.block_count for ref in refs)),
            count(sum(ref.row_count for ref in refs)),
            size(sum(ref.byte_size for ref in refs)),
        )
        for level, refs in at.items()
    ]
    held = ">rows, hidden ones too" if has_hidden else ">rows"
    return Grid.of(">level", ">segments", ">blocks", held, ">stored", rows=rows)


def _deletion_grid(files: Sequence[DeletionFileRef]) -> Grid:
    rows = [
        (
            str(ref.level),
            count(ref.row_count),
            count(ref.block_count),
            size(ref.byte_size),
            iso(ref.since_us),
        )
        for ref in files
    ]
    headings = (">level", ">rows hidden", ">blocks", ">stored", "first hidden (UTC)")
    return Grid.of(*headings, rows=rows)
