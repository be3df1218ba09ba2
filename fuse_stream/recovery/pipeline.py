"""Several tables that feed one another: which are made from which, and who writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from fuse_stream.checkpoint.files import Checkpoint
from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import (
    FuseError,
    InvalidInputError,
)
from fuse_stream.format.refs import owner_of
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.objects.refs import find_branch
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.reading.line import was_published
from fuse_stream.recovery.forks import (
    sources_in,
)
from fuse_stream.recovery.ledgers import Cut, ForkedQuery
from fuse_stream.recovery.repeated import Made


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
    def table_id(self) -> str:
        return self.head.snapshot.table_id

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
        return is_own or offset.is_undecided or self.history.shares(offset)

    def is_apart(self, offset: Offset) -> bool:
        """True if an offset is on a branch that was neither published to this one nor shares it."""
        if offset.branch_id in self.branches or self.has(offset) or self.has_published(offset):
            return False
        is_there = find_branch(self.committer.metadata, offset.branch_id) is not None
        return is_there and self.history.floor == 0  # else the publish may have expired

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
        self._by_table = {member.table_id: member for member in members}
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

        None as well if it is on a branch of the table that this one has nothing to do with. A
        branch that is gone, or whose publish has expired, is not taken for one of these.
        """
        member = self.find_member(offset)
        return None if member is None or member.is_apart(offset) else member.number

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

    def feeds(self, query: ForkedQuery) -> bool:
        """True if one of the tables is made from one that a query writes."""
        written = {member.number for member in self.members if member.is_written_by(query)}
        return any(written & sources for sources in self._sources.values())

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


def located(error: FuseError, member: Member) -> FuseError:
    """Return an error with the table where it was found."""
    return type(error)(error.message, **{**error.context, "table": member.url})
