"""One order of events of the real code, drawn from a seed, and the checks after it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from fuse_stream.format.layout import BLOCKS_PREFIX, SEGMENTS_PREFIX, slot_of
from tests.kit.interleave import run_interleaved
from tests.protocol.actors import Actor, everybody
from tests.protocol.witness import Witness
from tests.protocol.worlds import AGE_S, LEASE_S, World, small_chunks
from tests.recovery.histories import keys as keys_of

ROUNDS = 2
PATIENCE = 25
"""Maximum number of consecutive calls of one actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The result of one order of events."""

    losses: tuple[str, ...]
    trace: tuple[str, ...]
    """Every storage call, in order."""
    done: Counter[str]
    """Number of operations without an error, by actor."""
    faults: int
    """Number of processes that got a fault of the store."""
    deletions: int
    """Number of blocks deleted while all actors ran."""


def run_course(seed: int) -> Course:
    """Run all actors on a table for some rounds; check it after each, and after a pause."""
    chance = random.Random(seed)
    with small_chunks():
        world = World()
        world.table.cluster_by(["k"])
        world.table.set_properties(
            {"fuse.block.rows": "8", "fuse.consumer.lease": f"{LEASE_S}s"}, on_conflict="replan"
        )
        witness = Witness(world, chance)
        done: Counter[str] = Counter()
        faults = 0
        for number in range(ROUNDS):
            if not witness.losses:
                cast = everybody(witness, seed * ROUNDS + number)
                _run_round(witness, chance, cast)
                for actor in cast:
                    done[type(actor).__name__] += actor.done
                    faults += actor.faults
                witness.finish()
                _check_all(witness)
        deletions = witness.deletions
        if not witness.losses:
            before = frozenset(world.store.objects)
            _rest(witness)
            _check_all(witness)
            _check_no_garbage(witness, before)
    return Course(
        losses=tuple(witness.losses),
        trace=tuple(witness.trace),
        done=done,
        faults=faults,
        deletions=deletions,
    )


def _run_round(witness: Witness, chance: random.Random, cast: list[Actor]) -> None:
    schedule: list[int] = []
    for _ in range(8):
        # An actor that is not among these sleeps at some call while the others run.
        awake = chance.sample(range(len(cast)), chance.randint(4, len(cast)))
        for _ in range(80):
            schedule += [chance.choice(awake)] * chance.choice((1, 1, 3, 10, PATIENCE))
    witness.jumpiness = chance.choice((0.005, 0.02, 0.05))
    for outcome in run_interleaved(witness, cast, schedule):
        if isinstance(outcome, BaseException):
            witness.lose(f"an actor failed: {outcome!r}")
    witness.jumpiness = 0.0


def _check_all(witness: Witness) -> None:
    """Read all retained versions, as a user does."""
    world = witness.world
    for name, branch in witness.branches.items():
        table = world.opened(name)
        versions = []
        for snapshot in table.log():
            versions.append(snapshot.version)
            _check_rows(witness, name, snapshot.version, table, snapshot.version)
        expected = range(witness.floor(branch), witness.head(branch).snapshot.version + 1)
        if versions[::-1] != list(expected):
            witness.lose(f"the log of {name} has {versions}, not {expected}")
    for name, (_, version) in witness.tags.items():
        _check_rows(witness, f"tag {name}", version, world.opened(), name)
    report = world.opened().fsck(deep=True)
    if not report.is_sound:
        witness.lose(f"fsck: {report.findings}")


def _check_rows(witness: Witness, name: str, version: int, table: object, at: int | str) -> None:
    place = witness.tags[str(at)] if isinstance(at, str) else None
    if place is None:
        expected = witness.commit(witness.branches[name], version).keys
    else:
        expected = witness.history[place].keys
    try:
        found = Counter(keys_of(table.to_arrow(version=at)))  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - whatever it is, the rows are not to be had
        witness.lose(f"{name}@{version} cannot be read: {error}")
        return
    if found != expected:
        witness.lose(f"{name}@{version} holds {found}, not {expected}")


def _rest(witness: Witness) -> None:
    """Let all leases lapse, and vacuum until all garbage is deleted."""
    world = witness.world
    world.pass_time(LEASE_S)
    for ref in world.opened().branches():
        world.expire(branch=ref.name)
        witness.branches.setdefault(ref.name, ref)  # its creator never got a reply
    witness.look()
    for _ in range(3):
        world.pass_time(AGE_S + 1)
        world.opened(store=witness).vacuum()


def _check_no_garbage(witness: Witness, before: frozenset[str]) -> None:
    """Check that no object from before the pause remains that nothing keeps."""
    world = witness.world
    for tag in world.opened().tags():
        witness.tags.setdefault(tag.name, (tag.target.branch_id, tag.target.version))
    needed = frozenset[str]().union(*(commit.needs for _, commit in witness.retained()))
    for prefix in (BLOCKS_PREFIX, SEGMENTS_PREFIX):
        standing = {key for key in world.store.objects.keys() & before if key.startswith(prefix)}
        if extra := standing - needed:
            witness.lose(f"nothing needs them, and they stay: {sorted(extra)}")
    lines = {ref.branch_id for ref in witness.branches.values()}
    for ref in witness.branches.values():
        lines |= {fork.branch_id for fork in ref.forks}
    lines |= {branch_id for branch_id, _ in witness.tags.values()}
    slots = {place[0] for key in world.store.objects if (place := slot_of(key)) is not None}
    if slots - lines:
        witness.lose(f"slots of branches stay that nothing names: {slots - lines}")
