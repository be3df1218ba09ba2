"""Snapshots, segments and the table file, loaded and verified; and where the head is.

Rules:
- Nothing here rests on a listing: the head is found with `get` alone.
- A version is *taken* if its slot exists or its chunk has a floor marker. *Taken* is monotone, so
  the head is the largest taken version, found in growing steps and bisection.
- One lost slot does not end the history: who knows no head also asks for the slot after the end.
- A branch whose hint is ahead of its head was set back: it is read with a warning, not written.
- A history without its table file is a damaged table, never a place for a new one.
- What is immutable is kept in memory, within bounds.

Searching for the greatest version that is taken, by a question about one version at a time.

Taken versions have no gap, but for slots that were lost. Pure but for the question.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fuse_stream.clock import Clock
from fuse_stream.errors import (
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import (
    decode_segment,
    decode_snapshot,
    decode_table_file,
    encode_segment,
    encode_table_file,
    sha256_hex,
)
from fuse_stream.format.columns import LeafTypes
from fuse_stream.format.layout import (
    LAST_VERSION,
    MAIN,
    TABLE_KEY,
    branch_checked,
    floor_key,
    segment_key,
    slot_key,
)
from fuse_stream.format.records import (
    Segment,
    SegmentRef,
    Snapshot,
    TableFile,
)
from fuse_stream.format.refs import Forks, owner_of
from fuse_stream.format.stats import key_range
from fuse_stream.objects.hints import (
    load_hint,
    loss,
    store_hint,
    warn_of_loss,
)
from fuse_stream.storage.base import Store

HINT_EVERY = 32
"""Versions between two hints: what a cold reader has to walk at the most."""

CACHED_SNAPSHOTS = 64
CACHED_STATISTICS = 20_000
"""Column statistics kept in memory, over all cached segments: about 12 MB. A long process fills
it with segments that roll-ups and compactions have replaced: more would only be held for nothing,
and a table of more blocks is planned by one walk through its segments, which no cache helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A snapshot as it stands in its slot."""

    snapshot: Snapshot
    sha256: str
    """Of the slot's bytes."""
    read_s: float
    """When it was read, on the reader's monotonic clock; of a head, when it still was the head."""


class Metadata:
    """The metadata objects of the table in one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._snapshots: OrderedDict[tuple[str, int], Stored] = OrderedDict()
        self._segments: OrderedDict[str, tuple[Segment, int]] = OrderedDict()
        """With how many statistics each holds."""
        self._cached_statistics = 0
        self._expired_chunks: set[str] = set()
        self._forks: dict[str, Forks] = {}
        self._floors: dict[str, int] = {}
        """Of branches, as their refs say."""
        self._set_back: set[str] = set()
        """Ids of branches of which a hint named a newer version than the head."""
        self._table_id: str | None = None
        """As the table file says, once that was read or written."""

    def load_table_file(self) -> TableFile:
        """Return `_fuse.json`.

        Raises:
            NotFoundError: there is no table here.
            CorruptObjectError: it is damaged, or lost: the history of a table is here without it.
        """
        try:
            data = self._get_table_file()
        except NotFoundError as error:
            raise NotFoundError(
                "there is no fuse_stream table here; check the path, or create the table with "
                "Table.create or by writing to it",
                path=self.store.url,
            ) from error
        with _named(key=TABLE_KEY):
            table = decode_table_file(data)
        self._table_id = table.table_id
        return table

    def store_table_file(self, table: TableFile) -> None:
        """Create `_fuse.json`.

        Raises:
            AlreadyExistsError: there is one.
        """
        self.store.put_if_absent(TABLE_KEY, encode_table_file(table))
        self._table_id = table.table_id

    def learn_forks(self, branch_id: str, forks: Forks, floor: int = 0) -> None:
        """Learn where a branch and those before it forked off: their versions share slots.

        `floor` is the oldest version that the branch took over, where its ref is at hand.
        """
        self._forks[branch_id] = forks
        self._floors[branch_id] = max(floor, self._floors.get(branch_id, 0))
        for count, fork in enumerate(forks):
            self._forks[fork.branch_id] = forks[:count]

    def forks_of(self, branch_id: str) -> Forks:
        """Return where a branch and those before it forked off, as far as that was learned."""
        return self._forks.get(branch_id, ())

    def load_snapshot(self, branch_id: str, version: int) -> Stored:
        """Return one version of a branch.

        Raises:
            SnapshotExpiredError: it was there and has expired.
            NotFoundError: there is none.
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
        """Return what stands in a slot now, whatever was read before.

        Raises:
            NotFoundError: nothing does.
        """
        read_s = self.clock.monotonic_s()
        owner = owner_of(self.forks_of(branch_id), branch_id, version)
        data = self.store.get(slot_key(owner, version))
        with _named(version=version, branch_id=owner):
            stored = self.remember(data, read_s)
        if (stored.snapshot.branch_id, stored.snapshot.version) != (owner, version):
            self._snapshots.pop((stored.snapshot.branch_id, stored.snapshot.version), None)
            raise CorruptObjectError("a slot holds another slot's snapshot", version=version)
        return stored

    def remember(self, data: bytes, read_s: float, decoded: Snapshot | None = None) -> Stored:
        """Decode the bytes of a slot, read (or written) at `read_s`, and keep them at hand."""
        digest = sha256_hex(data)
        snapshot = decoded or self._known(digest) or decode_snapshot(data)
        stored = Stored(snapshot=snapshot, sha256=digest, read_s=read_s)
        self._snapshots[snapshot.branch_id, snapshot.version] = stored
        self._snapshots.move_to_end((snapshot.branch_id, snapshot.version))
        if len(self._snapshots) > CACHED_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return stored

    def load_head(self, branch_id: str, known: Stored | None = None) -> Stored:
        """Return the newest snapshot of a branch, looking forward from `known`.

        Raises:
            NotFoundError: the table is not (or no longer) here.
            CorruptObjectError: its newest slots are lost, or it is not of the table file's table.
        """
        read_s = self.clock.monotonic_s()
        is_taken = partial(self._is_taken, branch_id)
        hint = 0 if known else load_hint(self.store, branch_id)
        if known:
            self.confirm(known)
            low = known.snapshot.version
        else:
            low = hint if hint and is_taken(hint) else 0
        if forks := self.forks_of(branch_id):
            low = max(low, forks[-1].version)  # the head of a branch without commits of its own
        low = last_taken(is_taken, low)
        if known is None:
            low = past_gaps(is_taken, low)
        if hint > low:
            warn_of_loss(self.store, branch_id, hint, low)
            self._set_back.add(branch_id)
        try:
            head = self.load_snapshot(branch_id, low)
        except NotFoundError as error:
            raise NotFoundError(
                "there is no such branch of a table here, or its newest slot is lost; check the "
                "path and the branch, or restore the slot",
                path=self.store.url,
                branch_id=branch_id,
                version=low,
            ) from error
        except SnapshotExpiredError as error:
            if is_taken(low + 1):
                raise  # it was the newest, and has expired since
            owner = owner_of(forks, branch_id, low)
            raise CorruptObjectError(
                "the newest slots of a branch are lost: a floor marker says that a version has "
                "expired, and no later one is there, which had to be; restore the slots from a "
                "copy, or delete the marker if the branch never came so far",
                key=slot_key(branch_id, low + 1),
                marker=floor_key(owner, low),
                path=self.store.url,
            ) from error
        self._check_table(head.snapshot)
        if forks and low == forks[-1].version and head.sha256 != forks[-1].sha256:
            raise CorruptObjectError("another snapshot stands where it forked off", version=low)
        snapshot = head.snapshot
        if (floor := self._floors.get(branch_id, 0)) > snapshot.floor:
            # Of a branch without commits of its own: below, its history had expired when it began.
            snapshot = dataclasses.replace(snapshot, floor=floor)
        return dataclasses.replace(head, snapshot=snapshot, read_s=read_s)

    def confirm(self, known: Stored) -> None:
        """See that `known` still stands: a handle that is kept must notice that its table has gone.

        That it still is the head is not asked, so its `read_s` stays.

        Raises:
            NotFoundError: the table was moved, removed or replaced by another.
        """
        snapshot = known.snapshot
        try:
            data = self.store.get(slot_key(snapshot.branch_id, snapshot.version))
        except NotFoundError:
            if self.has_expired(snapshot.branch_id, snapshot.version):
                return
            raise NotFoundError(
                "the table that stood here is gone: it was moved or removed while in use; open "
                "it where it is now",
                path=self.store.url,
                table_id=snapshot.table_id,
            ) from None
        if sha256_hex(data) != known.sha256:
            raise NotFoundError(
                "another table stands here now than the one that was opened; open it anew",
                path=self.store.url,
                table_id=snapshot.table_id,
            )

    def store_hint(self, branch_id: str, version: int) -> None:
        """Note where the head was, once its slot is there; a failure is no error."""
        store_hint(self.store, branch_id, version)

    def load_segment(self, ref: SegmentRef, types: LeafTypes) -> Segment:
        """Return a segment, checked against the hash that its snapshot holds."""
        if ref.id in self._segments:
            self._segments.move_to_end(ref.id)
            return self._segments[ref.id][0]
        try:
            stored = self.store.get(segment_key(ref.id))
        except NotFoundError as error:
            raise CorruptObjectError(
                "a segment is missing; if its version has expired meanwhile, read a later one",
                segment=ref.id,
            ) from error
        with _named(segment=ref.id):
            segment = decode_segment(stored, ref.sha256, types)
        for block in segment.blocks:
            if block.deletes is not None:  # read without, it would show rows that are gone
                raise UnsupportedFormatError(
                    "a block has deleted rows, which this release cannot read; upgrade fuse-stream",
                    block=block.id,
                )
        self._keep(ref.id, segment, len(types))
        return segment

    def store_segment(
        self,
        segment: Segment,
        types: LeafTypes,
        *,
        segment_id: str,
        level: int,
        cluster_key: tuple[int, ...],
    ) -> SegmentRef:
        """Put a segment and return how a snapshot names it."""
        stored, sha256 = encode_segment(segment, types)
        self.store.put(segment_key(segment_id), stored)
        self._keep(segment_id, segment, len(types))
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
        """Whether the chunk of `version` has its floor marker."""
        key = floor_key(owner_of(self.forks_of(branch_id), branch_id, version), version)
        if key in self._expired_chunks:
            return True
        try:
            self.store.get(key)
        except NotFoundError:
            return False
        self._expired_chunks.add(key)
        return True

    def check_not_set_back(self, branch_id: str, head: Stored) -> None:
        """See that no hint is ahead of the head any more, if one was when the branch was opened.

        Raises:
            CorruptObjectError: one is; says how to go on.
        """
        if branch_id not in self._set_back:
            return
        # Both may have changed since: the slots were restored, or the hint was deleted.
        hint = load_hint(self.store, branch_id)
        if hint > head.snapshot.version and not self._is_taken(branch_id, hint):
            raise loss(self.store, branch_id, hint, head.snapshot.version)
        self._set_back.discard(branch_id)

    def _check_table(self, head: Snapshot) -> None:
        if self._table_id not in {None, head.table_id}:
            raise CorruptObjectError(
                f"the table file, {TABLE_KEY}, is another table's than the newest snapshot; "
                "fuse-stream fsck tells which of the two is wrong, and what puts it right",
                path=self.store.url,
                table_file=self._table_id,
                snapshot=head.table_id,
            )

    def _get_table_file(self) -> bytes:
        try:
            return self.store.get(TABLE_KEY)
        except NotFoundError:
            if not self._has_history():
                raise
        try:
            return self.store.get(TABLE_KEY)  # put before any slot: a create may have come between
        except NotFoundError as error:
            raise CorruptObjectError(
                f"the table file, {TABLE_KEY}, is lost: the history of a table is here without "
                "it. Put it back from a copy, or make it again with fuse-stream "
                "restore-table-file; to create another table, use another path",
                key=TABLE_KEY,
                path=self.store.url,
            ) from error

    def _has_history(self) -> bool:
        """Whether a table was here: version 0 stands until its chunk has a floor marker."""
        return self._is_taken(MAIN, 0) or load_hint(self.store, MAIN) > 0

    def _is_taken(self, branch_id: str, version: int) -> bool:
        if version > LAST_VERSION:
            return False  # no key holds it
        branch_checked(owner_of(self.forks_of(branch_id), branch_id, version))  # else seems taken
        try:
            self.reload(branch_id, version)
        except NotFoundError:
            return self.has_expired(branch_id, version)
        except (CorruptObjectError, UnsupportedFormatError):
            pass  # an error to whoever wants to read this very version
        return True

    def _known(self, digest: str) -> Snapshot | None:
        last = next(reversed(self._snapshots.values()), None)
        return last.snapshot if last and last.sha256 == digest else None

    def _keep(self, segment_id: str, segment: Segment, leaf_count: int) -> None:
        count = (1 + len(segment.blocks)) * leaf_count
        self._segments[segment_id] = segment, count
        self._cached_statistics += count
        while self._cached_statistics > CACHED_STATISTICS and len(self._segments) > 1:
            _, (_, dropped) = self._segments.popitem(last=False)
            self._cached_statistics -= dropped


@contextlib.contextmanager
def _named(**names: object) -> Iterator[None]:
    """Let an error of decoding say which object it is about."""
    try:
        yield
    except CorruptObjectError as error:
        raise CorruptObjectError(error.message, **{**error.context, **names}) from error


IsTaken = Callable[[int], bool]
"""False for what lies beyond `LAST_VERSION`, so that every search ends."""

MOST_STEPS = LAST_VERSION.bit_length() + 1
"""Steps, each twice as long as the one before, from any version to beyond the last."""

MOST_GAPS = 1_000
"""Lost slots, each alone, that a search passes before it gives up."""


def last_taken(is_taken: IsTaken, low: int) -> int:
    """Return the version, from `low` on, that is taken while the next one is not."""
    step = 1
    for _ in range(MOST_STEPS):
        if not is_taken(low + step):
            break
        low += step
        step *= 2
    high = low + step
    for _ in range(MOST_STEPS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        if is_taken(middle):
            low = middle
        else:
            high = middle
    return low


def past_gaps(is_taken: IsTaken, low: int) -> int:
    """Return the version that `last_taken` finds beyond gaps of one slot each.

    Raises:
        CorruptObjectError: there are more of them than anybody loses by accident.
    """
    for _ in range(MOST_GAPS):
        if not is_taken(low + 2):
            return low
        low = last_taken(is_taken, low + 2)  # a slot was lost, or others committed
    raise CorruptObjectError(
        "many slots of a branch are lost, so its newest one is not known; fuse-stream fsck names "
        "them: restore them from a copy",
        version=low,
    )
