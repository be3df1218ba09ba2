"""Plan how far the tables and the queries of a pipeline go back, each because of another.

The first table goes back to the goal, and the queries that write it with it. From there:

- A query goes back to its newest batch that has read nothing later than the targets of the tables
  that it reads. Its checkpoint tells, which has the offsets of each batch. So it goes back also if
  it has written nothing since: its state may hold what it has read.
- A table goes back to its newest version without a later batch of the queries that write it.
- If that version lacks batches of another query that writes the table, that one goes back too.

This is repeated until nothing moves. Every query gets a fork, so all of them start on their forks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from fuse_stream.checkpoint.files import Checkpoint, load_offsets
from fuse_stream.checkpoint.offsets import move_branches
from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import (
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.refs import owner_of
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.reading.line import find_publish, load_line, was_published
from fuse_stream.recovery.cuts import (
    QueryCut,
    batches_of,
    check_other_branches,
    find_newest,
    get_kept_before,
)
from fuse_stream.recovery.forks import (
    OldQuery,
    begins_later,
    find_cut,
    has_written_nothing,
    sources_in,
)
from fuse_stream.recovery.holds import Reading
from fuse_stream.recovery.ledgers import Cut, ForkedQuery
from fuse_stream.recovery.repeated import Made
from fuse_stream.recovery.target import Goal, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of the tables to rewind."""

    number: int
    """0: the table to which the goal applies."""
    committer: Committer
    history: History
    made: Made | None
    """The rewind of this table, if an earlier call has published it."""

    @property
    def head(self) -> Stored:
        return self.history.head

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def url(self) -> str:
        return self.committer.metadata.store.url

    @property
    def branches(self) -> set[str]:
        """The ids of its branch, and of those from which that was forked."""
        own = self.committer.branch_id
        return {own, *(fork.branch_id for fork in self.committer.metadata.forks_of(own))}

    def has(self, offset: Offset) -> bool:
        """True if the version of an offset, on its branch, is one of this branch too."""
        own = self.committer.branch_id
        forks = self.committer.metadata.forks_of(own)
        is_own = offset.branch_id in {own, owner_of(forks, own, offset.version)}
        return is_own or offset.is_undecided

    def has_published(self, offset: Offset) -> bool:
        """True if the version of an offset on another branch came to this one by a publish."""
        return was_published(self.history, offset)

    def is_written_by(self, query: ForkedQuery) -> bool:
        """True if the newest ledger names a query, or one before or after it."""
        return bool(query.keys(self.head.snapshot.ledger))


class Pipeline:
    """Several tables, and which of them are made from which."""

    def __init__(self, members: Sequence[Member]) -> None:
        """Raise InvalidInputError if two members are one table."""
        self.members = members
        self._by_table = {member.head.snapshot.table_id: member for member in members}
        if len(self._by_table) < len(members):
            raise InvalidInputError(
                "a table was named twice; name each table once",
                tables=[member.url for member in members],
            )
        self._sources: dict[int, set[int]] = {
            member.number: {
                number
                for entry in member.head.snapshot.ledger.entries.values()
                for number in self.numbers_of(entry.sources or ())
            }
            for member in members
        }
        """For each table, by its number, those from which its queries read."""
        self._reads: dict[str, frozenset[int]] = {}
        """For each query that was added, by its id, the numbers of the tables that it reads."""

    def add(self, query: ForkedQuery, offsets: str | None) -> None:
        """Add what a query reads; `offsets` is the text of the offsets of one of its batches."""
        reads = self.numbers_of(sources_in(offsets))
        self._reads[query.old_query_id] = reads
        for member in self.members:
            if member.is_written_by(query):
                self._sources[member.number] |= reads

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add what the query of a checkpoint reads."""
        cut = Cut(offsets_through=None, commits_through=None)
        ids = checkpoint.query_id, checkpoint.ancestors
        query = ForkedQuery(old_query_id=ids[0], ancestors=ids[1], query_id="", cut=cut)
        self.add(query, checkpoint.last_offsets)

    def application_of(self, query: ForkedQuery) -> str:
        """Return a name under which a query has written to one of the tables."""
        ledgers = (member.head.snapshot.ledger for member in self.members)
        names = (name for ledger in ledgers for name, _ in query.keys(ledger))
        return next(names, DEFAULT_APPLICATION)

    def reads_of(self, query: ForkedQuery) -> frozenset[int]:
        """Return the numbers of the tables that a query reads."""
        return self._reads[query.old_query_id]

    def find_member(self, offset: Offset) -> Member | None:
        """Return the table that an offset is of, on any branch; None if it is another table's."""
        return self._by_table.get(offset.table_id)

    def find_number(self, offset: Offset) -> int | None:
        """Return the number of the table that an offset is of; None if it is another table's.

        The offset may be on a branch from which the table's own was forked, or on one that was
        published to it.
        """
        member = self.find_member(offset)
        if member is None:
            return None
        is_known = offset.branch_id in member.branches
        return member.number if is_known or member.has_published(offset) else None

    def branch_of(self, offset: Offset) -> str:
        """Return the id of the branch on which a fork shall read on from an offset.

        It is the branch that is rewound, if that one has the version; else the offset's own.
        """
        number = self.find_number(offset)
        if number is None or not self.members[number].has(offset):
            return offset.branch_id
        return self.members[number].committer.branch_id

    def moved(self, position: SourcePosition) -> SourcePosition:
        """Return a position on the branch where a fork shall read on."""
        branch_id = self.branch_of(position.offset)
        return replace(position, offset=replace(position.offset, branch_id=branch_id))

    def numbers_of(self, positions: Iterable[SourcePosition]) -> frozenset[int]:
        """Return the numbers of the tables that have a position."""
        found = (self.find_number(one.offset) for one in positions)
        return frozenset(number for number in found if number is not None)

    def sorted(self) -> tuple[Member, ...]:
        """Return the tables, each after those that it is made from.

        Raises:
            InvalidInputError: there is no such order.
        """
        try:
            order = tuple(TopologicalSorter(self._sources).static_order())
        except CycleError as error:
            raise InvalidInputError(
                "these tables are made from one another in a circle, so none of them can go back "
                "before the others: rewind them one at a time",
                tables=[self.members[number].url for number in error.args[1]],
            ) from None
        return tuple(self.members[number] for number in order)

    def upstream(self, numbers: Iterable[int]) -> set[int]:
        """Return tables and all that they are made from."""
        found: set[int] = set()
        todo = list(numbers)
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                todo += self._sources[number]
        return found

    def writers_of(self, member: Member, queries: Iterable[ForkedQuery]) -> list[ForkedQuery]:
        """Return the queries that write a table; if its ledger names none, those that may."""
        queries = tuple(queries)
        named = [query for query in queries if member.is_written_by(query)]
        return named or [
            query for query in queries if member.number not in self.upstream(self.reads_of(query))
        ]


@dataclass(slots=True, kw_only=True, eq=False)
class Planned:
    """A query of a pipeline, with the cut that has been found for its fork."""

    query: OldQuery
    cut: Cut
    goes_back: bool
    """False if the fork has all batches of the checkpoint."""
    sources: tuple[SourcePosition, ...] = ()
    """How far the last batch of the fork has read tables."""
    applications: set[str] = field(default_factory=set)
    """The names under which it has written."""

    @property
    def forked(self) -> ForkedQuery:
        return self.query.cut_at(self.cut)

    def lower(self, cut: Cut) -> None:
        """Set the cut back, unless it is as early already."""
        if (cut.last_planned, cut.last_done) < (self.cut.last_planned, self.cut.last_done):
            self.cut, self.goes_back = cut, True

    def read_by(self, batch: int) -> tuple[SourcePosition, ...]:
        """Return how far a batch of the query has read tables."""
        return sources_in(load_offsets(self.query.source, batch))


class Closure:
    """Finds the cuts of queries and the targets of tables, each because of another."""

    def __init__(self, pipeline: Pipeline, target: Stored, goal: Goal, report: Progress) -> None:
        """Start with the first table, which goes back to `target`, the version of `goal`."""
        self.planned: list[Planned] = []
        self._pipeline = pipeline
        self._goal = goal
        self._report = report
        self._targets = {member.number: member.head for member in pipeline.members}
        self._targets[0] = target

    def add(self, query: OldQuery) -> None:
        """Add a query, with the cut that the target of the first table asks for.

        Raises:
            StreamIdentityError: the query neither writes nor reads one of the tables; or it is not
                the one that wrote the batches.
        """
        checkpoint = query.checkpoint
        last = checkpoint.offsets[-1] if checkpoint.offsets else None
        planned = Planned(query=query, cut=query.with_reruns(last), goes_back=False)
        first, *others = self._pipeline.members
        self._pipeline.add(planned.forked, checkpoint.last_offsets)
        is_reader = bool(self._pipeline.reads_of(planned.forked))
        has_not_run = bool(others) and last is None
        if (others or self._goal.at_head) and query.claimed is not None:
            planned.lower(query.claimed)
        if first.is_written_by(planned.forked) or not (is_reader or has_not_run):
            cut, keys = find_cut(first.history, self._targets[0], self._goal, query)
            planned.applications |= {name for name, _ in keys}
            if cut is not None and not self._stays(planned, first):
                planned.cut, planned.goes_back = cut, True
            elif cut is None and not any(member.is_written_by(planned.forked) for member in others):
                raise has_written_nothing(first.history, query)
        for member in others:
            keys = planned.forked.keys(member.head.snapshot.ledger)
            planned.applications |= {name for name, _ in keys}
        self.planned.append(planned)

    def close(self) -> None:
        """Lower cuts and targets until nothing moves.

        Raises:
            FuseError: a query or a table cannot go back as far.
        """
        before = None
        while (state := self._state()) != before:
            before = state
            for one in self.planned:
                self._follow_sources(one)
            for member in self._pipeline.members:
                try:
                    self._follow_writers(member)
                except FuseError as error:
                    raise located(error, member) from error
        for one in self.planned:
            has_part = bool(self._pipeline.reads_of(one.forked)) or self._goal.at_head
            if one.query.checkpoint.offsets and not (one.goes_back or has_part):
                raise has_written_nothing(self._pipeline.members[0].history, one.query)

    def target_of(self, member: Member) -> Stored:
        """Return the version that a table goes back to, as far as it is known by now."""
        return self._targets[member.number]

    def readings(self, planned: Planned) -> Iterator[Reading]:
        """Yield how a query reads each of the tables, before and after it goes back."""
        offsets, cut = planned.query.checkpoint.offsets, planned.cut.offsets_through
        if cut is None or not self.reads_of(planned):
            return
        ends, left = planned.read_by(cut), [planned.read_by(batch) for batch in offsets[-2:]]
        before = planned.read_by(cut - 1) if cut - 1 in offsets else ()
        starts = before if len(before) == len(ends) else ends
        for start, end in zip(starts, ends, strict=True):
            number = self._pipeline.find_number(end.offset)
            member = None if number is None else self._pipeline.members[number]
            if member is not None and end.offset.branch_id in member.branches:
                yield Reading(
                    committer=member.committer,
                    floor=member.history.floor,
                    left=tuple(
                        one.offset
                        for positions in left
                        for one in positions
                        if self._pipeline.find_number(one.offset) == number
                    ),
                    start=start.offset,
                    end=end.offset,
                )

    def reads_of(self, planned: Planned) -> frozenset[int]:
        """Return the numbers of the tables that a query reads."""
        return self._pipeline.reads_of(planned.forked)

    def named_sources(self, planned: Planned) -> tuple[SourcePosition, ...]:
        """Return how far the last batch of a fork has read tables, with the paths of these."""
        return tuple(self.named(one) for one in planned.sources)

    def named(self, position: SourcePosition) -> SourcePosition:
        """Return a position with the path of its table, if that is known."""
        number = self._pipeline.find_number(position.offset)
        if number is not None:
            path = self._pipeline.members[number].url
            return SourcePosition(offset=position.offset, path=path)
        ledgers = (member.head.snapshot.ledger for member in self._pipeline.members)
        known = (
            one
            for ledger in ledgers
            for entry in ledger.entries.values()
            for one in entry.sources or ()
            if one.offset.table_id == position.offset.table_id and one.path is not None
        )
        found = next(known, position)
        return SourcePosition(offset=position.offset, path=found.path)

    def moved_offsets(self, planned: Planned) -> dict[int, str]:
        """Return new texts of offsets, by batch, where a fork reads on on other branches.

        Spark uses the last two: the end of the last batch, and its start if it runs again.
        """
        last = planned.cut.offsets_through
        if last is None:
            return {}
        query, found = planned.query, {}
        for batch in {last - 1, last} & {*query.checkpoint.offsets}:
            text = load_offsets(query.source, batch)
            moved = move_branches(text, self._pipeline.branch_of)
            if moved != text:
                found[batch] = moved
        return found

    def is_outside(self, offset: Offset) -> bool:
        """True if an offset is of none of the tables."""
        return self._pipeline.find_number(offset) is None

    def _state(self) -> tuple[object, ...]:
        cuts = tuple(one.cut for one in self.planned)
        return cuts, tuple(target.sha256 for target in self._targets.values())

    def _follow_sources(self, planned: Planned) -> None:
        """Lower the cut of a query to the newest batch of which all that it read is kept."""
        if not self._pipeline.reads_of(planned.forked) or planned.cut.offsets_through is None:
            return
        query, most = planned.query, planned.cut.last_planned
        for batch in reversed(query.checkpoint.offsets):
            if batch > most:
                continue
            planned.sources = planned.read_by(batch)
            if all(self.is_kept(one.offset) for one in planned.sources):
                if batch < most:
                    planned.lower(query.with_reruns(batch))
                return
        raise self._none_kept(query)

    def is_kept(self, offset: Offset) -> bool:
        """True if what was read up to an offset is in the target of its table."""
        number = self._pipeline.find_number(offset)
        if number is None or offset.is_undecided:
            return True
        target, member = self._targets[number], self._pipeline.members[number]
        if offset.branch_id not in member.branches:
            return find_publish(member.history, target, offset) is not None
        if offset.version > target.snapshot.version or not member.has(offset):
            return False
        return load_line(member.history, offset.version - 1, target).has(offset.version)

    def _none_kept(self, query: OldQuery) -> FuseError:
        oldest = query.checkpoint.offsets[0]
        if oldest > 0:
            return NotFoundError(
                "every batch whose offsets this checkpoint still has is after the target: Spark "
                "has deleted those before (spark.sql.streaming.minBatchesToRetain). Choose a later "
                "target",
                checkpoint=query.source.url,
                first_batch=oldest,
            )
        return begins_later(query)

    def _follow_writers(self, member: Member) -> None:
        """Find the target of a table, and lower the cuts of queries whose batches it lacks."""
        writers = [
            one
            for one in self.planned
            if one.forked in self._pipeline.writers_of(member, [p.forked for p in self.planned])
        ]
        history, report = member.history, self._report
        back = [one for one in writers if one.goes_back]
        cuts = [QueryCut(query=one.forked, batch=one.cut.last_planned) for one in back]
        older = get_kept_before(member.committer, history) if cuts else ()
        newest = find_newest(history, cuts, report, older)
        found = [self._targets[member.number], *newest]
        target = min(found, key=lambda stored: stored.snapshot.version)
        self._targets[member.number] = target
        held_by = dict(zip(map(id, back), newest, strict=True))
        for one in writers:
            held = held_by.get(id(one), history.head)
            if batches_of(one.forked, held) != batches_of(one.forked, target) or self._is_ahead(
                one, member, target
            ):
                at = Goal(version=target.snapshot.version)
                cut, _ = find_cut(history, target, at, one.query)
                if cut is not None:
                    one.lower(cut)

    def _stays(self, planned: Planned, member: Member) -> bool:
        """True if no batch is to go back, and a table has all rows of a query's batches."""
        ledger = member.head.snapshot.ledger
        return (
            self._goal.at_head
            and planned.forked.holds(ledger, planned.cut.last_planned)
            and not self._is_ahead(planned, member, member.head)
        )

    def _is_ahead(self, planned: Planned, member: Member, target: Stored) -> bool:
        """True if the query may have gone on writing another branch, after this one was made.

        A query that goes back to the batch of the goal is refused later, if it has.
        """
        first = self._pipeline.members[0]
        if first.is_written_by(planned.forked) and not self._goal.at_head:
            return False
        try:
            check_other_branches(
                member.committer, planned.forked, member.head.snapshot, target.snapshot.ledger
            )
        except (SnapshotExpiredError, StreamIdentityError):
            return True
        return False


def located(error: FuseError, member: Member) -> FuseError:
    """Return an error with the table where it was found."""
    return type(error)(error.message, **{**error.context, "table": member.url})
