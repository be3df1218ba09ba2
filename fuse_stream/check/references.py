"""Load the refs and leases of a table: the versions that its branches, tags and clones need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fuse_stream.check.findings import Evidence, Fault, FindingKind, Place
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.codec import decode_lease, decode_ref
from fuse_stream.format.index_codec import decode_index_list
from fuse_stream.format.layout import (
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    LEASES_PREFIX,
    MAIN,
    TAGS_PREFIX,
    index_list_key,
    segment_key,
    slot_key,
)
from fuse_stream.format.names import listed_name
from fuse_stream.format.reachable import read_block_ids, read_snapshot_names
from fuse_stream.format.refs import BranchRef, CloneRef, Forks, Lease, TagRef, owner_of
from fuse_stream.objects.refs import is_over

Ref = TypeVar("Ref", BranchRef, TagRef, CloneRef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The versions that a branch, a tag or a clone needs, from the head down."""

    name: str
    """The name of the branch or tag, or the id of the clone."""
    branch_id: str
    forks: Forks = ()
    head: int
    floor: int = 0
    """The floor in a branch's ref: the floor that its parent had at the fork."""
    is_single: bool = False
    """True for a tag or a clone: it needs one version."""

    def place(self, version: int) -> Place:
        """Return the slot of a version."""
        return owner_of(self.forks, self.branch_id, version), version


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The hash and the id that a ref has of a snapshot."""

    key: str
    """The key of the ref."""
    sha256: str
    snapshot_id: str | None = None
    """None if the ref does not have it."""


@dataclass(slots=True, kw_only=True)
class References:
    """The content of all refs of a table."""

    items: list[Reference] = field(default_factory=list)
    """Branches, `main` first, then tags, then clones."""
    names: dict[str, str] = field(default_factory=lambda: {MAIN: MAIN})
    """The names of the branches, by id."""
    claims: dict[Place, list[Claim]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    """Names of branches whose ref cannot be read."""

    def name_of(self, branch_id: str) -> str:
        """Return the name of a branch; its id if no ref names it."""
        return self.names.get(branch_id, branch_id)


def load_references(evidence: Evidence, heads: Mapping[str, int], now_us: int) -> References:
    """Return the content of all refs; `evidence` gets a problem for each that cannot be read.

    `heads` has the greatest version that exists, by branch id. Tags that have lapsed need nothing.
    """
    found = References()
    found.items.append(Reference(name=MAIN, branch_id=MAIN, head=heads.get(MAIN, 0)))
    for key, name, branch in _refs(evidence, BRANCHES_PREFIX, BranchRef):
        if isinstance(branch, Fault):
            found.unreadable.append(name)
            evidence.report(
                branch,
                key,
                f"branch {name} cannot be opened; its snapshots are not lost, and the other "
                "branches do not need it",
            )
            continue
        found.names[branch.branch_id] = name
        head = max(heads.get(branch.branch_id, 0), branch.forks[-1].version)
        ref = Reference(
            name=name, branch_id=branch.branch_id, forks=branch.forks, head=head, floor=branch.floor
        )
        found.items.append(ref)
        _claim(found, key, branch.forks)
    for key, name, tag in _refs(evidence, TAGS_PREFIX, TagRef):
        if isinstance(tag, Fault):
            evidence.report(tag, key, f"tag {name} cannot be used; name its version by number")
        elif not is_over(tag, now_us):
            _keep(found, key, tag)
    for key, name, pin in _refs(evidence, CLONES_PREFIX, CloneRef):
        if isinstance(pin, Fault):
            lost = f"which snapshot the clone {name} needs is not known; its blocks are not lost"
            evidence.report(pin, key, lost)
        else:
            _keep(found, key, pin)
    return found


def _keep(found: References, key: str, ref: TagRef | CloneRef) -> None:
    target = ref.target
    found.items.append(
        Reference(
            name=ref.name,
            branch_id=target.branch_id,
            forks=ref.forks[:-1],
            head=target.version,
            is_single=True,
        )
    )
    _claim(found, key, ref.forks, ref.snapshot_id)


def _refs(
    evidence: Evidence, prefix: str, cls: type[Ref]
) -> Iterator[tuple[str, str, Ref | Fault]]:
    for key, name in _names(evidence, prefix):
        ref = evidence.load(key, partial(_named, cls, name))
        if not isinstance(ref, Fault) or ref.kind is not FindingKind.MISSING:  # else just deleted
            yield key, name, ref


def _names(evidence: Evidence, prefix: str) -> Iterator[tuple[str, str]]:
    for info in evidence.store.list(prefix):
        name = listed_name(info.key, prefix)
        if name is None:
            evidence.note_foreign(info.key)
        else:
            yield info.key, name


def _named(cls: type[Ref], name: str, data: bytes) -> Ref:
    ref = decode_ref(cls, data)
    if ref.name != name:
        raise CorruptObjectError(
            f"its key has another name than its content, {ref.name[:100]}: delete this object, or "
            "rename it to that if no other object has the name"
        )
    return ref


def _claim(found: References, key: str, forks: Forks, snapshot_id: str | None = None) -> None:
    for fork in forks:
        claim = Claim(
            key=key, sha256=fork.sha256, snapshot_id=snapshot_id if fork is forks[-1] else None
        )
        found.claims.setdefault((fork.branch_id, fork.version), []).append(claim)


T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Leased:
    """Slots that leases keep, and the ids of the objects that they name."""

    places: set[Place] = field(default_factory=set)
    segments: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    deletion_files: set[str] = field(default_factory=set)
    offsets: set[str] = field(default_factory=set)
    index_lists: set[str] = field(default_factory=set)
    index_parts: set[str] = field(default_factory=set)


def load_leased(
    evidence: Evidence, leases: Sequence[Lease], places: Collection[Place], seen: Collection[Place]
) -> Leased:
    """Return the slots of `places` that leases keep and that were not `seen`, with their objects.

    A missing object is no damage here: a vacuum may have deleted it while the lease had lapsed. All
    leases count: to know which are live takes the store's clock, and so a write.
    """
    leased = Leased()
    for place in set(places) - set(seen):
        if any(_keeps(lease, place) for lease in leases):
            leased.places.add(place)
    for place in leased.places:
        names = _read(evidence, slot_key(*place), read_snapshot_names)
        if names is None:
            continue
        leased.offsets.update(names.offsets)
        leased.deletion_files.update(file_id for file_id, _ in names.deletion_files)
        if names.index_list is not None and names.index_list[0] not in leased.index_lists:
            list_id, sha256 = names.index_list
            leased.index_lists.add(list_id)
            decode = partial(decode_index_list, sha256=sha256)
            if (indexes := _read(evidence, index_list_key(list_id), decode)) is not None:
                leased.index_parts.update(part.id for part in indexes.parts)
        for segment_id, sha256, block_count in names.segments:
            if segment_id not in leased.segments:
                leased.segments.add(segment_id)
                read = partial(read_block_ids, sha256=sha256, block_count=block_count)
                leased.blocks.update(_read(evidence, segment_key(segment_id), read) or ())
    return leased


def load_leases(evidence: Evidence) -> list[Lease]:
    """Return the leases that can be read; report the others."""
    found: list[Lease] = []
    for key, name in _names(evidence, LEASES_PREFIX):
        lease = evidence.load(key, decode_lease)
        if isinstance(lease, Lease):
            found.append(lease)
            if lease.name != name:
                fault = Fault(FindingKind.DAMAGED, f"it is the lease of {lease.name}")
                lost = "no vacuum deletes anything: delete this object, which no consumer uses"
                evidence.report(fault, key, lost)
        elif lease.kind is not FindingKind.MISSING:  # else it was released after the listing
            lost = "the versions that it keeps are unknown, so no vacuum runs: release the consumer"
            evidence.report(lease, key, lost)
    return found


def _keeps(lease: Lease, place: Place) -> bool:
    branch_id, version = place
    return version >= lease.version and (
        owner_of(lease.forks, lease.branch_id, version) == branch_id
    )


def _read(evidence: Evidence, key: str, read: Callable[[bytes], T]) -> T | None:
    found = evidence.load(key, read)
    return None if isinstance(found, Fault) else found
