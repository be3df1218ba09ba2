"""`tag` and `branch`: names for snapshots, listed, made and deleted, in the manner of Git.

How branches, tags and the graph look: records -> renderables. Pure.

What names and the graph print with `--json`, by the rules of `as_json`. Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, log_entry
from fuse_stream.cli.graph import Line, draw
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.history import Graph
from fuse_stream.cli.names import Branch, Names, load_names, lost_versions
from fuse_stream.cli.options import (
    Command,
    Target,
    on_table,
    writes,
)
from fuse_stream.cli.render import (
    QUIET,
    VERSION_STYLE,
    LogLine,
    change_text,
    full_operation_text,
    labels_text,
)
from fuse_stream.cli.text import (
    count,
    first_line,
    iso,
    plural,
    printable,
    short_id,
)
from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.records import Parent
from fuse_stream.format.refs import TagRef
from fuse_stream.table.handle import Table

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
    lost = _lost_with(table, name, yes=yes)
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


def _lost_with(table: Table, name: str, *, yes: bool) -> list[int] | None:
    """Return the versions that only this branch holds; None where damaged names hide it."""
    try:
        names = load_names(table)
    except CorruptObjectError as error:
        if yes:
            return None
        raise InvalidInputError(
            "a name of this table is damaged, so whether this branch alone holds commits cannot "
            "be told; delete it with --yes, or see what fuse-stream fsck says first",
            branch=name,
            damaged=error.context,
        ) from error
    named = next((one for one in names.branches if one.ref.name == name), None)
    return lost_versions(names, named) if named and named.ref.forks else []


def _tell_deleted(target: Target, kind: str, name: str, lost: list[int] | None = None) -> None:
    if target.json:
        document: dict[str, object] = {"path": target.path, "deleted": name}
        target.output.show_json(document if lost is None else {**document, "lost_versions": lost})
    else:
        target.output.note(f"{kind} {name} is deleted")


_LANE_STYLE = "cyan"


def tags_view(names: Names) -> RenderableType:
    """Return one line a tag."""
    headings = (
        Heading(text="tag"),
        Heading(text="version", right=True),
        Heading(text="branch"),
        Heading(text="id"),
        Heading(text="created (UTC)"),
        Heading(text="expires (UTC)"),
    )
    rows = [
        [
            Text(tag.name, style="bold"),
            Text(str(tag.target.version), style=VERSION_STYLE),
            Text(names.shown_name(tag.target.branch_id)),
            Text(short_id(tag.snapshot_id)),
            Text(iso(tag.created_us)),
            Text("" if tag.expires_us is None else iso(tag.expires_us)),
        ]
        for tag in names.tags
    ]
    return Grid(headings=headings, rows=rows).without_empty().table()


def branches_view(names: Names, created_us: Mapping[str, int]) -> RenderableType:
    """Return one line a branch; `created_us` by name."""
    headings = (
        Heading(text="branch"),
        Heading(text="head", right=True),
        Heading(text="forked off"),
        Heading(text="commits", right=True),
        Heading(text="created (UTC)"),
    )
    rows = [
        [
            Text(branch.ref.name, style="bold"),
            Text(str(branch.head.snapshot.version), style=VERSION_STYLE),
            Text(_fork(branch, names)),
            Text(count(branch.commit_count)),
            Text(iso(created_us[branch.ref.name])),
        ]
        for branch in names.branches
    ]
    return Grid(headings=headings, rows=rows).without_empty().table()


def graph_view(
    graph: Graph, names: Names, *, seen_from: str, ascii_only: bool = False
) -> RenderableType:
    """Return the lanes, and beside each snapshot what it is.

    Args:
        graph: what to show.
        names: of branches and tags.
        seen_from: the id of the branch on which a number alone means a version.
        ascii_only: keep to ASCII.
    """
    headings = (
        Heading(text=""),
        Heading(text="version"),
        Heading(text="time (UTC)"),
        Heading(text="operation"),
        Heading(text="change", right=True),
        Heading(text="names and message"),
    )
    rows = []
    for line in draw(graph.steps, ascii_only=ascii_only):
        cells = [Text(line.lanes, style=_LANE_STYLE)]
        if line.step is None:
            cells += [Text(_remark(line), style=QUIET), *(Text("") for _ in headings[2:])]
        else:
            cells += _cells(graph.lines[line.step], names, seen_from)
        rows.append(cells)
    lines = Grid(headings=headings, rows=rows).lines()
    for text in lines:
        text.rstrip()
    return Group(*lines)


def _cells(line: LogLine, names: Names, seen_from: str) -> list[Text]:
    snapshot, change = line
    said = Text(" - ").join(
        Text(text) for text in (first_line(snapshot.message), printable(snapshot.author)) if text
    )
    parts = [text for text in (labels_text(snapshot, names), said) if text]
    return [
        Text(names.spell(snapshot, seen_from=seen_from), style=VERSION_STYLE),
        Text(iso(snapshot.timestamp_us)),
        full_operation_text(snapshot, names),
        change_text(change),
        Text(" ").join(parts),
    ]


def _remark(line: Line) -> str:
    return "expired" if line.has_expired else ""


def _fork(branch: Branch, names: Names) -> str:
    if not branch.ref.forks:
        return ""
    fork = branch.ref.forks[-1]
    return f"{names.shown_name(fork.branch_id)}@{fork.version}"


def tag_document(tag: TagRef, names: Names) -> Json:
    """Return a tag.

    Keys: `name version branch` (null if that was deleted) `branch_id snapshot_id created expires`
    (null for never).
    """
    return {
        "name": tag.name,
        **_place(tag.target, names),
        "snapshot_id": tag.snapshot_id,
        "created": iso(tag.created_us, exact=True),
        "expires": None if tag.expires_us is None else iso(tag.expires_us, exact=True),
    }


def branch_document(branch: Branch, names: Names, created_us: int) -> Json:
    """Return a branch.

    Keys: `name branch_id version snapshot_id` (its head's) `forked_off` (null, or `version branch
    branch_id`) `commit_count` (its own) `created`.
    """
    head, forks = branch.head.snapshot, branch.ref.forks
    return {
        "name": branch.ref.name,
        "branch_id": branch.ref.branch_id,
        "version": head.version,
        "snapshot_id": head.snapshot_id,
        "forked_off": _place(forks[-1], names) if forks else None,
        "commit_count": branch.commit_count,
        "created": iso(created_us, exact=True),
    }


def graph_documents(graph: Graph, names: Names) -> list[Json]:
    """Return the snapshots of a graph.

    Keys: those of the log, and `branch` (null if that was deleted) `branch_id parents` (each
    `version branch branch_id`: what it was built on; for a publish of another branch also what it
    took) `lane` (the column, from 0).
    """
    documents = []
    for (snapshot, change), step in zip(graph.lines, graph.steps, strict=True):
        parents = [snapshot.parent, names.published_from(snapshot)]
        documents.append(
            {
                **log_entry(snapshot, change, names),
                "branch": names.find_name(snapshot.branch_id),
                "branch_id": snapshot.branch_id,
                "parents": [_place(parent, names) for parent in parents if parent],
                "lane": step.lane,
            }
        )
    return documents


def _place(at: Parent, names: Names) -> Json:
    return {
        "version": at.version,
        "branch": names.find_name(at.branch_id),
        "branch_id": at.branch_id,
    }
