"""`clustering` and `recluster`: how blocks overlap in the order of the key, and sorting them."""

from __future__ import annotations

import click

from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.render_clustering import (
    clustering_document,
    clustering_note,
    clustering_view,
    recluster_document,
    recluster_note,
)


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
    """  # noqa: D301 - click's mark for lines to keep
    found = target.open().clustering()
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **clustering_document(found)})
        return
    target.output.show(clustering_view(found, ascii_only=target.output.ascii_only))
    target.output.note(clustering_note(found))


@click.command()
@on_table
@click.option(
    "--limit",
    type=click.IntRange(min=2),
    metavar="BLOCKS",
    help="Rewrite at most so many; until all is well if left out.",
)
def recluster(target: Target, *, limit: int | None) -> None:
    """Sort blocks together that overlap in the order of the cluster key.

    The deepest overlaps come first, until the average depth is not above the table's property
    fuse.cluster.depth, or sorting cannot lower it. The rows stay; readers, writers and the change
    feed do not notice.

    \b
    Example:
      fuse-stream recluster /lake/flights --limit 100

    With --json: path, branch, version (null if nothing was done), blocks_before, blocks_after,
    bytes_before, bytes_after, row_count, group_count, dropped_group_count, depth_before,
    depth_after.
    """  # noqa: D301 - the same
    with target.output.progress("sorting", 1) as meter:
        result = target.open().recluster(limit, progress=meter.reach)
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **recluster_document(result)})
    else:
        target.output.note(recluster_note(result))
