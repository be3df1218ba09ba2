"""`stats`: what a branch is made of, and what its upkeep did.

How the numbers of a branch look, and their JSON. Pure.
"""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.render import QUIET, VERSION_STYLE, facts_view
from fuse_stream.cli.text import (
    count,
    iso,
    plural,
    printable,
    size,
)
from fuse_stream.format.properties import DEFAULTS
from fuse_stream.table.stats import TableStats, Upkeep


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


_NONE = "-"
_HEADINGS = (
    Heading(text="upkeep"),
    Heading(text="commits", right=True),
    Heading(text="blocks saved", right=True),
    Heading(text="rewritten", right=True),
    Heading(text="saved", right=True),
    Heading(text="last version", right=True),
    Heading(text="last time (UTC)"),
)


def table_stats_view(stats: TableStats) -> RenderableType:
    """Return what the branch is made of, its upkeep, and the policy in force."""
    return Group(
        facts_view(
            {
                "version": Text(str(stats.version), style=VERSION_STYLE),
                "rows": Text(count(stats.row_count)),
                "blocks": _blocks(stats),
                "bytes": Text(
                    f"{size(stats.compressed_bytes)} stored, "
                    f"{size(stats.uncompressed_bytes)} uncompressed"
                ),
                "metadata": _metadata(stats),
                "history": Text(
                    f"{plural(stats.retained_count, 'version')} from {stats.floor} on, "
                    f"epoch {stats.epoch}"
                ),
            }
        ),
        Text(),
        Grid(
            headings=_HEADINGS,
            rows=[
                _upkeep_cells("compact", stats.compaction),
                _upkeep_cells("recluster", stats.reclustering),
                _upkeep_cells("expire", stats.expiry),
                [Text("vacuum"), *[Text(_NONE, style=QUIET)] * 5, _time(stats.vacuumed_us)],
            ],
        ).table(),
        Text(),
        facts_view(
            {
                name: Text(printable(text) or _NONE, style=QUIET if is_default else "")
                for name, text in sorted(stats.policy.items())
                for is_default in [text == DEFAULTS.get(name, "")]
            }
        ),
    )


def table_stats_notes(stats: TableStats) -> list[str]:
    """Return what is said beside the numbers."""
    if stats.searched_count == stats.retained_count:
        return []
    return [f"upkeep is that of the newest {plural(stats.searched_count, 'version')}"]


def table_stats_document(stats: TableStats) -> Json:
    """Return the numbers as JSON values.

    Keys: `version row_count block_count perfect_block_count imperfect_block_count segment_count
    compressed_byte_size uncompressed_byte_size metadata` (`snapshot_byte_size segment_byte_size
    byte_size bytes_per_block`) `history` (`retained_count floor epoch`) `upkeep` (`searched_count`,
    and for `compact`, `recluster` and `expire`: `commit_count blocks_saved bytes_rewritten
    bytes_saved last_version last_timestamp`; for `vacuum`: `last_timestamp`) `policy` (by name).
    """
    return {
        "version": stats.version,
        "row_count": stats.row_count,
        "block_count": stats.block_count,
        "perfect_block_count": stats.perfect_block_count,
        "imperfect_block_count": stats.imperfect_block_count,
        "segment_count": stats.segment_count,
        "compressed_byte_size": stats.compressed_bytes,
        "uncompressed_byte_size": stats.uncompressed_bytes,
        "metadata": {
            "snapshot_byte_size": stats.snapshot_bytes,
            "segment_byte_size": stats.segment_bytes,
            "byte_size": stats.metadata_bytes,
            "bytes_per_block": round(stats.metadata_bytes_per_block, 1),
        },
        "history": {
            "retained_count": stats.retained_count,
            "floor": stats.floor,
            "epoch": stats.epoch,
        },
        "upkeep": {
            "searched_count": stats.searched_count,
            "compact": _upkeep_document(stats.compaction),
            "recluster": _upkeep_document(stats.reclustering),
            "expire": _upkeep_document(stats.expiry),
            "vacuum": {"last_timestamp": _iso(stats.vacuumed_us)},
        },
        "policy": dict(stats.policy),
    }


def _blocks(stats: TableStats) -> Text:
    text = f"{count(stats.block_count)} in {plural(stats.segment_count, 'segment')}"
    return Text(
        f"{text}, {count(stats.perfect_block_count)} perfect, "
        f"{count(stats.imperfect_block_count)} small"
    )


def _metadata(stats: TableStats) -> Text:
    text = f"{size(stats.metadata_bytes)} of the newest version"
    if stats.block_count:
        text += f", {size(round(stats.metadata_bytes_per_block))} a block"
    return Text(text)


def _upkeep_cells(name: str, upkeep: Upkeep) -> list[Text]:
    if not upkeep.commit_count:
        return [Text(name), Text("0"), *[Text(_NONE, style=QUIET)] * 5]
    saved = upkeep.bytes_saved
    return [
        Text(name),
        Text(count(upkeep.commit_count)),
        Text(count(upkeep.blocks_saved)),
        Text(size(upkeep.bytes_rewritten)),
        Text(f"-{size(-saved)}" if saved < 0 else size(saved)),
        Text(str(upkeep.last_version), style=VERSION_STYLE),
        _time(upkeep.last_us),
    ]


def _upkeep_document(upkeep: Upkeep) -> Json:
    return {
        "commit_count": upkeep.commit_count,
        "blocks_saved": upkeep.blocks_saved,
        "bytes_rewritten": upkeep.bytes_rewritten,
        "bytes_saved": upkeep.bytes_saved,
        "last_version": upkeep.last_version,
        "last_timestamp": _iso(upkeep.last_us),
    }


def _time(time_us: int | None) -> Text:
    return Text(_NONE, style=QUIET) if time_us is None else Text(iso(time_us))


def _iso(time_us: int | None) -> str | None:
    return None if time_us is None else iso(time_us, exact=True)
