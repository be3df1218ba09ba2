"""How the clustering of a table and a reclustering look, and their JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.as_json import Json
from fuse_stream.cli.text import count, plural, printable, size
from fuse_stream.maintenance.overlap import Clustering
from fuse_stream.maintenance.recluster import ReclusterResult

_BAR_WIDTH = 40
_MOST_BARS = 12


def clustering_view(clustering: Clustering, *, ascii_only: bool) -> RenderableType:
    """Return the figures, and how many blocks have which depth as bars."""
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
    bars = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    bars.add_column("depth", justify="right")
    bars.add_column("blocks", justify="right")
    bars.add_column("", no_wrap=True)
    ranges = list(_ranges(clustering.depths))
    most = max(blocks for _, blocks in ranges)
    for name, blocks in ranges:
        bar = ("#" if ascii_only else "█") * max(round(_BAR_WIDTH * blocks / most), bool(blocks))
        bars.add_row(name, count(blocks), Text(bar, style="cyan"))
    return Group(key, figures, Text(), bars)


def clustering_note(clustering: Clustering) -> str:
    """Return what the figures say."""
    note = (
        f"version {clustering.version}: who looks for one key reads "
        f"{plural(clustering.max_depth, 'block')} of {clustering.block_count:,} at the most"
    )
    if clustering.unsorted_count:
        note += "; recluster puts all of them in order"
    return note


def clustering_document(clustering: Clustering) -> Json:
    """Return the figures as JSON values; `depths` as a list of `depth` and `block_count`."""
    return {
        "version": clustering.version,
        "columns": list(clustering.columns),
        "block_count": clustering.block_count,
        "unsorted_count": clustering.unsorted_count,
        "average_overlap": clustering.average_overlap,
        "average_depth": clustering.average_depth,
        "max_depth": clustering.max_depth,
        "depths": [
            {"depth": depth, "block_count": blocks} for depth, blocks in clustering.depths.items()
        ],
    }


def recluster_note(result: ReclusterResult) -> str:
    """Return what a reclustering did."""
    depth = f"average depth {result.depth_before:,.1f}"
    if result.snapshot is None:
        gone = f"; others took {plural(result.dropped_group_count, 'group')} of blocks meanwhile"
        return f"nothing was sorted: {depth}" + (gone if result.dropped_group_count else "")
    return (
        f"version {result.snapshot.version}: {result.blocks_before:,} blocks -> "
        f"{result.blocks_after:,}, {size(result.bytes_before)} -> {size(result.bytes_after)}, "
        f"{depth} -> {result.depth_after:,.1f}"
    )


def recluster_document(result: ReclusterResult) -> Json:
    """Return what a reclustering did as JSON values.

    Keys: `version blocks_before blocks_after bytes_before bytes_after row_count group_count
    dropped_group_count depth_before depth_after`.
    """
    return {
        "version": result.snapshot and result.snapshot.version,
        "blocks_before": result.blocks_before,
        "blocks_after": result.blocks_after,
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "row_count": result.row_count,
        "group_count": result.group_count,
        "dropped_group_count": result.dropped_group_count,
        "depth_before": result.depth_before,
        "depth_after": result.depth_after,
    }


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
