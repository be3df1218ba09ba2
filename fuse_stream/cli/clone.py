"""`clone` and `unpin`: a table made of a snapshot, and what its origin keeps for it."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, log_entry
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.options import Target, on_table, writes
from fuse_stream.cli.render import facts_view
from fuse_stream.cli.text import iso, plural, printable
from fuse_stream.format.refs import CloneRef
from fuse_stream.refs.clone import Clone
from fuse_stream.table.verbs import clone as make_clone


@click.command()
@on_table
@click.argument("new_path")
@click.option("--version", metavar="VERSION", help="Of this version; else the newest.")
@writes
def clone(target: Target, *, new_path: str, version: str | None) -> None:
    """Make a table of one snapshot of PATH in the new folder NEW_PATH, copying no block.

    The clone has the content and the ledger, and goes its own way. Whoever reads it allows the
    tables that hold its blocks: origins=[PATH], or --origin PATH. PATH keeps a pin, so that the
    blocks stay, until unpin removes it. A command that died half way is finished by the same
    command.

    \b
    Example:
      fuse-stream clone /lake/flights /lake/trial --version 12
      fuse-stream log /lake/trial
      fuse-stream diff /lake/trial 1 2 --origin /lake/flights

    With --json: path, branch, clone (table_id, location, origins: table_id, location), source,
    snapshot (each as in log).
    """  # noqa: D301 - click's mark for lines to keep
    made = make_clone(
        target.path,
        new_path,
        version=version,
        **target.keywords,
    )
    if target.json:
        place = {"path": target.path, "branch": target.branch}
        target.output.show_json({**place, **_clone_document(made)})
        return
    target.output.show(_clone_view(made))
    target.output.note("whoever reads the clone allows these origins: origins=[…], or --origin")


@click.command()
@on_table
@click.argument("clone_id", required=False)
@writes
def unpin(target: Target, *, clone_id: str | None) -> None:
    """List what PATH keeps for clones; with CLONE_ID, stop keeping it.

    A clone that is still there then loses, with the next vacuum, the blocks that PATH itself no
    longer needs.

    \b
    Example:
      fuse-stream unpin /lake/flights
      fuse-stream unpin /lake/flights 0f8fad5bd9cb469fa16570867728950e

    With --json: path, clones that are kept now (clone_id, location, created, branch_id, version,
    snapshot_id), removed (the clone_id, or null).
    """  # noqa: D301 - the same
    table = target.open()
    if clone_id is not None:
        table.unpin(clone_id)
    pins = table.clones()
    if target.json:
        documents = [_pin_document(pin) for pin in pins]
        target.output.show_json({"path": target.path, "clones": documents, "removed": clone_id})
    elif clone_id is not None:
        target.output.note(f"removed; {plural(len(pins), 'pin')} left")
    elif pins:
        target.output.show(_pins_view(pins))
    else:
        target.output.note("there are no clones of this table")


def _clone_document(made: Clone) -> Json:
    allowed = [{"table_id": table_id, "location": place} for table_id, place in made.origins]
    return {
        "clone": {"table_id": made.table_id, "location": made.location, "origins": allowed},
        "source": log_entry(made.source, None),
        "snapshot": log_entry(made.snapshot, None),
    }


def _clone_view(made: Clone) -> RenderableType:
    places = ", ".join(printable(place) for _, place in made.origins)
    return facts_view(
        {
            "clone": Text(printable(made.location), style="bold"),
            "id": Text(made.table_id),
            "of": Text(f"version {made.source.version}"),
            "holds": Text(plural(made.snapshot.summary.row_count, "row")),
            "origins": Text(places),
        }
    )


def _pin_document(pin: CloneRef) -> Json:
    return {
        "clone_id": pin.table_id,
        "location": pin.location,
        "created": iso(pin.created_us, exact=True),
        "branch_id": pin.target.branch_id,
        "version": pin.target.version,
        "snapshot_id": pin.snapshot_id,
    }


def _pins_view(pins: Sequence[CloneRef]) -> RenderableType:
    headings = (
        Heading(text="clone"),
        Heading(text="version", right=True),
        Heading(text="created (UTC)"),
        Heading(text="made at"),
    )
    rows = [
        [
            Text(pin.table_id),
            Text(str(pin.target.version)),
            Text(iso(pin.created_us)),
            Text(printable(pin.location)),
        ]
        for pin in pins
    ]
    return Grid(headings=headings, rows=rows).table()
