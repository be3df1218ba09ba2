"""`compact`, `recluster` and both as `optimize`; `clustering`: what keeps a table fast."""

from __future__ import annotations

import click

from fuse_stream.cli.options import (
    Target,
    on_table,
    origins,
    storage_options,
    unsafe_single_writer,
    writes,
)
from fuse_stream.cli.render_clustering import (
    clustering_document,
    clustering_note,
    clustering_view,
)
from fuse_stream.cli.text import plural, size
from fuse_stream.cli.watch import watch_tables
from fuse_stream.maintenance.compact import CompactionResult
from fuse_stream.maintenance.recluster import ReclusterResult
from fuse_stream.service.optimizer import places_of

_limit = click.option(
    "--limit",
    type=click.IntRange(min=2),
    metavar="N",
    help="Rewrite at most so many blocks; all that need it if left out.",
)


@click.command()
@on_table
@_limit
@writes
def compact(target: Target, *, limit: int | None) -> None:
    """Write small neighbouring blocks into big ones.

    The rows and their order stay, and streams that write or follow the table do not notice. What
    is written is read again and compared before it counts. The old blocks stay for time travel,
    until their snapshots expire.

    \b
    Example:
      fuse-stream compact /lake/flights --limit 1000

    With --json: path, branch, version (null if nothing was committed), group_count,
    dropped_group_count, row_count, blocks_before, blocks_after, bytes_before, bytes_after.
    """  # noqa: D301 - click's mark for lines to keep
    with target.output.progress("rewriting blocks", 1) as meter:
        result = target.open().compact(limit, progress=meter.reach)
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **compaction_document(result)})
    else:
        target.output.note(_said(result))


@click.command()
@on_table
@_limit
@writes
def recluster(target: Target, *, limit: int | None) -> None:
    """Sort blocks together that overlap in the order of the cluster key.

    The deepest overlaps come first, until the average depth is not above the table's property
    fuse.cluster.depth, or sorting cannot lower it. The rows stay, and streams that write or follow
    the table do not notice.

    \b
    Example:
      fuse-stream recluster /lake/flights --limit 1000

    With --json: as compact, and depth_before, depth_after.
    """  # noqa: D301 - the same
    with target.output.progress("sorting blocks", 1) as meter:
        result = target.open().recluster(limit, progress=meter.reach)
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **recluster_document(result)})
    else:
        target.output.note(_sorted_said(result))


@click.command()
@on_table
@click.argument("more", nargs=-1, metavar="[PATH]...")
@_limit
@click.option("--watch", is_flag=True, help="Go on until SIGTERM or Ctrl-C; also several tables.")
@writes
def optimize(target: Target, *, more: tuple[str, ...], limit: int | None, watch: bool) -> None:
    """Compact a table, then recluster it if it has a cluster key.

    With --watch it is the service, by the tables' properties: it compacts and reclusters when
    enough has gathered, and where a table's fuse.retain asks for it, expires and vacuums.

    \b
    Example:
      fuse-stream optimize /lake/flights
      fuse-stream optimize /lake/flights /lake/delays --watch

    With --json: path, branch, compaction (as compact), reclustering (as recluster; null without a
    cluster key, or if the limit left nothing to it). With --watch: a document a line for each run
    (service, path, branch, version, level, and what the run did) and each failure.
    """  # noqa: D301 - the same
    if watch:
        if limit is not None:
            raise click.UsageError("--watch bounds its runs by itself: leave --limit out")
        watch_tables(
            places_of(
                [target.path, *more],
                branch=target.branch,
                storage_options=storage_options(),
                origins=origins(),
                unsafe_single_writer=unsafe_single_writer(),
            ),
            as_json=target.json,
        )
        return
    if more:
        raise click.UsageError("one table at a time, unless with --watch")
    with target.output.progress("rewriting blocks", 1) as meter:
        done = target.open().optimize(limit, progress=meter.reach)
    if target.json:
        sorting = done.reclustering
        target.output.show_json(
            {
                "path": target.path,
                "branch": target.branch,
                "compaction": compaction_document(done.compaction),
                "reclustering": None if sorting is None else recluster_document(sorting),
            }
        )
        return
    target.output.note(_said(done.compaction))
    if done.reclustering is not None:
        target.output.note(_sorted_said(done.reclustering))


@click.command()
@on_table
def clustering(target: Target) -> None:
    """Show how the blocks overlap in the order of the cluster key.

    The depth of a block is the most blocks, itself included, that may hold one and the same key of
    it: so many are read to find that key. Blocks that were written before the cluster key was set
    count as overlapping all.

    \b
    Example:
      fuse-stream clustering /lake/flights

    With --json: path, branch, version, columns, block_count, unsorted_count, average_overlap,
    average_depth, max_depth, depths (depth, block_count).
    """  # noqa: D301 - the same
    found = target.open().clustering()
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **clustering_document(found)})
        return
    target.output.show(clustering_view(found, ascii_only=target.output.ascii_only))
    target.output.note(clustering_note(found))


def compaction_document(result: CompactionResult) -> dict[str, object]:
    """Return a compaction as JSON values; the keys are promised."""
    return {
        "version": None if result.snapshot is None else result.snapshot.version,
        "group_count": result.group_count,
        "dropped_group_count": result.dropped_group_count,
        "row_count": result.row_count,
        "blocks_before": result.blocks_before,
        "blocks_after": result.blocks_after,
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
    }


def recluster_document(result: ReclusterResult) -> dict[str, object]:
    """Return a reclustering as JSON values; the keys are promised."""
    return {
        **compaction_document(result),
        "depth_before": result.depth_before,
        "depth_after": result.depth_after,
    }


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
