"""`compact`: what keeps a table fast."""

from __future__ import annotations

import click

from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.text import plural, size
from fuse_stream.maintenance.compact import CompactionResult


@click.command()
@on_table
@click.option(
    "--limit",
    type=click.IntRange(min=2),
    metavar="N",
    help="Rewrite at most so many blocks; all that are small if left out.",
)
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


def _said(result: CompactionResult) -> str:
    dropped = ""
    if result.dropped_group_count:
        groups = plural(result.dropped_group_count, "group")
        dropped = f"; {groups} left to others, who changed the blocks meanwhile"
    if result.snapshot is None:
        return f"nothing was rewritten{dropped or ': there are no small neighbouring blocks'}"
    blocks = f"{plural(result.blocks_before, 'block')} -> {result.blocks_after:,}"
    sizes = f"{size(result.bytes_before)} -> {size(result.bytes_after)}"
    return f"version {result.snapshot.version}: {blocks}, {sizes}{dropped}"
