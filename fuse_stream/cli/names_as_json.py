"""What names and the graph print with `--json`, by the rules of `as_json`. Pure."""

from __future__ import annotations

from fuse_stream.cli.as_json import Json, log_entry
from fuse_stream.cli.graph_history import Graph
from fuse_stream.cli.names import Branch, Names
from fuse_stream.cli.text import iso
from fuse_stream.format.records import Parent
from fuse_stream.format.refs import TagRef


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
