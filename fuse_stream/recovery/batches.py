"""Whether a table holds exactly the batches that a checkpoint says. Pure.

Rules (Spark calls the sink batch by batch, and the sink commits, or raises and ends the query):
- A batch that is not in the table, but a later one of its query is, brought no row.
- A batch after the table's last that the checkpoint has ended is missing, unless its sources had
  not moved since the batch before: then nothing arrived. A plan that drops all rows of a batch
  makes it look missing; with `commit_empty` no batch leaves any doubt.
- A batch that is planned and not ended may be in the table or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from fuse_stream.errors import FuseError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.records import SourceOffsets
from fuse_stream.recovery.source_offsets import NOTHING_YET, BatchOffsets, parse_offsets


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
            f"{last}: the checkpoint was cut, or is an older copy",
            remedy="restore the checkpoint as it was, make it again with rebuild_checkpoint, or "
            "rewind the table to it",
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
