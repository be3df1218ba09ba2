"""Compare a table with a query's checkpoint, batch by batch.

The walk goes from the head to the source of each snapshot's content: batches that a rewind removed
do not count, and batches that a publish brought do. Expired versions cannot be compared.

Rules (Spark calls the sink batch by batch, and the sink commits, or raises and ends the query):
- A batch that is not in the table, while a later one of its query is, had no row.
- A batch that the checkpoint has ended, after the table's last one, is missing, unless the offsets
  of its sources did not move: then it had no row. If the plan drops all rows of a batch, it is
  reported as missing; with `commit_empty` each batch has a snapshot.
- A batch that is planned and not ended may be in the table or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from fuse_stream.checkpoint.files import load_checkpoint, load_offsets
from fuse_stream.checkpoint.offsets import NOTHING_YET, BatchOffsets, parse_offsets
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import DEFAULT_APPLICATION, application_of
from fuse_stream.errors import FuseError, InvalidInputError, NotFoundError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.layout import MAIN
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import (
    TAKES_CONTENT,
    Ledger,
    LedgerEntry,
    LedgerKey,
    Operation,
    Retirement,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, load_history
from fuse_stream.storage.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The comparison of a table with a checkpoint."""

    path: str
    branch: str
    checkpoint: str
    query_id: str
    application: str
    head: int
    """The version that was compared."""
    first_version: int
    """The oldest version that was read; 0 if no version has expired."""
    planned: tuple[int, ...]
    """Batches that the checkpoint has planned and not ended: they may be in the table or not."""
    writers: tuple[WriterAudit, ...]
    findings: tuple[AuditFinding, ...]
    notes: tuple[str, ...]
    """Parts that could not be compared."""

    __repr__ = one_line("agrees findings application head planned notes query_id")

    @property
    def agrees(self) -> bool:
        """True if there is no finding."""
        return not self.findings


@dataclass(slots=True)
class _Batches:
    """The batches of the table, in the order of their versions."""

    first_version: int
    held: dict[LedgerKey, list[LedgerEntry]] = field(default_factory=dict)
    forks: set[tuple[str, str | None]] = field(default_factory=set)
    """Queries whose place a rewind gave to a fork of their checkpoint, with the fork."""


def audit_stores(
    table: Store,
    checkpoint: Store,
    *,
    app_id: str | None = None,
    writer: str | None = None,
    branch: str = MAIN,
) -> AuditReport:
    """Return the comparison of the table in a store with a checkpoint; see `fuse_stream.audit`."""
    # A query may be running: ended batches are read before the table, planned ones after it.
    ended = frozenset(load_checkpoint(checkpoint).commits)
    metadata = Metadata(table, SYSTEM_CLOCK)
    metadata.load_table_file()
    history = load_history(metadata, branch)
    head = history.head.snapshot
    batches = _load_batches(history)
    found = load_checkpoint(checkpoint)
    known = _applications_of(found.query_id, head.ledger, batches)
    application = _choose(known) if app_id is None else application_of(app_id)
    texts = {}
    for batch in found.offsets:
        with suppress(NotFoundError):  # Spark forgets the oldest while it runs
            texts[batch] = load_offsets(checkpoint, batch)
    planned = Planned(texts=texts, ended=ended)
    ids, kin = _ids_of(found.query_id, head.ledger, batches)
    last = {
        key[1]: entry.batch_id
        for key, entry in head.ledger.entries.items()
        if key[0] == application and writer in {None, key[1]} and entry.query_id in ids
    }
    held = {
        name: items
        for (who, name), items in batches.held.items()
        if who == application and writer in {None, name}
    }
    own = {name: [item for item in items if item.query_id in ids] for name, items in held.items()}
    writers = sorted(last.keys() | {name for name, items in own.items() if items})
    retired = head.ledger.retired.get(found.query_id)
    findings = [] if retired is None else [_retired(found.query_id, retired)]
    judged = []
    for name in writers or [writer or ""]:
        result = audit_writer(name, own.get(name, []), last.get(name), planned)
        judged.append(result)
        # Later batches of a retired query were removed on purpose, or belong to its successor.
        findings += (one for one in result.findings if retired is None or one.versions)
        items = [item for item in held.get(name, []) if item.query_id not in kin]
        if items:
            findings.append(_foreign(name, items))
    if known and application not in known:
        findings = [_elsewhere(known, finding) for finding in findings]
    return AuditReport(
        path=table.url,
        branch=branch,
        checkpoint=checkpoint.url,
        query_id=found.query_id,
        application=application,
        head=head.version,
        first_version=batches.first_version,
        planned=tuple(sorted(set(found.offsets) - set(found.commits))),
        writers=tuple(judged),
        findings=tuple(findings),
        notes=tuple(_notes(batches, own)),
    )


def _load_batches(history: History) -> _Batches:
    """Return the batches from the head back, as far as the content's sources have not expired."""
    batches = _Batches(first_version=history.head.snapshot.version)
    for stored in history.iter_sources(history.head):
        snapshot = stored.snapshot
        batches.first_version = 0 if history.is_cloned(snapshot) else snapshot.version
        if snapshot.operation in TAKES_CONTENT:
            # Its ledger is from another snapshot, whose versions may have the same numbers.
            if snapshot.operation is Operation.REWIND:
                passed = snapshot.ledger.retired.items()
                batches.forks |= {
                    (old, one.fork) for old, one in passed if one.version == snapshot.version
                }
        else:
            for key, batch in snapshot.batches.items():
                batches.held.setdefault(key, []).append(batch)
    for items in batches.held.values():
        items.reverse()
    return batches


def _applications_of(query_id: str, ledger: Ledger, batches: _Batches) -> set[str]:
    """Return the applications under which a query has committed, as far as that can be seen."""
    known = {key[0] for key, entry in ledger.entries.items() if entry.query_id == query_id}
    known |= {
        key[0]
        for key, items in batches.held.items()
        if any(item.query_id == query_id for item in items)
    }
    passed = ledger.retired.items()
    return known or {one.application for old, one in passed if query_id in {old, one.fork}}


def _choose(known: set[str]) -> str:
    if not known or DEFAULT_APPLICATION in known:
        return DEFAULT_APPLICATION
    if len(known) > 1:
        raise InvalidInputError(
            "the query has committed under several applications; name one of them in app_id",
            known=sorted(known),
        )
    return next(iter(known))


def _ids_of(
    query_id: str, ledger: Ledger, batches: _Batches
) -> tuple[set[str | None], set[str | None]]:
    """Return the queries whose batches count as this query's, and all queries related to it.

    A fork continues the batch numbers of the query that was rewound. A query that adopted an entry
    has batch numbers of its own: queries before and after it are related, but do not count.
    """
    ids: set[str | None] = {query_id}
    kin: set[str | None] = {query_id}
    found = True
    while found:
        found = False
        for old, retirement in ledger.retired.items():
            pair = {old, retirement.fork} - {None}
            if pair & kin and not pair <= kin:
                kin |= pair
                found = True
            # The version is another's where a publish brought it from the branch of the rewind.
            if retirement.fork in ids - {old} and (old, retirement.fork) in batches.forks:
                found = found or old not in ids
                ids.add(old)
    return ids, kin


def _notes(batches: _Batches, own: Mapping[str, list[LedgerEntry]]) -> Iterator[str]:
    if batches.first_version:
        yield (
            f"the history before version {batches.first_version} has expired: its batches were not "
            "compared"
        )
        return
    for items in own.values():
        first = min((item.batch_id for item in items), default=0)
        if first > 0:
            yield (
                f"the first batch in the table is number {first}: those before it had no row, "
                "or were written before the table was created"
            )


def _retired(query_id: str, retirement: Retirement) -> AuditFinding:
    fork = retirement.fork
    return AuditFinding(
        kind=AuditKind.RETIRED,
        writer="",
        batches=(),
        versions=(retirement.version,),
        wrong=f"version {retirement.version} has retired query {query_id}; "
        + (f"query {fork} has its place" if fork else "it has no fork"),
        remedy="audit the checkpoint of its successor; this query may not write any more",
    )


def _elsewhere(known: set[str], finding: AuditFinding) -> AuditFinding:
    """Return a finding about an application that the query has not written under."""
    if finding.kind is not AuditKind.MISSING:
        return finding
    names = ", ".join(sorted(known))
    return replace(
        finding,
        wrong=f"the query has committed under another application than this one: {names}",
        remedy="name that one in app_id",
    )


def _foreign(writer: str, items: list[LedgerEntry]) -> AuditFinding:
    queries = sorted({item.query_id or "none (Table.append)" for item in items})
    return AuditFinding(
        kind=AuditKind.FOREIGN,
        writer=writer,
        batches=tuple(item.batch_id for item in items),
        versions=tuple(item.version for item in items),
        wrong=f"this application has batches of another query: {', '.join(queries)}",
        remedy="give each query its own app_id; if the checkpoint was replaced without adopt=, "
        "check whether rows are in the table twice",
    )


class AuditKind(StrEnum):
    """The kinds of difference between a table and a checkpoint."""

    MISSING = "missing"
    """The checkpoint has ended batches that the table lacks."""
    BEHIND = "checkpoint behind"
    """The table has batches that the checkpoint has never planned."""
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    OFFSETS_DIFFER = "offsets differ"
    """A batch has other source offsets in the ledger than in the checkpoint."""
    FOREIGN = "foreign"
    """The application has batches of another query."""
    RETIRED = "retired"
    """The query may not write any more: it was rewound, or another took its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One difference."""

    kind: AuditKind
    writer: str
    batches: tuple[int, ...]
    versions: tuple[int, ...] = ()
    """The versions that have these batches, if there are any."""
    wrong: str
    remedy: str

    __repr__ = one_line("kind wrong writer batches versions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The batches in a checkpoint; Spark keeps about the last 100."""

    texts: Mapping[int, str]
    """The files in `offsets`, by batch."""
    ended: frozenset[int]
    """The batches in `commits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterAudit:
    """The batches of one writer of the query."""

    writer: str
    batch_count: int
    """How many batches are in the versions that were read."""
    row_count: int
    """How many rows these batches brought; those that were deleted since are among them."""
    last_batch: int | None
    """The last batch by the ledger; None if there is none."""
    empty: tuple[int, ...]
    """Batches that the checkpoint has ended and that had no row."""
    findings: tuple[AuditFinding, ...]

    __repr__ = one_line("writer batch_count row_count last_batch empty findings")


def audit_writer(
    writer: str, held: Sequence[LedgerEntry], last: int | None, planned: Planned
) -> WriterAudit:
    """Return the comparison of one writer's batches with those in the checkpoint.

    `held` are its batches in the table, in the order of their versions; `last` is its last batch by
    the ledger, whose version may have expired.
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
                wrong=f"the checkpoint has ended them, but the table has {after}",
                remedy="if the table was restored from an older copy, rewind the checkpoint to it, "
                "or restore a newer copy; if the query's plan dropped all their rows, do nothing "
                "(with commit_empty=True, such batches have a snapshot)",
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


def _doubled(writer: str, held: Sequence[LedgerEntry]) -> list[AuditFinding]:
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
            remedy="compare the rows of the versions, then revert one of them",
        )
        for batch, versions in places.items()
        if len(versions) > 1
    ]


def _disordered(writer: str, held: Sequence[LedgerEntry]) -> list[AuditFinding]:
    return [
        AuditFinding(
            kind=AuditKind.OUT_OF_ORDER,
            writer=writer,
            batches=(older.batch_id, newer.batch_id),
            versions=(older.version, newer.version),
            wrong="a later batch came before an earlier one",
            remedy="forget or another tool has set the ledger back; check whether these versions "
            "have the same rows",
        )
        for older, newer in pairwise(held)
        if older.batch_id > newer.batch_id
    ]


def _differing(writer: str, held: Sequence[LedgerEntry], planned: Planned) -> list[AuditFinding]:
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
            wrong="the ledger has other source offsets for them than the checkpoint: the "
            "checkpoint was cut or restored by hand, and the query continued",
            remedy="restore the checkpoint as it was, or rewind the table to before these "
            "versions together with the checkpoint",
        )
    ]


def _beyond(
    writer: str, held: Sequence[LedgerEntry], last: int | None, planned: Planned
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
            wrong=f"the checkpoint has planned nothing after batch {newest}, but the table has "
            f"batch {last}: the checkpoint was cut, or is an older copy, or the query runs on "
            "another copy",
            remedy="if the query runs on another copy of the checkpoint, audit that one; if not, "
            "restore the checkpoint, rebuild it with rebuild_checkpoint, or rewind the table to it",
        )
    ]


def _nothing_arrived(batch: int, planned: Planned) -> bool:
    """True if the offsets of a batch's sources did not move."""
    ends = _parsed(planned.texts.get(batch))
    if ends is None:
        return False
    if batch == 0:
        return all(line == NOTHING_YET for line in ends.lines)
    before = _parsed(planned.texts.get(batch - 1))
    # If the watermark moved, a stateful query may have emitted rows from its state.
    return before is not None and (
        (before.lines, before.watermark_ms) == (ends.lines, ends.watermark_ms)
    )


def _parsed(text: str | None) -> BatchOffsets | None:
    if text is None:
        return None
    try:
        return parse_offsets(text)
    except FuseError:
        return None
