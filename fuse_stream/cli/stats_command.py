"""`stats`: what a branch is made of, and what its upkeep did."""

from __future__ import annotations

import click

from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.render_stats import (
    table_stats_document,
    table_stats_notes,
    table_stats_view,
)


@click.command()
@on_table
def stats(target: Target) -> None:
    """Show what the table is made of, what its upkeep did and saved, and the policy in force.

    Small blocks are those that compaction may pack. Upkeep is read from the newest 1,000 versions.

    \b
    Example:
      fuse-stream stats /lake/flights

    With --json: path, branch, version, row_count, block_count, perfect_block_count,
    imperfect_block_count, segment_count, compressed_byte_size, uncompressed_byte_size, metadata
    (snapshot_byte_size, segment_byte_size, byte_size, bytes_per_block), history (retained_count,
    floor, epoch), upkeep (searched_count; compact, recluster, expire: commit_count, blocks_saved,
    bytes_rewritten, bytes_saved, last_version, last_timestamp; vacuum: last_timestamp), policy (by
    property).
    """  # noqa: D301 - click's mark for lines to keep
    table = target.open()
    with target.output.progress("reading the history"):
        found = table.stats()
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **table_stats_document(found)})
        return
    target.output.show(table_stats_view(found))
    for note in table_stats_notes(found):
        target.output.note(note)
