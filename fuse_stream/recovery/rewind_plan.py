"""Plan a rewind of tables and checkpoints, and carry the plan out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from fuse_stream.checkpoint.files import load_last_offsets, load_offsets
from fuse_stream.checkpoint.write_fork import Claim
from fuse_stream.commit.ledger import EVERY, offsets_of
from fuse_stream.commit.plan import Intent, Staged, content_of, parent_of
from fuse_stream.errors import (
    ConflictError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
)
from fuse_stream.format.records import Ledger, LedgerEntry, Operation, Snapshot
from fuse_stream.objects.slots import Stored
from fuse_stream.objects.source_offsets import store_if_long
from fuse_stream.reading.history import History
from fuse_stream.reading.line import find_base
from fuse_stream.recovery.closure import Closure
from fuse_stream.recovery.cuts import (
    QueryCut,
    check_agrees,
    check_other_branches,
    check_own,
    check_undone,
    check_unseen,
    get_cut_version,
    get_kept_before,
)
from fuse_stream.recovery.forks import (
    QUERIES,
    TABLES,
    Forking,
    Paths,
    check_continued,
    load_query,
    plan_forking,
)
from fuse_stream.recovery.holds import Reading, find_target, tag_of, tag_target
from fuse_stream.recovery.ledgers import (
    Cut,
    Retiring,
    applications_in,
    find_idle,
    going_back,
    named_in_retire,
    set_back,
)
from fuse_stream.recovery.losses import (
    Kin,
    check_seen,
    get_ledgers,
    iter_passed,
)
from fuse_stream.recovery.outside import OpenSource, check_named, iter_notes
from fuse_stream.recovery.pipeline import Member, Pipeline, located
from fuse_stream.recovery.repeated import (
    are_of_another_table,
    check_same_batch,
    check_same_goal,
    check_same_version,
    continued_forks,
    load_claims,
    tag_of_claims,
)
from fuse_stream.recovery.result import Rewind, describe
from fuse_stream.recovery.target import (
    Goal,
    Progress,
    check_kept,
    get_target,
    nothing_to_undo,
)
from fuse_stream.storage.base import Store


class RewindPlan:
    """The plan of a rewind, made from the heads of its tables and from its checkpoints."""

    def __init__(
        self,
        members: Sequence[Member],
        goal: Goal,
        *,
        checkpoints: Paths,
        retire: Collection[str],
        report: Progress,
        open_source: OpenSource | None = None,
    ) -> None:
        self.forkings: tuple[Forking, ...] = ()
        """The forks to make; none if an earlier call has made them."""
        self.obstacles: list[FuseError] = []
        """The errors that prevent the rewind."""
        self._targets: dict[int, Stored] = {}
        """By the table's number; without the tables that an earlier call has rewound."""
        self.notes: tuple[str, ...] = ()
        """What the caller must know before several tables go back."""
        self.readings: tuple[Reading, ...] = ()
        """How the queries read the tables, before and after they go back."""
        self._moved: dict[str, Mapping[int, str]] = {}
        """By the id of a fork, the texts of its last offsets by batch."""
        self._checks: tuple[Callable[[Store, Ledger], None], ...] = ()
        """Raise for the ledger of a table with a batch that a checkpoint planned differently."""
        self._kept: frozenset[str] = frozenset()
        """The ids of the queries of which no batch is undone."""
        self._members = members
        self._pipeline = Pipeline(members)
        self._goal, self._retire = goal, frozenset(retire)
        self._judged: dict[int, Retiring] = {}
        """By the table's number."""
        self._report, self._open_source = report, open_source
        first = members[0]
        claims = load_claims(checkpoints)
        self._continues = claims is not None and (
            any(member.made for member in members)
            or are_of_another_table(claims, first.committer, first.head.snapshot)
        )
        self._is_one_of_several = self._continues or len(members) > 1 or goal.at_head
        self._promised: dict[int, str] = {}
        """By the table's number, the digests of the targets that no other commit may change."""
        self._tag: str | None = None
        """The tags that keep the targets of several tables."""
        if claims is not None and len(members) > 1:
            self._tag = tag_of_claims(claims)
        if first.made is None:
            may_stay = self._is_one_of_several or bool(checkpoints)
            self._targets[0] = self._find_tagged(first) or get_target(
                first.committer, first.history, goal, report, may_stay=may_stay
            )
        if self._continues:
            assert claims is not None
            self._continue(checkpoints, claims)
        else:
            self._plan(checkpoints)

    def _plan(self, checkpoints: Paths) -> None:
        """Plan the forks; add what prevents them to the obstacles."""
        self.forkings = tuple(self._plan_forkings(checkpoints))
        self._forked = tuple(forking.forked for forking in self.forkings)
        self._checks = tuple(forking.check_planned for forking in self.forkings)
        self._moved = {forking.query.query_id: forking.moved for forking in self.forkings}
        self._check_forked()

    def _continue(self, checkpoints: Paths, claims: tuple[Claim, ...]) -> None:
        """Take the plan of an earlier call from the forks that it has made."""
        self._forked = continued_forks(checkpoints, claims)
        self._checks = tuple(
            partial(check_continued, fork, query)
            for query, (_, fork) in zip(self._forked, checkpoints, strict=True)
        )
        for query, (_, fork) in zip(self._forked, checkpoints, strict=True):
            last = query.cut.offsets_through
            self._pipeline.add(query, None if last is None else load_offsets(fork, last))
            self._moved[query.query_id] = load_last_offsets(fork, last)
        first = self._members[0]
        if first.made is not None:
            check_same_goal(first.committer, first.history, first.made, self._goal, checkpoints)
        else:
            check_same_version(claims, first.history, self._goal)
        check_same_batch(self._goal, claims)

    def _find_tagged(self, member: Member) -> Stored | None:
        """Return the target that an earlier call has tagged, if that call has rewound a table."""
        if not self._continues or self._tag is None:
            return None
        return find_target(member.committer, self._tag)

    def _plan_forkings(self, checkpoints: Paths) -> Iterator[Forking]:
        """Yield the forks to make; add what prevents them to the obstacles."""
        first, target = self._members[0], self._targets[0]
        closure = Closure(self._pipeline, target, self._goal, self._report)
        for paths in checkpoints:
            with self._obstructed():
                closure.add(load_query(first.committer, paths))
        if len(self._members) > 1 and not self.obstacles:
            with self._obstructed():
                self._pipeline.sorted()
                closure.close()
                check_named(closure, self._members)
                self.notes = tuple(iter_notes(closure, self._members, self._open_source))
        if len(self._members) > 1 and closure.planned:
            self._tag = tag_of(min(one.query.query_id for one in closure.planned))
        together = {
            TABLES: sorted(
                [member.table_id, member.committer.branch_id] for member in self._members
            ),
            QUERIES: sorted(one.query.checkpoint.query_id for one in closure.planned),
        }
        for one in closure.planned:
            with self._obstructed():
                forking = plan_forking(
                    first.committer,
                    target.snapshot,
                    one.query,
                    one.cut,
                    applications=tuple(sorted(one.applications)),
                    sources=closure.named_sources(one),
                    after_batch=self._goal.after_batch if len(self._members) > 1 else None,
                    together=together,
                    moved=closure.moved_offsets(one),
                )
                for reading in closure.readings(one):
                    reading.check_kept(runs_again=one.cut.last_done < one.cut.last_planned)
                    self.readings += (reading,)
                yield forking
            if not one.goes_back:
                self._kept |= {one.query.checkpoint.query_id}

    @contextmanager
    def _obstructed(self) -> Iterator[None]:
        try:
            yield
        except FuseError as error:
            self.obstacles.append(error)

    def _check_forked(self) -> None:
        head = self._members[0].head
        is_head = self._targets[0].sha256 == head.sha256 and not self._goal.at_head
        if is_head and not self._is_one_of_several:
            self._check_ahead(head.snapshot)
        ids = [query.old_query_id for query in self._forked]
        if len(set(ids)) < len(ids):
            self.obstacles.append(
                InvalidInputError(
                    "two of these checkpoints are copies of one; name only the one to continue",
                    queries=ids,
                )
            )

    def _check_ahead(self, head: Snapshot) -> None:
        """Add an obstacle that there is nothing to undo, unless checkpoints are ahead of the table.

        Checkpoints that count batches as done which the table lacks are cut at its last batch.
        """
        is_last = self._goal.after_batch == self._goal.last_held_by(head)
        if is_last and any(forking.is_back for forking in self.forkings):
            self._is_one_of_several = True
        elif not self.obstacles:
            self.obstacles.append(nothing_to_undo(self._goal, head))

    def was_made_before(self) -> bool:
        """True if an earlier call without checkpoints has committed the same rewind."""
        if self._is_one_of_several or self._forked or self.obstacles:
            return False
        head = self._members[0].head.snapshot
        return head.operation is Operation.REWIND and head.target == parent_of(self._targets[0])

    def described(self, member: Member) -> Rewind:
        """Return the planned result for a table; add what prevents it to the obstacles."""
        try:
            target = self._targets[member.number] = self._target_on(member, member.history)
            # Those of the first table were compared when the forks were planned.
            for check in self._checks if self._continues or not member.is_first else ():
                check(member.committer.metadata.store, target.snapshot.ledger)
            self._stage(member, member.head)
        except FuseError as error:
            self.obstacles.append(self._located(error, member))
        target = self._target(member)
        try:
            found = describe(member.history, target)
        except CorruptObjectError:
            if member.is_first:  # a tag that kept the target may have been deleted
                check_kept(member.committer, self._goal, target, member.history)
            raise
        judged = self._judged.get(member.number)
        retired = self._retire - {EVERY} if judged is None else judged.retired
        return replace(found, retired=tuple(sorted(retired)))

    def check_retired(self) -> None:
        """Add an obstacle if numbered batches of an application in `retire` do not go back.

        A program that writes numbered batches to a table does not go back with the queries: a table
        that keeps its batches would take those that it delivers again for replays.
        """
        if len(self._members) == 1 or any(member.made for member in self._members):
            return
        idle = find_idle(self._judged.values(), self._retire - {EVERY})
        if idle and not self.obstacles:
            self.obstacles.append(
                InvalidInputError(
                    "an application in retire loses nothing in one of these tables. Leave it out; "
                    "or rewind that table alone first, to its own batch (app_id, after_batch) or "
                    "to a version",
                    applications=sorted(idle),
                )
            )

    def with_consumers(self, member: Member, found: Rewind) -> Rewind:
        """Return `found` with the consumers that have read past the target."""
        passed = tuple(iter_passed(member.committer, member.history, self._target(member)))
        return replace(found, consumers=passed)

    def carry_out(self, intent: Intent, *, replan: bool) -> dict[int, Snapshot]:
        """Store the forks and publish the rewinds; return the snapshots by the table's number."""
        for member in self._members:
            member.committer.prepare()
        for forking in self.forkings:
            forking.store(self._report)
        if self._tag is not None:
            for member in self._members:
                target = self._target(member)
                if member.history.floor <= target.snapshot.version < member.head.snapshot.version:
                    tag_target(member.committer, self._tag, target)
        for reading in self.readings:
            reading.admit_fork()
        made = {}
        if not replan:
            self._promised = {
                member.number: self._target(member).sha256
                for member in self._members
                if self._target(member).sha256 != member.head.sha256
            }
        for member in reversed(self._pipeline.sorted()):
            if member.made is None:
                stage = partial(self._stage, member)
                # The tables before it are rewound already: `_stage` allows what changes nothing.
                may_replan = replan or len(self._members) > 1
                outcome = member.committer.commit(intent, stage, replan=may_replan)
                made[member.number] = outcome.stored.snapshot
        return made

    def _stage(self, member: Member, head: Stored, _before: Staged | None = None) -> Staged:
        on = History(member.committer.metadata, head)
        target = self._target_on(member, on)
        if self._promised.get(member.number, target.sha256) != target.sha256:
            raise ConflictError(
                "another writer committed first, and the table would go back to another version "
                'than planned: run it again, or pass on_conflict="replan"',
                version=target.snapshot.version,
            )
        writers = self._pipeline.writers_of(member, self._forked)
        queries = [Kin(ids=query.ids, last=query.cut.last_done) for query in writers]
        now, then, undone = get_ledgers(on, target, queries, self._goal, self._retire)
        forked = {name for query in writers for name, _ in query.keys(now)}
        retire = named_in_retire(self._retire, undone, now, then, forked=forked)
        for query in writers:
            check_own(query, then, set(query.keys(now)))
            check_undone(query, now, undone, retire)
            check_unseen(query, then, undone, retire)
            check_other_branches(member.committer, query, head.snapshot, then)
        check_seen(undone, target, self._retire)
        if self._is_one_of_several:  # `_check_tables` has checked that each is in some table
            retire &= applications_in(undone, now, then)
        self._judged[member.number] = Retiring(
            retired=retire, going_back=going_back(now, then, undone), now=now, then=then
        )
        ledger = set_back(
            now,
            then,
            undone=undone,
            version=on.head.snapshot.version + 1,
            forks={old: query.query_id for query in self._forked for old in query.ids},
            retire=retire,
            applications=self._applications() if self._is_one_of_several else None,
        )
        ledger = self._with_moved(ledger, member)
        return content_of(on.head.snapshot, target, ledger, base=find_base(on, target))

    def _applications(self) -> dict[str, str]:
        """Return, by the id of its fork, a name under which each query has written."""
        return {query.query_id: self._pipeline.application_of(query) for query in self._forked}

    def _with_moved(self, ledger: Ledger, member: Member) -> Ledger:
        """Return a ledger with the offsets that the forks of its queries have."""
        metadata = member.committer.metadata

        def moved(entry: LedgerEntry) -> LedgerEntry:
            texts = self._moved.get(entry.query_id or "")
            if not texts:
                return entry
            offsets = tuple(
                store_if_long(metadata, new)
                if (new := offsets_of(old.batch_id, texts.get(old.batch_id))) is not None
                and new.sha256 != old.sha256
                else old
                for old in entry.offsets
            )
            sources = entry.sources and tuple(
                replace(
                    one, offset=replace(one.offset, branch_id=self._pipeline.branch_of(one.offset))
                )
                for one in entry.sources
            )
            return replace(entry, offsets=offsets, sources=sources)

        entries = {key: moved(entry) for key, entry in ledger.entries.items()}
        return replace(ledger, entries=entries)

    def _target(self, member: Member) -> Stored:
        return self._targets.get(member.number, member.head)

    def _target_on(self, member: Member, on: History) -> Stored:
        """Return the target of a table on the head of `on`."""
        if not member.is_first or (self._is_one_of_several and self._goal.after_batch is not None):
            return self._get_cut(member, on, lambda cut: cut.last_planned)
        target = on.head if self._goal.at_head else self._targets[0]
        if self._find_tagged(member) is None:
            check_kept(member.committer, self._goal, target, on)
        if self._is_one_of_several:
            writers = self._pipeline.writers_of(member, self._forked)
            check_agrees(on, writers, target, self._report)
        elif self._goal.after_batch is not None and not self._are_held(target):
            # The query writes several applications, and another one has a later batch.
            return self._get_cut(member, on, lambda cut: cut.last_planned)
        return target

    def _are_held(self, target: Stored) -> bool:
        """True if a version holds no batch after the cuts of the queries."""
        return all(
            query.holds(target.snapshot.ledger, query.cut.last_planned) for query in self._forked
        )

    def _get_cut(self, member: Member, on: History, last_of: Callable[[Cut], int]) -> Stored:
        """Return the version that holds the batches of the queries up to their cuts."""
        cuts = [
            QueryCut(query=query, batch=last_of(query.cut))
            for query in self._pipeline.writers_of(member, self._forked)
            if query.old_query_id not in self._kept
            or not query.holds(on.head.snapshot.ledger, query.cut.last_planned)
        ]
        return get_cut_version(on, cuts, self._report, get_kept_before(member.committer, on))

    def _located(self, error: FuseError, member: Member) -> FuseError:
        return located(error, member) if self._is_one_of_several else error
