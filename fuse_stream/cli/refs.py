"""`tag`, `branch`, `clone` and `unpin`: names of snapshots, and tables made of a snapshot."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, json_value, located, pick
from fuse_stream.cli.grid import VERSION_STYLE, Grid, facts_below, facts_view
from fuse_stream.cli.history import Branch, Names, find_published, load_names, lost_versions
from fuse_stream.cli.log import place_document
from fuse_stream.cli.options import (
    Command,
    Target,
    WholeNumber,
    also_option,
    forks_option,
    on_table,
    version_option,
    writes,
)
from fuse_stream.cli.rewind import rewind_document, rewind_view
from fuse_stream.cli.text import count, iso, plural, printable, short_id
from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.refs import TagRef
from fuse_stream.table.handle import Table
from fuse_stream.table.pipelines import branch as branch_several
from fuse_stream.table.verbs import clone as make_clone

_PIN = (
    "clone_id=table_id location created_us branch_id=target.branch_id version=target.version "
    "snapshot_id"
)
_STOPPED = 1
"""The exit code if the user is asked and says no."""


def _on_name(command: Command) -> Command:
    delete = click.option("--delete", is_flag=True, help="Delete NAME.")
    version = click.argument("version", required=False)
    return click.argument("name", required=False)(version(delete(command)))


@click.command()
@on_table
@_on_name
@click.option(
    "--retain",
    metavar="DURATION",
    help="Keep the tag for this long, such as 90d; forever if left out.",
)
@writes
def tag(
    target: Target, name: str | None, version: str | None, delete: bool, retain: str | None
) -> None:
    """List the tags, or create the tag NAME.

    A tag is a name for one snapshot: VERSION, or the head of the branch. It never moves, and it
    keeps the snapshot from expiring.

    \b
    Example:
      fuse-stream tag /lake/flights
      fuse-stream tag /lake/flights before-cleanup 12 --retain 90d
      fuse-stream tag /lake/flights --delete before-cleanup
    """  # noqa: D301 - click's mark for lines to keep
    _check_use(name, version, delete=delete)
    if retain is not None and (name is None or delete):
        raise click.UsageError("--retain is for a new tag: give its NAME")
    table = target.open()
    if name is None:
        _list_tags(target, table)
    elif delete:
        table.delete_tag(name)
        _tell_deleted(target, "tag", name)
    else:
        made = table.create_tag(name, version, retain)
        names = load_names(table)
        if target.json:
            target.show_json({"tag": _tag_document(made, names)}, branch=False)
            return
        target.output.note(f"tag {name} names {names.place(made.target)}")


@click.command()
@on_table
@_on_name
@click.option(
    "--yes", is_flag=True, help="Also delete commits that no other branch and no tag has."
)
@also_option
@forks_option
@click.option(
    "--after-batch",
    type=WholeNumber(min=0),
    metavar="N",
    help="Set the branches back to this batch of the application.",
)
@click.option("--app-id", metavar="APP", help="The application of that batch.")
@writes
def branch(
    target: Target,
    *,
    name: str | None,
    version: str | None,
    delete: bool,
    yes: bool,
    others: tuple[str, ...],
    checkpoints: tuple[tuple[str, str], ...],
    after_batch: int | None,
    app_id: str | None,
) -> int | None:
    """List the branches, or create the branch NAME.

    A new branch forks off VERSION, or off the head. If only this branch has certain commits,
    --delete asks first; without a terminal it needs --yes.

    With --also or --checkpoint, all tables get the branch, and the queries forks that write to the
    branches and read them.

    \b
    Example:
      fuse-stream branch /lake/flights
      fuse-stream branch /lake/flights fix 12
      fuse-stream branch /lake/flights --delete fix
      fuse-stream branch /lake/bronze fix --also /lake/silver \\
        --checkpoint /ckpt/ingest /ckpt/ingest-fix --checkpoint /ckpt/clean /ckpt/clean-fix
    """  # noqa: D301 - the same
    _check_use(name, version, delete=delete)
    if others or checkpoints or after_batch is not None or app_id is not None:
        if name is None or version is not None or delete:
            raise click.UsageError(
                "--also, --checkpoint, --after-batch and --app-id are for a new branch of the "
                "heads: give its NAME, and no VERSION"
            )
        goal = {"after_batch": after_batch, "app_id": app_id}
        _branch_all(target, [target.path, *others], name, dict(checkpoints), goal)
        return None
    if yes and not delete:
        raise click.UsageError("--yes is for --delete")
    table = target.open()
    if name is None:
        _list_branches(target, table)
    elif delete:
        return _delete_branch(target, table, name, yes=yes)
    else:
        ref = table.create_branch(name, version)
        made = Branch(ref=ref, head=table.metadata.load_head(ref.branch_id))
        names = load_names(table)
        if target.json:
            document = _branch_document(made, names, ref.created_us)
            target.show_json({"branch": document}, branch=False)
            return None
        target.output.note(f"branch {name} forks off {names.place(made.ref.forks[-1])}")
    return None


def _branch_all(
    target: Target, paths: list[str], name: str, checkpoints: dict[str, str], goal: dict[str, Any]
) -> None:
    with target.output.progress("looking") as meter:
        made = branch_several(
            paths, name, checkpoints=checkpoints, progress=meter.say, **goal, **target.keywords
        )
    ids = [ref.branch_id for ref in made.branches]
    if target.json:
        done = rewind_document(made.rewind, paths) if made.rewind else {}
        target.show_json({"name": name, "branch_ids": ids, **done})
        return
    if made.rewind is not None:
        target.output.show(f"on the branch {name}; {target.branch} is unchanged")
        target.output.show(*rewind_view(made.rewind, paths, target.output.width))
    target.output.note(
        f"branch {name} of {plural(len(paths), 'table')}: start the queries on their forks, with "
        f"branch={name!r} in the sinks and the sources"
    )


@click.command()
@on_table
@click.argument("new_path")
@version_option
@writes
def clone(target: Target, *, new_path: str, version: str | None) -> None:
    """Create a table in the folder NEW_PATH from one snapshot, without copying a block.

    The clone has the content and the ledger of that snapshot; later changes of one table are not
    in the other. Readers of the clone name the tables that hold its blocks: --origin PATH, or
    origins=[PATH] in Python. PATH keeps the blocks until unpin removes the pin. If the command is
    interrupted, run it again: it finishes the work.

    \b
    Example:
      fuse-stream clone /lake/flights /lake/trial --version 12
      fuse-stream log /lake/trial
      fuse-stream diff /lake/trial 1 2 --origin /lake/flights
    """  # noqa: D301 - click's mark for lines to keep
    made = make_clone(target.path, new_path, version=version, **target.keywords)
    if target.json:
        source, snapshot = json_value(made.source), json_value(made.snapshot)
        place = {**pick(made, "table_id location"), "origins": located(made.origins)}
        target.show_json({"clone": place, "source": source, "snapshot": snapshot})
        return
    facts: dict[str, str | Text] = {
        "clone": Text(printable(made.location), style="bold"),
        "id": made.table_id,
        "of": f"version {made.source.version}",
        "holds": plural(made.snapshot.summary.row_count, "row"),
        "origins": ", ".join(place for _, place in made.origins),
    }
    target.output.show(facts_view(facts))
    target.output.note(
        "to read the clone, allow these origins: --origin PLACE, or origins=[…] in Python"
    )


@click.command()
@on_table
@click.argument("clone_id", required=False)
@writes
def unpin(target: Target, *, clone_id: str | None) -> None:
    """List the clones for which PATH keeps blocks; with CLONE_ID, remove the clone's pin.

    If that clone still exists, the next vacuum of PATH deletes the blocks that only the clone
    needs.

    \b
    Example:
      fuse-stream unpin /lake/flights
      fuse-stream unpin /lake/flights 0f8fad5bd9cb469fa16570867728950e
    """  # noqa: D301 - the same
    table = target.open()
    if clone_id is not None:
        table.unpin(clone_id)
    pins = table.clones()
    if target.json:
        documents = [pick(pin, _PIN) for pin in pins]
        target.show_json({"clones": documents, "removed": clone_id}, branch=False)
    elif clone_id is not None:
        target.output.note(f"removed; {plural(len(pins), 'pin')} left")
    elif pins:
        rows = [
            (pin.table_id, str(pin.target.version), iso(pin.created_us), pin.location)
            for pin in pins
        ]
        headings = ("clone", ">version", "created (UTC)", "made at")
        target.output.show(Grid.of(*headings, rows=rows).whole(target.output.width))
    else:
        target.output.note("there are no clones of this table")


def is_asking_possible() -> bool:
    return sys.stdin.isatty()


def _check_use(name: str | None, version: str | None, *, delete: bool) -> None:
    if delete and name is None:
        raise click.UsageError("--delete needs the NAME to delete")
    if delete and version is not None:
        raise click.UsageError("--delete takes only a NAME: leave VERSION out")


def _list_tags(target: Target, table: Table) -> None:
    names = load_names(table)
    if target.json:
        documents = [_tag_document(one, names) for one in names.tags]
        target.show_json({"tags": documents}, branch=False)
    elif names.tags:
        target.output.show(_tags_view(names, target.output.width))
    else:
        target.output.note("there are no tags; fuse-stream tag PATH NAME makes one")


def _list_branches(target: Target, table: Table) -> None:
    names = load_names(table)
    created_us = {one.ref.name: one.ref.created_us for one in names.branches}
    created_us[names.branches[0].ref.name] = table.metadata.load_table_file().created_us  # main
    if target.json:
        documents = [
            _branch_document(one, names, created_us[one.ref.name]) for one in names.branches
        ]
        target.show_json({"branches": documents}, branch=False)
    else:
        target.output.show(_branches_view(names, created_us, target.output.width))


def _delete_branch(target: Target, table: Table, name: str, *, yes: bool) -> int | None:
    lost, published = _lost_with(table, name, yes=yes)
    if lost and not yes:
        commits = f"{plural(len(lost), 'commit')} of {name}"
        if target.json or not is_asking_possible():
            raise InvalidInputError(
                "this branch has commits that no other branch and no tag has; "
                + (
                    f"its content is published as {published}: when no query reads or writes the "
                    "branch, delete it with --yes"
                    if published
                    else "tag its head, or delete them with --yes"
                ),
                branch=name,
                commits=len(lost),
                newest=lost[-1],
            )
        content = f"; its content is published as {published}" if published else ""
        question = f"no other branch and no tag has {commits}{content}. Delete them?"
        if not click.confirm(question, err=True):
            target.output.note("nothing was deleted")
            return _STOPPED
    table.delete_branch(name)
    _tell_deleted(target, "branch", name, lost)
    return None


def _lost_with(table: Table, name: str, *, yes: bool) -> tuple[list[int] | None, str | None]:
    """Return the versions that only this branch has, and where its content is published.

    The versions are None if a damaged ref hides them.
    """
    try:
        names = load_names(table)
    except CorruptObjectError as error:
        if yes:
            return None, None
        raise InvalidInputError(
            "a ref of this table is damaged: which commits only this branch has is not known; "
            "run fuse-stream fsck first, or delete the branch with --yes",
            branch=name,
            damaged=error.context,
        ) from error
    named = next((one for one in names.branches if one.ref.name == name), None)
    if named is None or not named.ref.forks:
        return [], None
    lost = lost_versions(names, named)
    return lost, None if yes or not lost else find_published(table.metadata, names, named)


def _tell_deleted(target: Target, kind: str, name: str, lost: list[int] | None = None) -> None:
    if target.json:
        document = {"deleted": name, **({} if lost is None else {"lost_versions": lost})}
        target.show_json(document, branch=False)
    else:
        target.output.note(f"{kind} {name} is deleted")


def _tags_view(names: Names, width: int | None) -> RenderableType:
    rows = [
        (
            Text(tag.name, style="bold"),
            Text(str(tag.target.version), style=VERSION_STYLE),
            names.shown_name(tag.target.branch_id),
            short_id(tag.snapshot_id),
            iso(tag.created_us),
            "" if tag.expires_us is None else iso(tag.expires_us),
        )
        for tag in names.tags
    ]
    headings = ("tag", ">version", "branch", "id", "created (UTC)", "expires (UTC)")
    grid = Grid.of(*headings, rows=rows).without_empty()
    return grid.stacked(width, ("id", "created (UTC)"), ("branch", "version"), notes=facts_below)


def _branches_view(
    names: Names, created_us: Mapping[str, int], width: int | None
) -> RenderableType:
    """Return a line for each branch; `created_us` is by name."""
    rows = [
        (
            Text(branch.ref.name, style="bold"),
            Text(str(branch.head.snapshot.version), style=VERSION_STYLE),
            names.place(branch.ref.forks[-1]) if branch.ref.forks else "",
            count(branch.commit_count),
            iso(created_us[branch.ref.name]),
        )
        for branch in names.branches
    ]
    headings = ("branch", ">head", "forked off", ">commits", "created (UTC)")
    return Grid.of(*headings, rows=rows).without_empty().whole(width)


def _tag_document(tag: TagRef, names: Names) -> Json:
    place = place_document(tag.target, names)
    return {"name": tag.name, **place, **pick(tag, "snapshot_id created_us expires_us")}


def _branch_document(branch: Branch, names: Names, created_us: int) -> Json:
    head, forks = branch.head.snapshot, branch.ref.forks
    return {
        **pick(branch.ref, "name branch_id"),
        **pick(head, "version snapshot_id"),
        "forked_off": place_document(forks[-1], names) if forks else None,
        "commit_count": branch.commit_count,
        "created": iso(created_us, exact=True),
    }
