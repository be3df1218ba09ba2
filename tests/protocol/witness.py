"""A store that records every call: what each commit held, and what was promised.

It shares no rule with vacuum. A commit's rows follow from those of the commit before it, or of the
one that it goes back to; a promise is kept while every object that it needs is in the store.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from fuse_stream.errors import FuseError
from fuse_stream.format.codec import decode_snapshot, sha256_hex
from fuse_stream.format.layout import (
    BLOCKS_PREFIX,
    block_key,
    segment_key,
    slot_key,
    slot_of,
)
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.refs import BranchRef, owner_of
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.refs import (
    MAIN_BRANCH,
    delete_branch,
    delete_tag,
    iter_branches,
    iter_tags,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.testing.faults import Crash
from tests.protocol.worlds import AGE_S, GRACE_S, World

T = TypeVar("T")

Place = tuple[str, int]
"""A branch's id and a version."""

JUMPS_S = (0.5, 2, GRACE_S / 2, GRACE_S + 1, AGE_S + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A snapshot as it was when it was published."""

    snapshot: Snapshot
    sha256: str
    keys: Counter[int]
    """The keys of its rows."""
    needs: frozenset[str]
    """The objects that it consists of."""


class Witness(StoreWrapper):
    """A store that lets time jump before its calls, and records what is published and deleted."""

    overlaps = False  # calls run one after the other

    def __init__(self, world: World, chance: random.Random) -> None:
        super().__init__(world.store)
        self.world = world
        self.jumpiness = 0.0
        """Probability of a time jump before a call."""
        self.trace: list[str] = []
        self.losses: list[str] = []
        self.deletions = 0
        """Number of deleted blocks."""
        self.history: dict[Place, Commit] = {}
        """What was published first in each slot: a later put into a freed slot does not count."""
        self.branches: dict[str, BranchRef] = {"main": MAIN_BRANCH}
        """Branches whose creation returned, by name; tags likewise."""
        self.tags: dict[str, Place] = {}
        self.unfinished: set[str] = set()
        """Names being created, and those whose creator died."""
        self._chance = chance
        self._metadata = Metadata(world.store, world.clock)
        self._keys: dict[str, list[int]] = {}
        """The rows, by block id."""
        self._ends: dict[str, int] = {}
        self.look()

    def look(self) -> None:
        """Record what was published without this store."""
        for key in sorted(self.world.store.objects):
            place = slot_of(key)
            if place is not None and place not in self.history:
                self._note_commit(self.store.get(key))

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Record that an actor creates a tag or branch; only a crash leaves it unfinished."""
        self.unfinished.add(name)
        try:
            yield
        except Crash:
            raise
        except BaseException:
            self.unfinished.discard(name)
            raise
        self.unfinished.discard(name)

    def finish(self) -> None:
        """Delete what dead creators have left, as a person would."""
        for name in self.unfinished & {tag.name for tag in iter_tags(self._metadata)}:
            delete_tag(self._metadata, name)
        for name in self.unfinished & {branch.name for branch in iter_branches(self._metadata)}:
            delete_branch(self._metadata, name)
        self.unfinished.clear()

    # ---- what must exist

    def head(self, branch: BranchRef) -> Commit:
        """Return the newest commit of a branch."""
        version = self._ends.get(branch.branch_id)
        return self.commit(branch, branch.forks[-1].version if version is None else version)

    def commit(self, branch: BranchRef, version: int) -> Commit:
        """Return the recorded commit of a version of a branch."""
        return self.history[owner_of(branch.forks, branch.branch_id, version), version]

    def floor(self, branch: BranchRef) -> int:
        return max(branch.floor, self.head(branch).snapshot.floor)

    def retained(self) -> Iterator[tuple[str, Commit]]:
        """Yield every commit that may be read now, with its name."""
        for name, branch in list(self.branches.items()):
            last = self.head(branch).snapshot.version
            for version in range(self.floor(branch), last + 1):
                yield name, self.commit(branch, version)
        for name, place in list(self.tags.items()):
            yield f"tag {name}", self.history[place]

    def acknowledge(self, snapshot: Snapshot | None, what: str) -> None:
        """Record that an actor was told that `snapshot` is committed."""
        if snapshot is None or not self._is_named(snapshot.branch_id):
            return  # the branch was deleted meanwhile, with its content
        standing = self.history.get((snapshot.branch_id, snapshot.version))
        if standing is None or standing.snapshot.snapshot_id != snapshot.snapshot_id:
            self.lose(f"{what} was acknowledged at version {snapshot.version}, and is not there")

    def lose(self, what: str) -> None:
        self.trace.append(f"LOST: {what}")
        self.losses.append(what)

    def _note_commit(self, data: bytes) -> None:
        snapshot = decode_snapshot(data)
        place = snapshot.branch_id, snapshot.version
        if place in self.history:
            self.trace.append(f"      {place} was freed: this put is nothing")
            return
        is_named = self._is_named(snapshot.branch_id)
        try:
            keys, needs = self._read(snapshot)
        except FuseError as error:
            keys, needs = Counter[int](), frozenset[str]()
            if is_named:
                self.lose(f"{place} names what is gone: {error}")
        for key, count in keys.items():
            if count > 1:
                self.lose(f"{place} holds row {key} {count} times")
        self.history[place] = Commit(
            snapshot=snapshot, sha256=sha256_hex(data), keys=keys, needs=needs
        )
        self._ends[snapshot.branch_id] = snapshot.version
        if not is_named:
            self.trace.append(f"      the branch of {place} was deleted: it holds nothing")
        elif snapshot.parent is not None and keys != (expected := self._expected(snapshot)):
            self.lose(
                f"{place} {snapshot.operation} lacks rows {sorted(expected - keys)}, "
                f"has too many {sorted(keys - expected)}"
            )

    def _is_named(self, branch_id: str) -> bool:
        return any(branch.branch_id == branch_id for branch in iter_branches(self._metadata))

    def _expected(self, snapshot: Snapshot) -> Counter[int]:
        """Return the rows that a commit must hold. Writers' messages name the rows they add."""
        assert snapshot.parent is not None
        base = snapshot.target or snapshot.parent
        before = self.history[base.branch_id, base.version]
        if before.sha256 != base.sha256:
            self.lose(f"version {snapshot.version} builds on a snapshot that never counted")
        brought = Counter(int(key) for key in snapshot.message.split() if key.isdigit())
        match snapshot.operation:
            case Operation.APPEND:
                return before.keys + brought
            case Operation.OVERWRITE:
                return brought
        return before.keys

    def _read(self, snapshot: Snapshot) -> tuple[Counter[int], frozenset[str]]:
        needs = {slot_key(snapshot.branch_id, snapshot.version)}
        keys: Counter[int] = Counter()
        for ref in snapshot.segments:
            needs.add(segment_key(ref.id))
            self.store.get(segment_key(ref.id))
            segment = self._metadata.load_segment(ref, snapshot.schema.leaf_types)
            for block in segment.blocks:
                needs.add(block_key(block.id))
                self.store.get(block_key(block.id))
                if block.id not in self._keys:
                    table = load_block(self.store, block, snapshot.schema)
                    self._keys[block.id] = table["k"].to_pylist()
                keys.update(self._keys[block.id])
        return keys, frozenset(needs)

    # ---- the store

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        super().put_if_absent(key, data)
        if slot_of(key) is not None:
            self._note_commit(bytes(data))

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        if self._chance.random() < self.jumpiness:
            seconds = self._chance.choice(JUMPS_S)
            self.trace.append(f"      {seconds} s pass")
            self.world.pass_time(seconds)
        self.trace.append(
            f"{self.world.clock.monotonic_s():9.2f} {threading.current_thread().name}: {verb} {key}"
        )
        if verb == "delete" and key in self.world.store.objects:
            self.deletions += key.startswith(BLOCKS_PREFIX)
            for name, commit in self.retained():
                if key in commit.needs:
                    self.lose(f"{key} is deleted, which {name}@{commit.snapshot.version} needs")
        return super().call(verb, key, act)
