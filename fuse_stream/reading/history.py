"""A branch's history: the snapshots up to one head.

Finding a snapshot by number takes two reads, by time O(log n) reads; by id it reads back from the
head. The second of the two reads is the next version, which holds this one's hash and so shows
damage.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.format.layout import CLONED_VERSION, ID_DIGITS, MAIN, slot_key
from fuse_stream.format.names import Version, parse_version
from fuse_stream.format.records import Parent, Snapshot
from fuse_stream.format.refs import CloneRef, TagRef, owner_of
from fuse_stream.format.source_offset import Offset
from fuse_stream.format.times import Timestamp, iso_time, timestamp_us
from fuse_stream.objects.refs import find_tag, has_tag, load_branch, load_tag
from fuse_stream.objects.slots import Metadata, Stored

AT_ONCE = 16
"""Versions for which a remote store is asked at once."""

SEARCHED_SNAPSHOTS = 1000
"""A prefix of an id is searched in this many of the newest snapshots; a whole id in all."""

MOST_SUCCESSORS = 8
"""The most later snapshots that are compared, each with the next one, to decide whether a snapshot
was changed or the next one was."""


Place = Snapshot | Parent | Offset
"""Names a version of a branch."""


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots of a branch up to one head."""

    metadata: Metadata
    head: Stored

    @property
    def floor(self) -> int:
        """The oldest version that has not expired."""
        return self.head.snapshot.floor

    def with_floor(self, floor: int) -> History:
        """Return this history with another floor: for a reader whose lease keeps older versions."""
        snapshot = dataclasses.replace(self.head.snapshot, floor=floor)
        return History(self.metadata, dataclasses.replace(self.head, snapshot=snapshot))

    def as_of(self, version: int) -> History:
        """Return this history as it was when `version` was its head; errors of `load`."""
        return History(self.metadata, self.load(version))

    # ---- which snapshots are in it

    def contains(self, at: Place) -> bool:
        """True if a snapshot is the head or before it, expired or not."""
        newest = self.head.snapshot
        owner = owner_of(self.metadata.forks_of(newest.branch_id), newest.branch_id, at.version)
        return at.version <= newest.version and at.branch_id == owner

    def shares(self, at: Offset) -> bool:
        """True if a retained version is the snapshot of an offset, whatever branch that names."""
        if not self.floor <= at.version <= self.head.snapshot.version:
            return False
        return self.load(at.version).snapshot.snapshot_id == at.snapshot_id

    def has_expired(self, at: Snapshot | Parent) -> bool:
        """True if a snapshot is in this history and has expired; its slot may still exist."""
        return at.version < self.floor and self.contains(at)

    def keeps(self, at: Snapshot | Parent) -> bool:
        """True if a snapshot is in this history and has not expired."""
        return at.version >= self.floor and self.contains(at)

    def is_cloned(self, at: Snapshot) -> bool:
        """True if a snapshot is the first of a clone; its sources are in the origin's history."""
        is_first = at.version == CLONED_VERSION and at.branch_id == MAIN
        return is_first and bool(self.metadata.load_table_file().origins)

    # ---- one snapshot

    def get_snapshot(
        self, version: Version | None = None, *, timestamp: Timestamp | None = None
    ) -> Stored:
        """Return the snapshot of a version or a timestamp; the head if both are None.

        Raises:
            InvalidInputError: both were given, one is malformed, or several ids have the prefix.
            NotFoundError: the version is after the head; the time is after the head or before the
                first snapshot; no recent id has the prefix; there is no such tag or branch.
            SnapshotExpiredError: it has expired; the error names the first version that has not.
        """
        if version is not None and timestamp is not None:
            raise InvalidInputError(
                "name a version or a timestamp, not both", version=version, timestamp=str(timestamp)
            )
        if version is not None:
            return self._get_spelled(version)
        if timestamp is not None:
            return self.get_at_or_before(timestamp_us(timestamp))
        return self.head

    def get_own(
        self, version: Version, *, branch: str, remedy: str = "diff compares any two"
    ) -> Stored:
        """Return the snapshot of a version of this history; errors of `get_snapshot`.

        `branch` is the name of this history's branch; `remedy` ends the error's message.

        Raises:
            InvalidInputError: the snapshot is not in this history.
        """
        found = self._get_spelled(version)
        if not self.contains(found.snapshot):
            raise InvalidInputError(
                f"this snapshot is not in the history of this branch; {remedy}",
                version=version,
                branch=branch,
            )
        return found

    def get_own_number(self, version: Version, *, branch: str) -> int:
        """Return the number of a version of this history; a plain number need not exist.

        Raises:
            InvalidInputError, NotFoundError, SnapshotExpiredError: as `get_own`, for a version that
                is not a plain number.
        """
        spelling = parse_version(version)
        if spelling.number is not None and spelling.branch is None and spelling.tag is None:
            return spelling.number
        return self.get_own(version, branch=branch).snapshot.version

    def get_span(
        self, first: Version, last: Version | None = None, *, branch: str
    ) -> tuple[Snapshot, Snapshot]:
        """Return the snapshots of the versions `first` and `last`; `last` None is the head.

        Raises:
            InvalidInputError: the last is before the first, or one is not in the history of the
                branch `branch`.
            NotFoundError: one is after the head.
            SnapshotExpiredError: one has expired.
        """
        start = self.get_own_number(first, branch=branch)
        end = self.head
        if last is not None:
            end = self.load(self.get_own_number(last, branch=branch))
        if start > end.snapshot.version:
            raise InvalidInputError(
                f"the first version is past the last; {self._as_text(start) or 'exchange them'}",
                starting_version=start,
                ending_version=end.snapshot.version,
            )
        return self.load(start).snapshot, end.snapshot

    def get_by_id(self, prefix: str) -> Stored:
        """Return the snapshot whose id starts with `prefix`.

        Raises:
            NotFoundError: no searched snapshot has such an id.
            InvalidInputError: several snapshots have such an id.
        """
        most = None if len(prefix) == ID_DIGITS else SEARCHED_SNAPSHOTS
        newest = islice(self.iter_back(), most)
        found = [stored for stored in newest if stored.snapshot.snapshot_id.startswith(prefix)]
        if not found:
            raise NotFoundError(
                f"none of the newest {SEARCHED_SNAPSHOTS:,} snapshots has an id that starts with "
                f"these digits; give the version's number, or all {ID_DIGITS} digits of its id, "
                "which are searched in the whole history",
                version=prefix,
                head=self.head.snapshot.version,
            )
        if len(found) > 1:
            raise InvalidInputError(
                "several snapshots have ids that start with these digits; give more digits",
                version=prefix,
                ids=sorted(stored.snapshot.snapshot_id for stored in found),
            )
        return found[0]

    def load(self, version: int) -> Stored:
        """Return one version, verified by the hash in the next one.

        Raises:
            NotFoundError: it is after the head.
            SnapshotExpiredError: it has expired; the error names the first version that has not.
            CorruptObjectError: it is missing or was changed.
        """
        stored = self._load_unchecked(version)
        if version < self.head.snapshot.version:
            self._check_named_by_next(stored)
        return stored

    def get_at_or_before(self, time_us: int) -> Stored:
        """Return the last snapshot at or before a time; reads O(log n) snapshots.

        Raises:
            NotFoundError: the time is after the head, or before the first snapshot.
        """
        head = self.head.snapshot
        if time_us > head.timestamp_us:
            raise NotFoundError(
                "this time is past the head; leave it out to read the newest snapshot",
                timestamp=iso_time(time_us),
                head=iso_time(head.timestamp_us),
            )
        found = self.get_first_from(time_us)
        if found.snapshot.timestamp_us == time_us:
            return found
        if found.snapshot.version == self.floor:
            raise NotFoundError(
                "this time is before the first snapshot that has not expired; give a later time",
                timestamp=iso_time(time_us),
                first=iso_time(found.snapshot.timestamp_us),
            )
        return self.load(found.snapshot.version - 1)

    def get_first_from(self, time_us: int) -> Stored:
        """Return the first snapshot at or after a time, which is not after the head's time."""
        low, high = self.floor, self.head.snapshot.version
        while low < high:
            middle = (low + high) // 2
            if self._load_unchecked(middle).snapshot.timestamp_us >= time_us:
                high = middle
            else:
                low = middle + 1
        return self.load(low)

    def find_named(
        self, named: Parent | None, *, by: Snapshot, may_be_lost: bool = False
    ) -> Stored | None:
        """Return the snapshot that another snapshot names; None if it has expired.

        A missing snapshot of another branch, which may have been deleted, counts as expired; with
        `may_be_lost` also one that this history should have.

        Raises:
            CorruptObjectError: the snapshot is lost or was replaced.
        """
        if named is None or self.has_expired(named):
            return None
        try:
            return load_named(self.metadata, named, by=by)
        except SnapshotExpiredError:
            return None
        except NotFoundError as error:
            if may_be_lost or not self.contains(named):
                return None
            raise _lost(self.metadata, named.branch_id, named.version) from error

    # ---- many

    def iter_back(self, first: int | None = None) -> Iterator[Stored]:
        """Yield the snapshots from the head back to `first`, by default the floor.

        Yields nothing if `first` is after the head.
        """
        first = self.floor if first is None else first
        yield from self._iter_loaded(range(self.head.snapshot.version, first - 1, -1))

    def iter_between(self, first: int, last: int) -> Iterator[Stored]:
        """Yield the snapshots of the versions `first` to `last`, both included."""
        yield from self._iter_loaded(range(first, last + 1))

    def _iter_loaded(self, versions: Sequence[int]) -> Iterator[Stored]:
        count = 1  # at first few: most readers of a history stop soon
        while versions:
            count = min(2 * count, AT_ONCE)
            self.metadata.load_ahead(self.head.snapshot.branch_id, versions[:count])
            yield from map(self.load, versions[:count])
            versions = versions[count:]

    def iter_sources(self, stored: Stored, *, may_be_lost: bool = False) -> Iterator[Stored]:
        """Yield a snapshot, its source, the source of that, and so on, until one has expired.

        In a clone, the last one is the snapshot with the origin's content. The snapshot may be of
        another branch. Errors and `may_be_lost` are those of `find_named`.
        """
        found = None if self.has_expired(stored.snapshot) else stored
        while found is not None:
            yield found
            snapshot = found.snapshot
            if self.is_cloned(snapshot):
                return
            found = self.find_named(snapshot.source, by=snapshot, may_be_lost=may_be_lost)

    # ---- how they are found

    def _get_spelled(self, version: Version) -> Stored:
        spelling = parse_version(version)
        if spelling.tag is not None:
            load = load_tag if spelling.is_surely_tag else find_tag
            if tag := load(self.metadata, spelling.tag):
                return load_tagged(self.metadata, tag)
        history = self
        if spelling.branch is not None:
            history = load_history(self.metadata, spelling.branch)
        if spelling.number is not None:
            if spelling.tag is not None and spelling.number > self.head.snapshot.version:
                raise NotFoundError(
                    "there is no tag of this name, and no version of this number",
                    version=version,
                    head=self.head.snapshot.version,
                )
            return history.load(spelling.number)
        if spelling.id_prefix is not None:
            return history.get_by_id(spelling.id_prefix)
        return history.head

    def _as_text(self, number: int) -> str | None:
        """Return advice on a number that is no version of this history; None if no tag has it."""
        if number <= self.head.snapshot.version or not has_tag(self.metadata, str(number)):
            return None
        return f'a tag has this name: give it as text, "{number}"'

    def _load_unchecked(self, version: int) -> Stored:
        head = self.head.snapshot
        if version > head.version:
            raise NotFoundError(
                f"this version is past the head; {self._as_text(version) or 'give an older one'}",
                version=version,
                head=head.version,
            )
        if version < self.floor:
            raise _expired(version, self.floor)
        if version == head.version:
            return self.head
        try:
            return self.metadata.load_snapshot(head.branch_id, version)
        except SnapshotExpiredError as error:
            raise _expired(version, self.floor) from error
        except NotFoundError as error:
            raise _lost(self.metadata, head.branch_id, version) from error

    def _check_named_by_next(self, stored: Stored, most: int = MOST_SUCCESSORS) -> None:
        """Raise if the next version, which most callers read too, was not built on this one."""
        version = stored.snapshot.version + 1
        head = self.head.snapshot
        try:
            after = self.metadata.load_snapshot(head.branch_id, version)
            if after.snapshot.parent is None or after.snapshot.parent.sha256 == stored.sha256:
                return
            if version < head.version and most > 1:
                self._check_named_by_next(after, most - 1)
        except (NotFoundError, SnapshotExpiredError, CorruptObjectError, UnsupportedFormatError):
            return  # the next one is lost or was changed, which does not affect this one
        raise _changed(self.metadata, version - 1)


def load_history(metadata: Metadata, branch: str) -> History:
    """Return the history of a branch up to its newest snapshot.

    Raises:
        NotFoundError: there is no such branch.
        CorruptObjectError: its ref or its newest slots are damaged.
    """
    return History(metadata, metadata.load_head(load_branch(metadata, branch).branch_id))


def load_parent(metadata: Metadata, snapshot: Snapshot) -> Snapshot:
    """Return the parent of a snapshot that is not version 0.

    Raises:
        CorruptObjectError: the parent is missing or was replaced.
    """
    assert snapshot.parent is not None
    version = snapshot.parent.version
    try:
        stored = metadata.load_snapshot(snapshot.parent.branch_id, version)
    except NotFoundError as error:
        raise _lost(metadata, snapshot.parent.branch_id, version) from error
    if stored.sha256 != snapshot.parent.sha256:
        raise _changed(metadata, version)
    return stored.snapshot


def load_named(metadata: Metadata, named: Parent, *, by: Snapshot) -> Stored:
    """Return the snapshot that another one, `by`, names.

    Raises:
        SnapshotExpiredError: it has expired.
        NotFoundError: it does not exist.
        CorruptObjectError: it was replaced.
    """
    stored = metadata.load_snapshot(named.branch_id, named.version)
    check_named(stored, named, by=by)
    return stored


def check_named(stored: Stored, named: Parent, *, by: Snapshot) -> None:
    """Raise CorruptObjectError unless `stored` has the hash in `named`, a reference in `by`."""
    if stored.sha256 != named.sha256:
        raise CorruptObjectError(
            "a snapshot is not the one that a later snapshot was made from; run fuse-stream fsck, "
            "and restore the slot from a copy",
            version=named.version,
            named_by=by.version,
        )


def load_tagged(metadata: Metadata, tag: TagRef | CloneRef) -> Stored:
    """Return the snapshot that a tag or the pin of a clone names.

    Raises:
        CorruptObjectError: it is missing or was replaced.
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
            "another snapshot is in the slot that a tag or clone names; restore the slot from a "
            "copy",
            tag=tag.name,
            version=tag.target.version,
        )
    return stored


@contextlib.contextmanager
def expiry_reported(metadata: Metadata, *places: tuple[str, int]) -> Iterator[None]:
    """Raise SnapshotExpiredError in place of CorruptObjectError if a snapshot has expired.

    For a block that reads objects of snapshots, which may expire meanwhile. `places` are the branch
    id and the version of each. The error for a block names the last of them as its version, unless
    it has one.

    Raises:
        SnapshotExpiredError: an object is missing, and one of the snapshots has expired.
        NotFoundError: an object is missing, and one of the branches was deleted.
    """
    try:
        yield
    except CorruptObjectError as error:
        for branch_id, version in places:
            metadata.check_not_deleted(branch_id)  # its first slots are deleted before its last
            floor = metadata.load_head(branch_id).snapshot.floor
            if version < floor:
                raise _expired(version, floor) from error
        name_version(error, places[-1][1])
        raise


def name_version(error: CorruptObjectError, version: int | None) -> None:
    """Add the version that was read to the error for a block, unless it has one."""
    if version is not None and "block" in error.context:
        error.context.setdefault("version", version)


def _expired(version: int, floor: int) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        "this version has expired; read from the first version that has not",
        version=version,
        first=floor,
    )


def _lost(metadata: Metadata, branch_id: str, version: int) -> CorruptObjectError:
    owner = owner_of(metadata.forks_of(branch_id), branch_id, version)
    return CorruptObjectError(
        "a snapshot is missing from the table's history; run fuse-stream fsck, and restore the "
        "slot from a copy",
        version=version,
        path=metadata.store.url,
        key=slot_key(owner, version),
    )


def _changed(metadata: Metadata, version: int) -> CorruptObjectError:
    return CorruptObjectError(
        "a snapshot is not the one that the next was built on: its slot was changed; restore the "
        "slot from a copy",
        version=version,
        path=metadata.store.url,
    )
