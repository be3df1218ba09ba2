"""Find the version of a table that holds the batches of queries up to a cut, and no later ones.

The search reads the ledgers of the versions that still exist. If the query may have written before
the oldest of them, the first batch that they show decides what came before: a query commits its
batches in order. Versions that an earlier rewind has undone are read too, so that a rewind can
restore batches that the checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import heirs_of
from fuse_stream.commit.missing_batches import came_with_clone, iter_elsewhere
from fuse_stream.errors import InvalidInputError, SnapshotExpiredError, StreamIdentityError
from fuse_stream.format.forked import UNKNOWN, UNKNOWN_KIND
from fuse_stream.format.operations import DROPS_ENTRIES
from fuse_stream.format.records import Ledger, LedgerKey, Operation, Snapshot
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.origins import get_origin
from fuse_stream.objects.refs import iter_tags, load_pin
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.history import History, load_tagged
from fuse_stream.recovery.ledgers import ForkedQuery, Undone
from fuse_stream.recovery.target import Progress, came_by_clone, came_by_publish, check_told


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCut:
    """A query, and the last of its batches that a version should hold; -1: none."""

    query: ForkedQuery
    batch: int


def get_cut_version(
    history: History, cuts: Sequence[QueryCut], report: Progress, older: Sequence[Stored] = ()
) -> Stored:
    """Return the newest version of a branch that holds the batches up to the cuts, and no others.

    Args:
        history: of the branch.
        cuts: the queries, each with its last batch.
        report: receives the progress.
        older: versions before the floor that tags keep, newest first.

    Raises:
        InvalidInputError: there is no such version.
        SnapshotExpiredError: the version, or the history that would prove it, has expired.
        StreamIdentityError: a query has continued without the table, or replaced another query
            since.
    """
    found = find_newest(history, cuts, report, older)
    target = min(found, key=lambda stored: stored.snapshot.version, default=history.head)
    is_after_gap = target.snapshot.version < history.floor
    for cut, newest in zip(cuts, found, strict=True):
        is_same = batches_of(cut.query, target) == batches_of(cut.query, newest)
        if not is_same or (is_after_gap and not _ends_with(target, cut, history, ())):
            raise InvalidInputError(
                "no version of this table holds just the batches of its queries up to these: the "
                "queries wrote in another order. Choose another batch; or rewind with the "
                "checkpoint of one query, and name the application of the other in retire",
                after_batch=cut.batch,
                version=target.snapshot.version,
                held_by_version=newest.snapshot.version,
            )
    return target


def find_newest(
    history: History, cuts: Sequence[QueryCut], report: Progress, older: Sequence[Stored] = ()
) -> list[Stored]:
    """Return for each query the newest version that holds its batches up to the cut, and no others.

    Arguments and errors are those of `get_cut_version`.
    """
    for cut in cuts:
        began = cut.query.left_out_after(history.head.snapshot.ledger, cut.batch)
        if began is not None:
            url = history.metadata.store.url
            raise run_on_alone(after_batch=began, ended_batch=cut.batch, table=url)
    return [_get_newest(history, cut, report, older) for cut in cuts]


def get_kept_before(committer: Committer, history: History) -> tuple[Stored, ...]:
    """Return the versions before the floor of a branch that tags keep, newest first."""
    metadata = history.metadata
    now_us = metadata.clock.now_us() + committer.clock_offset_us
    tags = (tag for tag in iter_tags(metadata, now_us=now_us) if history.has_expired(tag.target))
    found = {tag.target.version: tag for tag in tags}
    return tuple(load_tagged(metadata, found[version]) for version in sorted(found, reverse=True))


def check_agrees(
    history: History, queries: Sequence[ForkedQuery], target: Stored, report: Progress
) -> None:
    """Raise unless a version holds just the batches that forks count as done."""
    if target.snapshot.version < history.floor:
        _check_expired_agrees(history, queries, target, report)
        return
    cuts = [QueryCut(query=query, batch=query.cut.last_done) for query in queries]
    kept = get_cut_version(history, cuts, report)
    for query in queries:
        held = batches_of(query, target)
        wanted = batches_of(query, kept)
        lacks = [key for key, batch in wanted.items() if held.get(key, -1) < batch]
        if lacks or not query.holds(target.snapshot.ledger, query.cut.last_planned):
            raise InvalidInputError(
                "this version ends with another batch than the forks of these checkpoints: rewind "
                "to the batch of the forks, with after_batch",
                after_batch=query.cut.offsets_through,
                version=target.snapshot.version,
            )


def _check_expired_agrees(
    history: History, queries: Sequence[ForkedQuery], target: Stored, report: Progress
) -> None:
    """Raise unless a version before the floor holds just the batches that forks count as done.

    The commits after the version have expired, so only its own ledger can prove it.
    """
    for query in queries:
        batches = _batches(query, target.snapshot.ledger)
        done = query.cut.last_done
        keys = {*query.keys(history.head.snapshot.ledger), *batches}
        is_held = max(batches.values(), default=-1) > done or (
            bool(batches) and all(batches.get(key, -1) == done for key in keys)
        )
        if is_held and query.holds(target.snapshot.ledger, query.cut.last_planned):
            continue
        if batches or done >= 0:
            raise SnapshotExpiredError(
                "this version may lack batches that the forks of these checkpoints count as done: "
                "the commits after it have expired. Choose a later version",
                version=target.snapshot.version,
                after_batch=done,
                first=history.floor,
            )
        get_cut_version(history, [QueryCut(query=query, batch=done)], report, [target])


def batches_of(query: ForkedQuery, stored: Stored) -> Mapping[LedgerKey, int]:
    """Return the last batch of the query in a version, by ledger key."""
    return _batches(query, stored.snapshot.ledger)


def _batches(query: ForkedQuery, ledger: Ledger) -> dict[LedgerKey, int]:
    ids = set(query.ids)
    return {key: entry.batch_id for key, entry in ledger.entries.items() if entry.query_id in ids}


def _get_newest(
    history: History, cut: QueryCut, report: Progress, older: Sequence[Stored]
) -> Stored:
    """Return the newest version that holds the batches of one query up to its cut."""
    query, head = cut.query, history.head.snapshot
    keys = set(query.keys(head.ledger))
    first: int | None = None  # the first batch that was seen
    found: Stored | None = None
    later: Stored | None = None
    published: Stored | None = None
    for stored in _iter_seen(history):
        ledger = stored.snapshot.ledger
        written = _batches(query, ledger)
        keys |= written.keys()
        is_held = query.holds(ledger, cut.batch)
        if found is not None and written and not (is_held and batches_of(query, found)):
            assert later is not None
            if later.snapshot.operation not in DROPS_ENTRIES:
                break  # a rewind removed the later batches
            found = None
        first = min(written.values(), default=first)
        if found is None:
            check_own(query, ledger, keys)
            if is_held:
                found = stored
            elif written and stored.snapshot.operation is Operation.PUBLISH:
                published = stored
        last_version = max((ledger.entries[key].version for key in written), default=-1)
        # A query commits in order: later batches that have left the ledger came after the last one.
        if found is not None and stored.snapshot.version <= last_version:
            break
        later = stored
        report("looking for the batch", head.version - stored.snapshot.version, head.version)
    else:
        if found is None:
            found = _get_older(history, stored, cut, first, older, keys=keys)
        else:
            check_told(history, stored, first=first, last=cut.batch)
    last = max(batches_of(query, found).values(), default=-1)
    if published is not None and last < cut.batch:
        raise came_by_publish(
            history,
            published,
            cut.batch,
            lambda one: max(_batches(query, one.ledger).values(), default=-1),
        )
    return found


def _get_older(
    history: History,
    oldest: Stored,
    cut: QueryCut,
    first: int | None,
    older: Sequence[Stored],
    *,
    keys: Collection[LedgerKey],
) -> Stored:
    """Return the newest version of `older`, which tags keep, that ends with a cut.

    `oldest` is the oldest version that was read, `first` the first batch of the query that was
    read, and `keys` those under which it has written: all versions read hold later batches.
    """
    if oldest.snapshot.parent is None:
        raise InvalidInputError(
            "no version of this table ends with this batch of the query; choose another batch",
            after_batch=cut.batch,
        )
    if history.is_cloned(oldest.snapshot):
        raise came_by_clone(cut.batch, max(batches_of(cut.query, oldest).values(), default=None))
    for stored in older:
        if _ends_with(stored, cut, history, keys):
            if not batches_of(cut.query, stored):
                check_told(history, stored, first=first, last=cut.batch)
            return stored
    raise SnapshotExpiredError(
        "the versions of this table that ended with this batch of the query have expired, and no "
        "tag keeps one: choose a later batch",
        after_batch=cut.batch,
        first=history.floor,
        **({} if first is None else {"first_batch": first}),
    )


def _ends_with(
    stored: Stored, cut: QueryCut, history: History, known: Collection[LedgerKey]
) -> bool:
    """True if the ledger of a version proves that it holds just the query's batches up to a cut.

    An earlier batch is no proof: the batches up to the cut may be empty, or in later versions. No
    entry is none either: it may have left the ledger. `known` are keys of the query.
    """
    query, ledger = cut.query, stored.snapshot.ledger
    keys = {*known, *query.keys(history.head.snapshot.ledger), *query.keys(ledger)}
    held = batches_of(query, stored)
    return query.holds(ledger, cut.batch) and all(held.get(key, -1) == cut.batch for key in keys)


def check_own(query: ForkedQuery, ledger: Ledger, keys: set[LedgerKey]) -> None:
    """Raise if a ledger has a query that is not known to be an ancestor of this one's checkpoint.

    `keys` are the ledger keys under which this query has written.
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
    """Raise if the rewind undoes batches that another writer committed under this query's key.

    A fork of this query's checkpoint, even from scratch, would not deliver them again.
    `retire` names the applications to retire.
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
    """Raise if unreadable commits may undo batches of a query that this query replaced."""
    if undone.unseen_before is None:
        return
    now = undone.unseen_before.ledger
    for former in sorted(now.retired.keys() - target.retired.keys() - {*query.ids}):
        is_retired = now.retired[former].application in retire
        if query.old_query_id in heirs_of(now, former) and not is_retired:
            raise _took_its_place(query, former, "name the application in retire as well")


def check_other_branches(
    committer: Committer, query: ForkedQuery, head: Snapshot, target: Ledger
) -> None:
    """Raise if a fork of the query counts batches as done that only other branches have.

    `head` is the newest snapshot of the branch, `target` the ledger that the branch goes back to,
    with the entries that had left it.

    Raises:
        StreamIdentityError: it does; names the other branch and the batches.
        SnapshotExpiredError: whether it does is unknown.
    """
    through = {older.query_id: older.through for older in query.ancestors}
    through[query.old_query_id] = query.cut.last_done
    held: dict[str, int] = {}
    for (_, writer), entry in target.entries.items():
        if entry.query_id in query.ids:
            held[writer] = max(entry.batch_id, held.get(writer, -1))
    if held and min(held.values()) >= query.cut.last_done:
        return
    least = min(held.values(), default=-1)
    missing = {one for one in query.ids if min(through[one], query.cut.last_done) > least}
    sought = f"batches up to {query.cut.last_done} of query {query.old_query_id}"
    for metadata, branch, version in _iter_places(committer, head, query, missing):
        is_own = metadata is committer.metadata
        place = "another branch" if is_own else "the clone's origin"
        for found in iter_elsewhere(metadata, branch, {*query.ids}, most=version, sought=sought):
            writer, there = found.key[1], found.entry
            if held and writer not in held:
                continue  # another sink of the query writes to that branch
            assert there.query_id is not None
            last = min(through[there.query_id], query.cut.last_done)
            here = held.get(writer, -1)
            known = {
                "query": query.old_query_id,
                "origin": None if is_own else metadata.store.url,
                "branch": found.branch,
                "committed_here": held.get(writer),
                "after_batch": query.cut.last_done,
            }
            if found.may_hide_missing(here=here, last=last):
                raise SnapshotExpiredError(
                    f"the query may have committed batches to {place} that this version "
                    "lacks, and a fork of its checkpoint would not deliver them again: commits of "
                    "that branch have expired. Choose the last batch that this branch holds",
                    **known,
                )
            if found.is_missing(here=here, last=last):
                raise StreamIdentityError(
                    f"the query has committed batches to {place} that this version lacks, "
                    f"and a fork of its checkpoint would not deliver them again. {_REMEDY[place]}",
                    **known,
                    committed_there=there.batch_id,
                )


_REMEDY = {
    "another branch": "Choose the last batch that this branch holds; or publish the other branch "
    "to this one first; or delete the other branch, if its rows are not wanted",
    "the clone's origin": "Choose the last batch that this clone holds; or clone a later version",
}


def _iter_places(
    committer: Committer, head: Snapshot, query: ForkedQuery, missing: Collection[str]
) -> Iterator[tuple[Metadata, BranchRef, int]]:
    """Yield a branch and its head's version; then those that a clone came from with the query.

    `missing` are the ids of the query of which the branch may lack batches.
    """
    metadata = committer.metadata
    yield metadata, committer.branch, head.version
    if not came_with_clone(metadata, head.ledger, query.old_query_id, missing):
        return
    seen: set[str] = set()
    while (table := metadata.load_table_file()).origins and table.table_id not in seen:
        seen.add(table.table_id)
        store = get_origin(committer.metadata.store, table.origins[0][0])
        metadata = Metadata(store, metadata.clock)
        pin = load_pin(metadata, table.table_id)
        left_at = BranchRef(
            name="", branch_id=pin.table_id, created_us=pin.created_us, forks=pin.forks
        )
        yield metadata, left_at, pin.target.version


def _rebuilt_without_cut(query: ForkedQuery, writer: str | None) -> StreamIdentityError:
    return StreamIdentityError(
        "this checkpoint was rebuilt, and does not say after which batch of the former query it "
        "was forked. Choose a later target; or rewind with the checkpoint of the former query",
        query=query.old_query_id,
        former=writer,
    )


def _took_its_place(query: ForkedQuery, writer: str | None, retire: str) -> StreamIdentityError:
    return StreamIdentityError(
        "another query, which this query replaced later (adopt, or a fork of the same checkpoint, "
        "or the same app_id), wrote these batches, and the checkpoint of this query does not have "
        "them. Choose a later target; or rewind with the checkpoint of the other query; or, if its "
        f"rows may be lost, {retire}",
        query=query.old_query_id,
        former=writer,
    )


def _iter_seen(history: History) -> Iterator[Stored]:
    """Yield the versions of a branch, newest first; of a clone, none from before the clone."""
    for stored in history.iter_back():
        yield stored
        if history.is_cloned(stored.snapshot):
            return


def run_on_alone(*, after_batch: int, ended_batch: int, **where: str) -> StreamIdentityError:
    """Return the error for a fork that has continued without a table of its query."""
    return StreamIdentityError(
        "the query has continued without this table, on a fork of its checkpoint, and the table "
        "lacks the batches since then. Rewind all tables of the query in one call, to after_batch "
        "or an earlier batch, with checkpoints={<that fork>: <a new folder>}",
        after_batch=after_batch,
        ended_batch=ended_batch,
        **where,
    )
