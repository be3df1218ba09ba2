"""Stage a batch of events with sequences.

Rules:
- The commit has the effect of one that runs alone on the head on which it lands.
- Every event of the batch is counted once: applied, superseded, duplicate or quarantined.
"""

from __future__ import annotations

import dataclasses
import logging
import shlex
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged, StagedSide
from fuse_stream.commit.stage import stage_deletions, stage_side, stage_tables
from fuse_stream.dml.effect import (
    APPLIED,
    DUPLICATE,
    LACKING,
    LATE,
    SUPERSEDED,
    TIED,
    Effect,
    EventTable,
)
from fuse_stream.dml.event_rules import EventRules, sums_of
from fuse_stream.dml.event_sides import ID, Retried, quarantine
from fuse_stream.dml.events import TIE, TOO_LATE, TRUNCATE, Events, no_value, without_values
from fuse_stream.dml.fitted_events import FittedEvents, fit, fit_columns
from fuse_stream.dml.histories import Histories
from fuse_stream.dml.keys import check_unique, readable
from fuse_stream.dml.latest_rows import LatestRows
from fuse_stream.dml.result import ChangeResult
from fuse_stream.dml.stored_keys import StoredRows
from fuse_stream.dml.upsert import key_ids, marked_rows
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.evolve import with_ids_of
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import nearest
from fuse_stream.format.positions import count_rows
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.format.sequenced import Counts, Sequenced
from fuse_stream.format.sides import SideName, side_or_empty
from fuse_stream.objects.blocks import sort_order
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks

_SHOWN, _SHOWN_CHARACTERS = 3, 200
"""The most bad events that an error shows, and of each."""
_log = logging.getLogger(__name__)


def upsert_events(
    committer: Committer,
    rows: pa.Table,
    rules: EventRules,
    *,
    keys: Sequence[str] | None,
    merge_schema: bool,
    intent: Intent,
) -> ChangeResult:
    """Apply Arrow rows that are events; arguments and errors of `Table.upsert`."""
    batch = intent.batch
    sums = sums_of(rows) if batch is not None and batch.is_numbered else None
    staging = SequencedStaging(
        committer.metadata,
        rules.read(rows),
        rules,
        keys=keys,
        batch=batch,
        merge_schema=merge_schema,
        case_sensitive=False,
        may_be_empty=batch is not None,
        sums=sums,
    )
    committer.head()  # the known one may lack the key, or have another
    measure = None if sums is None else (lambda _head: sums)
    try:
        outcome = committer.commit(intent, staging.stage, measure=measure)
    except NothingToDoError:
        return ChangeResult(events=staging.event_count)
    staging.warn_of_bad(committer, outcome.snapshot)
    return staging.result(outcome.snapshot)


class SequencedStaging:
    """Stages a batch of events on one head after another."""

    def __init__(
        self,
        metadata: Metadata,
        events: Events,
        rules: EventRules,
        *,
        keys: Sequence[str] | None,
        batch: Batch | None,
        merge_schema: bool,
        case_sensitive: bool,
        may_be_empty: bool,
        sums: BatchSums | None = None,
        retried: Retried | None = None,
    ) -> None:
        """Stage events.

        Args:
            metadata: the table.
            events: the batch.
            rules: how they are treated.
            keys: the columns that name a key; None for those that the table has.
            batch: its number, to be noted in the quarantine.
            merge_schema: let the events add columns and widen types.
            case_sensitive: whether columns whose names differ in case are different ones.
            may_be_empty: whether there is something to commit if nothing changes.
            sums: those of a numbered batch.
            retried: the rows of the quarantine that the events come from.
        """
        self.counts = Counts()
        """Of the events, on the last head."""
        self.reasons: Counter[str] = Counter()
        """Why how many events were bad, on the last head; without the values in the reasons."""

        self._metadata = metadata
        self._events = events
        self._rules = rules
        self._keys = keys
        self._batch = batch
        self._merge_schema = merge_schema
        self._case_sensitive = case_sensitive
        self._may_be_empty = may_be_empty
        self._sums = sums
        self._retried = retried

    @property
    def event_count(self) -> int:
        """How many events there are."""
        return len(self._events)

    def result(self, snapshot: Snapshot) -> ChangeResult:
        """Return what the commit of `snapshot` did; nothing, if the batch was a replay."""
        if snapshot.replayed:
            return ChangeResult(snapshot=snapshot)
        counts = self.counts
        return ChangeResult(
            snapshot=snapshot,
            inserted=counts.inserted,
            updated=counts.updated,
            deleted=counts.deleted,
            events=counts.events,
            quarantined=counts.quarantined,
        )

    def warn_of_bad(self, committer: Committer, snapshot: Snapshot) -> None:
        """Log one warning if the commit of `snapshot` put events into the quarantine."""
        if snapshot.replayed or not self.counts.quarantined:
            return
        ((reason, count),) = self.reasons.most_common(1)
        path, branch = committer.metadata.store.url, committer.branch.name
        which = () if branch == MAIN else ("--branch", branch)
        fields = {
            "quarantined": self.counts.quarantined,
            "events": self.counts.events,
            "reasons": dict(self.reasons),
            "version": snapshot.version,
            "path": path,
            "branch": branch,
        }
        _log.warning(
            "%d of %d events could not be applied and are in the quarantine, %d of them because "
            "of: %s. To see them: %s",
            self.counts.quarantined,
            self.counts.events,
            count,
            reason,
            shlex.join(["fuse-stream", "quarantine", path, *which]),
            extra={"fuse": fields},
        )

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        head = on.snapshot
        fitted = self._fit(head)
        scd_type = self._rules.scd_type
        if head.sequence is None and scd_type == 1 and not head.key:
            check_unique(self._metadata, head, fitted.key)
        events = fitted.events
        reasons = fitted.flaws.copy()
        is_good = reasons == None  # noqa: E711 - of each item
        keyed = np.flatnonzero(is_good & (events.kind != TRUNCATE))
        truncates = np.flatnonzero(is_good & (events.kind == TRUNCATE))

        table = self._table(head, fitted)
        effect = table.apply(keyed, truncates)
        status = effect.status
        reasons[status == TIED], reasons[status == LATE] = TIE, TOO_LATE
        for number in np.flatnonzero(status == LACKING).tolist():
            reasons[number] = no_value(effect.lacks[number])
        bad = np.flatnonzero(reasons != None)  # noqa: E711 - of each item
        if len(bad) and not self._rules.quarantines:
            raise bad_events(events, bad, reasons)
        self.reasons = Counter(without_values(reason) for reason in reasons[bad].tolist())
        updated, hidden = count_rows(effect.updated), count_rows(effect.hidden)
        self.counts = Counts(
            inserted=len(effect.written) - updated,
            updated=updated,
            deleted=hidden - updated,
            applied=int((status == APPLIED).sum()),
            superseded=int((status == SUPERSEDED).sum()),
            duplicate=int((status == DUPLICATE).sum()),
            quarantined=len(bad),
        )
        assert self.counts.events == len(events), "an event was not counted"
        staged = self._written(head, fitted.schema, effect)
        sides = dict(table.stage_sides())
        retried, kept, solved = self._retried, bad, None
        if retried is not None:
            kept, solved = bad[:0] if retried.stays else bad, retried.solved(bad)
        if len(kept) or (solved is not None and len(solved)):
            sides[SideName.QUARANTINE] = self._quarantined(head, events, kept, reasons, solved)
        is_known = head.sequence is not None and fitted.schema == head.schema
        nothing = staged.ref is None and not staged.deletions and not sides
        goes_back = retried is not None and not retried.stays and len(bad) == len(events)
        if (goes_back and len(sides) == 1) or (nothing and retried is not None):
            raise NothingToDoError
        if nothing and is_known and not self._may_be_empty:
            raise NothingToDoError
        return dataclasses.replace(
            staged,
            key=fitted.key if scd_type == 1 else (),
            sides=sides,
            sequence=Sequenced(scd_type=scd_type, keys=fitted.key, tracked=fitted.tracked),
            counts=self.counts,
            sums=self._sums,
            is_for_one_head=True,
        )

    def _quarantined(
        self,
        head: Snapshot,
        events: Events,
        kept: np.ndarray,
        reasons: np.ndarray,
        solved: pa.Array | None,
    ) -> StagedSide:
        """Put the events with the numbers `kept`, and hide the rows with the ids `solved`."""
        metadata, hidden, rows = self._metadata, None, []
        side = side_or_empty(head, SideName.QUARANTINE)
        schema = side.schema
        if solved is not None:
            stored = StoredRows(metadata, iter_blocks(metadata, side))
            ids = stored.load(with_columns(schema, (), [ID])).column(ID)
            is_solved = pc.is_in(ids, value_set=solved).to_numpy()
            hidden = stored.positions(np.flatnonzero(is_solved))
        if len(kept):
            before = None if self._retried is None else self._retried.rows.take(pa.array(kept))
            schema, bad = quarantine(
                head, events.take(kept), reasons[kept], self._batch, metadata.clock, kept=before
            )
            rows.append(bad)
        return stage_side(metadata, head, schema, rows, hidden=hidden)

    def _table(self, head: Snapshot, fitted: FittedEvents) -> EventTable:
        made = LatestRows if self._rules.scd_type == 1 else Histories
        return made(self._metadata, head, fitted, self._rules)

    def _fit(self, head: Snapshot) -> FittedEvents:
        events = self._events
        check_type(head, self._rules.scd_type)
        schema, columns = fit_columns(
            events,
            head.schema,
            merge_schema=self._merge_schema,
            case_sensitive=self._case_sensitive,
            scd_type=self._rules.scd_type,
            ignores_nulls=self._rules.ignore_null_updates,
        )
        known = head if head.sequence is None else dataclasses.replace(head, key=head.sequence.keys)
        key = key_ids(known, schema, self._keys)
        fitted = fit(events, schema, columns, key, ignores_nulls=self._rules.ignore_null_updates)
        tracked = tracked_ids(head, fitted.data, self._rules.track_history)
        return dataclasses.replace(fitted, tracked=tracked)

    def _written(self, head: Snapshot, schema: Schema, effect: Effect) -> Staged:
        """Put the new rows, and the deletion files of those that go."""
        columns = with_ids_of(schema.columns, columns_of_arrow(effect.written.schema), lambda: 0)
        rows = adapt(effect.written, columns, schema)
        is_update = effect.is_update
        if head.cluster_key:  # here, so that it is known which row is where
            order = sort_order(rows, schema, head.cluster_key)
            rows, is_update = rows.take(order), is_update[order.to_numpy()]
        staged = stage_tables(self._metadata, head, schema, [rows])
        if not effect.hidden:
            return staged
        updated = dict(effect.updated)
        if staged.ref is not None:
            blocks = self._metadata.load_segment(staged.ref, schema.leaf_types).blocks
            updated |= marked_rows(blocks, is_update)
        deletions = stage_deletions(self._metadata, effect.hidden, updated)
        return dataclasses.replace(staged, deletions=deletions)


def tracked_ids(head: Snapshot, data: Schema, names: Sequence[str] | None) -> tuple[int, ...]:
    """Return the ids of the columns of which a change begins a new row; nothing for all columns.

    Raises:
        InvalidInputError: there is no such column, or the table tracks others.
    """
    known = {column.name: column.id for column in data.columns}
    if names is not None and (unknown := [name for name in names if name not in known]):
        raise InvalidInputError(
            "the table has no such column",
            track_history_column_list=unknown[0],
            nearest=nearest(unknown[0], known),
            columns=list(known),
        )
    wanted = None if names is None else tuple(sorted({known[name] for name in names}))
    if head.sequence is None:
        return wanted or ()
    if wanted is not None and wanted != head.sequence.tracked:
        by_id = {column: name for name, column in known.items()}
        raise InvalidInputError(
            "the history in the table was made with other tracked columns: leave "
            "track_history_column_list out, or write to a new table",
            tracked=[by_id[column] for column in head.sequence.tracked if column in by_id],
        )
    return head.sequence.tracked


def check_type(head: Snapshot, scd_type: int) -> None:
    """Raise SchemaMismatchError if the table's rows are of another kind, or cannot become so."""
    if head.sequence is None and scd_type != 1 and head.summary.row_count:
        raise SchemaMismatchError(
            "the table has rows, which are no history: write the history to a new table",
            rows=head.summary.row_count,
        )
    if head.sequence is not None and head.sequence.scd_type != scd_type:
        raise SchemaMismatchError(
            "the table stores its events in another way: pass "
            f"stored_as_scd_type={head.sequence.scd_type}, or write to a new table",
            stored_as_scd_type=scd_type,
        )


def bad_events(events: Events, at: np.ndarray, reasons: np.ndarray) -> InvalidInputError:
    """Return the error for bad events, where they are not kept; it shows some."""
    shown = []
    for number in at[:_SHOWN].tolist():
        raw = events.raw[number].as_py()
        row = raw if raw is not None else str(readable(events.rows.slice(number, 1))[0])
        shown.append(f"{reasons[number]}: {row[:_SHOWN_CHARACTERS]}")
    return InvalidInputError(
        'some events cannot be applied: mend the source, or keep them with on_bad="quarantine"',
        count=len(at),
        examples=shown,
    )
