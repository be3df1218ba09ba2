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

from collections.abc import Iterator
from dataclasses import dataclass, field

from fuse_stream.checkpoint.files import load_offsets
from fuse_stream.checkpoint.offsets import move_branches
from fuse_stream.errors import (
    FuseError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.line import find_publish, load_line
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
from fuse_stream.recovery.pipeline import Member, Pipeline, located
from fuse_stream.recovery.target import Goal, Progress


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
            ledger = member.head.snapshot.ledger
            planned.applications |= {name for name, _ in planned.forked.keys(ledger)}
            if not planned.forked.holds(ledger, planned.cut.last_planned):
                planned.goes_back = True  # its checkpoint is behind the table: a copy, perhaps
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
            reads = bool(self._pipeline.reads_of(one.forked))
            has_part = one.goes_back or reads or self._goal.at_head
            if one.query.checkpoint.offsets and not (has_part or self._pipeline.feeds(one.forked)):
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
        return tuple(self.named(self._pipeline.moved(one)) for one in planned.sources)

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
        """Return the texts of a fork's last offsets, by batch, on the branches where it reads on.

        Spark uses the last two: the end of the last batch, and its start if it runs again. A ledger
        gets them too: it may have them on another branch.
        """
        last, query = planned.cut.offsets_through, planned.query
        if last is None:
            return {}
        kept = {last - 1, last} & {*query.checkpoint.offsets}
        texts = {batch: load_offsets(query.source, batch) for batch in kept}
        return {
            batch: move_branches(text, self._pipeline.branch_of)
            for batch, text in texts.items()
            if sources_in(text)
        }

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
        if not member.has(offset):
            is_other = offset.branch_id not in member.branches
            return is_other and find_publish(member.history, target, offset) is not None
        if offset.version > target.snapshot.version:
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
