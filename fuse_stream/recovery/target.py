"""Where a rewind goes back to: a version, a time, or a batch of an application or of queries.

Versions are looked at in the order of the history, not of the content: an earlier rewind may have
taken away what a checkpoint holds, and then brings it back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import DEFAULT_APPLICATION, heirs_of
from fuse_stream.commit.other_branches import iter_elsewhere
from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.forked import UNKNOWN, UNKNOWN_KIND
from fuse_stream.format.names import Version
from fuse_stream.format.records import (
    DROPS_ENTRIES,
    TAKES_CONTENT,
    Ledger,
    LedgerKey,
    Operation,
    Snapshot,
)
from fuse_stream.objects.refs import iter_branches
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History, Timestamp
from fuse_stream.recovery.ledgers import ForkedQuery, Undone
from fuse_stream.refs.create import is_held

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where to go back to: a version, a time, or a batch of an application."""

    version: Version | None = None
    timestamp: Timestamp | None = None
    application: str = DEFAULT_APPLICATION
    after_batch: int | None = None
    """The last snapshot before any writer of the application had committed a later batch."""

    def last_of(self, key: LedgerKey) -> int:
        """Return the last batch that a writer is to keep; -1: none, or none was named."""
        if self.after_batch is None or key[0] != self.application:
            return -1
        return self.after_batch

    def last_held_by(self, snapshot: Snapshot) -> int:
        """Return the last batch of the application that a snapshot holds; -1: none."""
        entries = snapshot.ledger.entries.items()
        held = (entry.batch_id for key, entry in entries if key[0] == self.application)
        return max(held, default=-1)


def get_target(
    committer: Committer, history: History, goal: Goal, report: Progress, *, may_stay: bool = False
) -> Stored:
    """Return the snapshot to go back to.

    Args:
        committer: of the branch.
        history: its snapshots.
        goal: what was asked for.
        report: told of the progress.
        may_stay: whether the branch may be at the batch of the goal already, because others, or
            checkpoints, are not, and are rewound with it.

    Raises:
        InvalidInputError: it is the head itself, or on another branch; or not one goal was named.
        NotFoundError: there is no such version.
        SnapshotExpiredError: it has expired.
    """
    named = (goal.version, goal.timestamp, goal.after_batch)
    if sum(value is not None for value in named) != 1:
        raise InvalidInputError(
            "name where to go back to: a version, a timestamp, or the last batch to keep "
            "(after_batch, of an app_id)",
            version=goal.version,
            timestamp=goal.timestamp,
            after_batch=goal.after_batch,
        )
    if goal.after_batch is not None:
        target = _before_batch(history, goal.application, goal.after_batch, report)
    else:
        target = history.get_snapshot(goal.version, timestamp=goal.timestamp)
    if target.sha256 == history.head.sha256 and not (may_stay and goal.after_batch is not None):
        raise nothing_to_undo(goal, target.snapshot)
    if not history.contains(target.snapshot):
        if goal.after_batch is not None:
            raise _came_by_publish(history, target, goal.after_batch, goal.last_held_by)
        raise InvalidInputError(
            "this snapshot is not in the history of this branch; publish takes over another "
            "branch's content",
            version=target.snapshot.version,
            branch=committer.branch.name,
        )
    return target


def nothing_to_undo(goal: Goal, head: Snapshot) -> InvalidInputError:
    """Return the error for a goal at which the table is already."""
    last = goal.last_held_by(head)
    if goal.after_batch is None or last < 0 or goal.after_batch <= last:
        return InvalidInputError(
            "the table stands there already; there is nothing to undo", version=head.version
        )
    return InvalidInputError(
        f"the table stands there already: its last batch is number {last}; there is nothing to "
        "undo",
        version=head.version,
        last_batch=last,
    )


def _came_by_publish(
    history: History, published: Stored, batch: int, last_of: Callable[[Snapshot], int]
) -> InvalidInputError:
    """Return the error for a batch that is the last one of no version of the branch.

    Args:
        history: of the branch.
        published: a snapshot that a publish brought, or the publish itself.
        batch: the one that was asked for.
        last_of: returns the last batch that a snapshot holds; -1: none.
    """
    own = [
        stored.snapshot
        for stored in history.iter_sources(history.head, may_be_lost=True)
        if history.contains(stored.snapshot)
    ]
    before = max((last for one in own if (last := last_of(one)) < batch), default=-1)
    after = min((last for one in own if (last := last_of(one)) > batch), default=None)
    ways = [f"batch {before} or an earlier one"] if before >= 0 else []
    ways += [f"batch {after} or a later one"] if after is not None else []
    names = {ref.branch_id: ref.name for ref in iter_branches(history.metadata)}
    branch_id = published.snapshot.branch_id
    return InvalidInputError(
        "this batch came to the branch by a publish, together with later ones, so no version of "
        f"it ends there: choose {', or '.join(ways) or 'another one'}",
        after_batch=batch,
        found_in=f"{names.get(branch_id, branch_id)}@{published.snapshot.version}",
        **({} if before < 0 else {"before": before}),
    )


def came_by_clone(batch: int, held: int | None) -> InvalidInputError:
    """Return the error for a batch that ended before the table was cloned."""
    return InvalidInputError(
        "this batch came with the clone, together with later ones, so no version of it ends there: "
        "choose the last batch that it came with, or one after it; or clone the version of the "
        "origin that ends with this batch. Then rewind that clone to this batch with the "
        "checkpoint of the query (checkpoints={<old>: <new>}), and run the query on the fork: a "
        "copy of the checkpoint would leave out the batches in between. Numbered batches need only "
        "the clone",
        after_batch=batch,
        **({} if held is None else {"came_with": held}),
    )


def _before_batch(history: History, application: str, batch: int, report: Progress) -> Stored:
    """Return the newest snapshot, walking back, that holds no later batch of any writer.

    The rows of a writer stay when its entry leaves the ledger. So the walk continues until every
    writer was seen that wrote later.
    """
    found: Stored | None = None
    unseen: set[LedgerKey] = set()
    names: set[str] = set()
    entries: dict[LedgerKey, int] = {}
    first: dict[LedgerKey, int] = {}  # the first batch that was seen of each writer
    for walked, stored in enumerate(history.iter_sources(history.head, may_be_lost=True)):
        names |= {name for name, _ in stored.snapshot.ledger.entries}
        entries = {
            key: entry.batch_id
            for key, entry in stored.snapshot.ledger.entries.items()
            if key[0] == application
        }
        first |= entries
        if any(last > batch for last in entries.values()):
            found = None
        elif found is None and not _is_taken_elsewhere(history, stored.snapshot):
            found, unseen = stored, set(first) - entries.keys()
        else:
            unseen -= entries.keys()
        if found is not None and first and not unseen:
            return found
        report("looking for the batch", walked, history.head.snapshot.version)
    if not first:
        history.find_named(stored.snapshot.source, by=stored.snapshot)  # raises if it is lost
        raise no_writer(application, names)
    began = stored.snapshot.parent is None
    if found is None or not (began or all(first[key] <= batch + 1 for key in unseen)):
        if history.is_cloned(stored.snapshot):
            raise came_by_clone(batch, max(entries.values(), default=None))
        history.find_named(stored.snapshot.source, by=stored.snapshot)  # raises if it is lost
        raise SnapshotExpiredError(
            "what the table held before this batch has expired",
            app_id=application,
            after_batch=batch,
            first=history.floor,
        )
    return found


def no_writer(application: str, known: Collection[str]) -> NotFoundError:
    """Return the error for an application that is none of those known here."""
    return NotFoundError(
        "no writer of this application has committed here",
        app_id=application,
        known=sorted(known),
    )


def _is_taken_elsewhere(history: History, snapshot: Snapshot) -> bool:
    """Whether a snapshot of another branch holds just what an earlier one does."""
    return snapshot.operation in TAKES_CONTENT and not history.contains(snapshot)


def check_kept(committer: Committer, goal: Goal, target: Stored, history: History) -> None:
    """See that a target is still kept, on the very head that is built on.

    Raises:
        SnapshotExpiredError: it is not.
    """
    if goal.version is not None:
        is_kept = is_held(committer, goal.version, target, history)
    else:
        is_kept = target.snapshot.version >= history.floor
    if not is_kept:
        raise SnapshotExpiredError(
            "this version has expired; go back to a later one",
            version=target.snapshot.version,
            first=history.floor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCut:
    """A query, and the last of its batches that a version is to hold; -1: none."""

    query: ForkedQuery
    batch: int


def get_cut_version(history: History, cuts: Sequence[QueryCut], report: Progress) -> Stored:
    """Return the newest version of a branch that holds what the queries did.

    Raises:
        InvalidInputError: no version holds it.
        SnapshotExpiredError: it has expired, or the history that would tell.
        StreamIdentityError: a query has run on without the table, or took another's place since.
    """
    for cut in cuts:
        began = cut.query.left_out_after(history.head.snapshot.ledger, cut.batch)
        if began is not None:
            url = history.metadata.store.url
            raise run_on_alone(after_batch=began, ended_batch=cut.batch, table=url)
    found = [_get_newest(history, cut, report) for cut in cuts]
    target = min(found, key=lambda stored: stored.snapshot.version, default=history.head)
    for cut, newest in zip(cuts, found, strict=True):
        if batches_of(cut.query, target) != batches_of(cut.query, newest):
            raise InvalidInputError(
                "no version of this table holds all that its queries did up to these batches, and "
                "no more: they wrote in another order. Choose another batch; or rewind with the "
                "checkpoint of one of them, and name the application of the other in retire",
                after_batch=cut.batch,
                version=target.snapshot.version,
                held_by_version=newest.snapshot.version,
            )
    return target


def batches_of(query: ForkedQuery, stored: Stored) -> Mapping[LedgerKey, int]:
    """Return the last batch that the query has written, under each name."""
    return _batches(query, stored.snapshot.ledger)


def _batches(query: ForkedQuery, ledger: Ledger) -> dict[LedgerKey, int]:
    ids = set(query.ids)
    return {key: entry.batch_id for key, entry in ledger.entries.items() if entry.query_id in ids}


def _get_newest(history: History, cut: QueryCut, report: Progress) -> Stored:
    """Return the newest version that holds what one query did up to its cut."""
    query, head = cut.query, history.head.snapshot
    keys = set(query.keys(head.ledger))
    found: Stored | None = None
    later: Stored | None = None
    published: Stored | None = None
    for stored in _iter_seen(history):
        ledger = stored.snapshot.ledger
        written = _batches(query, ledger)
        keys |= written.keys()
        if found is not None and written:
            assert later is not None
            if later.snapshot.operation not in DROPS_ENTRIES:
                break  # a rewind took them away
            found = None
        if found is None:
            check_own(query, ledger, keys)
            if query.holds(ledger, cut.batch):
                found = stored
                if written:
                    break
            if written and stored.snapshot.operation is Operation.PUBLISH:
                published = stored
        later = stored
        report("looking for the batch", head.version - stored.snapshot.version, head.version)
    else:
        _check_seen(history, stored, found, cut)
    if found is None:
        raise InvalidInputError(
            "no version of this table holds what the query did up to this batch; choose another",
            after_batch=cut.batch,
        )
    last = max(batches_of(query, found).values(), default=-1)
    if published is not None and last < cut.batch:
        raise _came_by_publish(
            history,
            published,
            cut.batch,
            lambda one: max(_batches(query, one.ledger).values(), default=-1),
        )
    return found


def check_own(query: ForkedQuery, ledger: Ledger, keys: set[LedgerKey]) -> None:
    """Raise where a ledger is of another query, of which the checkpoint does not tell enough.

    `keys` are those under which the query has written.
    """
    if query.old_query_id in ledger.retired:
        return
    unknown = {older.query_id for older in query.ancestors if older.through in UNKNOWN}
    for key in sorted(keys & ledger.entries.keys()):
        writer = ledger.entries[key].query_id
        if writer in unknown:
            raise _rebuilt_without_cut(query, writer)
        if writer not in query.ids:
            raise _took_its_place(
                query, writer, "name the application in retire, with no checkpoint"
            )


def check_undone(query: ForkedQuery, head: Ledger, undone: Undone, retire: Collection[str]) -> None:
    """Raise where batches go back that another writer committed under a name of this query.

    A fork of this query's checkpoint, even from scratch, would not bring them again.
    `retire` names the applications that are given up knowingly.
    """
    keys = query.keys(head)
    heirs = {heir for writer in query.ids for heir in heirs_of(head, writer) if heir}
    unknown = {older.query_id for older in query.ancestors if older.through == UNKNOWN_KIND}
    for key, writer in undone.last:
        if writer in unknown:
            raise _rebuilt_without_cut(query, writer)
        if key in keys and key[0] not in retire and writer not in {*query.ids, *heirs}:
            raise _took_its_place(query, writer, "name the application in retire as well")


def check_unseen(
    query: ForkedQuery, target: Ledger, undone: Undone, retire: Collection[str]
) -> None:
    """Raise where batches may go back of a query whose place this one took, in unseen commits."""
    if undone.unseen_before is None:
        return
    now = undone.unseen_before.ledger
    for former in sorted(now.retired.keys() - target.retired.keys() - {*query.ids}):
        is_given_up = now.retired[former].application in retire
        if query.old_query_id in heirs_of(now, former) and not is_given_up:
            raise _took_its_place(query, former, "name the application in retire as well")


def check_other_branches(
    committer: Committer, query: ForkedQuery, head: Snapshot, target: Ledger
) -> None:
    """Raise where a fork takes batches for done that only another branch has.

    Args:
        committer: of the branch that goes back.
        query: that the fork is of.
        head: the newest snapshot of the branch.
        target: the ledger that it goes back to, with the entries that had left it.

    Raises:
        StreamIdentityError: it does; names the branch and the batches.
    """
    through = {older.query_id: older.through for older in query.ancestors}
    through[query.old_query_id] = query.cut.last_done
    held: dict[str, int] = {}
    for (_, writer), entry in target.entries.items():
        if entry.query_id in query.ids:
            held[writer] = max(entry.batch_id, held.get(writer, -1))
    if held and min(held.values()) >= query.cut.last_done:
        return
    sought = f"batches up to {query.cut.last_done} of query {query.old_query_id}"
    line = committer.metadata, committer.branch
    for found in iter_elsewhere(*line, {*query.ids}, most=head.version, sought=sought):
        writer, there = found.key[1], found.entry
        if held and writer not in held:
            continue  # another sink of the query writes to that branch
        assert there.query_id is not None
        last = min(through[there.query_id], query.cut.last_done)
        if held.get(writer, -1) < there.batch_id <= last:
            raise StreamIdentityError(
                "the query has committed batches to another branch that this version lacks, and a "
                "fork of its checkpoint would take them for done: choose the last batch that this "
                "branch holds, after which the fork delivers them again; or publish that branch to "
                "this one first; or delete it, if its rows are not wanted and the batch that was "
                "chosen is right",
                query=query.old_query_id,
                branch=found.branch,
                committed_there=there.batch_id,
                committed_here=held.get(writer),
                after_batch=query.cut.last_done,
            )


def _rebuilt_without_cut(query: ForkedQuery, writer: str | None) -> StreamIdentityError:
    return StreamIdentityError(
        "this checkpoint was rebuilt, and does not tell after which batch it was forked from the "
        "query that wrote this: rewind with the checkpoint of that query, or choose a later point",
        query=query.old_query_id,
        former=writer,
    )


def _took_its_place(query: ForkedQuery, writer: str | None, give_up: str) -> StreamIdentityError:
    return StreamIdentityError(
        "another query wrote this, whose place this one took later (adopt, or a fork of the same "
        "checkpoint, or the same app_id), and its checkpoint says nothing of what that one did: "
        "choose a later point; or rewind with the checkpoint of that query; or, if what it wrote "
        f"may go, {give_up}",
        query=query.old_query_id,
        former=writer,
    )


def _iter_seen(history: History) -> Iterator[Stored]:
    """Yield the versions of a branch, newest first; of a clone those that show what it holds."""
    for stored in history.iter_back():
        yield stored
        if history.is_cloned(stored.snapshot):
            return


def _check_seen(history: History, oldest: Stored, found: Stored | None, cut: QueryCut) -> None:
    """Raise where only what cannot be seen would tell what the table held."""
    is_cloned = history.is_cloned(oldest.snapshot)
    if is_cloned and found is None:
        raise came_by_clone(cut.batch, max(batches_of(cut.query, oldest).values(), default=None))
    if is_cloned or history.floor > 0:
        raise SnapshotExpiredError(
            "whether this table held batches of the query cannot be told: its history has expired, "
            "or is that of the clone's origin. If the query has written nothing to it since this "
            "batch, leave the table out; else choose a later batch",
            after_batch=cut.batch,
            first=history.floor,
            seen=None if found is None else found.snapshot.version,
        )


def run_on_alone(*, after_batch: int, ended_batch: int, **where: str) -> StreamIdentityError:
    """Return the error of a fork that has run on without a table of its query."""
    return StreamIdentityError(
        "the query has continued without this table, on a fork of its checkpoint, and the table "
        "lacks the batches since then: rewind all tables of the query in one call, from that fork "
        "to a new one: checkpoints={<that fork>: <a new folder>}, to the batch where it began "
        "(after_batch), or before",
        after_batch=after_batch,
        ended_batch=ended_batch,
        **where,
    )
