"""Does a table hold exactly what a checkpoint says: the batches of one query, one by one.

The table is walked by content, from the head to what each snapshot was made from: batches that a
rewind took away do not count, those that a publish brought do. What has expired cannot be judged.

Rules (Spark calls the sink batch by batch, and the sink commits, or raises and ends the query):
- A batch that is not in the table, but a later one of its query is, brought no row.
- A batch after the table's last that the checkpoint has ended is missing, unless its sources had
  not moved since the batch before: then nothing arrived. A plan that drops all rows of a batch
  makes it look missing; with `commit_empty` no batch leaves any doubt.
- A batch that is planned and not ended may be in the table or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from fuse_stream.checkpoint.files import load_checkpoint, load_offsets
from fuse_stream.checkpoint.offsets import NOTHING_YET, BatchOffsets, parse_offsets
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import (
    TAKES_CONTENT,
    Ledger,
    Operation,
    Retirement,
    Snapshot,
    SourceOffsets,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, load_history
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
class _Batches:
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
    history = load_history(metadata, branch)
    head = history.head.snapshot
    batches = _load_batches(history, app_id, writer)
    found = load_checkpoint(checkpoint)
    planned = Planned(texts=_texts(checkpoint, found.offsets), ended=ended)
    line, kin = _line_of(found.query_id, head.ledger, batches)
    last = {
        key[1]: entry.batch_id
        for key, entry in head.ledger.entries.items()
        if key[0] == app_id and writer in {None, key[1]} and entry.query_id in line
    }
    own = {
        name: [item for item in items if item.query_id in line]
        for name, items in batches.held.items()
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
        items = [item for item in batches.held.get(name, []) if item.query_id not in kin]
        if items:
            findings.append(_foreign(name, items))
    return AuditReport(
        path=table.url,
        branch=branch,
        checkpoint=checkpoint.url,
        query_id=found.query_id,
        application=app_id,
        head=head.version,
        first_version=batches.first_version,
        planned=tuple(sorted(set(found.offsets) - set(found.commits))),
        writers=tuple(judged),
        findings=tuple(findings),
        notes=tuple(_notes(batches, own)),
    )


def _load_batches(history: History, application: str, writer: str | None) -> _Batches:
    """Walk from the head to what each snapshot was made from, until that has expired."""
    batches = _Batches(first_version=history.head.snapshot.version)
    for stored in history.iter_sources(history.head):
        snapshot = stored.snapshot
        batches.first_version = 0 if history.is_cloned(snapshot) else snapshot.version
        if snapshot.operation in TAKES_CONTENT:
            # Its ledger is another's, whose versions may have the same numbers.
            if snapshot.operation is Operation.REWIND:
                batches.rewinds.add(snapshot.version)
        else:
            for name, batch in _committed(snapshot, application):
                if writer in {None, name}:
                    batches.held.setdefault(name, []).append(batch)
    for items in batches.held.values():
        items.reverse()
    return batches


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


def _line_of(
    query_id: str, ledger: Ledger, batches: _Batches
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
            if retirement.fork in line - {old} and retirement.version in batches.rewinds:
                found = found or old not in line
                line.add(old)
    return line, kin


def _texts(checkpoint: Store, batches: Iterable[int]) -> dict[int, str]:
    texts = {}
    for batch in batches:
        with suppress(NotFoundError):  # Spark forgets the oldest while it runs
            texts[batch] = load_offsets(checkpoint, batch)
    return texts


def _notes(batches: _Batches, own: Mapping[str, list[Committed]]) -> Iterator[str]:
    if batches.first_version:
        yield (
            f"the history before version {batches.first_version} has expired: what was committed "
            "there cannot be judged"
        )
        return
    for items in own.values():
        first = min((item.batch_id for item in items), default=0)
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


class AuditKind(StrEnum):
    """How table and checkpoint differ."""

    MISSING = "missing"
    """The checkpoint is ahead: it has ended batches that the table does not hold."""
    BEHIND = "checkpoint behind"
    """The table holds batches that the checkpoint has never planned."""
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    OFFSETS_DIFFER = "offsets differ"
    """A batch is not of the source rows that the checkpoint says."""
    FOREIGN = "foreign"
    """Batches of another query stand under the application."""
    RETIRED = "retired"
    """The query may not write any more: it was rewound, or another took its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One difference."""

    kind: AuditKind
    writer: str
    batches: tuple[int, ...]
    versions: tuple[int, ...] = ()
    """The snapshots that hold them, if any does."""
    wrong: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch that the table holds."""

    batch_id: int
    version: int
    query_id: str | None
    offsets: tuple[SourceOffsets, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a checkpoint says of its batches; Spark keeps the last 100 or so."""

    texts: Mapping[int, str]
    """`offsets`, by batch."""
    ended: frozenset[int]
    """`commits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterAudit:
    """The batches of one writer of the query."""

    writer: str
    batch_count: int
    """In the table, as far as its history was seen."""
    row_count: int
    """That they brought."""
    last_batch: int | None
    """In the table; None: none is."""
    empty: tuple[int, ...]
    """Batches that the checkpoint has ended and that brought no row."""
    findings: tuple[AuditFinding, ...]


def audit_writer(
    writer: str, held: Sequence[Committed], last: int | None, planned: Planned
) -> WriterAudit:
    """Compare what one writer committed with the checkpoint.

    Args:
        writer: its name.
        held: its batches, in the order in which the table got them.
        last: its last batch by the ledger, which may be older than the history that was seen.
        planned: what the checkpoint says.
    """
    findings = [*_doubled(writer, held), *_disordered(writer, held)]
    findings += _differing(writer, held, planned)
    findings += _beyond(writer, held, last, planned)
    here = {item.batch_id for item in held}
    empty: list[int] = []
    missing: list[int] = []
    for batch in sorted(planned.ended - here - {last}):
        is_empty = (last is not None and batch < last) or _nothing_arrived(batch, planned)
        (empty if is_empty else missing).append(batch)
    if missing:
        after = "none of its batches" if last is None else f"nothing after batch {last}"
        findings.append(
            AuditFinding(
                kind=AuditKind.MISSING,
                writer=writer,
                batches=tuple(missing),
                wrong=f"the checkpoint has ended them, the table holds {after}",
                remedy="if the table was restored from an older copy, rewind the checkpoint to it, "
                "or restore a newer copy; if the query's plan dropped all their rows, nothing "
                "(commit_empty=True removes the doubt)",
            )
        )
    return WriterAudit(
        writer=writer,
        batch_count=len(here),
        row_count=sum(item.rows for item in held),
        last_batch=last,
        empty=tuple(empty),
        findings=tuple(findings),
    )


def _doubled(writer: str, held: Sequence[Committed]) -> list[AuditFinding]:
    places: dict[int, list[int]] = {}
    for item in held:
        places.setdefault(item.batch_id, []).append(item.version)
    return [
        AuditFinding(
            kind=AuditKind.DOUBLED,
            writer=writer,
            batches=(batch,),
            versions=tuple(versions),
            wrong="the batch is in the table more than once",
            remedy="revert one of the versions, after comparing their rows",
        )
        for batch, versions in places.items()
        if len(versions) > 1
    ]


def _disordered(writer: str, held: Sequence[Committed]) -> list[AuditFinding]:
    return [
        AuditFinding(
            kind=AuditKind.OUT_OF_ORDER,
            writer=writer,
            batches=(older.batch_id, newer.batch_id),
            versions=(older.version, newer.version),
            wrong="a later batch came before an earlier one",
            remedy="somebody set the ledger back (forget, or another tool); look whether the "
            "rows of these versions overlap",
        )
        for older, newer in pairwise(held)
        if older.batch_id > newer.batch_id
    ]


def _differing(writer: str, held: Sequence[Committed], planned: Planned) -> list[AuditFinding]:
    hashes = {batch: sha256_hex(text.encode()) for batch, text in planned.texts.items()}
    found: dict[int, int] = {}
    for item in held:
        for offsets in item.offsets:
            if hashes.get(offsets.batch_id, offsets.sha256) != offsets.sha256:
                found.setdefault(offsets.batch_id, item.version)
    if not found:
        return []
    return [
        AuditFinding(
            kind=AuditKind.OFFSETS_DIFFER,
            writer=writer,
            batches=tuple(found),
            versions=tuple(found.values()),
            wrong="the ledger has other source offsets of them than the checkpoint: it was cut, "
            "or restored by hand, and went on",
            remedy="restore the checkpoint as it was, or rewind the table to before these "
            "versions together with the checkpoint",
        )
    ]


def _beyond(
    writer: str, held: Sequence[Committed], last: int | None, planned: Planned
) -> list[AuditFinding]:
    newest = max((*planned.texts, *planned.ended), default=-1)
    if last is None or last <= newest:
        return []
    beyond = [item for item in held if item.batch_id > newest]
    return [
        AuditFinding(
            kind=AuditKind.BEHIND,
            writer=writer,
            batches=tuple(item.batch_id for item in beyond) or (last,),
            versions=tuple(item.version for item in beyond),
            wrong=f"the checkpoint has planned nothing after batch {newest}, the table holds batch "
            f"{last}: the checkpoint was cut, or is an older copy, or another copy of the "
            "checkpoint runs on",
            remedy="if another copy of the checkpoint runs on, audit that one; if not, restore the "
            "checkpoint as it was, make it again with rebuild_checkpoint, or rewind the table to "
            "it",
        )
    ]


def _nothing_arrived(batch: int, planned: Planned) -> bool:
    """Whether a batch had no row to bring, by where its sources stood."""
    ends = _parsed(planned.texts.get(batch))
    if ends is None:
        return False
    if batch == 0:
        return all(line == NOTHING_YET for line in ends.lines)
    before = _parsed(planned.texts.get(batch - 1))
    # Where the watermark moved, a stateful query may have sent rows that it had kept.
    return before is not None and (before.lines, before.watermark_ms) == (
        ends.lines,
        ends.watermark_ms,
    )


def _parsed(text: str | None) -> BatchOffsets | None:
    if text is None:
        return None
    try:
        return parse_offsets(text)
    except FuseError:
        return None
