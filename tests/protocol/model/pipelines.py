"""A pipeline of two tables, its queries, and a rewind of both with the checkpoints.

The query of silver keeps the good rows of bronze: the first one of each key, and it remembers the
keys. A bad deploy of the query of bronze is taken back while all queries run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import cast

from tests.protocol.model.promises import Facts
from tests.protocol.model.script import Again, Note, Steps
from tests.protocol.model.search import Scenario
from tests.protocol.model.store import Call, Get, Objects, Put, PutIfAbsent, objects_of

BRONZE, SILVER = "bronze", "silver"
TARGET = 2
"""The version of bronze to which it goes back."""
OLD, FORK = "old", "fork"
"""The ids of a query, and of its fork."""
STARTED = ("started",)
"""The object without which no fork can be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each prevents a loss. A name says what is done while the rule holds."""

    along_the_line: bool = True
    """A query is not sent what was undone before it came."""
    cut_from_checkpoint: bool = True
    """A query goes back to what its checkpoint has read, not to what its table's rows tell."""
    whole_batches: bool = True
    """A batch that has read past the target goes back whole."""
    retired_everywhere: bool = True
    """The old query is retired also where none of its rows goes back."""
    forks_last: bool = True
    """No fork can be started before both tables are back."""
    claim_holds_cut: bool = True
    """The rewind that goes on after a crash takes the cut from the claim of its forks."""


ALL_RULES = Rules()


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A row of bronze; a bad one and a good one may have one key."""

    key: int
    is_good: bool


def good(*keys: int) -> frozenset[Row]:
    return frozenset(Row(key, is_good=True) for key in keys)


def bad(*keys: int) -> frozenset[Row]:
    return frozenset(Row(key, is_good=False) for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a table. An object has also all versions before it."""

    rows: frozenset[Row]
    batch: int
    """The last one in the ledger."""
    queries: frozenset[str] = frozenset({OLD})
    """The ids that may write."""
    back_to: int | None = None
    """The version that a rewind went back to."""
    read: int = 0
    """Up to which version of bronze the rows were read."""


Versions = tuple[Version, ...]
Part = Generator[Call | Note, object, object]


def find_head(table: str, known: int) -> Generator[Call | Note, object, Versions]:
    """Return all versions of a table; `known` is the number of one of them."""
    found: Versions = ()
    while (reply := (yield Get(("version", table, known)))) is not None:
        found, known = cast("Versions", reply), known + 1
    return found


def put_next(table: str, before: Versions, version: Version) -> Generator[Call, object, bool]:
    key = ("version", table, len(before))
    return bool((yield PutIfAbsent(key, (*before, version))))


def read_between(
    rules: Rules, bronze: Versions, start: int, end: int
) -> tuple[frozenset[Row], frozenset[Row]]:
    """Return the rows that are inserted and removed between two versions."""
    if rules.along_the_line:
        return bronze[end].rows - bronze[start].rows, bronze[start].rows - bronze[end].rows
    steps = [(bronze[n - 1].rows, bronze[n].rows) for n in range(start + 1, end + 1)]
    added = frozenset(row for before, after in steps for row in after - before)
    return added, frozenset(row for before, after in steps for row in before - after)


def ingest(query: str, rows: frozenset[Row]) -> Steps:
    """Write batch 4 of bronze."""
    if query == FORK and (yield Get(STARTED)) is None:
        return Again(ingest, (query, rows))
    bronze = yield from find_head(BRONZE, 3)
    last = bronze[-1]
    if query not in last.queries or last.batch >= 4:
        return None  # StreamIdentityError
    version = Version(rows=last.rows | rows, batch=4, queries=last.queries)
    done = yield from put_next(BRONZE, bronze, version)
    return None if done else Again(ingest, (query, rows))


def clean(rules: Rules, query: str, done: int) -> Steps:
    """Read bronze and write silver, from batch `done + 1` on."""
    again = Again(clean, (rules, query, done))
    if query == FORK and done == 0:
        if (yield Get(STARTED)) is None:
            return again
        done = cast("int", (yield Get(("claim",))))
        return Again(clean, (rules, query, done))
    start = cast("int", (yield Get(("plan", query, done))))
    end = cast("int | None", (yield Get(("plan", query, done + 1))))
    bronze = yield from find_head(BRONZE, 3)
    if end is None:
        end = len(bronze) - 1
        if end == start:
            return again if query == FORK else None
        yield Put(("plan", query, done + 1), end)
    added, removed = read_between(rules, bronze, start, end)
    if removed:
        yield Note(("met a removal", query))
        return None
    state = cast("frozenset[int]", (yield Get(("state", query, done))))
    kept = frozenset(row for row in added if row.key not in state and row.is_good)
    silver = yield from find_head(SILVER, 2)
    last = silver[-1]
    if query not in last.queries:
        return None  # StreamIdentityError
    if kept and done + 1 > last.batch:
        version = replace(last, rows=last.rows | kept, batch=done + 1, read=end, back_to=None)
        if not (yield from put_next(SILVER, silver, version)):
            return again
    yield Put(("state", query, done + 1), state | {row.key for row in added})
    return Again(clean, (rules, query, done + 1))


def find_cut(rules: Rules) -> Generator[Call | Note, object, int]:
    """Return the batch of the query of silver after which its fork continues."""
    plans = [0]
    while (end := (yield Get(("plan", OLD, len(plans))))) is not None:
        plans.append(cast("int", end))
    ends = plans if rules.whole_batches else [0, *plans[:-1]]
    cut = max(n for n, end in enumerate(ends) if end <= TARGET)
    if not rules.cut_from_checkpoint:
        silver = yield from find_head(SILVER, 2)
        if silver[-1].read <= TARGET:
            cut = len(plans) - 1
    while (yield Get(("state", OLD, cut))) is None:
        cut -= 1
    return cut


def rewinder(rules: Rules) -> Steps:
    """Take both tables and both queries back."""
    cut = cast("int | None", (yield Get(("claim",))))
    if cut is None or not rules.claim_holds_cut:
        cut = yield from find_cut(rules)
        yield Put(("claim",), cut)
    for kind in ("plan", "state"):
        yield Put((kind, FORK, cut), (yield Get((kind, OLD, cut))))
    if not rules.forks_last:
        yield Put(STARTED, FORK)
    for table, known in ((SILVER, 2), (BRONZE, 3)):
        while True:
            versions = yield from find_head(table, known)
            if FORK in versions[-1].queries:
                break
            last = cut if table == SILVER else TARGET
            target = max(n for n, version in enumerate(versions) if version.batch <= last)
            is_same = versions[target].rows == versions[-1].rows
            keeps_old = table == SILVER and is_same and not rules.retired_everywhere
            queries = {OLD, FORK} if keeps_old else {FORK}
            version = replace(versions[target], queries=frozenset(queries), back_to=target)
            if (yield from put_next(table, versions, version)):
                break
    yield Put(STARTED, FORK)
    return None


def broken_promise(objects: Objects, facts: Facts, _now: int) -> str | None:
    """Return a description of a row that is wrong in silver; None if there is none."""
    if ("met a removal", FORK) in facts:
        return "the fork was sent a removal"
    bronze, silver = (_versions(objects, table) for table in (BRONZE, SILVER))
    for number, version in enumerate(silver):
        if version.rows != _good_in(bronze[version.read]):
            return f"silver@{number} lacks or doubles rows of bronze@{version.read}"
    head = silver[-1]
    done = max(
        (cast("int", key[2]) for key in objects.by_key if key[:2] == ("state", FORK)), default=0
    )
    if FORK in head.queries and objects.value(STARTED) is not None and head.batch <= done:
        read = cast("int", objects.value(("plan", FORK, done)))
        if head.rows != _good_in(bronze[read]):
            return f"silver lacks rows of bronze@{read}, which its query has read"
    return None


def _good_in(version: Version) -> frozenset[Row]:
    return frozenset(row for row in version.rows if row.is_good)


def _versions(objects: Objects, table: str) -> Versions:
    last = max(cast("int", key[2]) for key in objects.by_key if key[:2] == ("version", table))
    return cast("Versions", objects.value(("version", table, last)))


def _scenario(rules: Rules, *, done: int, **writers: Again) -> Scenario:
    """Version 3 of bronze has a bad row; silver's query has ended batch `done`."""
    bronze = tuple(
        Version(rows=rows, batch=batch)
        for batch, rows in enumerate([good(), good(1), good(1, 2), good(1, 2) | bad(3)])
    )
    silver = (
        Version(rows=good(), batch=0),
        Version(rows=good(1), batch=1, read=1),
        Version(rows=good(1, 2), batch=2, read=2),
    )
    planned = range(max(done + 1, len(silver)))
    items = [
        *((("version", BRONZE, n), bronze[: n + 1], 0) for n in range(len(bronze))),
        *((("version", SILVER, n), silver[: n + 1], 0) for n in range(len(silver))),
        *((("plan", OLD, batch), batch, 0) for batch in planned),
        *((("state", OLD, n), frozenset(range(1, n + 1)), 0) for n in range(done + 1)),
    ]
    actors = {
        "rewinder": Again(rewinder, (rules,)),
        "old clean": Again(clean, (rules, OLD, done)),
        "clean": Again(clean, (rules, FORK, 0)),
        **writers,
    }
    return Scenario(
        objects=objects_of(items),
        facts=frozenset(),
        actors=tuple(actors.items()),
        crashes=1,
        promise=broken_promise,
    )


def bad_row_left_out(rules: Rules) -> Scenario:
    """Silver's query has read the bad row and left it out; both tables are written on."""
    old, fork = (OLD, good(4) | bad(5)), (FORK, good(3, 4, 5))
    return _scenario(rules, done=3, old_ingest=Again(ingest, old), ingest=Again(ingest, fork))


def batch_not_ended(rules: Rules) -> Scenario:
    """Silver's query has committed a batch, and not yet stored its state."""
    return _scenario(rules, done=1)


Build = Callable[[Rules], Scenario]

CASES: dict[str, Build] = {
    **dict.fromkeys(Rules.__dataclass_fields__, bad_row_left_out),
    "claim_holds_cut": batch_not_ended,
}
"""By rule, the scenario in which a row is lost without it."""
