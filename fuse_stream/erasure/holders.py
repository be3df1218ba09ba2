"""What still holds erased rows, or shows values of theirs, and how each of them is released.

Slots of expired versions are kept until their whole chunk has expired; only their bounds count,
since nothing else of them is kept.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fuse_stream.commit.committer import Committer
from fuse_stream.erasure.search import Held, VersionSearch
from fuse_stream.erasure.sought import Sought
from fuse_stream.errors import NotFoundError
from fuse_stream.expiry.keepers import Keepers, KeptVersions, StoreTime, load_keepers
from fuse_stream.expiry.keepers import kept_versions_of as versions_of
from fuse_stream.expiry.mark import SlotName, Slots, list_slots, places_of
from fuse_stream.format.layout import CHUNK_VERSIONS
from fuse_stream.format.one_line import one_line
from fuse_stream.format.properties import RETAIN, duration_property_us
from fuse_stream.format.records import Snapshot
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef, owner_of
from fuse_stream.objects.leases import StoredLease
from fuse_stream.objects.refs import find_branch
from fuse_stream.objects.slots import Metadata

SearchProgress = Callable[[str, int, int], object]
"""Called with the name of the present task, how much of it is done, and how much there is."""


class HolderKind(StrEnum):
    """What keeps rows, or shows them."""

    VERSIONS = "versions"
    """Versions of a branch that have not expired."""
    TAG = "tag"
    CLONE = "clone"
    """The pin of another table, which reads the blocks of this one."""
    CONSUMER = "consumer"
    """A consumer's live lease."""
    EXPIRED = "expired versions"
    """Slots of expired versions of a branch, in which bounds show the rows."""
    ORIGIN = "origin"
    """Another table, whose blocks this one reads: it is a clone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One thing that keeps erased rows, or shows values of them."""

    kind: HolderKind
    name: str
    """The name of the branch, tag or consumer; the id of the clone or of the origin."""
    first_version: int
    last_version: int
    """The last of the versions with the rows."""
    row_count: int
    """The most rows in one of the versions, deleted ones included; 0 if only bounds show them."""
    remedy: str
    """What to do, or what to wait for."""
    command: str | None = None
    """The command that releases them; None if there is none here."""
    after_us: int | None = None
    """From when the command releases all of them, by the store's time; None for at once."""
    until_us: int | None = None
    """When they are released without the command, by the store's time; None for never."""

    __repr__ = one_line("kind name first_version last_version row_count after_us until_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """The result of a search for what holds rows."""

    found: tuple[Holder, ...]
    unreadable: tuple[str, ...]
    """The keys of objects that cannot be read: what they hold is not known."""


def find_holders(
    committer: Committer, sought: Sought, *, progress: SearchProgress | None = None
) -> Holders:
    """Return what holds the sought rows, or shows them, in the whole table; reads only.

    Raises:
        CorruptObjectError: a ref or lease cannot be read, so it is not known what it keeps.
        InvalidInputError: the user did not allow the location of a clone's origin.
    """
    return _HolderSearch(committer, sought, progress).run()


_Found = list[tuple[int, Held]]
"""Versions with sought rows, and what each of them has."""


class _HolderSearch:
    """One search over all branches, tags, pins and leases."""

    def __init__(
        self, committer: Committer, sought: Sought, progress: SearchProgress | None
    ) -> None:
        self._metadata = metadata = committer.metadata
        self._grace_us = committer.grace_us
        self._search = VersionSearch(metadata, sought)
        self._progress = progress
        offset_us = committer.clock_offset_us
        store_us = metadata.clock.now_us() + offset_us
        time = StoreTime(store_us=store_us, offset_us=offset_us, grace_us=self._grace_us)
        self._keepers = load_keepers(metadata, time)
        self._heads = dict(_load_heads(metadata, self._keepers))
        self._slots: Slots = list_slots(metadata.store)
        self._searched: set[SlotName] = set()
        self._total = sum(map(len, self._slots.values()))

    def run(self) -> Holders:
        branches = tuple(
            branch for branch in self._keepers.branches if branch.branch_id in self._heads
        )
        keepers = dataclasses.replace(self._keepers, branches=branches)
        floors = {branch_id: head.floor for branch_id, head in self._heads.items()}
        all_keepers = (*branches, *keepers.names, *keepers.leases)
        held = [
            (keeper, self._held_by(versions))
            for keeper, versions in zip(all_keepers, versions_of(keepers, floors), strict=True)
        ]
        found = [self._holder(keeper, versions) for keeper, versions in held if versions]
        origins: dict[str, _Found] = {}
        for _, versions in held:
            for version, has in versions:
                for origin in has.origins:
                    origins.setdefault(origin, []).append((version, has))
        recorded = dict(self._metadata.load_table_file().origins) if origins else {}
        found += [
            _origin(table_id, recorded.get(table_id), versions)
            for table_id, versions in sorted(origins.items())
        ]
        found += self._expired()
        return Holders(found=tuple(found), unreadable=tuple(sorted(self._search.unreadable)))

    def _held_by(self, kept: KeptVersions) -> _Found:
        # Only those that are listed: fsck tells of lost ones.
        listed = dataclasses.replace(kept, is_whole=False)
        return [
            (place[1], has)
            for place in places_of(listed, self._slots)
            if (has := self._look(place, deep=True))
        ]

    def _look(self, place: SlotName, *, deep: bool) -> Held:
        if place not in self._searched:
            self._searched.add(place)
            if self._progress is not None:
                self._progress("searching versions", len(self._searched), self._total)
        return self._search.held_by(place, deep=deep)

    def _holder(self, keeper: BranchRef | TagRef | CloneRef | StoredLease, held: _Found) -> Holder:
        match keeper:
            case BranchRef():
                return self._branch(keeper, held)
            case TagRef():
                return _holder(
                    HolderKind.TAG,
                    keeper.name,
                    held,
                    command=self._command("tag", "--delete", keeper.name),
                    until_us=keeper.expires_us,
                    remedy="delete the tag, or move it to a version without the rows",
                )
            case CloneRef():
                return _holder(
                    HolderKind.CLONE,
                    keeper.table_id,
                    held,
                    command=self._command("unpin", keeper.table_id),
                    remedy="erase the rows in the clone, expire and vacuum it, or delete it; then "
                    f"unpin it here. It was made at {keeper.location[:200]}",
                )
        return _holder(
            HolderKind.CONSUMER,
            keeper.lease.name,
            held,
            command=self._command("consumers", "--release", keeper.lease.name, "--force"),
            until_us=keeper.lapses_us,
            remedy="let the consumer read past these versions, or release it",
        )

    def _branch(self, branch: BranchRef, held: _Found) -> Holder:
        head = self._heads[branch.branch_id]
        last = held[-1][0]
        if last == head.version:
            return _holder(
                HolderKind.VERSIONS,
                branch.name,
                held,
                remedy="the newest version holds the rows: erase them first, then expire the older "
                "versions",
            )
        superseded_us = self._published_us(branch, last + 1)
        until_us = None
        if superseded_us is not None and RETAIN in head.properties:
            until_us = superseded_us + duration_property_us(head.properties, RETAIN)
        return _holder(
            HolderKind.VERSIONS,
            branch.name,
            held,
            command=self._command("expire", "--branch", branch.name, "--keep-last", "1"),
            after_us=None if superseded_us is None else superseded_us + self._grace_us,
            until_us=until_us,
            remedy="expire these versions, then vacuum twice",
        )

    def _published_us(self, branch: BranchRef, version: int) -> int | None:
        """Return the store's time of the slot of a version; None if it is not listed."""
        owner = owner_of(branch.forks, branch.branch_id, version)
        slot = self._slots.get(owner, {}).get(version)
        return None if slot is None else slot.modified_us

    def _expired(self) -> Iterator[Holder]:
        names = {branch.branch_id: branch.name for branch in self._keepers.branches}
        for branch_id, slots in sorted(self._slots.items()):
            held: _Found = []
            for version in sorted(slots):
                place = branch_id, version
                if place not in self._searched and (has := self._look(place, deep=False)):
                    held.append((version, has))
            if not held:
                continue
            end = (held[-1][0] // CHUNK_VERSIONS + 1) * CHUNK_VERSIONS
            is_deleted = branch_id not in names
            yield _holder(
                HolderKind.EXPIRED,
                names.get(branch_id, branch_id),
                held,
                remedy="the branch was deleted: vacuum twice"
                if is_deleted
                else f"bounds in these slots show the rows; vacuum deletes them once all versions "
                f"below {end} of the branch have expired",
                command=self._command("vacuum") if is_deleted else None,
            )

    def _command(self, verb: str, *arguments: str) -> str:
        path = self._metadata.store.url
        return shlex.join(["fuse-stream", verb, path, *arguments])


def _load_heads(metadata: Metadata, keepers: Keepers) -> Iterator[tuple[str, Snapshot]]:
    for branch in keepers.branches:
        try:
            yield branch.branch_id, metadata.load_head(branch.branch_id).snapshot
        except NotFoundError:
            if find_branch(metadata, branch.branch_id) is not None:  # not deleted meanwhile
                raise


def _origin(table_id: str, location: str | None, held: _Found) -> Holder:
    where = f"; when this clone was made, it was at {location[:200]}" if location else ""
    remedy = f"the blocks are in that table: erase the rows there, too{where}"
    return _holder(HolderKind.ORIGIN, table_id, held, remedy=remedy)


def _holder(
    kind: HolderKind,
    name: str,
    held: _Found,
    *,
    remedy: str,
    command: str | None = None,
    after_us: int | None = None,
    until_us: int | None = None,
) -> Holder:
    return Holder(
        kind=kind,
        name=name,
        first_version=min(version for version, _ in held),
        last_version=max(version for version, _ in held),
        row_count=max(has.row_count for _, has in held),
        remedy=remedy,
        command=command,
        after_us=after_us,
        until_us=until_us,
    )
