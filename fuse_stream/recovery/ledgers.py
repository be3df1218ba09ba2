"""The ledger of a snapshot that takes an earlier one's content, or another branch's. Pure.

Rule: whoever has committed something that the new content lacks must not go on as if it were there.
Either the query continues from a fork of its checkpoint, which has another id; or its application
is given up by name. In both cases the old id is retired, for good.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from fuse_stream.commit.ledger import DEFAULT_APPLICATION, heirs_of
from fuse_stream.errors import NotFoundError, StreamIdentityError
from fuse_stream.format.forked import UNKNOWN, Ancestor
from fuse_stream.format.records import Ledger, LedgerEntry, LedgerKey, Retirement, Snapshot

EVERY = "*"
"""In `retire`: every application, also one that cannot be named, for what it committed expired."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """After which batch a fork continues."""

    offsets_through: int | None
    """The last batch whose source offsets it keeps; None: it starts from scratch."""
    commits_through: int | None
    """The last batch that counts as done: the same, or the one before, which then runs again."""

    def with_rerun(self) -> Cut:
        """Return the cut after which its last batch runs again."""
        last = self.offsets_through
        return dataclasses.replace(self, commits_through=last - 1 if last else None)

    @property
    def last_planned(self) -> int:
        """The last batch whose source offsets it keeps; -1: none."""
        return -1 if self.offsets_through is None else self.offsets_through

    @property
    def last_done(self) -> int:
        """The last batch that counts as done; -1: none."""
        return -1 if self.commits_through is None else self.commits_through


Written = tuple[LedgerKey, str | None]
"""The key under which a query wrote, and its id."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What queries wrote in the commits that a branch loses when it takes another content.

    An entry that has left the ledger since then counts too.
    """

    last: Mapping[Written, LedgerEntry] = dataclasses.field(default_factory=dict)
    """The newest entry of each."""
    first: Mapping[Written, int] = dataclasses.field(default_factory=dict)
    """The first batch of each that is seen; in the order of the commits, from the newest on."""
    unseen_before: Snapshot | None = None
    """The oldest of the commits that were seen, where commits before it may have brought rows that
    are lost too, of queries that nothing names any more."""


NOTHING = Undone()


def set_back(
    head: Ledger,
    target: Ledger,
    *,
    version: int,
    undone: Undone = NOTHING,
    forks: Mapping[str, str] | None = None,
    retire: Collection[str] = (),
    is_one_of_several: bool = False,
) -> Ledger:
    """Return the ledger of `version`, which takes the content of an earlier snapshot.

    Args:
        head: the ledger as it is.
        target: that of the earlier snapshot; `head` itself where only the queries change.
        version: of the new snapshot.
        undone: what was written since then.
        forks: by the query id of a checkpoint, and of those that it is a fork of, the id of its
            fork.
        retire: applications that are given up knowingly.
        is_one_of_several: whether tables are rewound together. The forked queries are then retired
            in each of them, also where they have committed nothing: they may do so any time.

    Raises:
        StreamIdentityError: an application would go back, and has neither; or a fork is none of a
            query that would (and the table is rewound alone).
        NotFoundError: an application that is to be retired is in neither ledger.
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
    if is_one_of_several:
        some = next((key[0] for key in sorted(entries)), DEFAULT_APPLICATION)
        passed = Retirement(application=some, version=version)
        for query, fork in _with_former_forks(forks, head.retired).items():
            before = head.retired.get(query)
            if before is not None and before.fork in forks:
                continue  # it leads to the fork, and its version tells how it came to its heir
            retired[query] = dataclasses.replace(
                retired.get(query, passed), version=version, fork=fork
            )
    else:
        _check_moved(forks, moved)
    return Ledger(entries=entries, retired=retired)


def _check_moved(forks: Mapping[str, str], moved: Collection[str]) -> None:
    if idle := [query for query, fork in forks.items() if fork not in moved]:
        raise StreamIdentityError(
            "a checkpoint was named whose query does not go back: it has committed nothing to this "
            "branch since then. Leave it out, and the query continues as it is; or, if the query "
            "also writes other tables, rewind all of them in one call",
            queries=sorted(idle),
        )


def _departed(
    undone: Undone, target: Ledger, retired: Collection[str]
) -> list[tuple[LedgerKey, LedgerEntry]]:
    """Return what queries that may go on wrote last, where the target does not hold it."""
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
    """Return `forks` with the queries to which those that go back had passed their place before."""
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

    Args:
        head: the ledger as it is.
        source: that of the other branch.
        version: of the new snapshot.
        undone: what was written that the other branch has not.
        retire: applications that are given up knowingly.

    Raises:
        StreamIdentityError: an application would go back: the other branch holds neither its last
            batch nor a fork of its query.
        NotFoundError: an application that is to be retired is in neither ledger.
    """
    check_known(retire, undone, head, source)
    # The other branch counts its own versions; what it did came here with this one.
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
        if _goes_on(now, source.entries.get(key), source):
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
    """Return after which batch a query that has written under `keys` continues, by this ledger.

    Its writers commit one after the other. Where one of them has not got as far as another, the
    snapshot may stand in the middle of a batch: that batch runs again, and whoever has it in the
    table takes it for the replay that it is.
    """
    batches = [entry.batch_id if (entry := ledger.entries.get(key)) else None for key in keys]
    known = [batch for batch in batches if batch is not None]
    if not known:
        return Cut(offsets_through=None, commits_through=None)
    last = max(known)
    done = last if all(batch == last for batch in batches) else last - 1
    return Cut(offsets_through=last, commits_through=done if done >= 0 else None)


def keys_of(query_id: str, head: Ledger, target: Ledger, *older: str) -> tuple[LedgerKey, ...]:
    """Return what a query, or the one whose place it took, has written under.

    Args:
        query_id: of the query.
        head: the ledger as it is.
        target: an earlier one.
        older: ids of the queries of whose checkpoints that of the query is a fork.
    """
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
    """A query and its fork, as the ledgers of its tables need to know them."""

    old_query_id: str
    ancestors: tuple[Ancestor, ...]
    """The queries of whose checkpoints the query's own is a fork."""
    query_id: str
    """Of the fork."""
    cut: Cut

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of the query, and those of its ancestors."""
        return self.old_query_id, *(ancestor.query_id for ancestor in self.ancestors)

    def keys(self, ledger: Ledger) -> tuple[LedgerKey, ...]:
        """Return what the query, an ancestor or a fork of it has written under."""
        return keys_of(self.old_query_id, ledger, ledger, *self.ids[1:])

    def holds(self, ledger: Ledger, batch: int) -> bool:
        """Whether a ledger is of the query's own line, and holds no batch after this one.

        It is of another line once the query was retired, or an ancestor of it in favour of another
        query: what their batches brought may be undone.
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
        """Return after which batch a table was left out while the query ran up to `batch`.

        None if it was not. The ledger is the newest of the table, which else still names an
        ancestor.
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
    # A fork holds what the checkpoints before it did, up to where each was cut.
    while before := {
        query
        for query, passed in head.retired.items()
        if passed.fork in found and query not in found
    }:
        found |= before
    return found - {None}


def _goes_on(now: LedgerEntry, then: LedgerEntry | None, source: Ledger) -> bool:
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
    """Return the applications of these commits and ledgers."""
    known = {application for (application, _), _ in undone.last}
    return known | {application for ledger in ledgers for application, _ in ledger.entries}


def given_up(
    retire: Collection[str], undone: Undone, *ledgers: Ledger, forked: Collection[str] = ()
) -> frozenset[str]:
    """Return the applications that `retire` names.

    If it names all, these are the ones of the commits and ledgers, without those that have a fork.
    """
    if EVERY not in retire:
        return frozenset(retire)
    every = applications_in(undone, *ledgers).difference(forked)
    return frozenset(every.union(retire) - {EVERY})


def going_back(now: Ledger, then: Ledger, undone: Undone) -> set[str]:
    """Return the applications that lose something between a head and a target."""
    changed = {
        key[0]
        for key in now.entries.keys() | then.entries.keys()
        if now.entries.get(key) != then.entries.get(key)
    }
    return changed | {key[0] for key, _ in _departed(undone, then, ())}


def check_known(retire: Collection[str], undone: Undone, *ledgers: Ledger) -> None:
    """Raise NotFoundError unless each application to retire is one of these commits or ledgers."""
    known = applications_in(undone, *ledgers)
    if unknown := set(retire) - known:
        raise NotFoundError(
            "an application that is to be retired has committed nothing",
            applications=sorted(unknown),
            known=sorted(known),
        )


def _stuck(entries: Mapping[LedgerKey, LedgerEntry]) -> StreamIdentityError:
    queries = sorted({entry.query_id for entry in entries.values() if entry.query_id})
    batches = "name in retire those whose numbered batches are to be delivered again"
    forks = (
        "give each query a fork of its checkpoint (checkpoints={old: new}), from which it goes on, "
        "or name its application in retire to give it up"
    )
    ways = [forks] if queries else []
    if any(entry.query_id is None for entry in entries.values()):
        ways.append(batches)
    return StreamIdentityError(
        f"applications have committed since then, and would go back: {'; '.join(ways)}",
        applications=sorted({application for application, _ in entries}),
        **({"queries": queries} if queries else {}),
    )
