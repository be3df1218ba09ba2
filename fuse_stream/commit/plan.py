"""Plan the next snapshot of a branch. Pure: values in, values out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from fuse_stream.commit.completed import completed
from fuse_stream.commit.ledger import Batch, enter, forget
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.evolve import next_schema
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.jsonio import is_storable
from fuse_stream.format.line import LineStart
from fuse_stream.format.operations import KEEPS_ROWS
from fuse_stream.format.properties import changed_properties
from fuse_stream.format.records import (
    TAKES_CONTENT,
    DeletionFileRef,
    Ledger,
    Operation,
    Parent,
    SegmentRef,
    Side,
    Snapshot,
    Summary,
)
from fuse_stream.format.schema import Schema
from fuse_stream.format.sequenced import Counts, Sequenced
from fuse_stream.format.stats import merge_summaries
from fuse_stream.objects.slots import Stored

MAX_BATCH_ID = 2**63 - 1

_MAY_ADD_EVENTS = frozenset({Operation.RETRY, Operation.UPDATE, Operation.UPSERT})
"""What may bring rows to a table whose rows come from events with sequences."""

Ref = TypeVar("Ref", bound=SegmentRef | DeletionFileRef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Content that replaces all content of one head; it is planned for that head alone."""

    segments: tuple[SegmentRef, ...]
    summary: Summary
    """Its row count is made anew from the segments and deletion files."""
    added: tuple[str, ...] = ()
    """Ids of those segments that are new."""
    deletion_files: tuple[DeletionFileRef, ...]
    sides: Mapping[str, Side]
    cluster_key: tuple[int, ...]
    key: tuple[int, ...]
    sequence: Sequenced | None
    required_features: tuple[str, ...]
    """Format features that a reader of these segments needs."""
    ledger: Ledger
    target: Parent | None = None
    """The snapshot whose content this is, or whose commit is undone; None if neither."""
    base: int | None = None
    """The newest version through which that content came, if known."""
    after_us: int = 0
    """The time of `target`, on any branch: the new snapshot must be later."""
    floor: int | None = None
    """Only for `expire`: the new floor; the head's if None."""
    epoch: int | None = None
    """Only for `expire`: the new epoch; the head's if None."""

    @classmethod
    def of(cls, snapshot: Snapshot, **changes: Any) -> Content:
        """Return the content of `snapshot`, with the fields in `changes` replaced."""
        content = cls(
            segments=snapshot.segments,
            summary=snapshot.summary,
            deletion_files=snapshot.deletion_files,
            sides=snapshot.sides,
            cluster_key=snapshot.cluster_key,
            key=snapshot.key,
            sequence=snapshot.sequence,
            required_features=snapshot.required_features,
            ledger=snapshot.ledger,
        )
        return dataclasses.replace(content, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSide:
    """What a commit brings to one side; the side is created if the head lacks it."""

    schema: Schema
    """The side's schema after the commit: it has all columns of the head's."""
    ref: SegmentRef | None = None
    """The new segment; None where there are no rows."""
    summary: Summary = field(default_factory=Summary)
    deletions: tuple[DeletionFileRef, ...] = ()
    """New deletion files, which hide rows that the side has on the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What a commit brings: its objects are in the store, but no slot names them yet."""

    schema: Schema
    """The table's schema after the commit."""
    content: Content | None = None
    """The whole new content, planned for one head; None for a commit that adds to any head."""
    ref: SegmentRef | None = None
    """The new segment; None where there are no rows."""
    summary: Summary = field(default_factory=Summary)
    deletions: tuple[DeletionFileRef, ...] = ()
    """New deletion files."""
    index_list: IndexListRef | None = None
    """The list of indexes from now on; None for the head's, and for none after an `index` or
    `erase`."""
    sides: Mapping[str, StagedSide] = field(default_factory=dict)
    """By `SideName`. The other sides stay as they are."""
    is_for_one_head: bool = False
    """True if it depends on the rows of the head for which it was staged."""
    key: tuple[int, ...] | None = None
    """The columns by which rows are unique from now on; those of the head if None."""
    sequence: Sequenced | None = None
    """How rows come from events from now on; as on the head if None."""
    counts: Counts | None = None
    """Of the events that the commit brings, if it brings any."""
    sums: BatchSums | None = None
    """Those of the rows of a numbered batch."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties to set that name columns: they follow from the head's."""
    message: str | None = None
    """Replaces the intent's message, where the message depends on the head."""


class NothingToDoError(Exception):
    """Raised by a `stage` function that finds nothing to commit on a head. Never an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Neighbours of one level, and what takes their place: one of the next level.

    They are segments, merged to one with the same blocks; or deletion files, merged to one that
    hides the same rows.
    """

    inputs: tuple[str, ...]
    """The ids of the neighbours, in the snapshot's order."""
    ref: SegmentRef | DeletionFileRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One logical commit, whatever head it is made on."""

    operation: Operation
    batch: Batch | None = None
    author: str = ""
    message: str = ""
    properties: Mapping[str, str] | None = None
    """Only for `alter`: properties to set."""
    unset: frozenset[str] = frozenset()
    """Only for `alter`: the names of properties to remove."""
    cluster_key: tuple[int, ...] | None = None
    """Only for `alter`: the new cluster key."""
    forget: str | None = None
    """Only for `alter`: the application whose ledger entries are removed."""


def check_intent(intent: Intent) -> None:
    """Raise if the format cannot hold a value of the intent.

    Raises:
        InvalidInputError: a value cannot be stored; names it.
    """
    texts: dict[str, object] = {"message": intent.message, "author": intent.author}
    if batch := intent.batch:
        texts |= {"app_id": batch.application, "writer": batch.writer}
        texts |= {} if batch.query_id is None else {"query_id": batch.query_id}
        if not 0 <= batch.batch_id <= MAX_BATCH_ID:
            raise InvalidInputError(
                f"batch_id must be a number from 0 to {MAX_BATCH_ID}", batch_id=batch.batch_id
            )
    check_texts(**texts)


def check_texts(**texts: object) -> None:
    """Raise InvalidInputError for the first argument that is not text that the format can hold."""
    for name, text in texts.items():
        if not is_storable(text):
            raise InvalidInputError(f"{name} must be text that UTF-8 can encode", value=text)


def check_may_add(head: Snapshot, operation: Operation) -> None:
    """Raise if a commit of new rows could bring a second row of a key.

    Raises:
        SchemaMismatchError: the table has a key.
    """
    if head.sequence is not None and operation not in _MAY_ADD_EVENTS:
        by_hand = (
            "" if head.sequence.scd_type != 1 else "; change rows by hand by delete and update"
        )
        raise SchemaMismatchError(
            "the rows of this table come from events with sequences: send it events, by "
            f'mode="upsert" of fuse_sink and fuse.write, or by Table.upsert{by_hand}',
            operation=str(operation),
        )
    if head.key and operation in {Operation.APPEND, Operation.OVERWRITE, Operation.REPLICATE}:
        names = {column.id: column.name for column in head.schema.columns}
        raise SchemaMismatchError(
            "the rows of this table are unique by a key, which an append does not look at: upsert "
            "the rows, or remove the key (set_key([]))",
            key=[names[column] for column in head.key],
            operation=str(operation),
        )


def check_may_change(head: Snapshot) -> None:
    """Raise if the rows of a table follow from events of the past, and cannot be changed by hand.

    Raises:
        SchemaMismatchError: the rows are a history.
    """
    if head.sequence is not None and head.sequence.scd_type != 1:
        raise SchemaMismatchError(
            "the rows of a history follow from events, which the table keeps, so a change by hand "
            "would not last: send events that delete or correct, or erase the rows"
        )


def may_be_gone(epoch: int, head: Snapshot) -> bool:
    """True if vacuum may have deleted objects that were put after a head of `epoch` was read."""
    return head.epoch - epoch >= 2


def is_stale(staged: Staged, base: Snapshot, head: Snapshot) -> bool:
    """True if what was staged on `base` may not fit `head`, or may be deleted."""
    if staged.content is not None or staged.is_for_one_head:
        return base.snapshot_id != head.snapshot_id
    return (
        base.schema != head.schema
        or may_be_gone(base.epoch, head)
        or any(base.sides.get(name) != head.sides.get(name) for name in staged.sides)
    )


def next_snapshot(
    head: Snapshot,
    head_sha256: str,
    intent: Intent,
    staged: Staged,
    *,
    branch_id: str,
    snapshot_id: str,
    now_us: int,
    rollups: Sequence[Rollup] = (),
) -> Snapshot:
    """Return the snapshot that applies `intent` to `head`, as the next one of a branch."""
    version = head.version + 1
    after_us = max(head.timestamp_us, staged.content.after_us if staged.content else 0)
    timestamp_us = max(now_us, after_us + 1)
    common = dataclasses.replace(
        head,
        branch_id=branch_id,  # the head of a new branch is a snapshot of another branch
        version=version,
        snapshot_id=snapshot_id,
        timestamp_us=timestamp_us,
        clock_us=now_us,
        prev_snapshot_id=head.snapshot_id,
        parent=Parent(branch_id=head.branch_id, version=head.version, sha256=head_sha256),
        operation=_operation(intent, staged),
        author=intent.author,
        message=intent.message if staged.message is None else staged.message,
        schema=staged.schema,
        line=_line_after(head, intent, staged),
        counts=staged.counts,
        index_list=_indexes_after(head, intent, staged),
    )
    if staged.content is not None:
        return _replaced(head, common, staged.content)
    is_kept = intent.operation is not Operation.OVERWRITE
    kept = fold(head.segments, rollups) if is_kept else ()
    hidden = fold(head.deletion_files, rollups) if is_kept else ()
    # Statistics are those of all rows, hidden ones included.
    before = dataclasses.replace(head.summary, row_count=head.stored_rows)
    brought = () if staged.ref is None else (staged.ref,)
    if brought:
        check_may_add(head, intent.operation)
    parts = [*([before] if is_kept else []), *([staged.summary] if brought else [])]
    summary = parts[0] if len(parts) == 1 else merge_summaries(parts)
    is_cleared = not is_kept and bool(head.segments)
    data_change = bool(brought) or bool(staged.deletions) or is_cleared
    ledger = head.ledger
    if intent.batch is not None:
        rows, batch = staged.summary.row_count, intent.batch
        if staged.counts is not None:
            rows = staged.counts.events
        adopted = ledger.entries.get(batch.key)
        if intent.operation is Operation.ALTER and adopted is not None:
            rows = adopted.rows
            batch = dataclasses.replace(batch, sources=adopted.sources or batch.sources)
        ledger = enter(
            ledger,
            batch,
            rows=rows,
            version=version,
            timestamp_us=timestamp_us,
            fingerprint=None if staged.sums is None else staged.sums.fingerprint,
        )
    if intent.forget is not None:
        ledger = forget(ledger, intent.forget)
    new = dataclasses.replace(
        common,
        data_change=data_change,
        cluster_key=head.cluster_key if intent.cluster_key is None else intent.cluster_key,
        key=head.key if staged.key is None else staged.key,
        sequence=head.sequence if staged.sequence is None else staged.sequence,
        properties=changed_properties(
            head.properties, {**(intent.properties or {}), **staged.properties}, intent.unset
        ),
        summary=summary,
        segments=(*kept, *brought),
        added=tuple(ref.id for ref in brought),
        deletion_files=(*hidden, *staged.deletions),
        deletion_files_added=tuple(ref.id for ref in staged.deletions),
        sides=_sides_after(head, staged.sides, rollups),
        target=None,
        ledger=ledger,
    )
    return completed(new)


def _sides_after(
    head: Snapshot, staged: Mapping[str, StagedSide], rollups: Sequence[Rollup]
) -> dict[str, Side]:
    sides = {
        name: dataclasses.replace(
            side,
            segments=fold(side.segments, rollups),
            deletion_files=fold(side.deletion_files, rollups),
        )
        for name, side in head.sides.items()
    }
    sides |= {name: _extended(sides.get(name), brought) for name, brought in staged.items()}
    return sides


def _extended(side: Side | None, brought: StagedSide) -> Side:
    segments, hidden = (side.segments, side.deletion_files) if side else ((), ())
    parts = []
    if side is not None:
        parts.append(dataclasses.replace(side.summary, row_count=_rows(segments)))
    if brought.ref is not None:
        segments = (*segments, brought.ref)
        parts.append(brought.summary)
    return Side(
        schema=brought.schema,
        segments=segments,
        deletion_files=(*hidden, *brought.deletions),
        summary=merge_summaries(parts),
    )


def _rows(refs: Iterable[SegmentRef | DeletionFileRef]) -> int:
    return sum(ref.row_count for ref in refs)


def _operation(intent: Intent, staged: Staged) -> Operation:
    # Without hidden rows it is an append: no row of the feed went.
    may_append = intent.operation in {Operation.REPLICATE, Operation.MERGE}
    is_append = may_append and not staged.deletions
    return Operation.APPEND if is_append else intent.operation


def _line_after(head: Snapshot, intent: Intent, staged: Staged) -> LineStart | None:
    """Return the start of the line of the next snapshot; None if the head's is not known."""
    if intent.operation in TAKES_CONTENT:
        base = staged.content.base if staged.content else None
        return LineStart(since=head.version + 1, base=base)
    return head.line if head.version else LineStart(since=0)


def _indexes_after(head: Snapshot, intent: Intent, staged: Staged) -> IndexListRef | None:
    is_stated = intent.operation in {Operation.INDEX, Operation.ERASE}
    return staged.index_list if is_stated else staged.index_list or head.index_list


def _replaced(head: Snapshot, common: Snapshot, content: Content) -> Snapshot:
    new = dataclasses.replace(
        common,
        data_change=_changes_data(head, common.operation, content),
        cluster_key=content.cluster_key,
        key=content.key,
        sequence=content.sequence,
        required_features=tuple(sorted({*common.required_features, *content.required_features})),
        summary=content.summary,
        segments=content.segments,
        added=content.added,
        deletion_files=content.deletion_files,
        deletion_files_added=(),
        sides=content.sides,
        target=content.target,
        ledger=content.ledger,
        floor=head.floor if content.floor is None else content.floor,
        epoch=head.epoch if content.epoch is None else content.epoch,
    )
    return completed(new)


def _changes_data(head: Snapshot, operation: Operation, content: Content) -> bool:
    if operation is Operation.ERASE:  # only deleted rows may have left their blocks
        rows = _visible(content)
        return rows != _visible(head)
    return _ids(head) != _ids(content) and operation not in KEEPS_ROWS


def _visible(held: Snapshot | Content) -> int:
    return sum(ref.row_count for ref in held.segments) - sum(
        ref.row_count for ref in held.deletion_files
    )


def _ids(held: Snapshot | Content) -> set[str]:
    return {ref.id for refs in (held.segments, held.deletion_files) for ref in refs}


def fold(refs: tuple[Ref, ...], rollups: Sequence[Rollup]) -> tuple[Ref, ...]:
    """Return `refs` with each roll-up in place of its inputs, if these are neighbours."""
    for rollup in rollups:
        ids = [ref.id for ref in refs]
        if rollup.inputs[0] not in ids:
            continue
        first = ids.index(rollup.inputs[0])
        last = first + len(rollup.inputs)
        if tuple(ids[first:last]) == rollup.inputs:
            refs = (*refs[:first], cast("Ref", rollup.ref), *refs[last:])
    return refs


def content_of(head: Snapshot, target: Stored, ledger: Ledger, *, base: int | None) -> Staged:
    """Return the content of `target`, with the given ledger, staged for `head`.

    `base` is the newest version of the head's branch through which that content came.
    """
    held = target.snapshot
    sides = {
        name: dataclasses.replace(side, schema=next_schema(head.sides[name].schema, side.schema))
        if name in head.sides
        else side
        for name, side in held.sides.items()
    }
    return Staged(
        schema=next_schema(head.schema, held.schema),
        content=Content.of(
            held,
            sides=sides,
            ledger=ledger,
            target=parent_of(target),
            base=base,
            after_us=held.timestamp_us,
        ),
    )


def parent_of(stored: Stored) -> Parent:
    """Return the reference by which another snapshot names this one."""
    snapshot = stored.snapshot
    return Parent(branch_id=snapshot.branch_id, version=snapshot.version, sha256=stored.sha256)
