"""Erase rows: one commit on the head of each branch, and a report of what still holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.erasure.holders import Holder, SearchProgress, find_holders
from fuse_stream.erasure.rewrite_head import ErasedBranch, erase_head
from fuse_stream.erasure.sought import Sought
from fuse_stream.erasure.verify import Verification, verify_erased
from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
)
from fuse_stream.format.one_line import one_line
from fuse_stream.objects.refs import find_branch, iter_branches

MOST_ROUNDS = 100
"""The most rounds of erasing on all new branches, and looking for newer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """What an erasure did, and what still holds the rows; or what a verification found."""

    dry_run: bool = False
    branches: tuple[ErasedBranch, ...] = ()
    """The branches whose heads were looked at, first that of the handle."""
    holders: tuple[Holder, ...] = ()
    """What still holds the rows, or shows values of theirs."""
    unreadable: tuple[str, ...] = ()
    """The keys of objects that could not be searched: what they hold is not known."""
    verification: Verification | None = None
    """Only with `verify`."""

    __repr__ = one_line("row_count hidden_count branches holders unreadable verification")

    @property
    def row_count(self) -> int:
        """The number of visible rows, over all branches."""
        return sum(branch.row_count for branch in self.branches)

    @property
    def hidden_count(self) -> int:
        """The number of deleted rows that blocks still held, over all branches."""
        return sum(branch.hidden_count for branch in self.branches)


def erase(
    committer: Committer,
    where: str,
    *,
    verify: bool = False,
    dry_run: bool = False,
    time_zone: str = "UTC",
    author: str = "",
    message: str = "",
    progress: SearchProgress | None = None,
) -> ErasureReport:
    """Erase the rows that match; arguments and errors of `Table.erase`."""
    if verify and dry_run:
        raise InvalidInputError("verify writes nothing: leave dry_run out")
    _check_names(committer)
    sought = Sought(where, committer.head().snapshot.schema, time_zone=time_zone)
    if verify:
        return ErasureReport(verification=verify_erased(committer.metadata, sought, progress))
    branches = _erase_branches(
        committer, sought, dry_run=dry_run, author=author, message=message, progress=progress
    )
    holders = find_holders(committer, sought, progress=progress)
    return ErasureReport(
        dry_run=dry_run,
        branches=tuple(branches),
        holders=holders.found,
        unreadable=holders.unreadable,
    )


def _check_names(committer: Committer) -> None:
    """Raise SchemaMismatchError if a name may mean another column in another version."""
    metadata = committer.metadata
    for ref in iter_branches(metadata):
        if metadata.load_head(ref.branch_id).snapshot.schema.has_stored_names:
            raise SchemaMismatchError(
                "columns of this table were renamed or dropped, so the predicate of an erasure may "
                "mean other columns in older versions: delete the rows, compact the table, and "
                "expire and vacuum the versions that have them",
                branch=ref.name,
            )


def _erase_branches(
    committer: Committer,
    sought: Sought,
    *,
    dry_run: bool,
    author: str,
    message: str,
    progress: SearchProgress | None,
) -> list[ErasedBranch]:
    metadata = committer.metadata
    done: dict[str, ErasedBranch] = {}
    for _ in range(MOST_ROUNDS):
        new = [ref for ref in iter_branches(metadata) if ref.branch_id not in done]
        if not new:
            return list(done.values())
        for ref in sorted(new, key=lambda ref: ref.branch_id != committer.branch_id):
            own = committer
            if ref.branch_id != committer.branch_id:
                # The handle's own committer, which is the first, has probed the store.
                own = Committer(metadata, ref, grace_us=committer.grace_us, is_probed=True)
                own.clock_offset_us = committer.clock_offset_us
            try:
                done[ref.branch_id] = erase_head(
                    own,
                    sought,
                    dry_run=dry_run,
                    author=author,
                    message=message,
                    progress=_named(progress, f"searching {ref.name}"),
                )
            except NotFoundError:
                if find_branch(metadata, ref.branch_id) is not None:  # not deleted meanwhile
                    raise
                done[ref.branch_id] = ErasedBranch(branch=ref.name)
    raise ConflictError(
        "branches are made faster than rows are erased from them; call it again",
        rounds=MOST_ROUNDS,
    )


def _named(progress: SearchProgress | None, task: str) -> Callable[[int, int], object] | None:
    if progress is None:
        return None
    return lambda done, total: progress(task, done, total)
