"""What keeps snapshots from vacuum: branches, tags, the pins of clones, and live leases."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from fuse_stream.errors import NotFoundError
from fuse_stream.format.layout import BRANCHES_PREFIX
from fuse_stream.format.names import listed_name
from fuse_stream.format.refs import BranchRef, CloneRef, Forks, TagRef
from fuse_stream.objects.leases import StoredLease, iter_leases
from fuse_stream.objects.refs import MAIN_BRANCH, iter_pins, iter_tags, load_branch
from fuse_stream.objects.slots import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is known of time."""

    store_us: int
    """The store's time, learned before anything else."""
    offset_us: int
    """How far that is ahead of this machine's clock."""
    grace_us: int
    """Of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepers:
    """The refs and leases of a table, as they were read at one time."""

    branches: tuple[BranchRef, ...]
    created_us: dict[str, int]
    """By branch id: the store's time of the ref."""
    names: tuple[TagRef | CloneRef, ...]
    leases: tuple[StoredLease, ...]
    """Those that live."""
    lapsed: tuple[StoredLease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Versions of one line that are kept."""

    branch_id: str
    forks: Forks
    first: int
    last: int | None = None
    """None: all that stand."""
    is_whole: bool = True
    """Whether each of them must stand; what is left to a lease may have gone while it lapsed."""


def load_keepers(metadata: Metadata, moment: Moment) -> Keepers:
    """Read the refs and leases.

    A tag keeps its snapshot for the grace after its time is up: whoever read it by a clock that is
    behind may be building on it.

    Raises:
        CorruptObjectError: one cannot be read, so what it keeps is not known.
    """
    over_us = moment.store_us - moment.grace_us
    names: tuple[TagRef | CloneRef, ...] = (
        *iter_tags(metadata, now_us=over_us),
        *iter_pins(metadata),
    )
    leases = tuple(iter_leases(metadata))
    # Last: whoever makes a branch of a tag sees afterwards that the tag still stands.
    branches = _load_branches(metadata)
    return Keepers(
        branches=tuple(branch for branch, _ in branches),
        created_us={branch.branch_id: time_us for branch, time_us in branches},
        names=names,
        leases=tuple(item for item in leases if item.is_live(moment.store_us)),
        lapsed=tuple(item for item in leases if not item.is_live(moment.store_us)),
    )


def lines_of(keepers: Keepers, floors: dict[str, int]) -> list[Line]:
    """Return the versions that refs and leases keep; `floors` are those of all branches, by id."""
    lines = [
        Line(
            branch_id=branch.branch_id,
            forks=branch.forks,
            first=max(branch.floor, floors[branch.branch_id]),
        )
        for branch in keepers.branches
    ]
    lines += [
        Line(
            branch_id=name.target.branch_id,
            forks=name.forks[:-1],
            first=name.target.version,
            last=name.target.version,
        )
        for name in keepers.names
    ]
    lines += [
        Line(
            branch_id=item.lease.branch_id,
            forks=item.lease.forks,
            first=item.lease.version,
            is_whole=False,
        )
        for item in keepers.leases
    ]
    return lines


def newest_named(keepers: Keepers) -> dict[str, int]:
    """Return by branch id the greatest version that a ref or lease names: its slot was there."""
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
    """Return the branches and the store's times of their refs; 0 for `main`, which has none."""
    found = [(MAIN_BRANCH, 0)]
    for info in metadata.store.list(BRANCHES_PREFIX):
        if (name := listed_name(info.key, BRANCHES_PREFIX)) is not None:
            with contextlib.suppress(NotFoundError):  # deleted since it was listed
                found.append((load_branch(metadata, name), info.modified_us))
    return found
