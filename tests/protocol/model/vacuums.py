"""Expire and vacuum: the fence, refs and leases, marks, markers, slots, objects."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import cast

from tests.protocol.model.commits import Head, find_head, floor_of, next_of, put_slot
from tests.protocol.model.records import (
    AGE,
    CHUNK,
    GRACE,
    MAIN,
    NEVER,
    Rules,
    Snapshot,
    marker,
    slot,
)
from tests.protocol.model.script import Note, Steps
from tests.protocol.model.store import Call, Delete, Key, List, Put, PutIfAbsent, Timed

Listed = tuple[tuple[Key, object, int], ...]
REFS = ("branch", "tag", "lease")


def expirer(rules: Rules, name: str, known: Head | None = None) -> Steps:
    """Raise the floor of main as far as the grace allows."""
    yield from fence(rules, name, MAIN, known=known)
    return None


def vacuum(rules: Rules, name: str, known: Head | None = None) -> Steps:
    """Fence all branches, and delete what nothing reaches."""
    early = () if rules.fence_before_refs else cast("Listed", (yield List(REFS)))
    heads: dict[str, Snapshot] = {}
    while True:
        refs = cast("Listed", (yield List(REFS)))
        branches = [MAIN, *(str(key[1]) for key, _, _ in refs if key[0] == "branch")]
        new = [branch for branch in branches if branch not in heads]
        if not new or (heads and not rules.fence_every_branch):
            break
        for branch in new:
            known = known if branch == MAIN else None
            if (
                head := (yield from fence(rules, f"{name} {branch}", branch, known=known))
            ) is not None:
                heads[branch] = head
    fenced = {branch: heads[branch] for branch in branches if branch in heads}
    last = dict(fenced)
    for branch, head in fenced.items():
        if rules.fence_after_refs:
            again = yield from fence(rules, f"{name} {branch} again", branch, fenced=head)
        else:
            newest = yield from find_head(rules, branch, Head(head, NEVER))
            again = None if newest is None else newest.snapshot
        assert again is not None
        last[branch] = again
    bounds = fenced if rules.bounds_before_refs else last
    yield from _sweep(rules, bounds, last, refs if rules.fence_before_refs else early)
    return None


def fence(
    rules: Rules,
    name: str,
    branch: str,
    *,
    known: Head | None = None,
    fenced: Snapshot | None = None,
) -> Generator[Call | Note, object, Snapshot | None]:
    """Commit an expire and return it; it raises nothing if the branch was fenced before."""
    known = known if fenced is None else Head(fenced, NEVER)
    while True:
        head = yield from find_head(rules, branch, known)
        if head is None:
            return None
        if fenced is None or not rules.bounds_before_refs:
            listed, now = cast("tuple[Listed, int]", (yield Timed(List(("slot",)))))
            candidate = expired(rules, branch, head.snapshot, name, listed, now)
        else:
            candidate = next_of(branch, head.snapshot, name, "expire")
        outcome = yield from put_slot(rules, head, candidate)
        if outcome:
            if not rules.floor_in_snapshot:
                yield Put(("floor", branch), candidate.floor)
            yield Note(("acknowledged", branch, candidate.version, name))
            return candidate
        known = head


def expired(  # noqa: PLR0917 - a pure function of all that was read
    rules: Rules, branch: str, head: Snapshot, name: str, listed: Listed, now: int
) -> Snapshot:
    """Decide floor and epoch from the times of the slots."""
    created = {key: time for key, _, time in listed}
    floor = head.floor
    for version in range(head.floor + 1, head.version + 1):
        aged_from = version if rules.age_from_successor else version - 1
        born = created.get(slot(branch, aged_from), created.get(slot(MAIN, aged_from)))
        if born is None or now - born < GRACE:
            break
        floor = version
    since = head.since
    if since is None:
        since = created.get(slot(branch, head.raised_at), created.get(slot(MAIN, head.raised_at)))
    must_raise = since is not None and (now - since >= AGE or not rules.epochs_apart)
    changes: dict[str, object] = {"floor": floor, "since": since}
    if must_raise:
        changes |= {
            "epoch": head.epoch + 1,
            "raised_at": head.version + 1,
            "since": None,
            "since_previous": since,
        }
    return next_of(branch, head, name, "expire", **changes)


def _sweep(  # noqa: C901 - one step after the other
    rules: Rules, bounds: dict[str, Snapshot], heads: dict[str, Snapshot], refs: Listed
) -> Generator[Call | Note, object, None]:
    listed, now = cast("tuple[Listed, int]", (yield Timed(List(("slot",)))))
    slots = {key: cast("Snapshot", value) for key, value, _ in listed}
    floors: dict[str, int] = {}
    for branch, bound in bounds.items():
        floors[branch] = yield from floor_of(rules, bound)
    kept = set(_kept(rules, heads, floors, slots, refs))
    blocks = {name for key in kept if key in slots for _, name in slots[key].blocks}
    for branch, floor in floors.items():
        for chunk in range(floor // CHUNK):
            first = chunk * CHUNK
            if rules.marker_before_freeing:
                yield PutIfAbsent(marker(branch, first), "expired")
            for version in range(first, first + CHUNK):
                key = slot(branch, version)
                if key in slots and key not in kept:
                    yield Delete(key)
    before = min(bound.since_previous for bound in bounds.values())
    if not rules.age_from_epochs:
        before = now - AGE
    for key, _, created in listed:  # of deleted branches
        if (
            key[1] not in heads
            and key not in kept
            and (created < before or not rules.orphans_by_age)
        ):
            yield Delete(key)
    for key, _, created in cast("Listed", (yield List(("block",)))):
        if key[1] not in blocks and created < before:
            yield Delete(key)


def _kept(
    rules: Rules,
    heads: dict[str, Snapshot],
    floors: dict[str, int],
    slots: dict[Key, Snapshot],
    refs: Listed,
) -> Iterable[Key]:
    """Yield the slots of the retained versions."""
    for branch, head in heads.items():
        for version in range(floors[branch], head.version + 1):
            own = slot(branch, version)
            yield own if own in slots else slot(MAIN, version)
    for key, value, _ in refs:
        branch, version = cast("tuple[str, int]", cast("tuple[object, ...]", value)[:2])
        yield slot(branch, version)
        if key[0] == "lease" and rules.marks_from_lease:
            yield from (slot(branch, later) for later in range(version, heads[branch].version + 1))
