"""Publishing: the writer that creates the slot of version n + 1 has committed, and no other.

Rules:
- The ledger is judged on the very head that the put builds on.
- All attempts on one slot send identical bytes. After any exception the slot itself says what
  happened; error types decide nothing, and an unknown outcome deletes nothing.
- A put that took long is believed only while its chunk has no floor marker: the slot may have been
  taken, superseded and freed in the meantime. It may also have landed before: only a ledger entry
  tells, and without one nothing that changes rows is done again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fuse_stream.clock import StoreClock
from fuse_stream.commit.create import MAX_SKEW_US, check_clock, probe_store
from fuse_stream.commit.invariants import check
from fuse_stream.commit.ledger import (
    Batch,
    Verdict,
    check_elsewhere,
    is_after_gap,
    judge,
    last_number,
)
from fuse_stream.commit.plan import (
    Intent,
    Rollup,
    Staged,
    check_intent,
    is_stale,
    may_be_gone,
    next_snapshot,
)
from fuse_stream.commit.rollup import must_roll_up, prepare_rollup
from fuse_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import decode_snapshot, encode_snapshot
from fuse_stream.format.layout import MAIN, slot_key
from fuse_stream.format.records import KEEPS_ROWS, Ledger, Operation, Snapshot
from fuse_stream.format.refs import BranchRef, last_shared
from fuse_stream.objects.leases import load_store_time_us
from fuse_stream.objects.refs import iter_branch_names, load_branch
from fuse_stream.objects.slots import HINT_EVERY, Metadata, Stored
from fuse_stream.objects.source_offsets import store_if_long

ATTEMPTS = 200
"""Slots that other writers may win in a row."""
SLOT_ATTEMPTS = 8
"""Puts of one slot that fail without leaving anything there."""
MAX_SECONDS = 300.0
"""For all attempts together, from the first put of a slot."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.005, 1.0

UNREADABLE = (NotFoundError, CorruptObjectError, SnapshotExpiredError, UnsupportedFormatError)
"""Of a branch: it is damaged, or was deleted meanwhile. A store that fails is not among them."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a logical commit."""

    stored: Stored
    """The snapshot that holds it; for a replay, the head in which it was found."""
    verdict: Verdict
    attempts: int


class Examined(NamedTuple):
    """What a batch is to a head."""

    verdict: Verdict
    head: Stored


class Committer:
    """Commits to one branch, remembering its head between commits."""

    def __init__(
        self, metadata: Metadata, branch: BranchRef, *, grace_us: int, is_probed: bool
    ) -> None:
        self.metadata = metadata
        self.branch = branch
        self.branch_id = branch.branch_id
        self._clock = metadata.clock
        self.grace_us = grace_us
        self._is_probed = is_probed
        self._store_clock = StoreClock(self._clock)
        self._head: Stored | None = None
        self._rollup: tuple[int, Rollup] | None = None
        self._judged_last: Batch | None = None

    @property
    def clock_offset_us(self) -> int:
        """How far the store's clock is ahead of this machine's wall clock, as that is now."""
        return self._store_clock.now_us() - self._clock.now_us()

    @clock_offset_us.setter
    def clock_offset_us(self, offset_us: int) -> None:
        self._store_clock.learn(self._clock.now_us() + offset_us)

    def head(self) -> Stored:
        """Return the newest snapshot, asked of the store."""
        self._head = self.metadata.load_head(self.branch_id, self._head)
        return self._head

    def prepare(self) -> None:
        """Try the store out, once, before the first write; `commit` does so itself.

        Raises:
            UnsupportedStorageError: it cannot create an object exactly once.
        """
        if not self._is_probed:
            self.clock_offset_us = probe_store(self.metadata)
            self._is_probed = True

    def known_head(self) -> Stored:
        """Return the newest head that this committer has seen; ask the store only for the first."""
        return self._head or self.head()

    def examine(self, batch: Batch | None) -> Examined:
        """Return what `batch` is to the known head; if it is not new there, to the newest head.

        A new batch asks the store for nothing: `commit` confirms the head, and its put proves it.

        Raises:
            StreamIdentityError: it is neither new nor a replay.
        """
        return self._judged(batch, self.known_head())

    def commit(
        self,
        intent: Intent,
        stage: Callable[[Stored, Staged | None], Staged],
        *,
        examined: Examined | None = None,
        replan: bool = True,
    ) -> Outcome:
        """Carry out `intent` on the newest head, exactly once.

        Args:
            intent: what to do.
            stage: puts what the commit brings, fit for a head. It gets what it staged before when
                it is called again, because the schema changed or the objects may be deleted.
            examined: what `examine` returned for the batch of `intent`, if it was asked.
            replan: whether to do it on the next head if another writer commits first.

        Raises:
            StreamIdentityError: the batch is neither new nor a replay; nothing was committed.
            ConflictError: others won every attempt, or any attempt where `replan` is false.
            CommitStateUnknownError: the store failed; the commit may have landed.
            ClockSkewError: this machine's clock is far ahead of the store's.
            CorruptObjectError: the branch was set back by the loss of its newest slots.
        """
        check_intent(intent)
        self.prepare()
        batch = intent.batch
        snapshot_id = self._clock.new_id()
        verdict, head = self._begin(batch, examined)
        base, staged = head, None
        offsets_base: Stored | None = None
        first_put_s = None
        for attempt in range(1, ATTEMPTS + 1):
            if verdict is Verdict.REPLAY:
                return Outcome(stored=head, verdict=verdict, attempts=attempt)
            intent, offsets_base = self._with_offsets(intent, batch, offsets_base, head)
            if verdict is Verdict.ADOPTED_REPLAY:  # its rows are in the table
                alter = dataclasses.replace(intent, operation=Operation.ALTER)
                nothing = Staged(schema=head.snapshot.schema)
                candidate = self._candidate(head, alter, nothing, snapshot_id)
            else:
                if staged is None or is_stale(staged, base.snapshot, head.snapshot):
                    base, staged = head, stage(head, staged)
                candidate = self._candidate(head, intent, staged, snapshot_id)
            check(head.snapshot, head.sha256, candidate)
            if first_put_s is None:
                first_put_s = self._clock.monotonic_s()
            sent_s = self._clock.monotonic_s()
            standing = self._publish(candidate, head)
            if standing is not None and standing.snapshot.snapshot_id == snapshot_id:
                self._acknowledge(standing)
                _warn_of_missing_batches(head.snapshot, batch)
                return Outcome(stored=standing, verdict=verdict, attempts=attempt)
            if standing is None and self._is_late(sent_s):
                _check_may_do_again(intent, candidate)
            self._rollup = None
            if not replan:
                raise ConflictError(
                    "another writer committed first; look at the table and decide again, or pass "
                    'on_conflict="replan"',
                    version=candidate.version,
                )
            if self._clock.monotonic_s() - first_put_s > MAX_SECONDS:
                break
            self._pause(attempt)
            head = self._head = self.metadata.load_head(self.branch_id, standing or head)
            verdict, head = self._judged(batch, head)
        raise ConflictError(
            "other writers won every attempt; nothing was committed, try again",
            attempts=attempt,
            branch=self.branch_id,
        )

    def _begin(self, batch: Batch | None, examined: Examined | None) -> Examined:
        """Return what `batch` is, and a head: confirmed, if something is going to be put."""
        known = self._head
        verdict, head = examined or self.examine(batch)
        self.metadata.check_not_set_back(self.branch_id, head)
        if verdict is not Verdict.REPLAY:
            self._check_branch()
            if examined or head is known:  # else it was read just now
                self.metadata.confirm(head)
        return Examined(verdict, head)

    def _with_offsets(
        self, intent: Intent, batch: Batch | None, base: Stored | None, head: Stored
    ) -> tuple[Intent, Stored | None]:
        """Put source offsets that are long; again if those put for `base` may be gone."""
        if batch is None or batch.offsets is None:
            return intent, None
        if base is not None and not may_be_gone(base.snapshot.epoch, head.snapshot):
            return intent, base
        offsets = store_if_long(self.metadata, batch.offsets)
        short = dataclasses.replace(batch, offsets=offsets)
        return dataclasses.replace(intent, batch=short), head

    def _check_branch(self) -> None:
        if self.branch.name != MAIN and load_branch(self.metadata, self.branch.name) != self.branch:
            raise NotFoundError(
                "the branch was deleted while in use, and another has its name now; open it anew",
                branch=self.branch.name,
            )

    def _judged(self, batch: Batch | None, head: Stored) -> Examined:
        if batch is None:
            return Examined(Verdict.NEW, head)
        ledger = head.snapshot.ledger
        with contextlib.suppress(StreamIdentityError):
            verdict = judge(ledger, batch)
            if verdict is Verdict.NEW and (self._follows(batch) or not is_after_gap(ledger, batch)):
                self._judged_last = batch
                return Examined(verdict, head)  # the put proves that this is the head
        # No put is going to prove it, so ask: the table may have been rewound, or the entry
        # forgotten or adopted.
        self._check_branch()
        newest = self.metadata.load_head(self.branch_id, head)
        verdict = judge(newest.snapshot.ledger, batch)
        if verdict is Verdict.NEW and not self._follows(batch):
            self._check_other_branches(newest.snapshot.ledger, batch)
        self._judged_last = batch
        return Examined(verdict, newest)

    def _follows(self, batch: Batch) -> bool:
        """Whether the batch before this one, or this one, was judged here in the same run."""
        last = self._judged_last
        return (
            last is not None
            and (last.key, last.query_id) == (batch.key, batch.query_id)
            and last.checkpoint == batch.checkpoint  # a sink has one for each run of its query
            and batch.batch_id - last.batch_id in {0, 1}
        )

    def _check_other_branches(self, ledger: Ledger, batch: Batch) -> None:
        """Raise if batches that this branch lacks before `batch` are on another branch.

        Raises:
            StreamIdentityError: they are; a branch that cannot be read is named in the log.
        """
        if not is_after_gap(ledger, batch):
            return
        line = self.branch.forks, self.branch_id
        for name in iter_branch_names(self.metadata):
            if name == self.branch.name:
                continue
            try:
                other = load_branch(self.metadata, name)
                head = self.metadata.load_head(other.branch_id).snapshot
            except UNREADABLE as error:
                _log.warning(
                    "the branch %s cannot be read, so whether it has batches %d to %d of query %s, "
                    "which this branch lacks, is not known: %s",
                    name,
                    last_number(ledger, batch) + 1,
                    batch.batch_id - 1,
                    batch.query_id,
                    error,
                )
                continue
            since = last_shared(line, (other.forks, other.branch_id), most=head.version)
            check_elsewhere(ledger, batch, head.ledger, branch=name, since=since)

    def _candidate(
        self, head: Stored, intent: Intent, staged: Staged, snapshot_id: str
    ) -> Snapshot:
        self._check_clock()
        return next_snapshot(
            head.snapshot,
            head.sha256,
            intent,
            staged,
            branch_id=self.branch_id,
            snapshot_id=snapshot_id,
            now_us=self._clock.now_us(),
            rollup=None if staged.content is not None else self._standing_rollup(head),
        )

    def _check_clock(self) -> None:
        if -self.clock_offset_us > MAX_SKEW_US:
            # Ask before refusing: a machine that was paused loses time on its monotonic clock.
            self._store_clock.learn(load_store_time_us(self.metadata))
        check_clock(self._clock.now_us(), self._store_clock.now_us())

    def _standing_rollup(self, head: Stored) -> Rollup | None:
        if self._rollup is None and must_roll_up(head.snapshot.segments):
            self._prepare_rollup(head)
        if self._rollup is None or self._rollup[0] != head.snapshot.epoch:
            return None  # of an older epoch, vacuum may have taken it
        return self._rollup[1]

    def _publish(self, candidate: Snapshot, head: Stored) -> Stored | None:
        """Put `candidate`; return what its slot holds then, None if it was freed meanwhile."""
        key = slot_key(candidate.branch_id, candidate.version)
        data = encode_snapshot(candidate)
        # A slot never changes: bytes that could not be read again would end the table's history.
        mine = decode_snapshot(data)
        failure: Exception | None = None
        sent_s = self._clock.monotonic_s()
        for attempt in range(1, SLOT_ATTEMPTS + 1):
            try:
                self.metadata.store.put_if_absent(key, data)
            except Exception as error:  # noqa: BLE001 - no error tells whether the bytes landed
                failure = error
                standing = self._insist(lambda: self._standing(candidate), candidate, failure)
            else:
                standing = self.metadata.remember(data, sent_s, mine)
            if standing is not None and standing.snapshot.snapshot_id != candidate.snapshot_id:
                return standing
            # The slot may have been taken, superseded and freed before the put came.
            is_doubtful = standing is None or self._is_late(head.read_s)
            if is_doubtful and self._insist(lambda: self._is_freed(candidate), candidate, failure):
                return None
            if standing is not None:
                return dataclasses.replace(standing, read_s=sent_s)
            self._pause(attempt)
        raise CommitStateUnknownError(
            "the store keeps failing to create the snapshot, and none stands there yet: mend the "
            f"store ({failure}), look at the log, and deliver the batch again",
            version=candidate.version,
            attempts=SLOT_ATTEMPTS,
        ) from failure

    def _standing(self, candidate: Snapshot) -> Stored | None:
        try:
            return self.metadata.reload(candidate.branch_id, candidate.version)
        except NotFoundError:
            return None

    def _is_late(self, since_s: float) -> bool:
        """Whether so much time has passed that a slot may have been taken, superseded and freed."""
        took_s = self._clock.monotonic_s() - since_s
        return took_s * 1_000_000 > self.grace_us / 4

    def _is_freed(self, candidate: Snapshot) -> bool:
        return self.metadata.has_expired(candidate.branch_id, candidate.version)

    def _insist(self, ask: Callable[[], T], candidate: Snapshot, failure: Exception | None) -> T:
        """Ask until there is an answer: the snapshot was sent, so a plain error would mislead."""
        unread: FuseError | None = None
        for attempt in range(1, SLOT_ATTEMPTS + 1):
            try:
                return ask()
            except UnsupportedFormatError:
                raise  # another's, and newer: this one did not land
            except FuseError as error:
                unread = error
                self._pause(attempt)
        raise CommitStateUnknownError(
            "the store failed after the snapshot was sent, and what became of it cannot be read: "
            "the commit may have landed. Look at the log before trying again; under an app_id and "
            "batch_id a second delivery is safe",
            version=candidate.version,
            put_failed=None if failure is None else str(failure),
            get_failed=str(unread),
        ) from (failure or unread)

    def _acknowledge(self, stored: Stored) -> None:
        self._head = stored
        self._rollup = None
        snapshot = stored.snapshot
        if snapshot.version % HINT_EVERY == 0:
            self.metadata.store_hint(snapshot.branch_id, snapshot.version)
        if snapshot.data_change:  # those who keep the table in order add nothing next
            self._prepare_rollup(stored)

    def _prepare_rollup(self, head: Stored) -> None:
        try:
            rollup = prepare_rollup(self.metadata, head.snapshot)
        except FuseError as error:
            # The commit is done; the next one shortens the list of segments.
            _log.warning("segments were not rolled up: %s", error)
            return
        self._rollup = None if rollup is None else (head.snapshot.epoch, rollup)

    def _pause(self, attempt: int) -> None:
        longest = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))
        self._clock.sleep(longest * self._clock.jitter())


def _check_may_do_again(intent: Intent, candidate: Snapshot) -> None:
    """Refuse to plan anew what may have landed before its slot was freed, and would count twice.

    Raises:
        CommitStateUnknownError: no ledger entry tells whether it landed, and it changes rows.
    """
    if intent.batch is None and intent.operation not in KEEPS_ROWS:
        raise CommitStateUnknownError(
            "the commit took so long that its version has expired meanwhile: it may have landed "
            "before that, and done again it might count twice. Look whether the table holds what "
            "it brought, and do it again only if not; under an app_id and batch_id a second "
            "delivery is safe",
            operation=str(intent.operation),
            version=candidate.version,
            branch=candidate.branch_id,
        )


def may_replan(on_conflict: str) -> bool:
    """Return whether a commit may be planned again after another writer's.

    Raises:
        InvalidInputError: this is neither "error" nor "replan".
    """
    if on_conflict not in {"error", "replan"}:
        raise InvalidInputError('on_conflict is "error" or "replan"', on_conflict=on_conflict)
    return on_conflict == "replan"


def _warn_of_missing_batches(head: Snapshot, batch: Batch | None) -> None:
    ledger = head.ledger
    if batch is None or batch.batch_id == 0 or batch.key in ledger.entries:
        return
    _log.warning(
        "the first batch of application %r, writer %r in the ledger is number %d: whether the "
        "table holds the ones before it is not known",
        batch.application,
        batch.writer,
        batch.batch_id,
    )
    for (application, writer), entry in ledger.entries.items():
        own = batch.query_id is not None and entry.query_id == batch.query_id
        if own and (application, entry.batch_id) == (batch.application, batch.batch_id):
            _log.warning(
                "the query has committed batch %d as writer %r, too: if that was the name of this "
                "sink, %r, before the restart, its rows are in the table twice",
                batch.batch_id,
                writer,
                batch.writer,
            )
