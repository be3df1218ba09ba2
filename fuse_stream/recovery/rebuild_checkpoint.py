"""Rebuild a lost checkpoint from the source offsets of the query's last batch in the ledgers.

Rule: the last batch always runs again. The query may have died between two of its tables, and no
ledger names the tables that it writes. A table that has the batch finds a replay; a table that
lacks it commits it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fuse_stream.checkpoint.files import COMMITS, entry_key, list_files
from fuse_stream.checkpoint.rebuild import plan_rebuild
from fuse_stream.checkpoint.write_fork import finish_fork, load_claim, new_query_id, store_fork
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.forked import (
    ANCESTORS,
    REBUILT_FROM,
    UNKNOWN_CUT,
    UNKNOWN_KIND,
    Ancestor,
    as_json,
)
from fuse_stream.format.names import Version
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Ledger, LedgerEntry, LedgerKey, Operation
from fuse_stream.objects.source_offsets import load_offsets
from fuse_stream.reading.history import History, load_named
from fuse_stream.recovery.target import no_writer
from fuse_stream.storage.base import ObjectInfo, Store

_CONTINUES = frozenset({Operation.REWIND, Operation.ALTER})
"""Operations by which a query replaces another one and continues its batch numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltCheckpoint:
    """A rebuilt checkpoint."""

    checkpoint: str
    query_id: str
    batch_id: int
    """The last batch in it. The batch runs again, because a table of the query may lack it."""
    adopt: str | None
    """The value that the query's sink needs as `adopt`; None if the query keeps its id."""

    __repr__ = one_line("checkpoint batch_id query_id adopt")


def rebuild_checkpoint(
    committer: Committer,
    new: Store,
    *,
    application: str,
    version: Version | None = None,
    survivors: Store | None = None,
    others: Sequence[Committer] = (),
) -> RebuiltCheckpoint:
    """Rebuild a lost checkpoint; arguments and errors of `fuse_stream.rebuild_checkpoint`.

    `others` are the committers of the other tables that the query writes.
    """
    histories = {table: History(table.metadata, table.head()) for table in (committer, *others)}
    ledger = histories[committer].get_snapshot(version).snapshot.ledger
    keys = tuple(sorted(key for key in ledger.entries if key[0] == application))
    named = _last(ledger, keys, application, committer.metadata.store.url)
    lost = named.query_id
    assert lost is not None
    heads = {table: history.head.snapshot for table, history in histories.items()}
    ledgers = {table: head.ledger for table, head in heads.items()} | {committer: ledger}
    found = [
        (table, entry)
        for table, held in ledgers.items()
        for entry in held.entries.values()
        if entry.query_id == lost
    ]
    holder, entry = max(found, key=lambda item: item[1].batch_id)
    for table, history in histories.items():
        now, url = heads[table].ledger, table.metadata.store.url
        _check_current(entry, lost, now, keys)
        _check_place(entry, lost, ledgers[table], now, url)
        _check_not_dropped(history, entry, url)
    texts = _offsets_texts(found)
    if entry.batch_id not in texts:
        raise InvalidInputError(
            "the ledger has no source offsets of this batch. Start a new checkpoint, with "
            "adopt=<query>, and tell its sources where to start",
            app_id=application,
            batch=entry.batch_id,
            query=lost,
            table=holder.metadata.store.url,
        )
    plan = plan_rebuild(
        entry.batch_id,
        offsets=texts[entry.batch_id],
        previous=texts.get(entry.batch_id - 1),
        survivors=() if survivors is None else _files_of(survivors),
    )
    ended = entry_key(COMMITS, entry.batch_id)
    texts_but_one = {key: text for key, text in plan.texts.items() if key != ended}
    plan = dataclasses.replace(plan, texts=texts_but_one)
    claim = load_claim(new)
    is_retired = any(lost in head.ledger.retired for head in heads.values())
    fresh = claim.facts.get("query_id") if claim else new_query_id(committer.metadata.clock)
    query_id = str(fresh) if is_retired else lost
    facts = {
        "made_by": "rebuild_checkpoint",
        "table_id": heads[committer].table_id,
        "branch_id": committer.branch_id,
        "application": application,
        "batch_id": entry.batch_id,
        "query_id": query_id,
        ANCESTORS: as_json(_ancestors(lost, histories.values())),
        **({REBUILT_FROM: [lost, entry.batch_id]} if is_retired else {}),
    }
    store_fork(survivors, new, plan, facts)
    finish_fork(new, query_id)
    return RebuiltCheckpoint(
        checkpoint=new.url,
        query_id=query_id,
        batch_id=entry.batch_id,
        adopt=lost if is_retired else None,
    )


def _ancestors(lost: str, histories: Iterable[History]) -> tuple[Ancestor, ...]:
    """Return the queries whose forks led to the lost query; their last batches are not known.

    Queries that were replaced by `adopt` from a query with its own batch numbers are left out.
    """
    found = {lost: UNKNOWN_CUT}
    others: set[str] = set()
    for history in histories:
        retired = history.head.snapshot.ledger.retired
        for _ in retired:
            new = {
                query: passed.fork
                for query, passed in retired.items()
                if passed.fork in found and query not in found and query not in others
            }
            for query, heir in new.items():
                through = _find_through(history, query)
                if through is None:
                    others.add(query)
                else:
                    found[query] = min(through, found[heir])
    del found[lost]
    return tuple(
        Ancestor(query_id=query, through=through) for query, through in sorted(found.items())
    )


def _find_through(history: History, query: str) -> int | None:
    """Return the kind of a query that was replaced; None if its successor is no fork.

    An adopting query has its own batch numbers if its first batch here is not later than the
    table's last one. A fork replaces a query by a rewind; a rebuilt checkpoint or a copy does so
    by a replay, which changes only the ledger. Otherwise the kind is unknown, and tables refuse it.
    """
    passed = history.head.snapshot.ledger.retired[query]
    try:
        taken = history.load(passed.version).snapshot
        source = taken.source
        before = load_named(history.metadata, source, by=taken) if source else None
    except (NotFoundError, SnapshotExpiredError):
        return UNKNOWN_KIND
    if taken.operation in _CONTINUES and taken.ledger.retired.get(query) == passed:
        return UNKNOWN_CUT
    for key, entry in taken.ledger.entries.items():
        former = None if before is None else before.snapshot.ledger.entries.get(key)
        is_first = entry.query_id == passed.fork and entry.version == taken.version
        if is_first and former is not None and former.query_id == query:
            return None if entry.batch_id <= former.batch_id else UNKNOWN_KIND
    return UNKNOWN_KIND


def _check_not_dropped(history: History, last: LedgerEntry, url: str) -> None:
    """Raise if a table has the batch that runs again, but its ledger no longer names the query.

    A query commits its batches in order, so the search ends at the version of an earlier batch.
    Expired versions cannot be read.
    """
    now, lost = history.head.snapshot.ledger, last.query_id
    for stored in history.iter_sources(history.head):
        snapshot = stored.snapshot
        own = {key: item for key, item in snapshot.ledger.entries.items() if item.query_id == lost}
        for key, item in own.items():
            if item.batch_id >= last.batch_id and key not in now.entries:
                raise StreamIdentityError(
                    "the ledger no longer has this query (its entry expired, or was forgotten), "
                    "but the table holds the batch that runs again: its rows would be there twice. "
                    "Rewind the table to this version, which has the entry, then rebuild the "
                    "checkpoint; or start the query with a new checkpoint under another app_id, "
                    "and tell its sources where to start",
                    table=url,
                    query=lost,
                    application=key[0],
                    batch=item.batch_id,
                    version=snapshot.version,
                )
        earlier = (item.version for item in own.values() if item.batch_id < last.batch_id)
        if snapshot.version <= max(earlier, default=-1):
            return


def _check_place(entry: LedgerEntry, lost: str, ledger: Ledger, now: Ledger, url: str) -> None:
    """Raise if another query has replaced the lost one, or a rewind removed some of its batches."""
    passed = now.retired.get(lost)
    if passed is None:
        return
    if any(other.query_id == passed.fork for other in now.entries.values() if passed.fork):
        raise StreamIdentityError(
            "another query has replaced this query in a table; rebuild or restore the checkpoint "
            "of the other query",
            table=url,
            query=lost,
            taken_by=passed.fork,
        )
    held = [item.batch_id for item in ledger.entries.values() if item.query_id == lost]
    is_before_first = not held and passed.fork is None
    if is_before_first or (held and max(held) != entry.batch_id):
        raise StreamIdentityError(
            "the tables were rewound to different batches of this query, and the batches in "
            "between would be lost; first rewind all tables to the same batch",
            table=url,
            batch=max(held, default=None),
            other_batch=entry.batch_id,
        )


def _last(ledger: Ledger, keys: tuple[LedgerKey, ...], application: str, url: str) -> LedgerEntry:
    if not keys:
        raise no_writer(application, {name for name, _ in ledger.entries}, url)
    queries = {ledger.entries[key].query_id for key in keys}
    if queries == {None}:
        raise InvalidInputError(
            "no query has written under this application: a program numbers its batches itself, "
            "and has no checkpoint; go on with the batch after the ledger's",
            app_id=application,
        )
    if len(queries) > 1:
        raise InvalidInputError(
            "several queries have written under this application, but a checkpoint is one query's; "
            "start a new checkpoint under another app_id",
            app_id=application,
            queries=sorted(str(query) for query in queries),
        )
    return max((ledger.entries[key] for key in keys), key=lambda entry: entry.batch_id)


def _files_of(survivors: Store) -> tuple[ObjectInfo, ...]:
    files = list_files(survivors)
    if not files:
        raise NotFoundError(
            "survivors is a folder without checkpoint files; name another, or leave survivors out",
            survivors=survivors.url,
        )
    return files


def _offsets_texts(found: Sequence[tuple[Committer, LedgerEntry]]) -> dict[int, str]:
    """Return the source offsets in the tables' ledgers, by batch.

    Raises:
        StreamIdentityError: two tables have different offsets for one batch.
    """
    texts: dict[int, str] = {}
    for committer, entry in found:
        for item in entry.offsets:
            text = load_offsets(committer.metadata.store, item)
            if texts.setdefault(item.batch_id, text) != text:
                raise StreamIdentityError(
                    "two tables have different source offsets for this batch: they were written "
                    "from two copies of a checkpoint. Rebuild from one table, and rewind the other",
                    batch=item.batch_id,
                    table=committer.metadata.store.url,
                )
    return texts


def _check_current(entry: LedgerEntry, lost: str, now: Ledger, keys: tuple[LedgerKey, ...]) -> None:
    """Raise if a table holds later batches, because it would refuse the query."""
    for key, last in now.entries.items():
        is_its = key in keys or last.query_id == lost
        if is_its and last.batch_id > entry.batch_id:
            raise StreamIdentityError(
                "the table holds later batches, and would refuse a checkpoint that ends with this "
                "one; first rewind the table to this version, with the application in retire",
                application=key[0],
                batch=entry.batch_id,
                standing=last.batch_id,
            )
