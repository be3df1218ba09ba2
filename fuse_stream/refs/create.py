"""Create branches, tags and pins: put the ref, then delete it if its snapshot has expired.

A snapshot may expire between the time it is found and the time its ref is put. Vacuum reads the
refs after it has read the floors. So either vacuum reads this ref, or the second check reads a
floor above the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import parent_of
from fuse_stream.errors import ConflictError, FuseError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.names import (
    Spelling,
    Version,
    check_new_name,
    check_new_tag_name,
    parse_version,
)
from fuse_stream.format.refs import BranchRef, CloneRef, Forks, TagRef, fork_at
from fuse_stream.objects.refs import (
    delete_branch,
    delete_pin,
    delete_tag,
    is_over,
    load_branch,
    load_tag,
    store_branch,
    store_pin,
    store_tag,
)
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.history import History, load_history

ATTEMPTS = 20
"""Attempts to make a branch while expiries remove versions that it should take over."""


def create_branch(committer: Committer, name: str, version: Version | None = None) -> BranchRef:
    """Create a branch and return its ref; arguments and errors of `Table.create_branch`."""
    metadata = committer.metadata
    check_new_name(name)
    committer.prepare()
    for _ in range(ATTEMPTS):
        history = History(metadata, committer.head())
        stored = history.get_snapshot(version)
        branch = BranchRef(
            name=name,
            branch_id=metadata.clock.new_id(),
            created_us=metadata.clock.now_us(),
            forks=_forks(metadata, stored),
            floor=_kept_from(history, version, stored),
            epoch=stored.snapshot.epoch,
        )
        store_branch(metadata, branch)
        withdraw = partial(delete_branch, metadata, name)
        with _withdrawn_on_error(withdraw):
            history = _look_again(committer, version, stored)
            if _kept_from(history, version, stored) == branch.floor:
                return branch
        withdraw()  # versions that it should take over have expired: try again
    raise ConflictError(
        "versions that the branch should take over keep expiring; it was not created, try again",
        branch=name,
        attempts=ATTEMPTS,
    )


def create_tag(
    committer: Committer, name: str, version: Version | None = None, *, retain_us: int | None = None
) -> TagRef:
    """Create a tag and return its ref; arguments and errors of `Table.create_tag`."""
    metadata = committer.metadata
    check_new_tag_name(name)
    stored = get_stored(committer, version)
    now_us = metadata.clock.now_us()
    tag = TagRef(
        name=name,
        created_us=now_us,
        forks=_forks(metadata, stored),
        snapshot_id=stored.snapshot.snapshot_id,
        expires_us=None if retain_us is None else now_us + retain_us,
    )
    committer.prepare()
    store_tag(metadata, tag)
    with _withdrawn_on_error(partial(delete_tag, metadata, name)):
        _look_again(committer, version, stored)
    return tag


def create_pin(
    committer: Committer, version: Version | None, stored: Stored, *, clone_id: str, location: str
) -> CloneRef:
    """Pin a snapshot for a clone that will be made of it at `location`; return the pin.

    `version` is how the caller named the snapshot, `clone_id` the table id of the clone.

    Raises:
        SnapshotExpiredError: the snapshot has expired meanwhile; the pin was deleted again.
    """
    metadata = committer.metadata
    pin = CloneRef(
        table_id=clone_id,
        created_us=metadata.clock.now_us(),
        forks=_forks(metadata, stored),
        snapshot_id=stored.snapshot.snapshot_id,
        location=location,
    )
    store_pin(metadata, pin)
    with _withdrawn_on_error(partial(delete_pin, metadata, clone_id)):
        _look_again(committer, version, stored)
    return pin


def get_stored(committer: Committer, version: Version | None) -> Stored:
    """Return the snapshot that `version` names; the head if None."""
    return History(committer.metadata, committer.head()).get_snapshot(version)


def is_held(
    committer: Committer, version: Version | None, stored: Stored, history: History
) -> bool:
    """True if the tag or the branch by which `version` names a snapshot still keeps it."""
    spelling = Spelling() if version is None else parse_version(version)
    metadata = committer.metadata
    if spelling.tag is not None:
        try:
            tag = load_tag(metadata, spelling.tag)
        except NotFoundError:
            # Without the tag the text means another snapshot, or this one by its number or id.
            return not spelling.is_surely_tag and _is_numbered(spelling, stored, history)
        store_now_us = metadata.clock.now_us() + committer.clock_offset_us
        return tag.target.sha256 == stored.sha256 and not is_over(tag, store_now_us)
    if spelling.branch is not None:
        history = load_history(metadata, spelling.branch)
    elif not _has_branch(committer):
        return False
    return stored.snapshot.version >= history.floor


def _is_numbered(spelling: Spelling, stored: Stored, history: History) -> bool:
    """True if the history keeps a snapshot that `spelling` names by its number or id."""
    snapshot = stored.snapshot
    prefix = spelling.id_prefix
    return history.keeps(snapshot) and (
        snapshot.version == spelling.number
        if prefix is None
        else snapshot.snapshot_id.startswith(prefix)
    )


def _has_branch(committer: Committer) -> bool:
    """True unless the committer's branch was deleted; then vacuum deletes its versions."""
    try:
        return load_branch(committer.metadata, committer.branch.name) == committer.branch
    except NotFoundError:
        return False


def _kept_from(history: History, version: Version | None, stored: Stored) -> int:
    """Return the oldest version that a branch made from a snapshot takes over.

    If only a tag keeps the snapshot, this is the snapshot's own version.
    """
    other = None if version is None else parse_version(version).branch
    if other is not None:
        history = load_history(history.metadata, other)
    own = stored.snapshot.version
    return min(history.floor, own) if history.contains(stored.snapshot) else own


def _forks(metadata: Metadata, stored: Stored) -> Forks:
    return fork_at(metadata.forks_of(stored.snapshot.branch_id), parent_of(stored))


def _look_again(committer: Committer, version: Version | None, stored: Stored) -> History:
    """Return the present history, after checking that the snapshot is still kept."""
    history = History(committer.metadata, committer.head())
    if is_held(committer, version, stored, history):
        return history
    raise SnapshotExpiredError(
        "this version expired while a branch, tag or clone was made of it, which was taken "
        "back; choose a later version",
        version=stored.snapshot.version,
        first=history.floor,
    )


@contextmanager
def _withdrawn_on_error(withdraw: Callable[[], None]) -> Iterator[None]:
    """Delete a ref if the `with` block fails after it was put.

    Otherwise a ref that its maker does not know would remain, and stop vacuum once its snapshot is
    deleted.
    """
    try:
        yield
    except FuseError as error:
        try:
            withdraw()
        except NotFoundError:
            pass  # deleted already
        except FuseError as failure:
            raise type(failure)(
                f"{failure.message}; a name that was not finished may stand: delete it before it "
                "is made again",
                **failure.context,
            ) from error
        raise
