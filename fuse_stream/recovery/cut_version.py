"""Which version of a table holds what queries did up to the batches where they are cut.

Versions are looked at in the order of the history, not of the content: an earlier rewind may have
taken away what a checkpoint holds, and then brings it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.ledger import heirs_of
from fuse_stream.errors import InvalidInputError, SnapshotExpiredError, StreamIdentityError
from fuse_stream.format.forked import UNKNOWN, UNKNOWN_KIND
from fuse_stream.format.records import Ledger, LedgerKey, Operation
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.recovery.forks import ForkedQuery, run_on_alone
from fuse_stream.recovery.ledgers import Undone
from fuse_stream.recovery.target import Progress, came_by_publish

DROPS_ENTRIES = frozenset({Operation.EXPIRE, Operation.ALTER})
"""An entry that leaves by one of these leaves its rows behind."""


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
    for stored in history.iter_back():
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
        _check_seen(found, head.floor, cut)
    if found is None:
        raise InvalidInputError(
            "no version of this table holds what the query did up to this batch; choose another",
            after_batch=cut.batch,
        )
    last = max(batches_of(query, found).values(), default=-1)
    if published is not None and last < cut.batch:
        raise came_by_publish(cut.batch, published, before=last)
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
            raise _took_its_place(query, writer)


def check_undone(query: ForkedQuery, head: Ledger, undone: Undone) -> None:
    """Raise where batches go back of a query whose place this one took with `adopt`.

    A fork of its checkpoint, even from scratch, would not bring them again.
    """
    keys = query.keys(head)
    unknown = {older.query_id for older in query.ancestors if older.through == UNKNOWN_KIND}
    for key, writer in undone.last:
        if writer in unknown:
            raise _rebuilt_without_cut(query, writer)
        if writer is None or writer in query.ids or key not in keys:
            continue
        if query.old_query_id in heirs_of(head, writer):
            raise _took_its_place(query, writer)


def _rebuilt_without_cut(query: ForkedQuery, writer: str | None) -> StreamIdentityError:
    return StreamIdentityError(
        "this checkpoint was rebuilt, and does not tell after which batch it was forked from the "
        "query that wrote this: rewind with the checkpoint of that query, or choose a later point",
        query=query.old_query_id,
        former=writer,
    )


def _took_its_place(query: ForkedQuery, writer: str | None) -> StreamIdentityError:
    return StreamIdentityError(
        "another query wrote this, whose place this one took later (adopt, or a fork of the same "
        "checkpoint), and its checkpoint says nothing of what that one did: choose a later point, "
        "or rewind with the checkpoint of that query",
        query=query.old_query_id,
        former=writer,
    )


def _check_seen(found: Stored | None, floor: int, cut: QueryCut) -> None:
    """Raise where only what has expired would tell what the table held."""
    if floor > 0:
        raise SnapshotExpiredError(
            "whether this table held batches of the query cannot be told: its history has expired. "
            "If the query has written nothing to it since this batch, leave the table out; else "
            "choose a later batch",
            after_batch=cut.batch,
            first=floor,
            seen=None if found is None else found.snapshot.version,
        )
