"""Invariants of every state: the promises of the design, checked on the store and the facts.

Facts outlive objects. A put that created a slot is a fact, and so is an answer to an actor or to
its caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import cast

from tests.protocol.model.lines import planned_in
from tests.protocol.model.records import GRACE, MAIN, Snapshot, slot
from tests.protocol.model.script import Fact
from tests.protocol.model.store import Key, Objects

Facts = frozenset[Fact]


def broken_promise(objects: Objects, facts: Facts, now: int) -> str | None:
    """Return a description of a broken promise; None if all hold."""
    return next(_broken(objects, facts, now), None)


def _broken(  # noqa: C901, PLR0912 - a case a promise
    objects: Objects, facts: Facts, now: int
) -> Iterator[str]:
    history = _history(facts)
    yield from _chain(history)
    heads: dict[str, Snapshot] = {}
    for (branch, _), first in history.items():
        if branch not in heads or first.version > heads[branch].version:
            heads[branch] = first
    for kind, *what in facts:
        match kind:
            case "acknowledged":
                branch, version, name = cast("tuple[str, int, str]", tuple(what))
                if history[branch, version].name != name:
                    yield f"{name} was told that it is version {version}, which is another's"
            case "replayed":
                batch, branch, version = cast("tuple[str, str, int]", tuple(what))
                if batch not in history[branch, version].ledger:
                    yield f"{batch} was told that it is in version {version}, which is another's"
            case "tag" | "branch":
                name, version = cast("tuple[str, int]", tuple(what))
                if (kind, name) in objects.by_key:
                    yield from _missing(objects, history, MAIN, version, f"{kind} {name}")
            case "lease":
                name, position = cast("tuple[str, int]", tuple(what))
                for version in range(position, heads[MAIN].version + 1):
                    yield from _missing(objects, history, MAIN, version, f"{kind} {name}")
            case "reading":
                branch, version, since = cast("tuple[str, int, int]", tuple(what))
                if now - since < GRACE:
                    yield from _missing_blocks(objects, history[branch, version], "a reader")
    for branch, head in heads.items():
        is_made = any(fact[:2] == ("branch", branch) for fact in facts)
        if branch != MAIN and not (is_made and ("branch", branch) in objects.by_key):
            continue  # deleted, or about to be undone
        raised = objects.value(("floor", branch))
        floor = head.floor if raised is None else cast("int", raised)
        for version in range(floor, head.version + 1):
            owner = branch if (branch, version) in history else MAIN
            yield from _missing(objects, history, owner, version, f"the retained part of {branch}")


def _chain(history: dict[tuple[str, int], Snapshot]) -> Iterator[str]:
    for (branch, version), snapshot in history.items():
        batches = Counter(batch for batch, _ in snapshot.blocks)
        if twice := [batch for batch, count in batches.items() if count > 1]:
            yield f"{twice[0]} is in {branch}@{version} twice"
        yield from _doubled_rows(snapshot)
        before = history.get((branch, version - 1))
        if before is None:
            continue
        if before.name != snapshot.parent:
            yield f"{branch}@{version} is built on {snapshot.parent}, not on {before.name}"
        if snapshot.floor < before.floor:
            yield f"the floor falls in {branch}@{version}"


def _doubled_rows(snapshot: Snapshot) -> Iterator[str]:
    """Yield the rows of a source that two batches of different copies of one query both hold."""
    batches = frozenset(batch for batch, _ in snapshot.blocks)
    rows = Counter(
        row for planned in planned_in(batches) for row in range(planned.first, planned.stop)
    )
    if twice := sorted(row for row, count in rows.items() if count > 1):
        yield f"the rows {twice} of the source are in {snapshot} twice"


def _missing(
    objects: Objects,
    history: dict[tuple[str, int], Snapshot],
    branch: str,
    version: int,
    who: str,
) -> Iterator[str]:
    wanted = history[branch, version]
    if objects.value(slot(branch, version)) is not wanted:
        yield f"{who} needs {branch}@{version}, which is gone"
    yield from _missing_blocks(objects, wanted, who)


def _missing_blocks(objects: Objects, wanted: Snapshot, who: str) -> Iterator[str]:
    for _, name in sorted(wanted.blocks):
        if ("block", name) not in objects.by_key:
            yield f"{who} needs the block {name} of {wanted.branch}@{wanted.version}, which is gone"


def with_published(facts: Facts, key: Key, value: object) -> Facts:
    """Record what was first put into a slot; a later put into a freed slot is not history."""
    if key[0] != "slot" or any(fact[:2] == ("published", key) for fact in facts):
        return facts
    return facts | {("published", key, cast("Snapshot", value))}


def _history(facts: Facts) -> dict[tuple[str, int], Snapshot]:
    found = (cast("Snapshot", fact[2]) for fact in facts if fact[0] == "published")
    return {
        (snapshot.branch, snapshot.version): snapshot
        for snapshot in sorted(found, key=lambda each: (each.branch, each.version))
    }
