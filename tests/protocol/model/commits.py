"""Finding the head and committing to it, by the rules of `fuse_stream.commit.committer`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import cast

from tests.protocol.model.records import (
    BELIEVED,
    LOST,
    MAIN,
    Rules,
    Snapshot,
    marker,
    replaced,
    slot,
)
from tests.protocol.model.script import Again, Note, Steps
from tests.protocol.model.store import Call, Get, Put, PutIfAbsent, Timed

Part = Generator[Call | Note, object, object]


@dataclass(frozen=True, slots=True)
class Head:
    """A head, and the caller's time at which it was still the head."""

    snapshot: Snapshot
    read: int


@dataclass(frozen=True, slots=True)
class Staged:
    """Objects that are in the store, and the epoch before the first of them was put."""

    number: int
    epoch: int


def find_head(
    rules: Rules, branch: str = MAIN, known: Head | None = None
) -> Generator[Call | Note, object, Head | None]:
    """Search forward from the known head, one by one; or from the hint, two at a time.

    Histories here are short. A search from the hint asks for the further slot first: so its answers
    may come in any order, as those of calls that are made together.
    """
    read, floor = None, 0
    if known is not None:
        return (yield from _follow(rules, branch, known))
    if branch != MAIN:
        ref, read = cast(
            "tuple[tuple[str, int, int] | None, int]", (yield Timed(Get(("branch", branch))))
        )
        if ref is None:
            return None
        low, found = ref[1], None
        floor = ref[2]
    else:
        hint, read = cast("tuple[int | None, int]", (yield Timed(Get(("hint", branch)))))
        low, found = hint or 0, None
    while True:
        is_taken, further = yield from _look_ahead(rules, branch, low + 2)
        if not is_taken:
            break
        low, found = low + 2, further
    # Version low + 2 was not taken when it was asked for, so its chunk had not expired then. If it
    # has by now, more than a grace is over, and nobody trusts a head for so long.
    between, _ = yield from _look(branch, low + 1)
    is_asked = marker(branch, low + 1) == marker(branch, low + 2) or not rules.marker_before_end
    if between is not None:
        low, found = low + 1, between
    elif not is_asked and (yield Get(marker(branch, low + 1))) is not None:
        low, found = low + 1, None
    if found is None:  # of main, or the fork point of the branch
        found = cast("Snapshot | None", (yield Get(slot(MAIN, low))))
        if found is not None and branch != MAIN:
            found = replaced(found, floor=max(found.floor, floor))
    return None if found is None else Head(found, read)


def _follow(rules: Rules, branch: str, known: Head) -> Generator[Call | Note, object, Head | None]:
    """Return the head, from one that was the head at a known time.

    No later version was there then, so none can have expired until a grace is over.
    """
    read, low, found = None, known.snapshot.version, cast("Snapshot | None", known.snapshot)
    while True:
        reply, now = yield from _look(branch, low + 1)
        read = now if read is None else read
        if reply is None:
            is_late = rules.marker_when_late and now - known.read > BELIEVED
            asks = rules.marker_before_end and is_late
            if not asks or (yield Get(marker(branch, low + 1))) is None:
                break
        low, found = low + 1, reply
    if found is None:
        found = cast("Snapshot | None", (yield Get(slot(branch, low))))
    return None if found is None else Head(found, read)


def _look_ahead(
    rules: Rules, branch: str, version: int
) -> Generator[Call | Note, object, tuple[bool, Snapshot | None]]:
    """Return whether a version is taken, and what its slot holds."""
    is_expired = False
    if rules.marker_before_end and not rules.marker_after_slot:
        is_expired = (yield Get(marker(branch, version))) is not None
    found, _ = yield from _look(branch, version)
    if found is None and rules.marker_before_end and rules.marker_after_slot:
        is_expired = (yield Get(marker(branch, version))) is not None
    return found is not None or is_expired, found


def _look(branch: str, version: int) -> Generator[Call | Note, object, tuple[Snapshot | None, int]]:
    """Return what a slot holds, and the time."""
    reply = yield Timed(Get(slot(branch, version)))
    return cast("tuple[Snapshot | None, int]", reply)


def put_slot(
    rules: Rules, head: Head, candidate: Snapshot
) -> Generator[Call | Note, object, bool | None]:
    """True if the candidate is the version now; None if that cannot be known."""
    key = slot(candidate.branch, candidate.version)
    while True:
        reply, now = cast("tuple[object, int]", (yield Timed(PutIfAbsent(key, candidate))))
        is_mine = reply is True
        standing: object = candidate if is_mine else None
        if reply == LOST:
            standing, now = cast("tuple[object, int]", (yield Timed(Get(key))))
            is_mine = standing is candidate
        elif reply is False:
            standing = "another's"
        is_doubtful = standing is None or now - head.read > BELIEVED
        asks = rules.marker_before_belief and is_doubtful and (is_mine or standing is None)
        if asks and (yield Get(marker(candidate.branch, candidate.version))) is not None:
            return None
        if is_mine:
            return True
        if standing is not None:
            return False


def next_of(branch: str, head: Snapshot, name: str, operation: str, **changes: object) -> Snapshot:
    return replaced(
        head,
        branch=branch,
        version=head.version + 1,
        name=name,
        parent=head.name,
        operation=operation,
        **changes,
    )


def writer(
    rules: Rules,
    batches: tuple[str, ...],
    *,
    branch: str = MAIN,
    known: Head | None = None,
    staged: Staged | None = None,
) -> Steps:
    """Deliver batches, each under its own name in the ledger; repeat each until it is committed.

    One whose name starts with "plain" has no ledger entry: nothing shows if it is committed. One
    whose name starts with "over" replaces all rows.
    """
    batch = batches[0]
    if known is None and not (yield from is_made(rules, branch)):
        return None
    head = yield from find_head(rules, branch, known)
    if head is None:
        return None  # an error to its caller
    rest = _after(writer, rules, batches, branch)
    if batch in head.snapshot.ledger:
        yield Note(("replayed", batch, branch, head.snapshot.version))
        return rest
    is_gone = staged is not None and head.snapshot.epoch - staged.epoch >= 2
    if staged is None or (is_gone and rules.put_again_after_epochs):
        staged = Staged(0 if staged is None else staged.number + 1, head.snapshot.epoch)
        name = f"{batch}'{staged.number}"
        yield Put(("block", name), batch)
    block = (batch, f"{batch}'{staged.number}")
    is_overwrite = batch.startswith("over")
    candidate = next_of(
        branch,
        head.snapshot,
        batch,
        "overwrite" if is_overwrite else "append",
        blocks=frozenset({block}) if is_overwrite else head.snapshot.blocks | {block},
        ledger=head.snapshot.ledger
        if batch.startswith("plain")
        else head.snapshot.ledger | {batch},
    )
    outcome = yield from put_slot(rules, head, candidate)
    if outcome:
        yield Note(("acknowledged", branch, candidate.version, batch))
        return rest
    if outcome is None and batch.startswith("plain"):
        if rules.unknown_without_ledger:
            return None  # CommitStateUnknownError: a person reads the log
        staged = Staged(staged.number, -2)  # compaction may have rewritten the first ones
    return _again(writer, rules, batches, branch=branch, known=head, staged=staged)


def early_writer(rules: Rules, batch: str, known: Head) -> Steps:
    """A writer whose tasks put its blocks before the driver looks for the head to build on."""
    if rules.base_before_objects:
        return _again(writer, rules, (batch,), known=known)
    yield Put(("block", f"{batch}'0"), batch)
    head = yield from find_head(rules, MAIN, known)
    if head is None:
        return None
    return _again(writer, rules, (batch,), known=head, staged=Staged(0, head.snapshot.epoch))


def rewinder(
    rules: Rules, target: Snapshot, name: str, *, known: Head | None = None, tag: str = ""
) -> Steps:
    """Commit the content and the ledger of an old snapshot, which must not be below the floor."""
    head = yield from find_head(rules, MAIN, known)
    if head is None:
        return None
    if known is None or rules.floor_of_very_head:
        is_held = target.version >= (yield from floor_of(rules, head.snapshot))
        if not is_held and tag and not rules.floor_over_tags:
            is_held = (yield Get(("tag", tag))) is not None and (
                yield Get(slot(MAIN, target.version))
            ) is not None
        if not is_held:
            return None
    candidate = next_of(
        MAIN, head.snapshot, name, "rewind", blocks=target.blocks, ledger=target.ledger
    )
    if (yield from put_slot(rules, head, candidate)):
        yield Note(("acknowledged", MAIN, candidate.version, name))
        return None
    return _again(rewinder, rules, target, name, known=head, tag=tag)


def is_made(rules: Rules, branch: str) -> Generator[Call | Note, object, bool]:
    """True if the creator of a branch has found that it exists."""
    if branch == MAIN or not rules.made_branch:
        return True
    return (yield Get(("made", branch))) is not None


def floor_of(rules: Rules, head: Snapshot) -> Generator[Call | Note, object, int]:
    if rules.floor_in_snapshot:
        return head.floor
    return cast("int", (yield Get(("floor", head.branch))) or 0)


def _after(
    act: Callable[..., Steps], rules: Rules, batches: tuple[str, ...], branch: str
) -> Again | None:
    return _again(act, rules, batches[1:], branch=branch) if len(batches) > 1 else None


def _again(act: Callable[..., Steps], *args: object, **named: object) -> Again:
    return Again(act, args, tuple(sorted(named.items())))
