"""Find the first snapshot with a matching row, in O(log n) tests.

As in `git bisect`, the answer is right if no later commit removed all matching rows. If one did and
rows came again, the answer is one of the snapshots in which they came.

An earlier snapshot is read with its own columns. A column of the last snapshot that it lacks is
null there, as it is in the last snapshot for the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.evolve import merged
from fuse_stream.format.names_in_files import clashes
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import MatchCounts, Selection, prune, read_cost, select_matches

_MOST_SHOWN = 4
"""The most tests in a `repr`, the last ones: they enclose the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectStep:
    """The result of testing one snapshot."""

    version: int
    matches: bool
    """True if a row of the snapshot matches."""
    blocks_read: int
    """How many blocks this test read; 0 if statistics or earlier tests suffice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectResult:
    """The first snapshot in which a row matches, and the snapshots that were tested."""

    snapshot: Snapshot | None
    """None if no row of the last snapshot matches."""
    first: int
    """The oldest version of the search."""
    last: int
    tested: tuple[BisectStep, ...]
    """In the order of the tests."""

    @property
    def may_be_older(self) -> bool:
        """True if rows match in the oldest snapshot: an earlier one may have brought them."""
        return self.snapshot is not None and self.snapshot.version == self.first

    @property
    def blocks_read(self) -> int:
        """The number of blocks that all tests read."""
        return sum(test.blocks_read for test in self.tested)

    def __repr__(self) -> str:
        tests = [f"{test.version} {'yes' if test.matches else 'no'}" for test in self.tested]
        ends = tests if len(tests) <= _MOST_SHOWN else ["…", *tests[-_MOST_SHOWN:]]
        tested = ", ".join(ends)
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
    """Return the first snapshot in which a row matches; arguments and errors of `Table.bisect`.

    No block is read twice.
    """
    newest = (history.head if last is None else history.load(last)).snapshot
    low = history.floor if first is None else first
    if low > newest.version:
        raise InvalidInputError(
            "the first version is past the last; exchange them", first=low, last=newest.version
        )
    oldest_schema = history.load(low).snapshot.schema  # raises if it has expired
    tester = _Tester(history.metadata, newest.schema, where, time_zone)
    tester.check_names(oldest_schema, low)  # it may not be tested itself
    found: Snapshot | None = None
    oldest, end = low, newest.version + 1  # `end` past the last means: in no snapshot
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
    """Tests snapshots, and remembers the matches in their blocks."""

    def __init__(self, metadata: Metadata, last: Schema, where: str, time_zone: str) -> None:
        self.tested: list[BisectStep] = []
        self._metadata = metadata
        self._where = where
        self._time_zone = time_zone
        self._counts = MatchCounts(metadata.store)
        self._used = select_matches(last, where, time_zone=time_zone).read
        self._selections: dict[Schema, Selection] = {}

    def check_names(self, schema: Schema, version: int) -> None:
        """Raise InvalidInputError if a name of the predicate is another column's in a version."""
        if lines := clashes(self._used, schema):
            raise InvalidInputError(
                "a column of the predicate had another name before, or its name was that of "
                "another column; search from a later version on, or on another column",
                version=version,
                difference=lines,
            )

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
        """Return a snapshot's columns, and those that the predicate uses besides.

        No block of the snapshot has the ids of the added columns, so they are null.
        """
        self.check_names(snapshot.schema, snapshot.version)
        try:
            return merged(snapshot.schema, self._used)
        except SchemaMismatchError as error:
            raise InvalidInputError(
                "a column of the predicate had another type before, which does not fit; search "
                "from a later version on, or on another column",
                version=snapshot.version,
                columns=list(self._used.names()),
            ) from error
