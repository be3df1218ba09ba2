"""Does a table hold exactly what a checkpoint says: the batches of one query, one by one.

The table is walked by content, from the head to what each snapshot was made from: batches that a
rewind took away do not count, those that a publish brought do. What has expired cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import CorruptObjectError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Ledger, Operation, Snapshot
from fuse_stream.objects.metadata import Metadata
from fuse_stream.objects.refs import load_branch
from fuse_stream.reading.way import TAKES_CONTENT, load_source
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
    # First the checkpoint: what it has ended was in the table before.
    found = load_checkpoint(checkpoint)
    planned = Planned(
        texts={batch: load_offsets(checkpoint, batch) for batch in found.offsets},
        ended=frozenset(found.commits),
    )
    metadata = Metadata(table, SYSTEM_CLOCK)
    metadata.load_table_file()
    head = metadata.find_head(load_branch(metadata, branch).branch_id).snapshot
    history = _load_history(metadata, head, app_id, writer)
    line, adopted = _line_of(found.query_id, head.ledger, history)
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
    findings: list[AuditFinding] = []
    notes: list[str] = []
    retired = head.ledger.retired.get(found.query_id)
    if retired is not None:
        fork = f"query {retired.fork} goes on in its place" if retired.fork else "it has no fork"
        findings.append(
            AuditFinding(
                kind=AuditKind.RETIRED,
                writer=writer or "",
                batches=(),
                versions=(retired.version,),
                wrong=f"version {retired.version} has retired query {found.query_id}; {fork}",
                remedy="audit the checkpoint of the fork; this one may not write any more",
            )
        )
    judged = []
    for name in writers or [writer or ""]:
        result = audit_writer(name, own.get(name, []), last.get(name), planned)
        judged.append(result)
        # What a retired query wrote later was taken away knowingly, or is the other's business.
        findings += (one for one in result.findings if retired is None or one.versions)
        items = [item for item in history.held.get(name, []) if item.query_id not in line | adopted]
        if items:
            findings.append(_foreign(name, items))
    for result in judged:
        batches = own.get(result.writer, [])
        if history.first_version == 0 and batches and min(b.batch_id for b in batches) > 0:
            notes.append(
                f"the first batch in the table is number {min(b.batch_id for b in batches)}: those "
                "before it brought no row, or were written before the table was made"
            )
    if history.first_version:
        notes.append(
            f"the history before version {history.first_version} has expired: what was committed "
            "there cannot be judged"
        )
    return AuditReport(
        path=table.url,
        branch=branch,
        checkpoint=checkpoint.url,
        query_id=found.query_id,
        application=app_id,
        head=head.version,
        first_version=history.first_version,
        planned=tuple(batch for batch in found.offsets if batch not in planned.ended),
        writers=tuple(judged),
        findings=tuple(findings),
        notes=tuple(notes),
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
    try:
        return load_source(metadata, snapshot)
    except SnapshotExpiredError:
        return None
    except NotFoundError as error:
        if snapshot.version <= head.floor or snapshot.operation in TAKES_CONTENT:
            return None
        raise CorruptObjectError(
            "a snapshot is missing from the table's history; fuse-stream fsck tells what is lost",
            version=snapshot.version - 1,
            path=metadata.store.url,
        ) from error


def _line_of(
    query_id: str, ledger: Ledger, history: _History
) -> tuple[set[str | None], set[str | None]]:
    """Return the queries whose batches are this query's, and those that it adopted an entry of.

    A fork goes on with the numbers of the query that was rewound; who adopts counts for itself.
    """
    line: set[str | None] = {query_id}
    adopted: set[str | None] = set()
    found = True
    while found:
        found = False
        for old, retirement in ledger.retired.items():
            if old in line | adopted or retirement.fork not in line | adopted:
                continue
            is_fork = retirement.version in history.rewinds and retirement.fork in line
            (line if is_fork else adopted).add(old)
            found = True
    return line, adopted


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
