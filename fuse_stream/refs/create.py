"""Making branches, tags and pins: write the ref, look again, and withdraw if its snapshot goes.

A snapshot may expire between the moment it is found and the moment its ref stands. Expiry reads the
refs after it has raised the floor, so either it sees this one, or the second look sees the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import parent_of
from fuse_stream.errors import (
    ConflictError,
    FuseError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.names import (
    Spelling,
    Version,
    check_new_name,
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
"""At a branch whose history expires while it is made."""


def create_branch(committer: Committer, name: str, version: Version | None = None) -> BranchRef:
    """Make a branch that forks off a snapshot; the head if none is named.

    Raises:
        AlreadyExistsError: the name is taken.
        InvalidInputError: this is no name, or no version.
        NotFoundError: there is no such version.
        SnapshotExpiredError: it has expired.
        ConflictError: expiries came in between, again and again; there is no such branch.
    """
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
        withdraw()  # an expiry took of what it was to take over: begin anew
    raise ConflictError(
        "expiries keep taking of what the branch was to take over; it was not made, try again",
        branch=name,
        attempts=ATTEMPTS,
    )


def create_tag(
    committer: Committer,
    name: str,
    version: Version | None = None,
    *,
    retain_us: int | None = None,
) -> TagRef:
    """Give a snapshot a name that never moves; errors of `create_branch`.

    Args:
        committer: of the branch at hand.
        name: of the tag.
        version: the snapshot; the head if not given.
        retain_us: how long the tag is to be kept; forever if not given.
    """
    metadata = committer.metadata
    check_new_name(name)
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
    """Keep a snapshot for a clone that is going to be made of it.

    Args:
        committer: of the branch at hand.
        version: how the caller named the snapshot.
        stored: the snapshot.
        clone_id: the table id that the clone will have.
        location: where it will be.

    Raises:
        SnapshotExpiredError: it has expired meanwhile; the pin was taken back.
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
    """Return the snapshot that a version names; the head if none is named."""
    return History(committer.metadata, committer.head()).get_snapshot(version)


def is_held(
    committer: Committer, version: Version | None, stored: Stored, history: History
) -> bool:
    """Whether what names a snapshot still keeps it: a tag that stands, or a branch's floor."""
    spelling = Spelling() if version is None else parse_version(version)
    metadata = committer.metadata
    if spelling.tag is not None:
        try:
            tag = load_tag(metadata, spelling.tag)
        except NotFoundError:
            return False
        store_now_us = metadata.clock.now_us() + committer.clock_offset_us
        return tag.target.sha256 == stored.sha256 and not is_over(tag, store_now_us)
    if spelling.branch is not None:
        history = load_history(metadata, spelling.branch)
    elif not _stands(committer):
        return False
    return stored.snapshot.version >= history.floor


def _stands(committer: Committer) -> bool:
    """Whether the branch at hand was not deleted: then vacuum takes what it held."""
    try:
        return load_branch(committer.metadata, committer.branch.name) == committer.branch
    except NotFoundError:
        return False


def _kept_from(history: History, version: Version | None, stored: Stored) -> int:
    """Return the oldest version that a branch off a snapshot takes over.

    Where a name alone keeps the snapshot, that is the snapshot itself.
    """
    other = None if version is None else parse_version(version).branch
    if other is not None:
        history = load_history(history.metadata, other)
    own = stored.snapshot.version
    return min(history.floor, own) if history.contains(stored.snapshot) else own


def _forks(metadata: Metadata, stored: Stored) -> Forks:
    return fork_at(metadata.forks_of(stored.snapshot.branch_id), parent_of(stored))


def _look_again(committer: Committer, version: Version | None, stored: Stored) -> History:
    """Return the history by now, which still keeps the snapshot."""
    history = History(committer.metadata, committer.head())
    if is_held(committer, version, stored, history):
        return history
    raise SnapshotExpiredError(
        "this version expired while a branch, tag or clone was made of it, which was taken "
        "back; choose a later one",
        version=stored.snapshot.version,
        first=history.floor,
    )


@contextmanager
def _withdrawn_on_error(withdraw: Callable[[], None]) -> Iterator[None]:
    """Take a ref back whose maker is told an error.

    Else it would stand unknown, and stop vacuum if its snapshot goes.
    """
    try:
        yield
    except FuseError as error:
        try:
            withdraw()
        except NotFoundError:
            pass  # somebody else did
        except FuseError as failure:
            raise type(failure)(
                f"{failure.message}; a name that was not finished may stand: delete it before it "
                "is made again",
                **failure.context,
            ) from error
        raise
