"""What vacuum must keep: the versions of branches, tags, pins of clones, and live leases."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace

from fuse_stream.errors import NotFoundError
from fuse_stream.format.layout import BRANCHES_PREFIX
from fuse_stream.format.names import listed_name
from fuse_stream.format.refs import BranchRef, CloneRef, Forks, TagRef
from fuse_stream.objects.leases import StoredLease, iter_leases
from fuse_stream.objects.refs import MAIN_BRANCH, iter_pins, iter_tags, load_branch
from fuse_stream.objects.slots import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTime:
    """The time at the start of a vacuum."""

    store_us: int
    """The store's time, read before anything else."""
    offset_us: int
    """How far the store's clock is ahead of this machine's."""
    grace_us: int
    """The table's grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepers:
    """The refs and leases of a table, as they were read at one time."""

    branches: tuple[BranchRef, ...]
    created_us: dict[str, int]
    """The store's time of each branch's ref, by branch id."""
    names: tuple[TagRef | CloneRef, ...]
    leases: tuple[StoredLease, ...]
    """The live leases."""
    lapsed: tuple[StoredLease, ...]

    def with_those_of(self, earlier: Keepers, fenced: Collection[str]) -> Keepers:
        """Return these, and those that only an earlier reading has.

        They were deleted meanwhile, or the listing lacks them. Of the branches only the `fenced`
        ones, by id, are added.
        """
        branches = [
            one for one in earlier.branches if one.branch_id in fenced and one not in self.branches
        ]
        known = {item.lease.name for item in (*self.leases, *self.lapsed)}
        return replace(
            self,
            branches=(*self.branches, *branches),
            created_us={**earlier.created_us, **self.created_us},
            names=(*self.names, *(name for name in earlier.names if name not in self.names)),
            leases=(
                *self.leases,
                *(item for item in earlier.leases if item.lease.name not in known),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersions:
    """Versions of one branch's history that a ref or lease keeps."""

    branch_id: str
    forks: Forks
    first: int
    last: int | None = None
    """None: all up to the newest."""
    is_whole: bool = True
    """True if each of them must exist. Those that a lease keeps may have been deleted while it had
    lapsed."""


def load_keepers(metadata: Metadata, store_time: StoreTime) -> Keepers:
    """Return the refs and leases of a table.

    A tag keeps its snapshot for the grace after its time is over: a writer whose clock is behind
    may still be building on it.

    Raises:
        CorruptObjectError: a ref or lease cannot be read, so what it keeps is not known.
    """
    over_us = store_time.store_us - store_time.grace_us
    names: tuple[TagRef | CloneRef, ...] = (
        *iter_tags(metadata, now_us=over_us),
        *iter_pins(metadata),
    )
    leases = tuple(iter_leases(metadata))
    # Read last: whoever makes a branch from a tag checks afterwards that the tag still exists.
    branches = _load_branches(metadata)
    return Keepers(
        branches=tuple(branch for branch, _ in branches),
        created_us={branch.branch_id: time_us for branch, time_us in branches},
        names=names,
        leases=tuple(item for item in leases if item.is_live(store_time.store_us)),
        lapsed=tuple(item for item in leases if not item.is_live(store_time.store_us)),
    )


def kept_versions_of(keepers: Keepers, floors: dict[str, int]) -> list[KeptVersions]:
    """Return the versions that refs and leases keep; `floors` has each branch's floor by its id."""
    kept = [
        KeptVersions(
            branch_id=branch.branch_id,
            forks=branch.forks,
            first=max(branch.floor, floors[branch.branch_id]),
        )
        for branch in keepers.branches
    ]
    kept += [
        KeptVersions(
            branch_id=name.target.branch_id,
            forks=name.forks[:-1],
            first=name.target.version,
            last=name.target.version,
        )
        for name in keepers.names
    ]
    kept += [
        KeptVersions(
            branch_id=item.lease.branch_id,
            forks=item.lease.forks,
            first=item.lease.version,
            is_whole=False,
        )
        for item in keepers.leases
    ]
    return kept


def newest_named(keepers: Keepers) -> dict[str, int]:
    """Return for each branch id the greatest version that a ref or lease names."""
    places = [
        (fork.branch_id, fork.version)
        for forks in (
            *(branch.forks for branch in keepers.branches),
            *(name.forks for name in keepers.names),
            *(item.lease.forks for item in keepers.leases),
        )
        for fork in forks
    ]
    places += [(item.lease.branch_id, item.lease.version) for item in keepers.leases]
    newest: dict[str, int] = {}
    for branch_id, version in places:
        newest[branch_id] = max(version, newest.get(branch_id, 0))
    return newest


def _load_branches(metadata: Metadata) -> list[tuple[BranchRef, int]]:
    """Return (branch, store's time of its ref) for all branches; 0 for `main`, which has no ref."""
    found = [(MAIN_BRANCH, 0)]
    for info in metadata.store.list(BRANCHES_PREFIX):
        if (name := listed_name(info.key, BRANCHES_PREFIX)) is not None:
            with contextlib.suppress(NotFoundError):  # deleted since it was listed
                found.append((load_branch(metadata, name), info.modified_us))
    return found
