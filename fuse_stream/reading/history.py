"""Finding a snapshot: by number in two reads, by time in O(log n), by its id walking back.

One of the two reads is of the version after it, whose hash of this one tells damage. Those who walk
through the history read that anyway.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from itertools import islice

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.format.layout import ID_DIGITS
from fuse_stream.format.names import Version, parse_version
from fuse_stream.format.records import Snapshot
from fuse_stream.format.refs import CloneRef, TagRef, owner_of
from fuse_stream.objects.refs import load_branch, load_tag
from fuse_stream.objects.slots import Metadata, Stored

SEARCHED_SNAPSHOTS = 1000
"""The start of an id is looked for among so many of the newest; a whole id among all."""

MOST_WITNESSES = 8
"""Later snapshots that are asked whether one was changed, if each differs from what the next says:
whole histories are not changed by accident."""

Timestamp = dt.datetime | str


def find_snapshot(
    metadata: Metadata,
    head: Stored,
    *,
    version: Version | None = None,
    timestamp: Timestamp | None = None,
) -> Stored:
    """Return the snapshot that a reader named; the head if it named none.

    Raises:
        InvalidInputError: both were named, or one is not spelt as it must be.
        NotFoundError: the version lies past the head; the time past the head or before the first.
        SnapshotExpiredError: it was there and has expired; names the first that stands.
    """
    if version is not None and timestamp is not None:
        raise InvalidInputError(
            "name a version or a timestamp, not both", version=version, timestamp=str(timestamp)
        )
    if version is not None:
        return find_version(metadata, head, version)
    if timestamp is not None:
        return at_or_before(metadata, head, timestamp_us(timestamp))
    return head


def find_version(metadata: Metadata, head: Stored, version: Version) -> Stored:
    """Return the snapshot that a version names; `head` is that of the branch at hand.

    Raises:
        InvalidInputError: it is not spelt as it must be, or several ids start so.
        NotFoundError: it lies past the head, no id among the newest starts so, or there is no such
            tag or branch.
        SnapshotExpiredError: it was there and has expired.
    """
    spelling = parse_version(version)
    if spelling.tag is not None:
        return load_tagged(metadata, load_tag(metadata, spelling.tag))
    if spelling.branch is not None:
        head = metadata.find_head(load_branch(metadata, spelling.branch).branch_id)
    if spelling.number is not None:
        return load_version(metadata, head, spelling.number)
    if spelling.id_prefix is not None:
        return _find_id(metadata, head, spelling.id_prefix)
    return head


def load_tagged(metadata: Metadata, tag: TagRef | CloneRef) -> Stored:
    """Return the snapshot that a tag names, or the pin of a clone.

    Raises:
        CorruptObjectError: it is gone, or another one.
    """
    try:
        stored = metadata.load_snapshot(tag.target.branch_id, tag.target.version)
    except (NotFoundError, SnapshotExpiredError) as error:
        raise CorruptObjectError(
            "the snapshot of a tag or clone is missing; restore its slot from a copy",
            tag=tag.name,
            version=tag.target.version,
        ) from error
    if stored.sha256 != tag.target.sha256:
        raise CorruptObjectError(
            "another snapshot stands where a tag or clone points",
            tag=tag.name,
            version=tag.target.version,
        )
    return stored


def _find_id(metadata: Metadata, head: Stored, prefix: str) -> Stored:
    most = None if len(prefix) == ID_DIGITS else SEARCHED_SNAPSHOTS
    newest = islice(iter_log(metadata, head), most)
    found = [stored for stored in newest if stored.snapshot.snapshot_id.startswith(prefix)]
    if not found:
        raise NotFoundError(
            f"none of the newest {SEARCHED_SNAPSHOTS:,} snapshots has an id that starts so; "
            f"name the version by its number, or by all {ID_DIGITS} digits of its id, which are "
            "looked for in the whole history",
            version=prefix,
            head=head.snapshot.version,
        )
    if len(found) > 1:
        raise InvalidInputError(
            "several snapshots have ids that start so; give more digits",
            version=prefix,
            ids=sorted(stored.snapshot.snapshot_id for stored in found),
        )
    return found[0]


def timestamp_us(timestamp: Timestamp) -> int:
    """Return a time as UTC microseconds.

    Raises:
        InvalidInputError: it is not ISO, or does not say its offset from UTC.
    """
    if isinstance(timestamp, str):
        try:
            timestamp = dt.datetime.fromisoformat(timestamp)
        except ValueError as error:
            raise InvalidInputError(
                'a timestamp is ISO text with its offset, such as "2026-11-21T09:00:00+00:00"',
                timestamp=timestamp,
            ) from error
    if not isinstance(timestamp, dt.datetime):
        raise InvalidInputError("a timestamp is a datetime or ISO text", timestamp=timestamp)
    if timestamp.tzinfo is None:
        raise InvalidInputError(
            "a timestamp without its offset from UTC is ambiguous; add it, such as +00:00 or Z",
            timestamp=timestamp.isoformat(),
        )
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (timestamp - epoch) // dt.timedelta(microseconds=1)


def load_version(metadata: Metadata, head: Stored, version: int) -> Stored:
    """Return one version of the head's branch, checked against the one after it.

    Raises:
        NotFoundError: it lies past the head.
        SnapshotExpiredError: it was there and has expired; names the first that stands.
        CorruptObjectError: it is missing, or was changed.
    """
    stored = _load_unchecked(metadata, head, version)
    if version < head.snapshot.version:
        _check_named_by_next(metadata, head, stored)
    return stored


@contextlib.contextmanager
def while_they_stand(metadata: Metadata, *places: tuple[str, int]) -> Iterator[None]:
    """Read what snapshots need; if some of that is gone, see whether they have expired meanwhile.

    Args:
        metadata: of the table.
        places: their branch ids and versions.

    Raises:
        SnapshotExpiredError: one of them has.
    """
    try:
        yield
    except CorruptObjectError as error:
        for branch_id, version in places:
            head = metadata.find_head(branch_id)
            if version < head.snapshot.floor:
                raise _expired(version, head) from error
        raise


def _load_unchecked(metadata: Metadata, head: Stored, version: int) -> Stored:
    snapshot = head.snapshot
    if version > snapshot.version:
        raise NotFoundError(
            "this version lies past the head", version=version, head=snapshot.version
        )
    if version < snapshot.floor:
        raise _expired(version, head)
    if version == snapshot.version:
        return head
    try:
        return metadata.load_snapshot(snapshot.branch_id, version)
    except SnapshotExpiredError as error:
        raise _expired(version, head) from error
    except NotFoundError as error:
        raise CorruptObjectError(
            "a snapshot is missing from the table's history; restore its slot from a copy",
            version=version,
            path=metadata.store.url,
        ) from error


def _check_named_by_next(
    metadata: Metadata, head: Stored, stored: Stored, most: int = MOST_WITNESSES
) -> None:
    """See that the next version, which is mostly read as well, was built on this one."""
    version = stored.snapshot.version + 1
    try:
        after = metadata.load_snapshot(head.snapshot.branch_id, version)
        if after.snapshot.parent is None or after.snapshot.parent.sha256 == stored.sha256:
            return
        if version < head.snapshot.version and most > 1:
            _check_named_by_next(metadata, head, after, most - 1)
    except (NotFoundError, SnapshotExpiredError, CorruptObjectError, UnsupportedFormatError):
        return  # it is the next that is lost or was changed, and this version does not need it
    raise CorruptObjectError(
        "a snapshot is not the one that the next was built on: its slot was changed; restore it "
        "from a copy",
        version=version - 1,
        path=metadata.store.url,
    )


def at_or_before(metadata: Metadata, head: Stored, time_us: int) -> Stored:
    """Return the last snapshot at or before a time; reads O(log n) snapshots.

    Raises:
        NotFoundError: the time lies past the head, or before the first snapshot that stands.
    """
    if time_us > head.snapshot.timestamp_us:
        raise NotFoundError(
            "this time lies past the head; leave it out to read the newest",
            timestamp=iso_time(time_us),
            head=iso_time(head.snapshot.timestamp_us),
        )
    found = first_at_or_after(metadata, head, time_us)
    if found.snapshot.timestamp_us == time_us:
        return found
    if found.snapshot.version == head.snapshot.floor:
        raise NotFoundError(
            "this time lies before the first snapshot that stands",
            timestamp=iso_time(time_us),
            first=iso_time(found.snapshot.timestamp_us),
        )
    return load_version(metadata, head, found.snapshot.version - 1)


def first_at_or_after(metadata: Metadata, head: Stored, time_us: int) -> Stored:
    """Return the first snapshot at or after a time, which is not past the head's."""
    low, high = head.snapshot.floor, head.snapshot.version
    while low < high:
        middle = (low + high) // 2
        if _load_unchecked(metadata, head, middle).snapshot.timestamp_us >= time_us:
            high = middle
        else:
            low = middle + 1
    return load_version(metadata, head, low)


def is_on_line(metadata: Metadata, head: Stored, snapshot: Snapshot) -> bool:
    """Whether `snapshot` is the head or one of those before it."""
    branch_id = head.snapshot.branch_id
    owner = owner_of(metadata.forks_of(branch_id), branch_id, snapshot.version)
    return snapshot.version <= head.snapshot.version and snapshot.branch_id == owner


def find_on_line(metadata: Metadata, head: Stored, version: Version, *, branch: str) -> Stored:
    """Return the snapshot that a version names, if `head` came from it; errors of `find_version`.

    Raises:
        InvalidInputError: it is not in the history of the branch, whose name is `branch`.
    """
    found = find_version(metadata, head, version)
    if not is_on_line(metadata, head, found.snapshot):
        raise InvalidInputError(
            "this snapshot is not in the history of this branch; diff compares any two",
            version=version,
            branch=branch,
        )
    return found


def iter_log(metadata: Metadata, head: Stored) -> Iterator[Stored]:
    """Yield the head and its predecessors on the branch, newest first, down to the floor."""
    yield head
    for version in range(head.snapshot.version - 1, head.snapshot.floor - 1, -1):
        yield load_version(metadata, head, version)


def iso_time(time_us: int) -> str:
    """Return a time as errors name it."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (epoch + dt.timedelta(microseconds=time_us)).isoformat()


def _expired(version: int, head: Stored) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        "this version has expired; read from the first one that stands",
        version=version,
        first=head.snapshot.floor,
    )
