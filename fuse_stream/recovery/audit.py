"""Does a table hold exactly what a checkpoint says: the batches of one query, one by one.

The table is walked by content, from the head to what each snapshot was made from: batches that a
rewind took away do not count, those that a publish brought do. What has expired cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import CorruptObjectError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.lineage import owner_of
from fuse_stream.format.records import Ledger, Operation, Retirement, Snapshot
from fuse_stream.objects.metadata import Metadata
from fuse_stream.objects.refs import load_branch
from fuse_stream.reading.way import TAKES_CONTENT, load_source, source_of
from fuse_stream.recovery.batches import (
    AuditFinding,
    AuditKind,
    Committed,
    Planned,
    WriterAudit,
    audit_writer,
)
from fuse_stream.recovery.checkpoint import load_checkpoint, load_offsets
from fuse_stream.storage.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What a checkpoint says and what the table holds, and where they differ."""

    path: str
    branch: str
    checkpoint: str
    query_id: str
    application: str
    head: int
    """The version that was compared."""
    first_version: int
    """From here on the history was seen; 0: all of it."""
    planned: tuple[int, ...]
    """Batches that the checkpoint has planned and not ended: in the table or not, both is well."""
    writers: tuple[WriterAudit, ...]
    findings: tuple[AuditFinding, ...]
    notes: tuple[str, ...]
    """What could not be judged."""

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.findings


@dataclass(slots=True)
class _History:
    """The batches under an application, by writer, in the order in which they came."""

    first_version: int
    held: dict[str, list[Committed]] = field(default_factory=dict)
    rewinds: set[int] = field(default_factory=set)
    """Versions that took a query's place by a fork of its checkpoint."""


def audit_stores(
    table: Store,
    checkpoint: Store,
    *,
    app_id: str = DEFAULT_APPLICATION,
    writer: str | None = None,
    branch: str = MAIN,
) -> AuditReport:
    """Compare the table in one store with the checkpoint in another; see `fuse_stream.audit`."""
    # A query may be running: what has ended is read before the table, what is planned after it.
    ended = frozenset(load_checkpoint(checkpoint).commits)
    metadata = Metadata(table, SYSTEM_CLOCK)
    metadata.load_table_file()
    head = metadata.find_head(load_branch(metadata, branch).branch_id).snapshot
    history = _load_history(metadata, head, app_id, writer)
    found = load_checkpoint(checkpoint)
    planned = Planned(texts=_texts(checkpoint, found.offsets), ended=ended)
    line, kin = _line_of(found.query_id, head.ledger, history)
    last = {
        key[1]: entry.batch_id
        for key, entry in head.ledger.entries.items()
        if key[0] == app_id and writer in {None, key[1]} and entry.query_id in line
    }
    own = {
        name: [item for item in items if item.query_id in line]
        for name, items in history.held.items()
    }
    writers = sorted(last.keys() | {name for name, items in own.items() if items})
    retired = head.ledger.retired.get(found.query_id)
    findings = [] if retired is None else [_retired(found.query_id, retired)]
    judged = []
    for name in writers or [writer or ""]:
        result = audit_writer(name, own.get(name, []), last.get(name), planned)
        judged.append(result)
        # What a retired query wrote later was taken away knowingly, or is the other's business.
        findings += (one for one in result.findings if retired is None or one.versions)
        items = [item for item in history.held.get(name, []) if item.query_id not in kin]
        if items:
            findings.append(_foreign(name, items))
    return AuditReport(
        path=table.url,
        branch=branch,
        checkpoint=checkpoint.url,
        query_id=found.query_id,
        application=app_id,
        head=head.version,
        first_version=history.first_version,
        planned=tuple(sorted(set(found.offsets) - set(found.commits))),
        writers=tuple(judged),
        findings=tuple(findings),
        notes=tuple(_notes(history, own)),
    )


def _load_history(
    metadata: Metadata, head: Snapshot, application: str, writer: str | None
) -> _History:
    """Walk from the head to what each snapshot was made from, as far as it stands."""
    history = _History(first_version=head.version)
    snapshot: Snapshot | None = head
    while snapshot is not None:
        history.first_version = snapshot.version
        if snapshot.operation in TAKES_CONTENT:
            # Its ledger is another's, whose versions may have the same numbers.
            if snapshot.operation is Operation.REWIND:
                history.rewinds.add(snapshot.version)
        else:
            for name, batch in _committed(snapshot, application):
                if writer in {None, name}:
                    history.held.setdefault(name, []).append(batch)
        snapshot = _source(metadata, snapshot, head)
    for items in history.held.values():
        items.reverse()
    return history


def _committed(snapshot: Snapshot, application: str) -> Iterator[tuple[str, Committed]]:
    """Yield the batches that a snapshot brought, with their writers."""
    for (who, name), entry in snapshot.ledger.entries.items():
        if who == application and entry.version == snapshot.version:
            yield (
                name,
                Committed(
                    batch_id=entry.batch_id,
                    version=entry.version,
                    query_id=entry.query_id,
                    offsets=entry.offsets,
                    rows=entry.rows,
                ),
            )


def _source(metadata: Metadata, snapshot: Snapshot, head: Snapshot) -> Snapshot | None:
    """Return the snapshot whose content this one was made from; None where that has expired."""
    source = source_of(snapshot)
    if source is None:
        return None
    owner = owner_of(metadata.forks_of(head.branch_id), head.branch_id, source.version)
    if source.version < head.floor and source.branch_id == owner:
        return None
    try:
        stored = load_source(metadata, snapshot)
    except SnapshotExpiredError:
        return None
    except NotFoundError as error:
        if source.branch_id != owner:
            return None  # of another branch, which may have been deleted
        raise CorruptObjectError(
            "a snapshot is missing from the table's history; fuse-stream fsck tells what is lost",
            version=source.version,
            path=metadata.store.url,
        ) from error
    return None if stored is None else stored.snapshot


def _line_of(
    query_id: str, ledger: Ledger, history: _History
) -> tuple[set[str | None], set[str | None]]:
    """Return the queries whose batches are this query's, and all that stand in line with it.

    A fork goes on with the numbers of the query that was rewound. Who adopts an entry counts for
    itself: those before and after it are no strangers, and none of its business.
    """
    line: set[str | None] = {query_id}
    kin: set[str | None] = {query_id}
    found = True
    while found:
        found = False
        for old, retirement in ledger.retired.items():
            pair = {old, retirement.fork} - {None}
            if pair & kin and not pair <= kin:
                kin |= pair
                found = True
            if retirement.fork in line - {old} and retirement.version in history.rewinds:
                found = found or old not in line
                line.add(old)
    return line, kin


def _texts(checkpoint: Store, batches: Iterable[int]) -> dict[int, str]:
    texts = {}
    for batch in batches:
        with suppress(NotFoundError):  # Spark forgets the oldest while it runs
            texts[batch] = load_offsets(checkpoint, batch)
    return texts


def _notes(history: _History, own: Mapping[str, list[Committed]]) -> Iterator[str]:
    if history.first_version:
        yield (
            f"the history before version {history.first_version} has expired: what was committed "
            "there cannot be judged"
        )
        return
    for batches in own.values():
        first = min((item.batch_id for item in batches), default=0)
        if first > 0:
            yield (
                f"the first batch in the table is number {first}: those before it brought no row, "
                "or were written before the table was made"
            )


def _retired(query_id: str, retirement: Retirement) -> AuditFinding:
    fork = retirement.fork
    return AuditFinding(
        kind=AuditKind.RETIRED,
        writer="",
        batches=(),
        versions=(retirement.version,),
        wrong=f"version {retirement.version} has retired query {query_id}; "
        + (f"query {fork} goes on in its place" if fork else "it has no fork"),
        remedy="audit the checkpoint of the query that goes on; this one may not write any more",
    )


def _foreign(writer: str, items: list[Committed]) -> AuditFinding:
    queries = sorted({item.query_id or "none (Table.append)" for item in items})
    return AuditFinding(
        kind=AuditKind.FOREIGN,
        writer=writer,
        batches=tuple(item.batch_id for item in items),
        versions=tuple(item.version for item in items),
        wrong=f"batches of another query stand under this application: {', '.join(queries)}",
        remedy="give each query its own app_id; if the checkpoint was made anew without adopt=, "
        "look whether rows are in the table twice",
    )
