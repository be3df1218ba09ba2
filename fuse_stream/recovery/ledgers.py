"""Compute the ledger of a snapshot that takes the content of another snapshot or branch. Pure.

Rule: a query that has committed batches which the new content lacks must not continue after them.
Either the query continues from a fork of its checkpoint, which has another id; or the caller names
its application in `retire`. In both cases the old id is retired permanently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from fuse_stream.commit.ledger import EVERY, heirs_of
from fuse_stream.errors import NotFoundError, StreamIdentityError
from fuse_stream.format.forked import UNKNOWN, Ancestor
from fuse_stream.format.records import Ledger, LedgerEntry, LedgerKey, Retirement, Snapshot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The batch after which a fork continues."""

    offsets_through: int | None
    """The last batch whose source offsets the fork keeps; None: it starts from scratch."""
    commits_through: int | None
    """The last batch that counts as done: `offsets_through`, or the batch before, if it reruns."""

    def with_rerun(self) -> Cut:
        """Return the same cut, but its last batch runs again."""
        last = self.offsets_through
        return dataclasses.replace(self, commits_through=last - 1 if last else None)

    @property
    def last_planned(self) -> int:
        """The last batch whose source offsets the fork keeps; -1: none."""
        return -1 if self.offsets_through is None else self.offsets_through

    @property
    def last_done(self) -> int:
        """The last batch that counts as done; -1: none."""
        return -1 if self.commits_through is None else self.commits_through


Written = tuple[LedgerKey, str | None]
"""The ledger key under which a query wrote, and the query's id."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The ledger entries in the commits that a branch loses when it takes other content.

    Entries that have left the ledger since then are included.
    """

    last: Mapping[Written, LedgerEntry] = dataclasses.field(default_factory=dict)
    """The newest entry of each query and key."""
    first: Mapping[Written, int] = dataclasses.field(default_factory=dict)
    """The first batch of each that was read; in the order of the commits, newest first."""
    unseen_before: Snapshot | None = None
    """The oldest commit that was read, if commits before it may have added rows that are lost too,
    of queries that no ledger names any more."""


NOTHING = Undone()


def set_back(
    head: Ledger,
    target: Ledger,
    *,
    version: int,
    undone: Undone = NOTHING,
    forks: Mapping[str, str] | None = None,
    retire: Collection[str] = (),
    applications: Mapping[str, str] | None = None,
) -> Ledger:
    """Return the ledger of `version`, which takes the content of an earlier snapshot.

    `target` is the ledger of that snapshot, or `head` if only the queries change; `undone` are the
    batches written since then; `forks` has the id of each fork by those of the forked query and its
    ancestors. `applications` has the name of each forked query if the table is one of several that
    are rewound together: then they are retired in each, even where they have committed nothing yet.

    Raises:
        StreamIdentityError: an application would lose batches, and is neither forked nor in
            `retire`; or a forked query loses nothing (only if the table is rewound alone).
        NotFoundError: an application in `retire` has committed nothing.
    """
    forks = dict(forks or {})
    check_known(retire, undone, head, target)
    entries: dict[LedgerKey, LedgerEntry] = {}
    retired = {**target.retired, **head.retired}
    passed_at = {
        key: Retirement(application=key[0], version=version)
        for key in (*head.entries, *target.entries, *(key for key, _ in undone.last))
        if key[0] in retire
    }
    moved: set[str] = set()
    for key in head.entries.keys() | target.entries.keys():
        now, then = head.entries.get(key), target.entries.get(key)
        old = next((query for query in forks if query in _family(now, then, head)), None)
        ids = {entry.query_id for entry in (now, then) if entry and entry.query_id}
        if old is not None:
            moved |= {forks[old]} if now != then else set()
            passed_at[key] = Retirement(application=key[0], version=version, fork=forks[old])
            retired |= dict.fromkeys(ids | {old}, passed_at[key])
            then = None if then is None else dataclasses.replace(then, query_id=forks[old])
        elif now != then and key in passed_at:
            retired |= dict.fromkeys(ids, passed_at[key])
        if then is not None:
            entries[key] = then
    gone = {key: now for key, now in head.entries.items() if now != target.entries.get(key)}
    departed = _departed(undone, target, retired)
    gone = {**dict(departed), **gone}
    if stuck := {key: last for key, last in gone.items() if key not in passed_at}:
        raise _stuck(stuck)
    retired |= {last.query_id: passed_at[key] for key, last in departed if last.query_id}
    if applications is not None:
        for query, fork in _with_former_forks(forks, head.retired).items():
            before = head.retired.get(query)
            if before is not None and before.fork in forks:
                continue  # its entry leads to the fork, and has the version of the first successor
            passed = Retirement(application=applications[fork], version=version)
            retired[query] = dataclasses.replace(
                retired.get(query, passed), version=version, fork=fork
            )
    else:
        _check_moved(forks, moved)
        led = {passed.fork: passed for passed in passed_at.values() if passed.fork}
        # Also where only an ancestor of the query has an entry here.
        retired |= {query: led[fork] for query, fork in forks.items() if query not in retired}
    return Ledger(entries=entries, retired=retired)


def _check_moved(forks: Mapping[str, str], moved: Collection[str]) -> None:
    if idle := [query for query, fork in forks.items() if fork not in moved]:
        raise StreamIdentityError(
            "the query of a checkpoint does not go back: it has committed nothing to this branch "
            "since the target. Leave the checkpoint out, and the query continues as it is; or, if "
            "the query also writes other tables, rewind all of them in one call",
            queries=sorted(idle),
        )


def _departed(
    undone: Undone, target: Ledger, retired: Collection[str]
) -> list[tuple[LedgerKey, LedgerEntry]]:
    """Return the last entries that the target lacks, of queries that are not retired."""
    return [
        (key, last)
        for (key, query), last in undone.last.items()
        if query not in retired
        and (
            (held := target.entries.get(key)) is None
            or held.query_id != query
            or held.batch_id != last.batch_id
        )
    ]


def _with_former_forks(
    forks: Mapping[str, str], retired: Mapping[str, Retirement]
) -> dict[str, str]:
    """Return `forks` with the queries that had replaced the forked ones in earlier rewinds."""
    found = dict(forks)
    for _ in retired:
        for query, fork in tuple(found.items()):
            former = retired[query].fork if query in retired else None
            if former is not None and former not in found and former not in forks.values():
                found[former] = fork
    return found


def take_over(
    head: Ledger,
    source: Ledger,
    *,
    version: int,
    undone: Undone = NOTHING,
    retire: Collection[str] = (),
) -> Ledger:
    """Return the ledger of `version`, which takes the content of another branch.

    `source` is the ledger of that branch, `undone` are the batches that it lacks.

    Raises:
        StreamIdentityError: an application would lose batches: the other branch has neither its
            last batch nor a fork of its query.
        NotFoundError: an application in `retire` has committed nothing.
    """
    check_known(retire, undone, head, source)
    # Versions of the other branch have other numbers here: `version` retires its queries.
    retired = dict(head.retired)
    for query, passed in source.retired.items():
        if passed != head.retired.get(query):
            retired[query] = dataclasses.replace(passed, version=version)
    stuck: dict[LedgerKey, LedgerEntry] = {}
    written = [
        *head.entries.items(),
        *((key, last) for (key, query), last in undone.last.items() if query not in head.retired),
    ]
    for key, now in written:
        if _is_continued(now, source.entries.get(key), source):
            continue
        if key[0] not in retire:
            stuck.setdefault(key, now)
        elif now.query_id is not None and now.query_id not in source.retired:
            retired[now.query_id] = Retirement(application=key[0], version=version)
    if stuck:
        raise _stuck(stuck)
    entries = {
        key: then if then == head.entries.get(key) else dataclasses.replace(then, version=version)
        for key, then in source.entries.items()
    }
    return Ledger(entries=entries, retired=retired)


def cut_of(ledger: Ledger, keys: Iterable[LedgerKey]) -> Cut:
    """Return the cut at which the ledger ends a query that has written under `keys`.

    The writers of a query commit one after the other. If one of them lacks the last batch, the
    snapshot may be in the middle of that batch: the batch runs again, and for a writer that has
    committed it, it is a replay.
    """
    batches = [entry.batch_id if (entry := ledger.entries.get(key)) else None for key in keys]
    known = [batch for batch in batches if batch is not None]
    if not known:
        return Cut(offsets_through=None, commits_through=None)
    last = max(known)
    done = last if all(batch == last for batch in batches) else last - 1
    return Cut(offsets_through=last, commits_through=done if done >= 0 else None)


def keys_of(query_id: str, head: Ledger, target: Ledger, *older: str) -> tuple[LedgerKey, ...]:
    """Return the ledger keys under which a query, an `older` one or a replaced one has written."""
    ids = {query_id, *older}
    keys = head.entries.keys() | target.entries.keys()
    return tuple(
        sorted(
            key
            for key in keys
            if ids & _family(head.entries.get(key), target.entries.get(key), head)
        )
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForkedQuery:
    """A query and its fork."""

    old_query_id: str
    ancestors: tuple[Ancestor, ...]
    """The queries from whose checkpoints the query's own checkpoint was forked."""
    query_id: str
    """The id of the fork."""
    cut: Cut

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of the query, and those of its ancestors."""
        return self.old_query_id, *(ancestor.query_id for ancestor in self.ancestors)

    def keys(self, ledger: Ledger) -> tuple[LedgerKey, ...]:
        """Return the ledger keys under which the query, an ancestor or a fork has written."""
        return keys_of(self.old_query_id, ledger, ledger, *self.ids[1:])

    def holds(self, ledger: Ledger, batch: int) -> bool:
        """True if the query may continue from a ledger, which holds no later batch than `batch`.

        False if the query is retired, or another query has replaced one of its ancestors: the rows
        of their batches may be undone.
        """
        if self.old_query_id in ledger.retired:
            return False
        for ancestor in self.ancestors:
            heirs = heirs_of(ledger, ancestor.query_id)
            if heirs and heirs[-1] not in self.ids:
                return False
        last = {ancestor.query_id: ancestor.through for ancestor in self.ancestors}
        last[self.old_query_id] = batch
        entries = (ledger.entries[key] for key in self.keys(ledger))
        return all(
            entry.query_id in last and entry.batch_id <= min(batch, last[entry.query_id])
            for entry in entries
        )

    def left_out_after(self, ledger: Ledger, batch: int) -> int | None:
        """Return after which batch a table was left out while the query ran up to `batch`, or None.

        `ledger` is the table's newest one: it still names an ancestor if the table was left out.
        """
        last = {
            ancestor.query_id: ancestor.through
            for ancestor in self.ancestors
            if ancestor.through not in UNKNOWN
        }
        named = {ledger.entries[key].query_id for key in self.keys(ledger)}
        cuts = (cut for query, cut in last.items() if query in named and batch > cut)
        return min(cuts, default=None)


def _family(now: LedgerEntry | None, then: LedgerEntry | None, head: Ledger) -> set[str | None]:
    """Return the ids of the queries whose checkpoint may hold the batch of an entry."""
    found: set[str | None] = {entry.query_id for entry in (now, then) if entry}
    # A fork holds the batches of the checkpoints before it, up to each cut.
    while before := {
        query
        for query, passed in head.retired.items()
        if passed.fork in found and query not in found
    }:
        found |= before
    return found - {None}


def _is_continued(now: LedgerEntry, then: LedgerEntry | None, source: Ledger) -> bool:
    if then is None:
        return False
    query = now.query_id
    if query == then.query_id:
        return then.batch_id >= now.batch_id
    seen: set[str | None] = set()
    while query is not None and query not in seen:
        seen.add(query)
        passed = source.retired.get(query)
        query = passed.fork if passed else None
        if query == then.query_id:
            return query is not None
    return False


def applications_in(undone: Undone, *ledgers: Ledger) -> set[str]:
    """Return the names of the applications in commits and ledgers."""
    known = {application for (application, _), _ in undone.last}
    return known | {application for ledger in ledgers for application, _ in ledger.entries}


def named_in_retire(
    retire: Collection[str], undone: Undone, *ledgers: Ledger, forked: Collection[str] = ()
) -> frozenset[str]:
    """Return the applications that `retire` names.

    `EVERY` means all applications of the commits and ledgers that have no fork.
    """
    if EVERY not in retire:
        return frozenset(retire)
    every = applications_in(undone, *ledgers).difference(forked)
    return frozenset(every.union(retire) - {EVERY})


def going_back(now: Ledger, then: Ledger, undone: Undone) -> set[str]:
    """Return the applications that lose batches between a head and a target."""
    changed = {
        key[0]
        for key in now.entries.keys() | then.entries.keys()
        if now.entries.get(key) != then.entries.get(key)
    }
    return changed | {key[0] for key, _ in _departed(undone, then, ())}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retiring:
    """The applications of a table in a rewind."""

    retired: frozenset[str]
    """Those that `retire` names."""
    going_back: set[str]
    now: Ledger
    then: Ledger
    """The ledger of the target."""

    @property
    def numbered(self) -> set[str]:
        """Those in `retire` that write numbered batches, without a checkpoint."""
        entries = self.now.entries.items()
        return {key[0] for key, entry in entries if entry.query_id is None} & self.retired

    def last_kept(self, application: str) -> int:
        """Return the last batch of an application that the table keeps; -1: none."""
        entries = self.then.entries.items()
        return max((entry.batch_id for key, entry in entries if key[0] == application), default=-1)


def find_idle(tables: Iterable[Retiring], retire: Collection[str]) -> set[str]:
    """Return the applications of `retire` that a rewind of tables does not set back in all of them.

    Only numbered batches matter where another table goes back: a table that keeps its batches would
    take those that are delivered again for replays.
    """
    judged = tuple(tables)
    kept: dict[str, int] = {}
    """For each application that goes back somewhere, the last batch that all tables keep."""
    for one in judged:
        for name in one.going_back:
            kept[name] = min(one.last_kept(name), kept.get(name, one.last_kept(name)))
    left = {
        name
        for one in judged
        for name in one.numbered & kept.keys() - one.going_back
        if one.last_kept(name) > kept[name]
    }
    return left | set(retire) - kept.keys()


def check_known(retire: Collection[str], undone: Undone, *ledgers: Ledger) -> None:
    """Raise NotFoundError unless each application to retire is in the commits or ledgers."""
    known = applications_in(undone, *ledgers)
    if unknown := set(retire) - known:
        raise NotFoundError(
            "an application to be retired has committed nothing; leave it out",
            applications=sorted(unknown),
            known=sorted(known),
        )


def _stuck(entries: Mapping[LedgerKey, LedgerEntry]) -> StreamIdentityError:
    queries = sorted({entry.query_id for entry in entries.values() if entry.query_id})
    batches = "name in retire those whose numbered batches will be delivered again"
    forks = (
        "give each query a fork of its checkpoint (checkpoints={old: new}), from which it "
        "continues; or name its application in retire, so that the query cannot continue"
    )
    remedies = [forks] if queries else []
    if any(entry.query_id is None for entry in entries.values()):
        remedies.append(batches)
    return StreamIdentityError(
        f"applications have committed since then, and would go back: {'; or '.join(remedies)}",
        applications=sorted({application for application, _ in entries}),
        **({"queries": queries} if queries else {}),
    )
