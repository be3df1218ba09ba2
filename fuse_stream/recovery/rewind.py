"""Going back: a new snapshot with an old one's content and ledger, and forked checkpoints.

The order is the safety, for the process may die between any two calls and is then run again:

1. Every fork of a checkpoint is made but for its last step: no query starts on it.
2. The snapshot is published. It retires the old query and names the fork in its place: the one
   moment that counts. Before it nothing has happened, after it the old query is refused.
3. The forks are brought to life.

A query that writes several tables has one checkpoint, so they go back together: step 2 is done for
each table in turn, the first one last. The goal is of the first table. It says after which batch
the checkpoints are cut, and the others go back to where the queries stood past no later batch. The
old query is retired in all of them, also where it has committed nothing.

The same call, run again, finds by the claims in the new checkpoints how far it came.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, Staged, content_of, parent_of
from fuse_stream.errors import (
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.feed.diff import diff_net, find_way, retained_by
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.objects.slots import Stored
from fuse_stream.recovery.cut_version import (
    QueryCut,
    batches_of,
    check_own,
    check_undone,
    find_version,
)
from fuse_stream.recovery.forks import (
    Fork,
    ForkedQuery,
    Forking,
    Made,
    Paths,
    are_of_another_table,
    continued_forks,
    find_published,
    finish_all,
    load_claims,
    plan_forking,
)
from fuse_stream.recovery.ledgers import applications_in, going_back, set_back
from fuse_stream.recovery.repeated import check_same_batch, check_same_goal, is_repeated
from fuse_stream.recovery.target import (
    Dropped,
    Goal,
    PassedConsumer,
    Progress,
    check_stands,
    dropped_by,
    find_ledgers,
    find_passed,
    find_target,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """What a rewind did, or would do."""

    target: Snapshot | None
    """Whose content and ledger the table got; None where an earlier call set it back to a version
    that has expired since."""
    snapshot: Snapshot | None
    """The new one; None where nothing was to be done, or an earlier call's has expired since."""
    dropped: tuple[Dropped, ...] = ()
    forks: tuple[Fork, ...] = ()
    retired: tuple[str, ...] = ()
    """Applications that were given up."""
    deleted_rows: int = 0
    """What followers of the feed are sent, at the most: equal rows on both sides are not."""
    inserted_rows: int = 0
    consumers: tuple[PassedConsumer, ...] = ()
    """The named consumers that have read past the target; only of a dry run."""
    obstacles: tuple[FuseError, ...] = ()
    """What stands in the way; only where nothing was to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRewind:
    """What a rewind of several tables did, or would do."""

    tables: tuple[Rewind, ...]
    """One a table, in the order in which they were named."""
    forks: tuple[Fork, ...] = ()
    obstacles: tuple[FuseError, ...] = ()
    """What stands in the way of all of it; only where nothing was to be done."""
    is_repeated: bool = False
    """Whether an earlier call did all of this; this one did nothing."""

    def alone(self) -> Rewind:
        """Return what it did to its first table, with the forks and the obstacles."""
        return dataclasses.replace(self.tables[0], forks=self.forks, obstacles=self.obstacles)


def rewind(
    committer: Committer,
    goal: Goal,
    *,
    checkpoints: Paths = (),
    retire: Collection[str] = (),
    dry_run: bool = False,
    replan: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> Rewind:
    """Set a branch back; errors and arguments of `fuse_stream.rewind`."""
    return rewind_tables(
        (committer,),
        goal,
        checkpoints=checkpoints,
        retire=retire,
        dry_run=dry_run,
        replan=replan,
        author=author,
        message=message,
        progress=progress,
    ).alone()


def rewind_tables(
    committers: Sequence[Committer],
    goal: Goal,
    *,
    checkpoints: Paths = (),
    retire: Collection[str] = (),
    dry_run: bool = False,
    replan: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> PipelineRewind:
    """Set several tables back together; errors and arguments of `fuse_stream.rewind`."""
    members = []
    for number, committer in enumerate(committers):
        head = committer.head()
        made = find_published(committer, head, checkpoints)
        members.append(_Member(number=number, committer=committer, head=head, made=made))
    if all(member.made for member in members):
        members[0].check_same_goal(goal, checkpoints)
        if not dry_run:
            finish_all(checkpoints)
        return PipelineRewind(tables=tuple(map(_made_before, members)), is_repeated=True)
    if len(members) > 1:
        _check_tables(members, checkpoints, retire)
    report = progress or _say_nothing
    first = members[0]
    if (
        len(members) == 1
        and not checkpoints
        and is_repeated(first.committer, first.head, goal, report)
    ):
        return PipelineRewind(tables=(_made_as(first.committer, first.head),), is_repeated=True)
    plan = _Plan(members, goal, checkpoints=checkpoints, retire=retire, report=report)
    if plan.was_made_before():
        return PipelineRewind(tables=(_made_as(first.committer, first.head),), is_repeated=True)
    found = tuple(
        plan.described(member) if member.made is None else _made_before(member)
        for member in members
    )
    plan.check_retired()
    done = PipelineRewind(
        tables=found,
        forks=tuple(forking.described for forking in plan.forkings),
        obstacles=tuple(plan.obstacles),
    )
    if dry_run:
        return dataclasses.replace(done, tables=tuple(map(plan.with_consumers, members, found)))
    if plan.obstacles:
        raise plan.obstacles[0]
    intent = Intent(operation=Operation.REWIND, author=author, message=message)
    made_now = plan.carry_out(intent, replan=replan)
    finish_all(checkpoints)
    tables = (
        dataclasses.replace(table, snapshot=made_now.get(member.number, table.snapshot))
        for member, table in zip(members, found, strict=True)
    )
    return dataclasses.replace(done, tables=tuple(tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """One of the tables."""

    number: int
    """0: the one that the goal is about."""
    committer: Committer
    head: Stored
    made: Made | None
    """The rewind, if an earlier call has published it."""

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def url(self) -> str:
        return self.committer.metadata.store.url

    def check_same_goal(self, goal: Goal, checkpoints: Paths) -> None:
        """Refuse another goal than the one of the rewind that made these forks."""
        assert self.made is not None
        claims = load_claims(checkpoints) or ()
        check_same_goal(self.committer, self.head, self.made, goal, claims)


class _Plan:
    """What a rewind is to do, decided from the heads of its tables and from its checkpoints."""

    def __init__(
        self,
        members: Sequence[_Member],
        goal: Goal,
        *,
        checkpoints: Paths,
        retire: Collection[str],
        report: Progress,
    ) -> None:
        self.forkings: tuple[Forking, ...] = ()
        """The forks to make; none where an earlier call has made them."""
        self.obstacles: list[FuseError] = []
        """What is refused, before anything is written."""
        self._targets: dict[int, Stored] = {}
        """By the number of the table; those that were set back before are left out."""
        self._members = members
        self._goal = goal
        self._retire = frozenset(retire)
        self._going_back: set[str] = set()
        """Applications that lose something in one of the tables."""
        self._report = report
        first = members[0]
        claims = load_claims(checkpoints)
        self._continues = claims is not None and (
            any(member.made for member in members)
            or are_of_another_table(claims, first.committer, first.head)
        )
        self._is_one_of_several = self._continues or len(members) > 1
        if first.made is None:
            self._targets[0] = find_target(
                first.committer, first.head, goal, report, may_stay=self._is_one_of_several
            )
        if self._continues:
            assert claims is not None
            self._forked = continued_forks(checkpoints, claims)
            if first.made is not None:
                first.check_same_goal(goal, checkpoints)
            check_same_batch(goal, claims)
            return
        for paths in checkpoints:
            between = first.head, self._targets[0]
            try:
                forking = plan_forking(first.committer, between, goal, paths)
            except FuseError as error:
                self.obstacles.append(error)
            else:
                self.forkings = (*self.forkings, forking)
        self._forked = tuple(forking.forked for forking in self.forkings)
        ids = [query.old_query_id for query in self._forked]
        if len(set(ids)) < len(ids):
            self.obstacles.append(
                InvalidInputError(
                    "two of these checkpoints are copies of one; name the one that is to continue",
                    queries=ids,
                )
            )

    def was_made_before(self) -> bool:
        """Whether an earlier call has done the same, without checkpoints to tell it by."""
        if self._is_one_of_several or self._forked or self.obstacles:
            return False
        return self._members[0].head.snapshot.target == parent_of(self._targets[0])

    def described(self, member: _Member) -> Rewind:
        """Return what becomes of a table; note what is in the way of it."""
        try:
            target = self._targets[member.number] = self._target_on(member, member.head)
            for forking in () if member.is_first else self.forkings:
                forking.check_planned(target.snapshot.ledger)
            self._staged(member, member.head)
        except FuseError as error:
            self.obstacles.append(self._located(error, member))
        target = self._target(member)
        try:
            found = _described(member.committer, member.head, target)
        except CorruptObjectError:
            if member.is_first:  # a tag that kept it may have been deleted
                check_stands(member.committer, self._goal, target, member.head)
            raise
        return dataclasses.replace(found, retired=tuple(sorted(self._retire)))

    def check_retired(self) -> None:
        """Note applications that are given up, though no table takes anything from them.

        Who writes numbered batches to one of the tables does not go back with the queries.
        """
        idle = self._retire - self._going_back
        is_first_call = not any(member.made for member in self._members)
        if len(self._members) > 1 and is_first_call and idle and not self.obstacles:
            self.obstacles.append(
                InvalidInputError(
                    "an application is named in retire that loses nothing: its batches stay where "
                    "they are. Leave it out; or set its table back alone, to its own batch "
                    "(app_id, after_batch) or to a version",
                    applications=sorted(idle),
                )
            )

    def with_consumers(self, member: _Member, found: Rewind) -> Rewind:
        """Return the same with the consumers that have read past the target."""
        passed = find_passed(member.committer, member.head, self._target(member))
        return dataclasses.replace(found, consumers=passed)

    def carry_out(self, intent: Intent, *, replan: bool) -> dict[int, Snapshot]:
        """Store the forks and publish the rewinds; return the snapshots by the table's number."""
        for member in self._members:
            member.committer.prepare()
        for forking in self.forkings:
            forking.store(self._report)
        made = {}
        for member in reversed(self._members):
            if member.made is None:
                stage = partial(self._stage, member)
                outcome = member.committer.commit(intent, stage, replan=replan)
                made[member.number] = outcome.stored.snapshot
        return made

    def _stage(self, member: _Member, on: Stored, _before: Staged | None) -> Staged:
        return self._staged(member, on)

    def _staged(self, member: _Member, on: Stored) -> Staged:
        target = self._target_on(member, on)
        queries = {query_id for query in self._forked for query_id in query.ids}
        now, then, undone = find_ledgers(member.committer.metadata, on, target, queries, self._goal)
        for query in self._forked:
            check_own(query, then, set(query.keys(now)))
            check_undone(query, now, undone)
        self._going_back |= going_back(now, then, undone)
        retire = self._retire
        if self._is_one_of_several:  # `_check_tables` has seen that each is in one of them
            retire &= applications_in(undone, now, then)
        ledger = set_back(
            now,
            then,
            undone=undone,
            version=on.snapshot.version + 1,
            forks={old: query.query_id for query in self._forked for old in query.ids},
            retire=retire,
            is_one_of_several=self._is_one_of_several,
        )
        return content_of(on.snapshot, target, ledger)

    def _target(self, member: _Member) -> Stored:
        return self._targets.get(member.number, member.head)

    def _target_on(self, member: _Member, on: Stored) -> Stored:
        """Return the snapshot that a table goes back to from this head."""
        if not member.is_first or (self._is_one_of_several and self._goal.after_batch is not None):
            return self._find_cut(member, on, lambda query: query.cut.offsets_through)
        target = self._targets[0]
        check_stands(member.committer, self._goal, target, on)
        if self._is_one_of_several:
            self._check_agrees(member, on, target)
        elif self._goal.after_batch is not None and not self._are_held(target):
            # A query of several applications: another one of them stands past the batch.
            return self._find_cut(member, on, lambda query: query.cut.offsets_through)
        return target

    def _are_held(self, target: Stored) -> bool:
        """Whether a version stands past no batch at which a query is cut."""
        return all(
            query.holds(
                target.snapshot.ledger, -1 if (cut := query.cut.offsets_through) is None else cut
            )
            for query in self._forked
        )

    def _find_cut(
        self, member: _Member, on: Stored, cut_of: Callable[[ForkedQuery], int | None]
    ) -> Stored:
        """Return the version that holds what the queries did up to where they are cut."""
        cuts = [
            QueryCut(query=query, batch=-1 if (batch := cut_of(query)) is None else batch)
            for query in self._forked
        ]
        return find_version(member.committer.metadata, on, cuts, self._report)

    def _check_agrees(self, member: _Member, on: Stored, target: Stored) -> None:
        """Raise unless the target holds what the forks take for done, and no more."""
        kept = self._find_cut(member, on, lambda query: query.cut.commits_through)
        for query in self._forked:
            cut = query.cut.offsets_through
            held = batches_of(query, target)
            wanted = batches_of(query, kept)
            lacks = [key for key, batch in wanted.items() if held.get(key, -1) < batch]
            ledger = target.snapshot.ledger
            if lacks or not query.holds(ledger, -1 if cut is None else cut):
                raise InvalidInputError(
                    "the forks of these checkpoints continue after another batch than the one that "
                    "this version stands at: rewind with after_batch, to the batch of the forks",
                    after_batch=cut,
                    version=target.snapshot.version,
                )

    def _located(self, error: FuseError, member: _Member) -> FuseError:
        if not self._is_one_of_several:
            return error
        return type(error)(error.message, **{**error.context, "table": member.url})


def _check_tables(members: Sequence[_Member], checkpoints: Paths, retire: Collection[str]) -> None:
    """Refuse tables that do not go back together."""
    places = [(member.head.snapshot.table_id, member.committer.branch_id) for member in members]
    if len(set(places)) < len(places):
        raise InvalidInputError(
            "a table was named twice; name each table once",
            tables=[member.url for member in members],
        )
    if not checkpoints:
        raise InvalidInputError(
            "several tables go back together by the checkpoints of the queries that write them: "
            "name these (checkpoints={old: new}), or rewind one table at a time"
        )
    known = {name for member in members for name, _ in member.head.snapshot.ledger.entries}
    if unknown := set(retire) - known:
        raise NotFoundError(
            "an application that is to be retired has committed nothing",
            applications=sorted(unknown),
            known=sorted(known),
        )


def _made_before(member: _Member) -> Rewind:
    """Return the rewind that an earlier call has published, as far as it has not expired."""
    assert member.made is not None
    if member.made.stored is None:
        return Rewind(target=None, snapshot=None)
    return _made_as(member.committer, member.made.stored)


def _made_as(committer: Committer, made: Stored) -> Rewind:
    snapshot = made.snapshot
    assert snapshot.target is not None
    try:
        place = snapshot.target.branch_id, snapshot.target.version
        target = committer.metadata.load_snapshot(*place).snapshot
    except SnapshotExpiredError:
        return Rewind(target=None, snapshot=snapshot)
    return Rewind(target=target, snapshot=snapshot)


def _described(committer: Committer, head: Stored, target: Stored) -> Rewind:
    metadata, retained = committer.metadata, retained_by(head)
    blocks = diff_net(metadata, head.snapshot, target.snapshot, retained).blocks
    way = find_way(metadata, head.snapshot, target.snapshot, retained)
    return Rewind(
        target=target.snapshot,
        snapshot=None,
        dropped=dropped_by(way.back if way else ()),
        deleted_rows=sum(block.row_count for block in blocks.removed),
        inserted_rows=sum(block.row_count for block in blocks.inserted),
    )


def _say_nothing(_what: str, _done: int, _total: int) -> None:
    pass
