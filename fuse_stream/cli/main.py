"""The command line: `fuse-stream COMMAND`. Each command loads, then shows.

The command group: how a run ends. Errors become a line or a JSON document, never a traceback.

Exit codes: 0; 1 a `FuseError` (or what `doctor` or `fsck` found); 2 wrong usage; 130 Ctrl-C;
141 a closed pipe.
"""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import click
from rich.text import Text

from fuse_stream.cli.as_json import (
    block_document,
    ledger_document,
    log_entry,
    snapshot_document,
)
from fuse_stream.cli.changes import changes, diff
from fuse_stream.cli.check import audit, fsck, restore_table_file
from fuse_stream.cli.clone import clone, unpin
from fuse_stream.cli.consumers import consumers
from fuse_stream.cli.doctor import doctor
from fuse_stream.cli.expire import expire, vacuum
from fuse_stream.cli.history import find_leaf, load_graph, log_lines, with_change
from fuse_stream.cli.names import Branch, find_names, load_names
from fuse_stream.cli.optimize import (
    clustering,
    compact,
    optimize,
    recluster,
)
from fuse_stream.cli.options import Target, asks_for_json, on_table, storage_option
from fuse_stream.cli.output import (
    EXIT_INTERRUPTED,
    Output,
    end_on_closed_pipe,
    error_document,
    printable_streams,
)
from fuse_stream.cli.refs import branch, graph_documents, graph_view, tag
from fuse_stream.cli.render import blocks_view, ledger_view, log_view, snapshot_view, stats_view
from fuse_stream.cli.rewind import (
    publish,
    rebuild_checkpoint,
    revert,
    rewind,
)
from fuse_stream.cli.search import bisect, blame
from fuse_stream.cli.stats import stats
from fuse_stream.cli.text import cell, json_text, plural, printable, size
from fuse_stream.errors import FuseError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import pin

EXIT_ERROR, EXIT_USAGE = 1, 2


class CommandGroup(click.Group):
    """A click group whose runs end by the rules above."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit."""
        arguments = None if args is None else list(args)
        extra["standalone_mode"] = False
        with printable_streams():
            self._run(arguments, extra)

    def _run(self, arguments: list[str] | None, extra: dict[str, Any]) -> NoReturn:
        as_json = asks_for_json(arguments)
        result: object = None
        try:
            result = super().main(arguments, **extra)
            sys.stdout.flush()
        except FuseError as error:
            _report(error, as_json=as_json)
            sys.exit(EXIT_ERROR)
        except click.UsageError as error:
            if as_json:
                _report_json(click.UsageError(error.format_message()))
            else:
                click.UsageError(printable(error.format_message()), ctx=error.ctx).show()
            sys.exit(EXIT_USAGE)
        except click.Abort:
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            end_on_closed_pipe()
        except Exception:  # noqa: BLE001 - Python would print it past the streams of this run
            traceback.print_exc()
            sys.exit(EXIT_ERROR)
        sys.exit(result if isinstance(result, int) else 0)


def _report(error: FuseError, *, as_json: bool) -> None:
    if as_json:
        _report_json(error)
        return
    notes = Output().notes
    head = Text(f"{type(error).__name__}: ", style="bold red")
    notes.print(head.append(printable(error.message), style="default"), soft_wrap=True)
    for name, value in error.context.items():
        if value is not None:
            notes.print(Text(f"  {name}: ", style="dim").append(cell(value)), soft_wrap=True)


def _report_json(error: Exception) -> None:
    click.echo(json_text(error_document(error)), err=True)


_PARTS = ("fuse-stream", "pyspark", "pyarrow")
DEFAULT_LOG_LIMIT = 20
_MORE = "older snapshots are not shown; --limit N shows more"


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    click.echo(", ".join([*map(_versioned, _PARTS), f"Python {platform.python_version()}"]))
    context.exit()


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="PATH is a folder or a URL (s3://, gs://, abfss://). VERSION is a number from 0, a tag, "
    "7 hex digits or more of an id, or one of these on another branch: fix@12; fix@ is its head.",
)
@storage_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions and exit.",
)
def main() -> None:
    """Look into fuse_stream tables: history, blocks, changes, who wrote what.

    \b
    Example:
      fuse-stream log /lake/flights
      fuse-stream --storage-option anon=true log s3://bucket/flights
    """  # noqa: D301 - click's mark for lines to keep


@main.command()
@on_table
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LOG_LIMIT,
    show_default=True,
    metavar="N",
    help="The most snapshots.",
)
@click.option("--graph", is_flag=True, help="Draw branches and tags; all, or --branch alone.")
def log(target: Target, limit: int, graph: bool) -> None:
    """List the snapshots, newest first.

    With --graph each branch has a lane of its own, and so has a deleted one that a tag or a publish
    still leads to, which is called by the start of its id. A dotted lane is cut: what lies below
    has expired, or past the limit.

    \b
    Example:
      fuse-stream log /lake/flights --limit 50
      fuse-stream log /lake/flights --graph

    With --json: path, branch, snapshots (version, snapshot_id, timestamp, operation, data_change,
    row_count, row_count_change, block_count, batches, author, message, labels: branches, tags),
    more. With --graph also in snapshots: branch, branch_id, parents (version, branch, branch_id),
    lane.
    """  # noqa: D301 - the same
    if graph:
        _show_graph(target, limit)
        return
    table = target.open()
    lines, more = log_lines(table, limit)
    names = find_names(table, target.output)
    if target.json:
        snapshots = [log_entry(snapshot, change, names) for snapshot, change in lines]
        head = {"path": target.path, "branch": target.branch}
        target.output.show_json({**head, "snapshots": snapshots, "more": more})
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
        head = {"path": target.path, "branch": target.branch if only else None}
        documents = graph_documents(found, names)
        output.show_json({**head, "snapshots": documents, "more": found.more})
        return
    seen_from = only.ref.branch_id if only else MAIN
    output.show(graph_view(found, names, seen_from=seen_from, ascii_only=output.ascii_only))
    if found.more:
        output.note(_MORE)


@main.command()
@on_table
@click.argument("version", required=False)
def show(target: Target, version: str | None) -> None:
    """Show one snapshot whole: the newest, or VERSION.

    \b
    Example:
      fuse-stream show /lake/flights 12
      fuse-stream show /lake/flights good-run
      fuse-stream show /lake/flights fix@

    With --json: the keys of log, and table_id, branch (its name), branch_id, format_version, clock,
    prev_snapshot_id, parent, target, schema, cluster_key, required_features, properties, summary,
    segments, added, floor, epoch, ledger.
    """  # noqa: D301 - the same
    table = target.open()
    snapshot, change = with_change(table, table.snapshot(version))
    names = find_names(table, target.output)
    if target.json:
        target.output.show_json(snapshot_document(snapshot, change, names))
    else:
        target.output.show(snapshot_view(snapshot, change, names))


@main.command()
@on_table
@click.option("--version", metavar="VERSION", help="Of this version; else the newest.")
@click.option("--stats", metavar="COLUMN", help="The statistics of this column (a.b for a part).")
def blocks(target: Target, version: str | None, stats: str | None) -> None:
    """List the blocks of a snapshot.

    Ranges are those of the cluster key, or of the first columns where there is no key.

    \b
    Example:
      fuse-stream blocks /lake/flights --stats dep_delay

    With --json: path, version, blocks (id, row_count, block_size, file_size, sha256, compression,
    schema_id, origin, col_stats by column name). A bound that is not known is null.
    """  # noqa: D301 - the same
    table = target.open()
    snapshot = table.snapshot(version)
    leaf = find_leaf(snapshot.schema, stats) if stats else None
    found = table.blocks(pin(version, snapshot.version))
    if target.json:
        only = leaf.column.id if leaf else None
        documents = [block_document(block, snapshot.schema, only) for block in found]
        target.output.show_json(
            {"path": target.path, "version": snapshot.version, "blocks": documents}
        )
        return
    if found:
        width = target.output.width
        target.output.show(stats_view(found, leaf) if leaf else blocks_view(found, snapshot, width))
    stored = size(sum(block.file_size for block in found))
    rows = plural(snapshot.summary.row_count, "row")
    target.output.note(
        f"version {snapshot.version}: {plural(len(found), 'block')}, {rows}, {stored} stored"
    )


@main.command()
@on_table
def ledger(target: Target) -> None:
    """List who committed which batch last.

    By application and writer; then the queries that are retired.

    \b
    Example:
      fuse-stream ledger /lake/flights

    With --json: path, version, entries (application, writer, query_id, batch_id, rows, version,
    timestamp), retired (query_id, application, version, fork).
    """  # noqa: D301 - the same
    head = target.open().head()
    if target.json:
        place = {"path": target.path, "version": head.version}
        target.output.show_json({**place, **ledger_document(head.ledger)})
    elif head.ledger.entries or head.ledger.retired:
        target.output.show(ledger_view(head.ledger))
    else:
        target.output.note("the ledger is empty: no stream and no numbered batch was committed")


_READING = (bisect, blame, changes, consumers, diff, stats)
_NAMING = (branch, clone, publish, tag, unpin)
_GOING_BACK = (rebuild_checkpoint, revert, rewind)
_CHECKING = (audit, doctor, fsck, restore_table_file)
_MAINTAINING = (clustering, compact, expire, optimize, recluster, vacuum)
for command in (*_READING, *_NAMING, *_GOING_BACK, *_CHECKING, *_MAINTAINING):
    main.add_command(command)

if __name__ == "__main__":
    main()
