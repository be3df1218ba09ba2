"""Apply events of the quarantine again.

By the law of events this is safe at any time: an event that was applied meanwhile changes nothing.
An event that still cannot be applied goes back to the quarantine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.dml.event_rules import EventRules
from fuse_stream.dml.event_sides import (
    EVENT,
    GIVEN,
    ID,
    OP,
    OPERATIONS,
    RAW,
    REASON,
    Retried,
    is_text_alone,
)
from fuse_stream.dml.events import TOO_LATE, Events, unset_of_given
from fuse_stream.dml.result import ChangeResult
from fuse_stream.dml.sequenced import SequencedStaging
from fuse_stream.errors import NotFoundError
from fuse_stream.format.grouping import joined
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.sequenced import Sequenced
from fuse_stream.format.sides import SideName
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.scan import scan_snapshot, select

_KINDS = {text: kind for kind, text in OPERATIONS.items()}


def retry(
    committer: Committer,
    where: str | None,
    *,
    too_late: bool,
    dry_run: bool,
    author: str,
    message: str,
) -> ChangeResult:
    """Apply events of the quarantine again; arguments and errors of `Table.retry`."""
    metadata = committer.metadata
    staging: SequencedStaging | None = None

    def stage(on: Stored, before: Staged | None) -> Staged:
        nonlocal staging
        kept = kept_events(metadata, on.snapshot, where)
        staging = _staging(metadata, on.snapshot, kept, too_late=too_late)
        if staging is None:
            raise NothingToDoError
        return staging.stage(on, before)

    head = committer.head().snapshot
    kept = kept_events(metadata, head, where)
    unread = pc.sum(is_text_alone(kept), min_count=0).as_py()
    found = _staging(metadata, head, kept, too_late=too_late)
    if found is None or dry_run:
        return ChangeResult(events=0 if found is None else found.event_count, unread=unread)
    intent = Intent(operation=Operation.RETRY, author=author, message=message)
    try:
        outcome = committer.commit(intent, stage)
    except NothingToDoError:  # none can be applied, or others have retried them meanwhile
        count = found.event_count
        return ChangeResult(events=count, quarantined=count, unread=unread)
    assert staging is not None
    return dataclasses.replace(staging.result(outcome.snapshot), unread=unread)


def _staging(
    metadata: Metadata, head: Snapshot, rows: pa.Table, *, too_late: bool
) -> SequencedStaging | None:
    """Return what applies events of the quarantine, its `rows`; None if there are none."""
    wanted = pc.is_valid(rows.column(OP))
    if not too_late:
        wanted = pc.and_(wanted, pc.not_equal(rows.column(REASON), TOO_LATE))
    rows = rows.filter(wanted)
    if not len(rows):
        return None
    assert head.sequence is not None
    each = np.arange(len(rows))
    return SequencedStaging(
        metadata,
        events_in(rows),
        rules_of(head.sequence, forgives=too_late),
        keys=None,
        batch=None,
        merge_schema=True,  # events are older than columns that the table got since
        case_sensitive=True,
        may_be_empty=True,
        retried=Retried(rows=rows, of_row=each, of_event=each, stays=False),
    )


def kept_events(
    metadata: Metadata,
    head: Snapshot,
    where: str | None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows of the quarantine that match; all columns, or those with these names.

    Raises:
        InvalidInputError: an unknown column or a broken predicate.
    """
    try:
        side = head.side(SideName.QUARANTINE)
    except NotFoundError:
        return pa.table(
            {name: pa.array([], pa.string()) for name in columns or (ID, REASON, OP, RAW)}
        )
    selection = select(side.schema, columns=columns, where=where)
    return scan_snapshot(metadata, side, selection).read_all()


def rules_of(
    sequence: Sequenced, *, forgives: bool, ignore_null_updates: bool = False
) -> EventRules:
    """Return the rules by which a table takes the events that it kept."""
    return EventRules(
        scd_type=sequence.scd_type, forgives=forgives, ignore_null_updates=ignore_null_updates
    )


def events_in(rows: pa.Table) -> Events:
    """Return rows of the quarantine, all with an operation, as events."""
    event = joined([rows.column(EVENT)])
    names = [field.name for field in event.type]
    data = pa.table([event.field(name) for name in names], names=names)
    nothing = pa.nulls(len(rows), pa.string())
    return Events(
        rows=data,
        kind=np.array([_KINDS[text] for text in rows.column(OP).to_pylist()], np.int8),
        sequence=joined([rows.column("sequence")]),
        unset=unset_of_given(joined([rows.column(GIVEN)]), data),
        error=nothing,
        raw=joined([rows.column(RAW)]),
        source=joined([rows.column("source")]),
    )
