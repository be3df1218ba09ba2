"""`compact`, `recluster`, `optimize` and `clustering`: rewrite blocks, and show their overlap."""

from __future__ import annotations

import logging
import signal
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.as_json import json_value, pick
from fuse_stream.cli.grid import Grid
from fuse_stream.cli.options import Target, WholeNumber, on_table, writes
from fuse_stream.cli.text import count, json_text, plural, printable
from fuse_stream.format.sizes import size
from fuse_stream.optimize.compact import CompactionResult
from fuse_stream.optimize.overlap import Clustering
from fuse_stream.optimize.recluster import ReclusterResult
from fuse_stream.optimizer.worker import Stop, Worker
from fuse_stream.table.location import TableLocation

_COMPACTED = (
    "version=snapshot.version group_count dropped_group_count row_count blocks_before blocks_after "
    "bytes_before bytes_after"
)
_SORTED = f"{_COMPACTED} depth_before depth_after"

_limit = click.option(
    "--limit",
    type=WholeNumber(min=2),
    metavar="N",
    help="Rewrite at most this many blocks; all that need it if left out.",
)


@click.command()
@on_table
@_limit
@writes
def compact(target: Target, *, limit: int | None) -> None:
    """Merge small neighbouring blocks into large ones.

    The rows and their order stay the same, and streams that write or follow the table are not
    affected. The new blocks are read again and compared before they are committed. The old blocks
    stay for time travel, until their snapshots expire.

    \b
    Example:
      fuse-stream compact /lake/flights --limit 1000
    """  # noqa: D301 - click's mark for lines to keep
    with target.output.progress("rewriting blocks") as meter:
        result = target.open().compact(limit, progress=meter.reach)
    if target.json:
        target.show_json(pick(result, _COMPACTED))
    else:
        target.output.note(_said(result))


@click.command()
@on_table
@_limit
@writes
def recluster(target: Target, *, limit: int | None) -> None:
    """Sort overlapping blocks by the cluster key.

    The deepest overlaps come first, until the average depth is not above the table's property
    fuse.cluster.depth, or sorting cannot lower it. The rows stay the same, and streams that write
    or follow the table are not affected.

    \b
    Example:
      fuse-stream recluster /lake/flights --limit 1000
    """  # noqa: D301 - the same
    with target.output.progress("sorting blocks") as meter:
        result = target.open().recluster(limit, progress=meter.reach)
    if target.json:
        target.show_json(pick(result, _SORTED))
    else:
        target.output.note(_sorted_said(result))


@click.command()
@on_table
@click.argument("more", nargs=-1, metavar="[PATH]...")
@_limit
@click.option("--watch", is_flag=True, help="Run until SIGTERM or Ctrl-C, also for several tables.")
@writes
def optimize(target: Target, *, more: tuple[str, ...], limit: int | None, watch: bool) -> None:
    """Compact a table, then recluster it if it has a cluster key.

    With --watch it runs until it is stopped, and follows each table's properties: it compacts and
    reclusters when enough blocks need it, and expires and vacuums a table that has fuse.retain.
    With --watch and --json it prints a JSON document on one line for each run and each failure.

    \b
    Example:
      fuse-stream optimize /lake/flights
      fuse-stream optimize /lake/flights /lake/delays --watch
    """  # noqa: D301 - the same
    if watch:
        if limit is not None:
            raise click.UsageError("--watch limits its runs by itself: leave --limit out")
        watch_tables(target.location.each([target.path, *more]), as_json=target.json)
        return
    if more:
        raise click.UsageError("name one table, or add --watch to optimize several")
    with target.output.progress("rewriting blocks") as meter:
        done = target.open().optimize(limit, progress=meter.reach)
    if target.json:
        sorting = done.reclustering and pick(done.reclustering, _SORTED)
        target.show_json({"compaction": pick(done.compaction, _COMPACTED), "reclustering": sorting})
        return
    target.output.note(_said(done.compaction))
    if done.reclustering is not None:
        target.output.note(_sorted_said(done.reclustering))


@click.command()
@on_table
def clustering(target: Target) -> None:
    """Show how the blocks overlap in the order of the cluster key.

    The depth of a block is the largest number of blocks, itself included, that may hold the same
    key: a search for that key reads all of them. Blocks that were written before the cluster key
    was set count as overlapping with all others.

    \b
    Example:
      fuse-stream clustering /lake/flights
    """  # noqa: D301 - the same
    found = target.open().clustering()
    if target.json:
        depths = [{"depth": depth, "block_count": blocks} for depth, blocks in found.depths.items()]
        target.show_json({**json_value(found), "depths": depths})
        return
    target.output.show(_clustering_view(found, ascii_only=target.output.ascii_only))
    note = (
        f"version {found.version}: who looks for one key reads "
        f"{plural(found.max_depth, 'block')} of {found.block_count:,} at the most"
    )
    if found.unsorted_count:
        note += "; recluster puts all of them in order"
    target.output.note(note)


def _said(result: CompactionResult) -> str:
    return _landed_said(result, "nothing was rewritten", "there are no small neighbouring blocks")


def _sorted_said(result: ReclusterResult) -> str:
    depth = f"average depth {result.depth_before:,.1f}"
    said = _landed_said(
        result, "nothing was sorted", f"the {depth} is low enough, or sorting cannot lower it"
    )
    return said if result.snapshot is None else f"{said}, {depth} -> {result.depth_after:,.1f}"


def _landed_said(result: CompactionResult, nothing: str, why: str) -> str:
    dropped = ""
    if result.dropped_group_count:
        groups = plural(result.dropped_group_count, "group")
        dropped = f"; {groups} left to others, who changed the blocks meanwhile"
    if result.snapshot is None:
        return f"{nothing}{dropped or f': {why}'}"
    blocks = f"{plural(result.blocks_before, 'block')} -> {result.blocks_after:,}"
    sizes = f"{size(result.bytes_before)} -> {size(result.bytes_after)}"
    return f"version {result.snapshot.version}: {blocks}, {sizes}{dropped}"


_BAR_WIDTH = 40
_MOST_BARS = 12


def _clustering_view(clustering: Clustering, *, ascii_only: bool) -> RenderableType:
    figures = Table.grid(padding=(0, 2, 0, 0))
    figures.add_column(style="bold")
    figures.add_column(justify="right")
    figures.add_row("blocks", count(clustering.block_count))
    if clustering.unsorted_count:
        figures.add_row("not in this order", count(clustering.unsorted_count))
    figures.add_row("average overlap", f"{clustering.average_overlap:,.1f}")
    figures.add_row("average depth", f"{clustering.average_depth:,.1f}")
    figures.add_row("largest depth", count(clustering.max_depth))
    key = Text("cluster key: ").append(printable(", ".join(clustering.columns)), style="bold")
    if not clustering.depths:
        return Group(key, figures)
    ranges = list(_ranges(clustering.depths))
    most = max(blocks for _, blocks in ranges)
    lengths = [max(round(_BAR_WIDTH * blocks / most), bool(blocks)) for _, blocks in ranges]
    rows = [
        (name, count(blocks), Text(("#" if ascii_only else "█") * length, style="cyan"))
        for (name, blocks), length in zip(ranges, lengths, strict=True)
    ]
    return Group(key, figures, Text(), Grid.of(">depth", ">blocks", "", rows=rows).table())


def _ranges(depths: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    """Yield depths one by one where they are few, else in ranges that grow by powers of two."""
    if len(depths) <= _MOST_BARS:
        for depth, blocks in depths.items():
            yield count(depth), blocks
        return
    ends = [0, *(2**power for power in range(max(depths).bit_length() + 1))]
    for low, high in pairwise(ends):
        blocks = sum(number for depth, number in depths.items() if low < depth <= high)
        if blocks:
            name = count(high) if low + 1 == high else f"{low + 1:,}-{high:,}"
            yield name, blocks


_LOGGER = "fuse_stream"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def watch_tables(locations: Sequence[TableLocation], *, as_json: bool) -> None:
    """Optimize tables until SIGTERM or Ctrl-C; print what was done, a line a run.

    The current step is finished or given up: a commit has landed or not.
    """
    with _ended_by_signals(), _told(as_json=as_json):
        if not as_json:
            click.echo(f"watching {plural(len(locations), 'table')}; Ctrl-C ends it", err=True)
        Worker(locations).run()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def stop(number: int, _: types.FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second signal ends it at once
        raise Stop

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    except Stop:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _told(*, as_json: bool) -> Iterator[None]:
    logger = logging.getLogger(_LOGGER)
    handler = _Lines(as_json=as_json)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Lines(logging.Handler):
    """Prints what the optimizer did; with JSON, a document a line."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        if self._as_json:
            facts = getattr(record, "fuse", {"message": text})
            click.echo(json_text({**facts, "level": record.levelname}, indented=False, default=str))
        else:
            click.echo(text, err=record.levelno > logging.INFO)
