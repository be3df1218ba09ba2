"""`consumers`: the named consumers of a table: the position of each, and releasing one."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, pick
from fuse_stream.cli.grid import ALARM, Grid, facts_below
from fuse_stream.cli.options import Target, on_table, writes
from fuse_stream.cli.text import count, duration, iso, plural, printable, short_id
from fuse_stream.feed.consumers import ConsumerState


@click.command()
@on_table
@click.option("--release", metavar="NAME", help="Delete the lease of this consumer.")
@click.option("--force", is_flag=True, help="With --release: also if its lease is still live.")
@writes
def consumers(target: Target, *, release: str | None, force: bool) -> None:
    """List the named consumers of a table, and how far behind each is.

    As long as a consumer's lease is live, vacuum keeps the versions that the consumer has not read.
    --release deletes the lease of a consumer that will not continue; a reader that still runs
    writes it again. A value that is not known, because its snapshots are deleted, is null in JSON.

    \b
    Example:
      fuse-stream consumers /lake/flights
      fuse-stream consumers /lake/flights --release nightly
    """  # noqa: D301 - click's mark for lines to keep
    if force and release is None:
        raise click.UsageError("--force goes with --release")
    table = target.open()
    if release is not None:
        table.release(release, force=force)
    found = table.consumers()
    if target.json:
        documents = [_document(state) for state in found]
        target.show_json({"consumers": documents, "released": release}, branch=False)
    elif release is not None:
        target.output.note(f"released; {plural(len(found), 'consumer')} left")
    elif found:
        target.output.show(_view(found, target.output.width))
    else:
        target.output.note('nobody follows this table under a name, option("consumer", ...)')


def _document(state: ConsumerState) -> Json:
    seconds = None if state.behind_us is None else state.behind_us / 1_000_000
    keys = "consumer branch version versions_behind rows_to_read is_live owner_id seconds_behind"
    return pick(state, f"{keys} lapses_us", seconds_behind=seconds)


def _view(found: Sequence[ConsumerState], width: int | None) -> RenderableType:
    rows = [
        (
            Text(printable(state.consumer), style="bold"),
            "deleted" if state.branch is None else state.branch,
            str(state.version),
            _known(state.versions_behind),
            _known(state.rows_to_read),
            "?" if state.behind_us is None else duration(state.behind_us),
            "lives" if state.is_live else Text("lapsed", style=ALARM),
            iso(state.lapses_us),
            short_id(state.owner_id),
        )
        for state in found
    ]
    progress = (">has read", ">behind", ">rows to read", ">time")
    lease = ("lease", "until (UTC)", "owner")
    return Grid.of("consumer", "branch", *progress, *lease, rows=rows).stacked(
        width, ("until (UTC)", "owner"), ("branch",), notes=facts_below
    )


def _known(number: int | None) -> str:
    return "?" if number is None else count(number)
