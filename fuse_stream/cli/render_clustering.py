"""How the clustering of a table looks, and its JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.as_json import Json
from fuse_stream.cli.text import count, plural, printable
from fuse_stream.maintenance.overlap import Clustering

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
