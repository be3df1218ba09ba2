"""What only the leases of consumers keep: no leftover, though no branch promises it any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fuse_stream.format.codec import decode_lease
from fuse_stream.format.layout import LEASES_PREFIX, segment_key, slot_key
from fuse_stream.format.lineage import owner_of
from fuse_stream.format.named import read_block_ids, read_snapshot_names
from fuse_stream.format.naming import listed_name
from fuse_stream.format.refs import Lease
from fuse_stream.recovery.evidence import Evidence, Fault, Place
from fuse_stream.recovery.report import FindingKind

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Leased:
    """Slots, and ids of what they name."""

    places: set[Place] = field(default_factory=set)
    segments: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    offsets: set[str] = field(default_factory=set)


def load_leased(
    evidence: Evidence,
    leases: Sequence[Lease],
    places: Collection[Place],
    seen: Collection[Place],
) -> Leased:
    """Return what standing leases keep of `places` beside what was `seen`.

    While a lease lapsed, a part may have gone: so nothing that is missing here is damage. Whether a
    lease lives only the store's clock can say, and asking that takes a write: all of them count.
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
        for segment_id, sha256, block_count in names.segments:
            if segment_id not in leased.segments:
                leased.segments.add(segment_id)
                read = partial(read_block_ids, sha256=sha256, block_count=block_count)
                leased.blocks.update(_read(evidence, segment_key(segment_id), read) or ())
    return leased


def load_leases(evidence: Evidence) -> list[Lease]:
    """Return the leases that can be read; one that cannot is reported."""
    found: list[Lease] = []
    for info in evidence.store.list(LEASES_PREFIX):
        name = listed_name(info.key, LEASES_PREFIX)
        if name is None:
            evidence.note_foreign(info.key)
            continue
        lease = evidence.load(info.key, decode_lease)
        if isinstance(lease, Lease):
            found.append(lease)
            if lease.name != name:
                fault = Fault(FindingKind.DAMAGED, f"it is the lease of {lease.name}")
                lost = "no vacuum deletes anything: delete this object, which no consumer uses"
                evidence.report(fault, info.key, lost)
        elif lease.kind is not FindingKind.MISSING:  # released since it was listed
            lost = "what it keeps is not known, so no vacuum deletes anything: release the consumer"
            evidence.report(lease, info.key, lost)
    return found


def _keeps(lease: Lease, place: Place) -> bool:
    branch_id, version = place
    return version >= lease.version and (
        owner_of(lease.forks, lease.branch_id, version) == branch_id
    )


def _read(evidence: Evidence, key: str, read: Callable[[bytes], T]) -> T | None:
    found = evidence.load(key, read)
    return None if isinstance(found, Fault) else found
