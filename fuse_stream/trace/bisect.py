"""Which snapshot was the first with a row that matches, found in O(log n) tests.

As in `git bisect`, the answer is right if rows that match stay: if some come, go and come again,
it is one of the snapshots in which they came.

A past snapshot is seen with its own columns. One that it lacks and the last one has is null there,
as it is for the same rows in the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.evolve import merged
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import MatchCounts, Selection, prune, read_cost, select_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectStep:
    """What a test of one snapshot told."""

    version: int
    matches: bool
    """Whether a row of the snapshot matches."""
    blocks_read: int
    """For this test; where statistics or the tests before decide, none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectResult:
    """The first snapshot in which a row matches, and how it was found."""

    snapshot: Snapshot | None
    """None if none was met; then no row of the last one matches."""
    first: int
    """The oldest version that was asked about."""
    last: int
    tested: tuple[BisectStep, ...]
    """In the order of the tests."""

    @property
    def may_be_older(self) -> bool:
        """Whether rows match in the oldest snapshot already: they may come from one before it."""
        return self.snapshot is not None and self.snapshot.version == self.first

    @property
    def blocks_read(self) -> int:
        """How many blocks were read, over all tests."""
        return sum(test.blocks_read for test in self.tested)

    def __repr__(self) -> str:
        tested = ", ".join(
            f"{test.version} {'yes' if test.matches else 'no'}" for test in self.tested
        )
        found = "no version" if self.snapshot is None else f"version {self.snapshot.version}"
        older = " or before" if self.may_be_older else ""
        return (
            f"BisectResult({found}{older} of {self.first}..{self.last}, tested: {tested}, "
            f"blocks_read={self.blocks_read})"
        )


def bisect(
    history: History,
    where: str,
    *,
    first: int | None = None,
    last: int | None = None,
    time_zone: str = "UTC",
) -> BisectResult:
    """Return the first snapshot of a history in which a row matches.

    Of n snapshots at most log2(n) + 1 are tested; no block is read twice, and none where statistics
    decide.

    Args:
        history: of the branch.
        where: a SQL predicate with Spark's semantics.
        first: the oldest version to ask about; the oldest that stands if not given.
        last: the newest version to ask about; the head if not given.
        time_zone: in which the predicate's times without a zone are meant.

    Raises:
        InvalidInputError: a column that the last snapshot lacks, a broken predicate, a first
            version past the last, or a column that was of a type that does not fit before.
        NotFoundError: a version lies past the head.
        SnapshotExpiredError: a version has expired.
    """
    newest = (history.head if last is None else history.load(last)).snapshot
    low = history.floor if first is None else first
    if low > newest.version:
        raise InvalidInputError(
            "the first version lies past the last", first=low, last=newest.version
        )
    if first is not None:
        history.load(first)  # or the answer could rest on a version that is gone
    tester = _Tester(history.metadata, newest.schema, where, time_zone)
    found: Snapshot | None = None
    oldest, end = low, newest.version + 1  # the end stands for "in none"
    while low < end:
        middle = history.load((low + end) // 2).snapshot
        if tester.test(middle):
            found, end = middle, middle.version
        else:
            low = middle.version + 1
    return BisectResult(
        snapshot=found, first=oldest, last=newest.version, tested=tuple(tester.tested)
    )


class _Tester:
    """Tests snapshots, and remembers what it learnt of their blocks."""

    def __init__(self, metadata: Metadata, last: Schema, where: str, time_zone: str) -> None:
        self.tested: list[BisectStep] = []
        self._metadata = metadata
        self._where = where
        self._time_zone = time_zone
        self._counts = MatchCounts(metadata.store)
        self._looked_at = select_matches(last, where, time_zone=time_zone).read
        self._selections: dict[Schema, Selection] = {}

    def test(self, snapshot: Snapshot) -> bool:
        before = self._counts.blocks_read
        matches = self._matches(snapshot)
        self.tested.append(
            BisectStep(
                version=snapshot.version,
                matches=matches,
                blocks_read=self._counts.blocks_read - before,
            )
        )
        return matches

    def _matches(self, snapshot: Snapshot) -> bool:
        selection = self._selection(snapshot)
        unknown: list[Block] = []
        for block in prune(self._metadata, snapshot, selection):
            count = self._counts.find(block, selection)
            if count:
                return True
            if count is None:
                unknown.append(block)
        unknown.sort(key=lambda block: read_cost(block, selection))
        return any(self._counts.load(block, selection) for block in unknown)

    def _selection(self, snapshot: Snapshot) -> Selection:
        schema = snapshot.schema
        if schema not in self._selections:
            self._selections[schema] = select_matches(
                self._completed(snapshot), self._where, time_zone=self._time_zone
            )
        return self._selections[schema]

    def _completed(self, snapshot: Snapshot) -> Schema:
        """Return a snapshot's columns and those that the predicate looks at besides.

        What is added has ids that no block of the snapshot holds, so it is null.
        """
        try:
            return merged(snapshot.schema, self._looked_at)
        except SchemaMismatchError as error:
            raise InvalidInputError(
                "a column that the predicate looks at was of another type before, which does not "
                "fit; search from a later version on, or on another column",
                version=snapshot.version,
                columns=list(self._looked_at.names()),
            ) from error
