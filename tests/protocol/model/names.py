"""Actors that name, read or publish snapshots: tags, branches, leases, readers, publishes."""

from __future__ import annotations

from tests.protocol.model.commits import Head, find_head, floor_of, is_made, next_of, put_slot
from tests.protocol.model.records import MAIN, Rules, Snapshot
from tests.protocol.model.script import Again, Note, Steps
from tests.protocol.model.store import Delete, Get, Put, PutIfAbsent


def tagger(rules: Rules, kind: str, name: str, version: int) -> Steps:
    """Name a version of main by a tag or a lease, and check that it is not below the floor."""
    head = yield from find_head(rules)
    if head is None or version < (yield from floor_of(rules, head.snapshot)):
        return None
    yield Put((kind, name), (MAIN, version))
    if rules.look_again_after_ref:
        head = yield from find_head(rules, MAIN, head)
        if head is None or version < (yield from floor_of(rules, head.snapshot)):
            yield Delete((kind, name))
            return None
    yield Note((kind, name, version))
    return None


def brancher(rules: Rules, name: str, version: int) -> Steps:
    """Fork a branch from main; it keeps the versions before it that main keeps."""
    head = yield from find_head(rules)
    if head is None or version < head.snapshot.floor:
        return None
    floor = head.snapshot.floor if rules.floor_in_branch else 0
    yield PutIfAbsent(("branch", name), (MAIN, version, floor))
    if rules.look_again_after_ref:
        head = yield from find_head(rules, MAIN, head)
        most = floor if rules.floor_in_branch else version
        if head is None or most < head.snapshot.floor:
            yield Delete(("branch", name))
            return None
    yield Put(("made", name), "by its maker")
    yield Note(("branch", name, version))
    return None


def deleter(rules: Rules, name: str) -> Steps:
    """Delete a branch."""
    del rules
    yield Delete(("branch", name))
    return None


def reader(rules: Rules) -> Steps:
    """Read the head, and what it needs within the grace."""
    head = yield from find_head(rules)
    if head is not None:
        yield Note(("reading", head.snapshot.branch, head.snapshot.version, head.read))
    return None


def publisher(
    rules: Rules,
    source: str,
    name: str,
    known: Head | None = None,
    taken: Snapshot | None = None,
) -> Steps:
    """Commit the content and the ledger of another branch's head to main."""
    head = yield from find_head(rules, MAIN, known)
    if head is None:
        return None
    if taken is None or rules.source_of_very_head:
        if (yield Get(("branch", source))) is None or not (yield from is_made(rules, source)):
            return None
        found = yield from find_head(rules, source)
        if found is None:
            return None
        taken = found.snapshot
        if taken.branch == MAIN:
            return None  # main has all of it
    candidate = next_of(
        MAIN, head.snapshot, name, "publish", blocks=taken.blocks, ledger=taken.ledger
    )
    if (yield from put_slot(rules, head, candidate)):
        yield Note(("acknowledged", MAIN, candidate.version, name))
        return None
    return Again(publisher, (rules, source, name), (("known", head), ("taken", taken)))
