"""A table with some history is harmed: slots are lost, names are damaged. The checks after that:

- Every verb ends, with a result or a typed error, in a bounded number of store calls.
- A vacuum that is stopped has deleted nothing, and committed nothing into a lost slot: with the
  harmed objects put back, the table is unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.errors import FuseError
from fuse_stream.format.layout import SLOTS_PREFIX, slot_of
from fuse_stream.objects.hints import store_hint
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import FaultyStore
from tests.protocol.worlds import AGE_S, World, read_all
from tests.recovery.histories import rows

MOST_CALLS = 2_000
"""Maximum number of store calls of one verb on a small table."""
NAMES = ("_refs/branches/", "_refs/tags/", "_leases/", "_hint/")
KINDS = (SLOTS_PREFIX, *NAMES)

VERBS: dict[str, Callable[[Table], object]] = {
    "head": lambda table: table.head(),
    "append": lambda table: table.append(rows(7)),
    "log": lambda table: list(table.log()),
    "read": lambda table: table.to_arrow(),
    "branch": lambda table: table.create_branch("new"),
    "tag": lambda table: table.create_tag("new"),
    "expire": lambda table: table.expire(keep_last=1),
    "compact": lambda table: table.compact(),
    "vacuum": lambda table: table.vacuum(),
    "dry run": lambda table: table.vacuum(dry_run=True),
    "fsck": lambda table: table.fsck(),
    "consumers": lambda table: table.consumers(),
    "branches": lambda table: table.branches(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """The result of one history."""

    losses: tuple[str, ...]
    is_stopped: bool
    """True if vacuum stopped, and nothing was put into a lost slot."""
    kinds: frozenset[str]
    """Prefixes of the harmed objects."""


def run_harm(seed: int) -> Harm:
    """Draw a history and harms, run all verbs, vacuum, put back what was harmed, and compare."""
    chance = random.Random(seed)
    world = drawn(chance)
    world.expire(keep_last=chance.randint(1, 5))
    world.pass_time(2 * AGE_S)
    truth = read_all(world)
    names = [ref.name for ref in world.table.branches()]
    harmed = _lose_slots(world, chance) if chance.random() < 0.8 else {}
    if chance.random() < 0.5 or not harmed:
        harmed |= _damage_name(world, chance)
    losses = _run_verbs(world, names)
    is_stopped = True
    for _ in range(3):
        world.pass_time(AGE_S + 1)
        is_stopped &= not ends(world, FaultyStore(world.store), "vacuum")
    slots = {key for key in harmed if key.startswith(SLOTS_PREFIX)}
    is_stopped &= not slots & world.store.objects.keys()  # else no object showed the loss
    for key, data in harmed.items():
        world.store.replace(key, data)
    if is_stopped and (found := read_all(world)) != truth:
        losses.append(f"{truth} became {found}")
    kinds = frozenset(prefix for key in harmed for prefix in KINDS if key.startswith(prefix))
    told = tuple(f"seed {seed}: {loss}" for loss in losses)
    return Harm(losses=told, is_stopped=is_stopped, kinds=kinds)


def ends(world: World, store: FaultyStore, verb: str, branch: str = "main") -> bool:
    """True if a verb returns, False if it raises a typed error; fail above `MOST_CALLS` calls."""
    try:
        VERBS[verb](world.opened(branch, store=store))
    except FuseError:
        return False
    finally:
        assert len(store.calls) < MOST_CALLS, verb
    return True


def drawn(chance: random.Random) -> World:
    """Return a table with some history, branches, tags and leases."""
    world = World()
    for number in range(chance.randint(2, 9)):
        world.append()
        if chance.random() < 0.3:
            world.opened().create_branch(f"branch-{number}")
        if chance.random() < 0.3:
            world.opened().create_tag(f"tag-{number}")
        if chance.random() < 0.3:
            world.append(chance.choice(world.table.branches()).name)
        if chance.random() < 0.2:
            world.lease(f"reader-{number}", world.opened().head().version)
    if chance.random() < 0.5:
        store_hint(world.table.metadata.store, "main", world.opened().head().version)
    return world


def _run_verbs(world: World, names: list[str]) -> list[str]:
    losses = []
    before = dict(world.store.objects)
    for name in names:
        for verb in sorted(VERBS):
            try:
                ends(world, FaultyStore(world.store), verb, name)
            except Exception as error:  # noqa: BLE001 - whatever it is, no user can tell it
                losses.append(f"{verb} on {name} failed with {error!r}")
            world.store.objects.clear()
            world.store.objects.update(before)
    return losses


def _lose_slots(world: World, chance: random.Random) -> dict[str, bytes]:
    """Delete some slots, the newest of a branch among them; return their keys and data."""
    slots = sorted(key for key in world.store.objects if key.startswith(SLOTS_PREFIX))
    newest = {place[0]: key for key in slots if (place := slot_of(key)) is not None}
    chosen = {*chance.sample(slots, chance.randint(0, 2)), chance.choice(sorted(newest.values()))}
    lost = {key: world.store.get(key) for key in sorted(chosen)}
    for key in lost:
        world.store.delete(key)
    return lost


def _damage_name(world: World, chance: random.Random) -> dict[str, bytes]:
    """Change a byte of a ref, lease or hint; return its key and old data."""
    names = sorted(key for key in world.store.objects if key.startswith(NAMES))
    if not names:
        return {}
    key = chance.choice(names)
    data = world.store.get(key)
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(7)
    world.store.replace(key, bytes(changed))
    return {key: data}
