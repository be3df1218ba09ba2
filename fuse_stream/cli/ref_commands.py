"""`tag` and `branch`: names for snapshots, listed, made and deleted, in the manner of Git."""

from __future__ import annotations

import sys

import click

from fuse_stream.cli.names import Branch, load_names, lost_versions
from fuse_stream.cli.names_as_json import branch_document, tag_document
from fuse_stream.cli.options import Command, Target, on_table, writes
from fuse_stream.cli.render_names import branches_view, tags_view
from fuse_stream.cli.text import plural
from fuse_stream.errors import InvalidInputError
from fuse_stream.table import Table

_STOPPED = 1
"""The exit code where somebody was asked and said no."""


def _on_name(command: Command) -> Command:
    """Add `NAME`, `VERSION` and `--delete`."""
    delete = click.option("--delete", is_flag=True, help="Delete NAME.")
    version = click.argument("version", required=False)
    return click.argument("name", required=False)(version(delete(command)))


@click.command()
@on_table
@_on_name
@click.option(
    "--retain", metavar="DURATION", help="Keep it for so long, such as 90d; for ever if left out."
)
@writes
def tag(
    target: Target, name: str | None, version: str | None, delete: bool, retain: str | None
) -> None:
    """List the tags, or make NAME.

    A tag is a name for one snapshot that never moves, and that keeps it from expiring. It names
    VERSION, or the head of the branch.

    \b
    Example:
      fuse-stream tag /lake/flights
      fuse-stream tag /lake/flights before-cleanup 12 --retain 90d
      fuse-stream tag /lake/flights --delete before-cleanup

    With --json: path, and tags (name, version, branch, branch_id, snapshot_id, created, expires);
    for one that is made: tag (the same); for one that is deleted: deleted (its name).
    """  # noqa: D301 - click's mark for lines to keep
    _check_use(name, version, delete=delete)
    if retain is not None and (name is None or delete):
        raise click.UsageError("--retain is for a tag that is made: give its NAME")
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
            target.output.show_json({"path": target.path, "tag": tag_document(made, names)})
            return
        place = f"{names.shown_name(made.target.branch_id)}@{made.target.version}"
        target.output.note(f"tag {name} names {place}")


@click.command()
@on_table
@_on_name
@click.option("--yes", is_flag=True, help="Delete even commits that stand nowhere else.")
@writes
def branch(
    target: Target, name: str | None, version: str | None, delete: bool, yes: bool
) -> int | None:
    """List the branches, or make NAME.

    A new branch forks off VERSION, or off the head. Deleting one that has commits which no other
    branch and no tag holds asks first, and needs --yes where nobody can be asked.

    \b
    Example:
      fuse-stream branch /lake/flights
      fuse-stream branch /lake/flights fix 12
      fuse-stream branch /lake/flights --delete fix

    With --json: path, and branches (name, branch_id, version, snapshot_id of the head, forked_off:
    version, branch, branch_id; commit_count, created); for one that is made: branch (the same); for
    one that is deleted: deleted (its name), lost_versions.
    """  # noqa: D301 - the same
    _check_use(name, version, delete=delete)
    if yes and not delete:
        raise click.UsageError("--yes is for --delete")
    table = target.open()
    if name is None:
        _list_branches(target, table)
    elif delete:
        return _delete_branch(target, table, name, yes=yes)
    else:
        ref = table.create_branch(name, version)
        made = Branch(ref=ref, head=table.metadata.find_head(ref.branch_id))
        names = load_names(table)
        if target.json:
            document = branch_document(made, names, made.ref.created_us)
            target.output.show_json({"path": target.path, "branch": document})
            return None
        fork = made.ref.forks[-1]
        place = f"{names.shown_name(fork.branch_id)}@{fork.version}"
        target.output.note(f"branch {name} forks off {place}")
    return None


def is_asking_possible() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty()


def _check_use(name: str | None, version: str | None, *, delete: bool) -> None:
    if delete and name is None:
        raise click.UsageError("--delete needs the NAME to delete")
    if delete and version is not None:
        raise click.UsageError("--delete takes a NAME alone")


def _list_tags(target: Target, table: Table) -> None:
    names = load_names(table)
    if target.json:
        documents = [tag_document(one, names) for one in names.tags]
        target.output.show_json({"path": target.path, "tags": documents})
    elif names.tags:
        target.output.show(tags_view(names))
    else:
        target.output.note("there are no tags; fuse-stream tag PATH NAME makes one")


def _list_branches(target: Target, table: Table) -> None:
    names = load_names(table)
    created_us = {one.ref.name: one.ref.created_us for one in names.branches}
    created_us[names.branches[0].ref.name] = table.metadata.load_table_file().created_us  # main
    if target.json:
        documents = [
            branch_document(one, names, created_us[one.ref.name]) for one in names.branches
        ]
        target.output.show_json({"path": target.path, "branches": documents})
    else:
        target.output.show(branches_view(names, created_us))


def _delete_branch(target: Target, table: Table, name: str, *, yes: bool) -> int | None:
    names = load_names(table)
    named = next((one for one in names.branches if one.ref.name == name), None)
    lost = lost_versions(names, named) if named and named.ref.forks else []
    if lost and not yes:
        commits = f"{plural(len(lost), 'commit')} of {name}"
        if target.json or not is_asking_possible():
            raise InvalidInputError(
                "this branch has commits that no other branch and no tag holds; tag its head, or "
                "delete them with --yes",
                branch=name,
                commits=len(lost),
                newest=lost[-1],
            )
        question = f"{commits} stand on no other branch and no tag. Delete them?"
        if not click.confirm(question, err=True):
            target.output.note("nothing was deleted")
            return _STOPPED
    table.delete_branch(name)
    _tell_deleted(target, "branch", name, lost)
    return None


def _tell_deleted(target: Target, kind: str, name: str, lost: list[int] | None = None) -> None:
    if target.json:
        document: dict[str, object] = {"path": target.path, "deleted": name}
        target.output.show_json(document if lost is None else {**document, "lost_versions": lost})
    else:
        target.output.note(f"{kind} {name} is deleted")
