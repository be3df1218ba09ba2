"""Publish a snapshot: the one writer that creates the slot of version n + 1 has committed it.

Rules:
- A batch is judged by the ledger of the head that the put builds on, and of no other.
- What became of the put of a slot, `commit/slot_put` finds out.
- A slot may have been taken, superseded and freed before a slow put of it arrived. The commit may
  also have landed before that. Only a ledger entry proves it, so without a batch nothing that
  changes rows is committed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fuse_stream.clock import StoreClock
from fuse_stream.commit.create import MAX_SKEW_US, check_clock, probe_store
from fuse_stream.commit.invariants import check
from fuse_stream.commit.ledger import Batch, Verdict, check_replayed_rows, judge
from fuse_stream.commit.missing_batches import check_other_branches, is_after_gap
from fuse_stream.commit.plan import (
    Intent,
    Rollup,
    Staged,
    check_intent,
    is_stale,
    may_be_gone,
    next_snapshot,
)
from fuse_stream.commit.rollup import apply_to, is_due, must_roll_up, prepare_rollups
from fuse_stream.commit.slot_put import is_late, put_snapshot
from fuse_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    StreamIdentityError,
)
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.layout import MAIN
from fuse_stream.format.operations import KEEPS_ROWS
from fuse_stream.format.records import Ledger, Operation, Snapshot
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.hints import store_hint
from fuse_stream.objects.leases import load_store_time_us
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import HINT_EVERY, Metadata, Stored
from fuse_stream.objects.source_offsets import store_if_long

ATTEMPTS = 500
"""The most slots that other writers may win in a row."""
YIELDED_SLOTS = 2
"""After a commit that lost slots, the next one lets others win up to as many: without that, a
writer that has just won is ahead of those that have lost, and some wait very long."""
MAX_SECONDS = 300.0
"""The limit for all attempts together, from the first put of a slot."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a logical commit."""

    stored: Stored
    """The snapshot that holds the commit; for a replay, the head whose ledger proves it."""
    verdict: Verdict
    attempts: int

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot, which says whether the batch was a replay."""
        return dataclasses.replace(self.stored.snapshot, replayed=self.verdict is Verdict.REPLAY)


class Examined(NamedTuple):
    """The verdict on a batch, and the head by whose ledger it was judged."""

    verdict: Verdict
    head: Stored


class Committer:
    """Commits to one branch; caches its head between commits."""

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
        self._rollups: tuple[int, tuple[Rollup, ...]] | None = None
        self._yield_s = 0.0
        """The longest pause before the next commit."""
        self._judged_last: Batch | None = None
        self._were_empty = False
        """True if all batches before `_judged_last` were judged here, and had no rows."""

    @property
    def clock_offset_us(self) -> int:
        """How far the store's clock is now ahead of this machine's wall clock."""
        return self._store_clock.now_us() - self._clock.now_us()

    @clock_offset_us.setter
    def clock_offset_us(self, offset_us: int) -> None:
        self._store_clock.learn(self._clock.now_us() + offset_us)

    def head(self) -> Stored:
        """Return the newest snapshot, as the store has it now."""
        self._head = self.metadata.load_head(self.branch_id, self._head)
        return self._head

    def prepare(self) -> None:
        """Probe the store once, before the first write; `commit` calls this itself.

        Raises:
            UnsupportedStorageError: the store cannot create an object exactly once.
        """
        if not self._is_probed:
            self.clock_offset_us = probe_store(self.metadata)
            self._is_probed = True

    def known_head(self) -> Stored:
        """Return the cached head; read it from the store only the first time."""
        return self._head or self.head()

    def was_behind(self) -> bool:
        """True if the known head was not the newest one; from then on that is known."""
        known = self.known_head()
        return self.head().sha256 != known.sha256

    def examine(self, batch: Batch | None) -> Examined:
        """Return the verdict on `batch` by the known head; if not new there, by the newest head.

        For a new batch this calls no store: `commit` confirms the head, and its put proves it.

        Raises:
            StreamIdentityError: the batch is neither new nor a replay.
        """
        return self._judged(batch, self.known_head())

    def commit(
        self,
        intent: Intent,
        stage: Callable[[Stored, Staged | None], Staged],
        *,
        examined: Examined | None = None,
        replan: bool = True,
        measure: Callable[[Stored], BatchSums] | None = None,
    ) -> Outcome:
        """Commit `intent` on the newest head, exactly once.

        Args:
            intent: what to commit.
            stage: puts the objects of the commit for a given head. When the schema changed or the
                objects may be deleted, it is called again, with what it staged before.
            examined: what `examine` returned for the batch of `intent`, if it was called.
            replan: whether to retry on the next head if another writer commits first.
            measure: returns the sums of the rows, in the columns of a head; called for a replay
                whose ledger entry has a fingerprint.

        Raises:
            StreamIdentityError: the batch is neither new nor a replay; nothing was committed.
            ConflictError: other writers won every attempt, or one, where `replan` is false.
            CommitStateUnknownError: the store failed; the commit may have landed.
            ClockSkewError: this machine's clock is far ahead of the store's.
            CorruptObjectError: the newest slots of the branch are lost.
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
                _check_rows(batch, head, staged, measure)
                return Outcome(stored=head, verdict=verdict, attempts=attempt)
            intent, offsets_base = self._with_offsets(intent, batch, offsets_base, head)
            if verdict is Verdict.ADOPTED_REPLAY:  # the batch's rows are in the table
                alter = dataclasses.replace(intent, operation=Operation.ALTER)
                nothing = Staged(schema=head.snapshot.schema)
                candidate = self._candidate(head, alter, nothing, snapshot_id)
            else:
                if staged is None or is_stale(staged, base.snapshot, head.snapshot):
                    base, staged = head, stage(head, staged)
                candidate = self._candidate(head, intent, staged, snapshot_id)
            check(head.snapshot, head.sha256, candidate)
            if first_put_s is None:
                first_put_s = self._yield()
            sent_s = self._clock.monotonic_s()
            stored = put_snapshot(self.metadata, candidate, head, grace_us=self.grace_us)
            if stored is not None and stored.snapshot.snapshot_id == snapshot_id:
                self._note_rivals(first_put_s, attempt)
                self._remember(stored)
                _warn_of_missing_batches(head.snapshot, batch, were_empty=self._were_empty)
                self._were_empty = False
                return Outcome(stored=stored, verdict=verdict, attempts=attempt)
            if stored is None and is_late(self._clock, sent_s, self.grace_us):
                _check_may_repeat(intent, candidate)
            if not replan:
                raise ConflictError(
                    "another writer committed first; read the table and decide again, or pass "
                    'on_conflict="replan"',
                    version=candidate.version,
                )
            if self._clock.monotonic_s() - first_put_s > MAX_SECONDS:
                break
            # No pause: the store is well, and the longer a writer waits, the more slots it loses.
            head = self._head = self.metadata.load_head(self.branch_id, stored or head)
            verdict, head = self._judged(batch, head)
        raise ConflictError(
            "other writers won every attempt; nothing was committed, try again",
            attempts=attempt,
            branch=self.branch_id,
        )

    def _yield(self) -> float:
        """Let the others commit first if the last commit beat some; return the time after it."""
        self._clock.sleep(self._yield_s * self._clock.jitter())
        return self._clock.monotonic_s()

    def _note_rivals(self, first_put_s: float, attempts: int) -> None:
        """Remember how long a commit took for each slot, if it lost one."""
        took_s = self._clock.monotonic_s() - first_put_s
        self._yield_s = YIELDED_SLOTS * took_s / attempts if attempts > 1 else 0.0

    def _begin(self, batch: Batch | None, examined: Examined | None) -> Examined:
        """Return the verdict on `batch`, and a head that is confirmed if a put will follow."""
        known = self._head
        verdict, head = examined or self.examine(batch)
        self.metadata.check_not_set_back(self.branch_id, head)
        if verdict is not Verdict.REPLAY:
            self._check_branch()
            if examined or head is known:  # otherwise the head was read just now
                self.metadata.confirm(head)
        return Examined(verdict, head)

    def _with_offsets(
        self, intent: Intent, batch: Batch | None, base: Stored | None, head: Stored
    ) -> tuple[Intent, Stored | None]:
        """Return `intent` with its long source offsets stored; again if those may be deleted."""
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
                "the branch was deleted while in use, and another branch has its name now; open "
                "the table again",
                branch=self.branch.name,
            )

    def _judged(self, batch: Batch | None, head: Stored) -> Examined:
        if batch is None:
            return Examined(Verdict.NEW, head)
        ledger = head.snapshot.ledger
        with contextlib.suppress(StreamIdentityError):
            verdict = judge(ledger, batch)
            if verdict is Verdict.NEW and (self._follows(batch) or not is_after_gap(ledger, batch)):
                self._note_judged(batch, ledger)
                return Examined(verdict, head)  # the put proves that this is the head
        # No put is going to prove it, so ask: the table may have been rewound, or the entry
        # forgotten or adopted.
        self._check_branch()
        newest = self.metadata.load_head(self.branch_id, head)
        verdict = judge(newest.snapshot.ledger, batch)
        if verdict is Verdict.NEW and not self._follows(batch):
            check_other_branches(self.metadata, self.branch, newest.snapshot, batch)
        self._note_judged(batch, newest.snapshot.ledger)
        return Examined(verdict, newest)

    def _note_judged(self, batch: Batch, ledger: Ledger) -> None:
        is_after_empty = batch.batch_id == 0 or (self._were_empty and self._follows(batch))
        self._were_empty = is_after_empty and batch.key not in ledger.entries
        self._judged_last = batch

    def _follows(self, batch: Batch) -> bool:
        """Whether the batch before this one, or this one, was judged here in the same run."""
        last = self._judged_last
        return (
            last is not None
            and (last.key, last.query_id) == (batch.key, batch.query_id)
            and last.checkpoint == batch.checkpoint  # a sink has one for each run of its query
            and batch.batch_id - last.batch_id in {0, 1}
        )

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
            rollups=() if staged.content is not None else self._find_rollups(head),
        )

    def _check_clock(self) -> None:
        if -self.clock_offset_us > MAX_SKEW_US:
            # Read the store's time before refusing: the monotonic clock of a paused machine stops.
            self._store_clock.learn(load_store_time_us(self.metadata))
        check_clock(self._clock.now_us(), self._store_clock.now_us())

    def _find_rollups(self, head: Stored) -> tuple[Rollup, ...]:
        if self._rollups and not apply_to(head.snapshot, self._rollups[1]):
            self._rollups = None  # another writer has merged the same
        if not self._rollups and must_roll_up(head.snapshot):
            self._prepare_rollups(head)
        if not self._rollups or self._rollups[0] != head.snapshot.epoch:
            return ()  # prepared in an older epoch: vacuum may have deleted them
        return self._rollups[1]

    def _remember(self, stored: Stored) -> None:
        self._head = stored
        self._rollups = None
        snapshot = stored.snapshot
        if snapshot.version % HINT_EVERY == 0:
            store_hint(self.metadata.store, snapshot.branch_id, snapshot.version)
        # An optimizer's next commit adds no segment to roll up.
        if (snapshot.data_change or snapshot.sides) and is_due(snapshot):
            self._prepare_rollups(stored)

    def _prepare_rollups(self, head: Stored) -> None:
        try:
            rollups = prepare_rollups(self.metadata, head.snapshot)
        except FuseError as error:
            # This commit has succeeded; a later one will roll them up.
            _log.warning("segments were not rolled up: %s", error)
            return
        self._rollups = (head.snapshot.epoch, rollups) if rollups else None


def _check_rows(
    batch: Batch | None,
    head: Stored,
    staged: Staged | None,
    measure: Callable[[Stored], BatchSums] | None,
) -> None:
    """Raise if a replay brings other rows; an entry without a fingerprint cannot tell.

    Raises:
        StreamIdentityError: other rows were committed under the batch's number.
    """
    if batch is None or measure is None:
        return
    entry = head.snapshot.ledger.entries[batch.key]
    if entry.fingerprint is not None:
        known = None if staged is None else staged.sums  # a reader's rows can be read only once
        check_replayed_rows(entry, batch, measure(head) if known is None else known)


def _check_may_repeat(intent: Intent, candidate: Snapshot) -> None:
    """Raise if a commit may have landed before its slot was freed, and would then count twice.

    Raises:
        CommitStateUnknownError: the commit changes rows, and no ledger entry says if it landed.
    """
    if intent.batch is None and intent.operation not in KEEPS_ROWS:
        raise CommitStateUnknownError(
            "the commit took so long that its version has expired meanwhile: it may have landed "
            "before that, and done again it might count twice. Check whether the table holds its "
            "rows, and commit again only if not; with an app_id and a batch_id a second delivery "
            "is safe",
            operation=str(intent.operation),
            version=candidate.version,
            branch=candidate.branch_id,
        )


def may_replan(on_conflict: str) -> bool:
    """Return whether a commit may be planned again after another writer's commit.

    Raises:
        InvalidInputError: `on_conflict` is neither "error" nor "replan".
    """
    if on_conflict not in ("error", "replan"):  # no set: the value may have no hash
        raise InvalidInputError('on_conflict is "error" or "replan"', on_conflict=on_conflict)
    return on_conflict == "replan"


def _warn_of_missing_batches(head: Snapshot, batch: Batch | None, *, were_empty: bool) -> None:
    ledger = head.ledger
    if batch is None or batch.batch_id == 0 or batch.key in ledger.entries or were_empty:
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
