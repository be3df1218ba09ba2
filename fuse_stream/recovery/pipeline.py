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
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from fuse_stream.checkpoint.files import load_offsets
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import (
    FuseError,
    InvalidInputError,
    NotFoundError,
)
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.reading.line import load_line
from fuse_stream.recovery.cuts import QueryCut, batches_of, find_newest, get_kept_before
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

    def is_written_by(self, query: ForkedQuery) -> bool:
        """True if the newest ledger names a query, or one before or after it."""
        return bool(query.keys(self.head.snapshot.ledger))


class Pipeline:
    """Several tables, and which of them are made from which."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self._by_key = {
            (member.head.snapshot.table_id, member.committer.branch_id): member.number
            for member in members
        }
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

    def reads_of(self, query: ForkedQuery) -> frozenset[int]:
        """Return the numbers of the tables that a query reads."""
        return self._reads[query.old_query_id]

    def find_number(self, offset: Offset) -> int | None:
        """Return the number of the table that an offset is of; None if it is another table's."""
        return self._by_key.get((offset.table_id, offset.branch_id))

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
        if others and query.claimed is not None:
            planned.lower(query.claimed)
        if first.is_written_by(planned.forked) or not (is_reader or has_not_run):
            cut, keys = find_cut(first.history, self._targets[0], self._goal, query)
            planned.applications |= {name for name, _ in keys}
            if cut is not None:
                planned.cut, planned.goes_back = cut, True
            elif not any(member.is_written_by(planned.forked) for member in others):
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
            is_reader = bool(self._pipeline.reads_of(one.forked))
            if one.query.checkpoint.offsets and not (one.goes_back or is_reader):
                raise has_written_nothing(self._pipeline.members[0].history, one.query)

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
            if number is not None:
                member = self._pipeline.members[number]
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
        target, history = self._targets[number], self._pipeline.members[number].history
        if offset.version > target.snapshot.version:
            return False
        line = load_line(history, offset.version - 1, target)
        return line.find_after(offset.version - 1) == offset.version

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
        if target.sha256 == history.head.sha256:
            return
        held_by = dict(zip(map(id, back), newest, strict=True))
        for one in writers:
            held = held_by.get(id(one), history.head)
            if batches_of(one.forked, held) != batches_of(one.forked, target):
                at = Goal(version=target.snapshot.version)
                cut, _ = find_cut(history, target, at, one.query)
                if cut is not None:
                    one.lower(cut)


def located(error: FuseError, member: Member) -> FuseError:
    """Return an error with the table where it was found."""
    return type(error)(error.message, **{**error.context, "table": member.url})
