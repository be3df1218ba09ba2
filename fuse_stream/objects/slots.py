"""Snapshots, segments and the table file: loaded and verified, and the search for the head.

Rules:
- The head is found with `get`, without a listing: see `head_search`.
- If a branch's hint is ahead of its head, newer slots are lost: reads log a warning, writes fail.
- A path with a history but without a table file is a damaged table; no new table is created there.
- Immutable objects are cached in memory, within limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fuse_stream.clock import Clock
from fuse_stream.errors import (
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import (
    decode_ref,
    decode_segment,
    decode_snapshot,
    decode_table_file,
    encode_segment,
    encode_table_file,
    sha256_hex,
)
from fuse_stream.format.columns import LeafTypes
from fuse_stream.format.layout import (
    COPY_KEY,
    LAST_VERSION,
    MAIN,
    TABLE_KEY,
    branch_checked,
    branch_ref_key,
    floor_key,
    segment_key,
    slot_key,
)
from fuse_stream.format.records import Segment, SegmentRef, Snapshot, TableFile
from fuse_stream.format.refs import BranchRef, Forks, owner_of
from fuse_stream.format.stats import key_range
from fuse_stream.objects.block_columns import BlockColumns
from fuse_stream.objects.deletions import Deletions
from fuse_stream.objects.head_search import LOOKS, HeadSearch, ask_of
from fuse_stream.objects.hints import load_hint, loss_error, warn_of_loss
from fuse_stream.objects.object_cache import ObjectCache
from fuse_stream.objects.other_files import no_table
from fuse_stream.storage.base import Store, find_object
from fuse_stream.storage.parallel import find_objects

HINT_EVERY = 32
"""Versions between two hints: a reader without a known head searches at most this many."""

CACHED_SNAPSHOTS = 64
CACHED_STATISTICS = 20_000
"""The limit of column statistics in all cached segments: about 12 MB. More would not help: a long
process fills the cache with segments that were replaced, and a plan of a larger table reads each
segment once."""


UNREADABLE = (NotFoundError, CorruptObjectError, SnapshotExpiredError, UnsupportedFormatError)
"""Errors of a snapshot that is damaged or gone; failures of the store are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A snapshot and the hash of its slot."""

    snapshot: Snapshot
    sha256: str
    """Of the slot's bytes."""
    read_s: float = -math.inf
    """A time, by the reader's monotonic clock, at which the next version was not there. A snapshot
    that was not read as a head has none."""


class Metadata:
    """The metadata objects of the table in one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.deletions = Deletions(store)
        self.block_columns = BlockColumns(store)
        self._snapshots: OrderedDict[tuple[str, int], Stored] = OrderedDict()
        self._segments = ObjectCache[Segment](CACHED_STATISTICS)
        self._expired_chunks: set[str] = set()
        self._forks: dict[str, Forks] = {}
        self._floors: dict[str, int] = {}
        """Floors of branches, from their refs."""
        self._names: dict[str, str] = {}
        """The names of the branches whose refs were read, by branch id."""
        self._set_back: set[str] = set()
        """Ids of the branches whose hint was ahead of the head."""
        self._table_file: TableFile | None = None
        """None before it was read or written."""

    def load_table_file(self) -> TableFile:
        """Return `_fuse.json`.

        Raises:
            NotFoundError: there is no table here; says what is here instead.
            CorruptObjectError: it is damaged, or is missing although the table's history exists.
        """
        table = self.find_table_file()
        if table is None:
            raise no_table(self.store)
        return table

    def find_table_file(self) -> TableFile | None:
        """Return `_fuse.json`; None if there is no table here. Errors of `load_table_file`."""
        data = self._find_table_file()
        if data is None:
            return None
        with _named(key=TABLE_KEY):
            table = decode_table_file(data)
        self._table_file = table
        return table

    def store_table_file(self, table: TableFile) -> None:
        """Create `_fuse.json`.

        Raises:
            AlreadyExistsError: it exists.
        """
        self.store.put_if_absent(TABLE_KEY, encode_table_file(table))
        self._table_file = table

    def is_clone(self) -> bool:
        """True if the table is a clone; reads the table file only if nothing has. Its errors."""
        return bool((self._table_file or self.load_table_file()).origins)

    def learn_branch(self, branch: BranchRef) -> None:
        """Remember a branch whose ref the caller has read: its name, floor and fork points."""
        self._names[branch.branch_id] = branch.name
        self._floors[branch.branch_id] = branch.floor
        self.learn_forks(branch.branch_id, branch.forks)

    def learn_forks(self, branch_id: str, forks: Forks) -> None:
        """Remember the fork points of a branch and its ancestors, which share slots."""
        self._forks[branch_id] = forks
        for count, fork in enumerate(forks):
            self._forks[fork.branch_id] = forks[:count]

    def forks_of(self, branch_id: str) -> Forks:
        """Return the fork points of a branch that `learn_forks` got; none for other branches."""
        return self._forks.get(branch_id, ())

    def load_snapshot(self, branch_id: str, version: int) -> Stored:
        """Return one version of a branch.

        Raises:
            SnapshotExpiredError: it has expired.
            NotFoundError: there is no such version.
        """
        key = (owner_of(self.forks_of(branch_id), branch_id, version), version)
        if key in self._snapshots:
            self._snapshots.move_to_end(key)
            return self._snapshots[key]
        try:
            return self.reload(branch_id, version)
        except NotFoundError:
            if self.has_expired(branch_id, version):
                raise SnapshotExpiredError(
                    "this version has expired", version=version, path=self.store.url
                ) from None
            raise

    def reload(self, branch_id: str, version: int) -> Stored:
        """Return one version of a branch from its slot, without the cache.

        Raises:
            NotFoundError: the slot does not exist.
        """
        owner = owner_of(self.forks_of(branch_id), branch_id, version)
        return self._read(branch_id, version, self.store.get(slot_key(owner, version)))

    def _read(self, branch_id: str, version: int, data: bytes) -> Stored:
        """Return the snapshot in the bytes of a version's slot, and cache it."""
        owner = owner_of(self.forks_of(branch_id), branch_id, version)
        known = self._snapshots.get((owner, version))
        if known is not None and known.sha256 == sha256_hex(data):
            self._snapshots.move_to_end((owner, version))
            return known
        with _named(version=version, branch_id=owner):
            stored = self.remember(data, decode_snapshot(data))
        place = stored.snapshot.branch_id, stored.snapshot.version
        if place != (owner, version):
            self._snapshots.pop(place, None)
            raise CorruptObjectError("a slot holds another slot's snapshot", version=version)
        return stored

    def load_ahead(self, branch_id: str, versions: Iterable[int]) -> None:
        """Ask a remote store at once for versions that are loaded next; errors are left to that."""
        if not self.store.is_remote:
            return
        forks = self.forks_of(branch_id)
        places = [(owner_of(forks, branch_id, version), version) for version in versions]
        keys = {slot_key(*place): place[1] for place in places if place not in self._snapshots}
        for key, data in find_objects(self.store, list(keys)).items():
            with contextlib.suppress(*UNREADABLE):
                if data is not None:
                    self._read(branch_id, keys[key], data)

    def peek(self, branch_id: str, version: int) -> Snapshot:
        """Return one version as `reload` does, but do not cache it: threads may call this."""
        owner = owner_of(self.forks_of(branch_id), branch_id, version)
        data = self.store.get(slot_key(owner, version))
        with _named(version=version, branch_id=owner):
            snapshot = decode_snapshot(data)
        if (snapshot.branch_id, snapshot.version) != (owner, version):
            raise CorruptObjectError("a slot holds another slot's snapshot", version=version)
        return snapshot

    def remember(self, data: bytes, snapshot: Snapshot) -> Stored:
        """Cache and return the snapshot in the bytes of a slot."""
        stored = Stored(snapshot=snapshot, sha256=sha256_hex(data))
        self._snapshots[snapshot.branch_id, snapshot.version] = stored
        self._snapshots.move_to_end((snapshot.branch_id, snapshot.version))
        if len(self._snapshots) > CACHED_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return stored

    def load_head(self, branch_id: str, known: Stored | None = None) -> Stored:
        """Return the newest snapshot of a branch; the search starts at the earlier head `known`.

        Raises:
            NotFoundError: the table is not (or no longer) here, or the branch was deleted.
            CorruptObjectError: the newest slots are lost, or the snapshot's table id differs from
                that in the table file.
        """
        try:
            return self._find_head(branch_id, known)
        except (NotFoundError, SnapshotExpiredError, CorruptObjectError):
            self.check_not_deleted(branch_id)
            raise

    def _search(self, branch_id: str, known: Stored | None) -> HeadSearch:
        """Search for the newest version, which the result has."""
        forks = self.forks_of(branch_id)
        start = forks[-1].version if forks else 0  # the head of a branch without commits of its own
        search = HeadSearch(
            ask=ask_of(self.store, branch_id, forks, self._expired_chunks),
            looks=LOOKS if self.store.is_remote else 1,
            is_fresh=lambda: known is not None and self._was_head_lately(known),
            newest=start,
        )
        hint = 0
        if known is not None:
            at = known.snapshot.version
            search.newest = max(start, at)
            search.find([at, search.newest + 1], 1, past_gaps=False)
        else:
            hint = load_hint(self.store, branch_id)
            step = -(-HINT_EVERY // search.looks)
            first = max(hint, start)
            search.find(range(first, first + HINT_EVERY + step, step), step, past_gaps=True)
        is_known_gone = known is not None and known.snapshot.version not in search.slots
        if hint > search.newest or is_known_gone or (forks and search.newest == start):
            self.check_not_deleted(branch_id)  # the own slots of a deleted branch are deleted
        if hint > search.newest:
            warn_of_loss(self.store, branch_id, hint, search.newest)
            self._set_back.add(branch_id)
        return search

    def _was_head_lately(self, known: Stored) -> bool:
        """True if what came after `known` cannot have been freed yet, by a wide margin."""
        if self._table_file is None:
            return False  # the grace is not known
        return self.clock.monotonic_s() - known.read_s <= self._table_file.grace_us / 4_000_000

    def _find_head(self, branch_id: str, known: Stored | None) -> Stored:
        read_s = self.clock.monotonic_s()
        search = self._search(branch_id, known)
        if known is not None:
            self._check_same(known, search.slots.get(known.snapshot.version))
        low, forks = search.newest, self.forks_of(branch_id)
        try:
            data = search.slots.get(low)
            head = (
                self.load_snapshot(branch_id, low)
                if data is None
                else self._read(branch_id, low, data)
            )
        except NotFoundError as error:
            raise NotFoundError(
                "there is no such branch of a table here, or its newest slot is lost; check the "
                "path and the branch, or restore the slot",
                path=self.store.url,
                branch_id=branch_id,
                version=low,
            ) from error
        except SnapshotExpiredError as error:
            if self._is_taken(branch_id, low + 1):
                raise  # it was the head and has expired since
            owner = owner_of(forks, branch_id, low)
            raise CorruptObjectError(
                "the newest slots of a branch are lost: a floor marker says that a version has "
                "expired, so there must be a later one, but there is none; restore the slots from "
                "a copy, or delete the marker if the branch never had such a version",
                key=slot_key(branch_id, low + 1),
                marker=floor_key(owner, low),
                path=self.store.url,
            ) from error
        self._check_table(head.snapshot)
        if forks and low == forks[-1].version and head.sha256 != forks[-1].sha256:
            raise CorruptObjectError(
                "the snapshot at a branch's fork point was replaced; restore its slot from a copy",
                version=low,
            )
        snapshot = head.snapshot
        if (floor := self._floors.get(branch_id, 0)) > snapshot.floor:
            # The branch has no commits of its own; the versions below its own floor have expired.
            snapshot = dataclasses.replace(snapshot, floor=floor)
        return dataclasses.replace(head, snapshot=snapshot, read_s=read_s)

    def check_not_deleted(self, branch_id: str) -> None:
        """Raise NotFoundError if the ref that the caller has read is gone or another branch's."""
        name = self._names.get(branch_id)
        if name is None:
            return
        with contextlib.suppress(NotFoundError):
            ref = decode_ref(BranchRef, self.store.get(branch_ref_key(name)))
            if ref.branch_id == branch_id:
                return
        raise NotFoundError(
            "there is no such branch any more: it was deleted meanwhile; open another branch",
            branch=name,
            path=self.store.url,
        )

    def confirm(self, known: Stored) -> None:
        """Raise unless the slot of `known`, not necessarily the head any more, is unchanged.

        A handle that is used for long notices in this way that its table is gone.

        Raises:
            NotFoundError: the table was moved, removed or replaced by another.
        """
        snapshot = known.snapshot
        key = slot_key(snapshot.branch_id, snapshot.version)
        self._check_same(known, find_object(self.store, key))

    def _check_same(self, known: Stored, data: bytes | None) -> None:
        """Raise unless `data`, what the slot of `known` holds, is what it held; None: nothing."""
        snapshot = known.snapshot
        if data is None:
            if self.has_expired(snapshot.branch_id, snapshot.version):
                return
            raise NotFoundError(
                "the table is gone: it was moved or removed while it was open; open it at its new "
                "path",
                path=self.store.url,
                table_id=snapshot.table_id,
            )
        if sha256_hex(data) != known.sha256:
            raise NotFoundError(
                "this path has another table now than the one that was opened; open it again",
                path=self.store.url,
                table_id=snapshot.table_id,
            )

    def load_segment(self, ref: SegmentRef, types: LeafTypes) -> Segment:
        """Return a segment, checked against the hash that its snapshot holds."""
        return next(self.iter_segments((ref,), types))

    def iter_segments(self, refs: Sequence[SegmentRef], types: LeafTypes) -> Iterator[Segment]:
        """Yield segments as `load_segment` returns them, in order.

        A remote store is asked for several at once. An error is raised in place of its segment.
        """

        def decode(ref: SegmentRef, stored: bytes) -> tuple[Segment, int]:
            with _named(segment=ref.id):
                segment = decode_segment(stored, ref.sha256, types)
            return segment, _statistics_in(segment, types)

        # A column that a later version has dropped is left out there, and in no other version.
        variant = frozenset(types)
        return self._segments.iter_loaded(self.store, refs, self._get_segment, decode, variant)

    def _get_segment(self, ref: SegmentRef) -> bytes:
        try:
            return self.store.get(segment_key(ref.id))
        except NotFoundError as error:
            raise CorruptObjectError(
                "a segment is missing; if its version has expired meanwhile, read a later version",
                segment=ref.id,
            ) from error

    def store_segment(
        self,
        segment: Segment,
        types: LeafTypes,
        *,
        segment_id: str,
        level: int,
        cluster_key: tuple[int, ...],
    ) -> SegmentRef:
        """Store a segment and return the reference to it for a snapshot."""
        stored, sha256 = encode_segment(segment, types)
        self.store.put(segment_key(segment_id), stored)
        cost = _statistics_in(segment, types)
        self._segments.keep(segment_id, segment, cost, frozenset(types))
        return SegmentRef(
            id=segment_id,
            sha256=sha256,
            level=level,
            row_count=segment.summary.row_count,
            block_count=segment.summary.block_count,
            byte_size=len(stored),
            key_range=key_range(segment.summary.col_stats, cluster_key),
        )

    def has_expired(self, branch_id: str, version: int) -> bool:
        """True if the chunk of `version` has a floor marker."""
        key = floor_key(owner_of(self.forks_of(branch_id), branch_id, version), version)
        if key in self._expired_chunks:
            return True
        if find_object(self.store, key) is None:
            return False
        self._expired_chunks.add(key)
        return True

    def check_not_set_back(self, branch_id: str, head: Stored) -> None:
        """Raise if the hint was ahead of the head when the branch was opened, and still is.

        Raises:
            CorruptObjectError: newer slots are lost, or the hint is damaged.
        """
        if branch_id not in self._set_back:
            return
        # The slots may have been restored since, or the hint deleted.
        hint = load_hint(self.store, branch_id)
        if hint > head.snapshot.version and not self._is_taken(branch_id, hint):
            raise loss_error(self.store, branch_id, hint, head.snapshot.version)
        self._set_back.discard(branch_id)

    def _check_table(self, head: Snapshot) -> None:
        table = self._table_file
        if table is not None and table.table_id != head.table_id:
            raise CorruptObjectError(
                f"the table file, {TABLE_KEY}, is of another table than the newest snapshot; "
                "fuse-stream fsck shows which of the two is wrong and how to repair it",
                path=self.store.url,
                table_file=table.table_id,
                snapshot=head.table_id,
            )

    def _find_table_file(self) -> bytes | None:
        data = find_object(self.store, TABLE_KEY)
        # Version 0 is always taken.
        if data is not None or (not self._is_taken(MAIN, 0) and load_hint(self.store, MAIN) == 0):
            return data
        if find_object(self.store, COPY_KEY) is not None:  # its table file is put last
            return find_object(self.store, TABLE_KEY)
        try:
            return self.store.get(TABLE_KEY)  # a create, which puts it first, may have come between
        except NotFoundError as error:
            raise CorruptObjectError(
                f"the table file, {TABLE_KEY}, is lost: the history of a table is here without "
                "it. Restore it from a copy, or rebuild it with fuse-stream restore-table-file; "
                "to create another table, use another path",
                key=TABLE_KEY,
                path=self.store.url,
            ) from error

    def _is_taken(self, branch_id: str, version: int) -> bool:
        if version > LAST_VERSION:
            return False  # no key has such a number
        # Checked first: below, an invalid id would count as a damaged slot, so as taken.
        branch_checked(owner_of(self.forks_of(branch_id), branch_id, version))
        try:
            self.reload(branch_id, version)
        except NotFoundError:
            return self.has_expired(branch_id, version)
        except (CorruptObjectError, UnsupportedFormatError):
            pass  # the slot exists; a read of this version raises
        return True


def _statistics_in(segment: Segment, types: LeafTypes) -> int:
    return (1 + len(segment.blocks)) * len(types)


@contextlib.contextmanager
def _named(**names: object) -> Iterator[None]:
    """Add the name of an object to the errors of decoding it."""
    try:
        yield
    except (CorruptObjectError, UnsupportedFormatError) as error:
        raise type(error)(error.message, **{**error.context, **names}) from error
