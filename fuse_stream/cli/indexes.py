"""`indexes`: the indexes of a table, and creating, refreshing and dropping them."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, pick
from fuse_stream.cli.grid import Grid, facts_below
from fuse_stream.cli.options import Target, on_table, writes
from fuse_stream.cli.text import count, iso, plural, printable
from fuse_stream.format.sizes import size
from fuse_stream.indexes.define import IndexState
from fuse_stream.indexes.refresh import IndexRefresh

_STATE = "name kind sql created_us covered_blocks block_count part_count byte_size"
_REFRESH = "version=snapshot.version block_count skipped_count left_count"


@click.command()
@on_table
@click.option(
    "--create",
    nargs=2,
    metavar="NAME SQL",
    help='Define an aggregate, such as by_day "SELECT day, count(*) AS n FROM t GROUP BY day".',
)
@click.option("--drop", metavar="NAME", help="Drop this index.")
@click.option("--drop-all", is_flag=True, help="Drop all indexes, also if their list is damaged.")
@click.option("--refresh", is_flag=True, help="Compute what the indexes lack.")
@writes
def indexes(
    target: Target,
    *,
    create: tuple[str, str] | None,
    drop: str | None,
    drop_all: bool,
    refresh: bool,
) -> None:
    """List the indexes of a table, and what they cover.

    An aggregate keeps the states of a GROUP BY for each large block, so that its result takes few
    reads at any version. Small blocks and those with deleted rows are read. An optimizer refreshes
    indexes in the background.

    \b
    Example:
      fuse-stream indexes /lake/flights
      fuse-stream indexes /lake/flights --create by_carrier \\
        "SELECT carrier, count(*) AS flights, sum(delay) AS delay FROM t GROUP BY carrier"
      fuse-stream indexes /lake/flights --refresh
    """  # noqa: D301 - click's mark for lines to keep
    if drop is not None and drop_all:
        raise click.UsageError("--drop and --drop-all do not go together")
    table = target.open()
    said: list[str] = []
    if drop is not None or drop_all:
        table.drop_index(drop)
        said.append("dropped")
    if create is not None:
        table.create_aggregate(*create)
        said.append("created")
    done: IndexRefresh | None = None
    if refresh:
        with target.output.progress("reading blocks") as meter:
            done = table.refresh_indexes(progress=meter.reach)
        said.append(f"{plural(done.block_count, 'block')} read")
    found = table.indexes()
    if target.json:
        refreshed = None if done is None else pick(done, _REFRESH)
        target.show_json({"indexes": [_document(one) for one in found], "refreshed": refreshed})
        return
    if found:
        target.output.show(_view(found, target.output.width))
    else:
        said.append("the table has no index")
    if said:
        target.output.note("; ".join(said))


def _document(state: IndexState) -> Json:
    return pick(state, _STATE)


def _view(found: Sequence[IndexState], width: int | None) -> RenderableType:
    rows = [
        (
            Text(printable(state.name), style="bold"),
            state.kind,
            f"{count(state.covered_blocks)} of {count(state.block_count)}",
            size(state.byte_size),
            iso(state.created_us),
            printable(state.sql),
        )
        for state in found
    ]
    return Grid.of(
        "index", "kind", ">blocks covered", ">size", "created (UTC)", "definition", rows=rows
    ).stacked(width, ("definition", "created (UTC)"), ("kind",), notes=facts_below)
