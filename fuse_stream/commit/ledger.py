"""Judge an arriving batch by the ledger of the head: the exactly-once rule. Pure.

Rules:
- A batch is new, or proven to be a replay, or an error. No batch is dropped silently.
- A query id does not identify a checkpoint: a checkpoint can be copied, and both copies continue.
  So a later batch is new only if its own checkpoint planned the ledger's last batch from the
  offsets that the ledger holds.
- A query commits its batches in order, each under one application. If the ledger has the same or a
  later batch number of the query under another application, the batch is not new.
- Batches that are missing before a batch were empty, or are on another branch.
- A fork of a checkpoint repeats batches that the table holds, until the table is rewound as well.
- A checkpoint that was rebuilt under a new id continues after one batch of the lost query, so a
  table must hold the lost query's batches up to that batch, and no later ones.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from fuse_stream.errors import InvalidInputError, StreamIdentityError
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.forked import Ancestor
from fuse_stream.format.records import (
    Ledger,
    LedgerEntry,
    LedgerKey,
    Retirement,
    SourceOffsets,
)
from fuse_stream.format.source_offset import SourcePosition

DEFAULT_APPLICATION = "default"

EVERY = "*"
"""In `retire`: every application, also one that no existing version names any more."""

_REWIND_ALL = (
    "rewind all tables that the query writes, together with its checkpoint: "
    'fuse.rewind(["<table>", "<table>"], checkpoints={"<old>": "<new>"}), or fuse-stream rewind'
)

_NUMBERED_LOWER = (
    "a later numbered batch of this application is in the table, and batch numbers must increase "
    "(only the last batch may be repeated). To deliver batches again, first rewind the table to "
    "the batch before them: fuse.rewind(<table>, app_id=<application>, after_batch=<batch>, "
    "retire=[<application>]), or fuse-stream rewind; or give this batch its own app_id"
)

_ANEW = (
    "or start a new checkpoint under another app_id, with a source that begins after the rows that "
    "the table has: it would write those again"
)

_SET_BACK_ALONE = (
    "the checkpoint was set back without the table (Spark itself repeats only its last batch). "
    f"Restore the checkpoint (to set both back, use fuse.rewind or fuse-stream rewind); {_ANEW}"
)

_APPLICATION_CHANGED = (
    "this query has committed this batch under another application: its app_id was changed before "
    "the batch had ended. Start the query once with the app_id and writer in written_as, so that "
    "the batch ends, then change them; or, if two sinks of the query write to this table, leave "
    "the app_id and writer of the other sink as in written_as, and give this sink the same app_id "
    "and its own writer"
)


def application_of(app_id: str | None) -> str:
    """Return the application that a caller's `app_id` names; InvalidInputError if it names none."""
    given: object = DEFAULT_APPLICATION if app_id is None else app_id
    if not isinstance(given, str) or given in {"", EVERY}:
        raise InvalidInputError(
            f'app_id is a name, not empty and not "{EVERY}" (all of them); or leave it out',
            app_id=given,
        )
    return given


class Checkpoint(Protocol):
    """The checkpoint of an arriving batch; read only if the ledger does not decide."""

    def find_offsets(self, batch_id: int) -> SourceOffsets | None:
        """Return the source offsets of an earlier batch; None if Spark no longer keeps them."""
        ...

    def find_ancestors(self) -> tuple[Ancestor, ...]:
        """Return the queries from whose checkpoints this one was forked."""
        ...

    def find_rebuilt_from(self) -> Ancestor | None:
        """Return the query whose lost checkpoint was rebuilt as this one, under another id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch as it arrives."""

    application: str = DEFAULT_APPLICATION
    writer: str = ""
    query_id: str | None = None
    """Spark's id of the query; None where no query writes."""
    batch_id: int
    offsets: SourceOffsets | None = None
    """The batch's source offsets, as the checkpoint has them; None if it cannot be read."""
    sources: tuple[SourcePosition, ...] | None = None
    """The tables that the batch read, and how far; None if it read none, or that is not known."""
    adopt: str | None = None
    """The id of the query whose ledger entry this query is allowed to take over."""
    checkpoint: Checkpoint | None = field(default=None, compare=False, repr=False)
    """The checkpoint that planned the batch; None where no query writes."""

    @property
    def key(self) -> LedgerKey:
        return self.application, self.writer

    @property
    def is_numbered(self) -> bool:
        """True if a program numbers its batches, which have no source offsets."""
        return self.query_id is None


class Verdict(Enum):
    """The decision about an arriving batch."""

    NEW = "commit it"
    REPLAY = "it is in the table: write nothing"
    ADOPTED_REPLAY = "its rows are in the table, under the query whose entry it adopts"


def offsets_of(batch_id: int, text: str | None) -> SourceOffsets | None:
    """Return the source offsets of a batch from the text of its offsets file; None if no text."""
    if text is None:
        return None
    return SourceOffsets(batch_id=batch_id, sha256=sha256_hex(text.encode()), text=text)


def judge(ledger: Ledger, batch: Batch) -> Verdict:
    """Return the verdict on `batch` for a table with this ledger.

    Raises:
        StreamIdentityError: the batch is neither new nor a proven replay; says what to do.
    """
    if batch.query_id is not None and batch.query_id in ledger.retired:
        raise _retired(batch, ledger.retired[batch.query_id])
    _check_other_keys(ledger, batch)
    entry = ledger.entries.get(batch.key)
    if entry is None:
        _check_fork(ledger, batch)
        _check_rebuilt(ledger, batch)
        return Verdict.NEW
    if entry.query_id != batch.query_id:
        return _judge_adoption(ledger, entry, batch)
    return _judge_own(entry, batch)


def _judge_own(entry: LedgerEntry, batch: Batch) -> Verdict:
    """Return the verdict on a batch by the last batch of its query, or of the query it replaces."""
    if batch.batch_id > entry.batch_id:
        _check_continuity(entry, batch)
        return Verdict.NEW
    if batch.batch_id < entry.batch_id:
        raise refused(
            batch,
            _NUMBERED_LOWER if batch.query_id is None else _SET_BACK_ALONE,
            committed_batch=entry.batch_id,
            arriving_batch=batch.batch_id,
        )
    if _same_offsets(entry, batch) is False:
        raise refused(
            batch,
            "this batch was committed with other source offsets: the checkpoint was cut or "
            "restored by hand. Restore the original (to set it back together with the table, use "
            f"fuse.rewind or fuse-stream rewind); {_ANEW}",
            batch=batch.batch_id,
            committed_version=entry.version,
        )
    return Verdict.REPLAY


def _check_other_keys(ledger: Ledger, batch: Batch) -> None:
    """Raise if the query has committed the batch or a later one, but not under the batch's key.

    Several writers of one application may commit the same batch, one after another.
    """
    own = ledger.entries.get(batch.key)
    if own is not None and own.query_id != batch.query_id:
        own = None
    if batch.query_id is None or (own is not None and own.batch_id >= batch.batch_id):
        return
    for key, entry in ledger.entries.items():
        is_equal = entry.batch_id == batch.batch_id and key[0] != batch.application
        if key == batch.key or not (is_equal or entry.batch_id > batch.batch_id):
            continue
        if entry.query_id == batch.query_id or (own is None and _is_rebuilt(batch, entry)):
            raise refused(
                batch,
                _APPLICATION_CHANGED if is_equal else _SET_BACK_ALONE,
                written_as=key,
                committed_batch=entry.batch_id,
                arriving_batch=batch.batch_id,
            )
        if own is None and entry.query_id in _ancestors(batch):
            raise _rewound_alone(batch, entry)


def is_planned_otherwise(checkpoint: Checkpoint, entry: LedgerEntry) -> bool:
    """True if a checkpoint planned the batch of an entry from other source offsets.

    False also if the entry or the checkpoint no longer has the offsets.
    """
    committed = _last_offsets(entry)
    own = None if committed is None else checkpoint.find_offsets(entry.batch_id)
    return committed is not None and own is not None and own.sha256 != committed.sha256


def _ancestors(batch: Batch) -> list[str]:
    """Return the ids of the queries from whose checkpoints the batch's checkpoint was forked."""
    found = () if batch.checkpoint is None else batch.checkpoint.find_ancestors()
    return [ancestor.query_id for ancestor in found]


def _is_rebuilt(batch: Batch, entry: LedgerEntry) -> bool:
    """True if the batch's checkpoint was rebuilt from the entry's query under another id."""
    rebuilt = batch.checkpoint.find_rebuilt_from() if batch.checkpoint is not None else None
    return rebuilt is not None and rebuilt.query_id == entry.query_id


def heirs_of(ledger: Ledger, query_id: str) -> tuple[str | None, ...]:
    """Return the successors of a query in the ledger, oldest first; only the last one may write.

    The last one is None if the application was retired without a successor.
    """
    heirs: list[str | None] = []
    heir: str | None = query_id
    for _ in ledger.retired:
        if heir is None or heir not in ledger.retired:
            break
        heir = ledger.retired[heir].fork
        heirs.append(heir)
    return tuple(heirs)


def _check_fork(ledger: Ledger, batch: Batch) -> None:
    """Raise if the batch is from another fork than the one with which the table was rewound.

    A rewind to before the first batch leaves no ledger entry. If the checkpoint of the fork was
    lost, another query may replace it with `adopt`.
    """
    if batch.checkpoint is None or not ledger.retired:
        return
    former = (*_ancestors(batch), *([batch.adopt] if batch.adopt else ()))
    for query in former:
        heirs = heirs_of(ledger, query)
        is_adopted = batch.adopt is not None and batch.adopt in {query, *heirs}
        is_free = heirs[-1:] in {(), (batch.query_id,)} or (
            is_adopted and heirs[-1] in {None, batch.adopt}
        )
        if not is_free:
            raise refused(
                batch,
                "this table was rewound with another fork of the checkpoint, and may lack batches "
                "that this fork counts as done. Run the query of the other fork; or "
                f"{_REWIND_ALL}",
                arriving=batch.query_id,
                arriving_batch=batch.batch_id,
                fork=heirs[-1],
            )


def _check_rebuilt(ledger: Ledger, batch: Batch) -> None:
    """Raise unless the table holds the same batches of a lost query as its rebuilt checkpoint.

    Only a checkpoint that was rebuilt under another id is checked.
    """
    rebuilt = batch.checkpoint.find_rebuilt_from() if batch.checkpoint is not None else None
    if rebuilt is None:
        return
    held = [
        entry.batch_id for entry in ledger.entries.values() if entry.query_id == rebuilt.query_id
    ]
    passed = ledger.retired.get(rebuilt.query_id)
    is_set_back = passed is not None and passed.fork is None
    last = max(held, default=-1)
    if last > rebuilt.through:
        raise refused(
            batch,
            "the checkpoint of this query was rebuilt without this table, which holds later "
            "batches of the lost query: the query would commit their rows again. Rewind the table "
            "to the last batch of the rebuilt checkpoint: fuse.rewind(<table>, "
            "app_id=<application>, after_batch=<batch>, retire=[<application>]), or fuse-stream "
            "rewind",
            arriving_batch=batch.batch_id,
            query=rebuilt.query_id,
            written_batch=last,
            after_batch=rebuilt.through,
        )
    if is_set_back and last != rebuilt.through:
        raise refused(
            batch,
            "this table was rewound to an earlier batch than the last one of the rebuilt "
            "checkpoint, and the batches in between would be lost. Rewind all tables of the query "
            "to one batch that each of them holds, and rebuild the checkpoint from all of them",
            query=rebuilt.query_id,
            written_batch=last if held else None,
            after_batch=rebuilt.through,
        )


def _judge_adoption(ledger: Ledger, entry: LedgerEntry, batch: Batch) -> Verdict:
    if entry.query_id in _ancestors(batch):
        raise _rewound_alone(batch, entry)
    _check_rebuilt(ledger, batch)
    if batch.adopt is None or batch.adopt != entry.query_id:
        raise _of_another(batch, entry, _why_another(batch, entry))
    if _is_rebuilt(batch, entry):
        verdict = _judge_own(entry, batch)
        return Verdict.ADOPTED_REPLAY if verdict is Verdict.REPLAY else verdict
    if not _is_planned_alike(batch, entry.offsets):
        return Verdict.NEW
    if batch.batch_id < entry.batch_id:
        raise _rewound_alone(batch, entry)  # a copy of the other's checkpoint, set back
    return Verdict.ADOPTED_REPLAY


def _check_continuity(entry: LedgerEntry, batch: Batch) -> None:
    """Raise if the checkpoint planned the ledger's last batch from other source offsets."""
    if batch.checkpoint is not None and is_planned_otherwise(batch.checkpoint, entry):
        raise refused(
            batch,
            "this checkpoint planned the last committed batch from other source offsets: the "
            "checkpoint was copied, or its query runs twice, and the other query has written to "
            "the table. Stop this query, and continue with the checkpoint whose batch is in the "
            "table; or set table and checkpoint back together with fuse.rewind or fuse-stream "
            "rewind",
            committed_batch=entry.batch_id,
            committed_version=entry.version,
            arriving_batch=batch.batch_id,
        )


def check_replayed_rows(entry: LedgerEntry, batch: Batch, sums: BatchSums) -> None:
    """Raise unless the rows of `batch` are those that the table has under its number.

    Raises:
        StreamIdentityError: they are other rows; nothing was committed.
    """
    if sums.fingerprint != entry.fingerprint:
        raise refused(
            batch,
            "other rows were committed under this batch_id, and the ones that arrived were not "
            "written. If they are new, give them the next batch_id (a RecordBatchReader that was "
            "read before has no rows any more). If they are to take the place of the committed "
            "ones, first rewind the table to the batch before: fuse.rewind(<table>, "
            "app_id=<application>, after_batch=<batch>, retire=[<application>]), or fuse-stream "
            "rewind",
            batch=batch.batch_id,
            committed_version=entry.version,
            committed_rows=entry.rows,
            arriving_rows=sums.rows,
        )


def enter(
    ledger: Ledger,
    batch: Batch,
    *,
    rows: int,
    version: int,
    timestamp_us: int,
    fingerprint: str | None = None,
) -> Ledger:
    """Return the ledger of snapshot `version`, which commits `batch`."""
    old = ledger.entries.get(batch.key)
    retired = ledger.retired
    offsets = () if batch.offsets is None else (batch.offsets,)
    if old is not None and old.query_id == batch.query_id:
        before = (item for item in old.offsets if item.batch_id == batch.batch_id - 1)
        offsets = (*before, *offsets)
    elif old is not None and old.query_id is not None:
        passed = Retirement(application=batch.application, version=version, fork=batch.query_id)
        retired = {**retired, old.query_id: passed}
    entry = LedgerEntry(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        offsets=offsets,
        sources=batch.sources,
        rows=rows,
        fingerprint=fingerprint,
        version=version,
        timestamp_us=timestamp_us,
    )
    return Ledger(entries={**ledger.entries, batch.key: entry}, retired=retired)


def forget(ledger: Ledger, application: str) -> Ledger:
    """Return the ledger without the entries of `application`; its retired queries stay retired."""
    entries = {key: entry for key, entry in ledger.entries.items() if key[0] != application}
    return dataclasses.replace(ledger, entries=entries)


def _same_offsets(entry: LedgerEntry, batch: Batch) -> bool | None:
    """True if entry and batch have the same source offsets; None if either has none."""
    committed = _last_offsets(entry)
    if committed is None or batch.offsets is None:
        return None
    return committed.sha256 == batch.offsets.sha256


def _last_offsets(entry: LedgerEntry) -> SourceOffsets | None:
    return next((item for item in entry.offsets if item.batch_id == entry.batch_id), None)


def _is_planned_alike(batch: Batch, committed: tuple[SourceOffsets, ...]) -> bool:
    """True if one of the committed batches has the number and the source offsets of `batch`."""
    own = batch.offsets
    return own is not None and any(
        (item.batch_id, item.sha256) == (batch.batch_id, own.sha256) for item in committed
    )


def _why_another(batch: Batch, entry: LedgerEntry) -> str:
    if batch.query_id is None:
        return (
            "a query has written under this application, and numbered batches cannot continue it: "
            "give the batches their own app_id"
        )
    if entry.query_id is None:
        return (
            "a program has written numbered batches under this application, and a query cannot "
            "continue them: give the query its own app_id"
        )
    remedies = ["give a second query its own app_id", "restore the checkpoint", _REWIND_ALL]
    if not 0 < batch.batch_id <= entry.batch_id:  # otherwise the query may be behind the table
        remedies.append(
            "if its sources start where the other query's last batch ended, pass "
            "adopt=<the query id in written_by>"
        )
    return (
        "another query has written under this application: a second query, or the query of a "
        "checkpoint that was deleted, forked, or never given (option checkpointLocation). "
        f"Choose one: {'; or '.join(remedies)}"
    )


def _rewound_alone(batch: Batch, entry: LedgerEntry) -> StreamIdentityError:
    return _of_another(
        batch,
        entry,
        "the checkpoint of this query was set back, and this table was not: the query would "
        f"commit rows again that the table holds. To finish, {_REWIND_ALL} (the earlier call, with "
        "this table added); or, if the query ran on a branch of its tables, publish that branch of "
        "this table too; or, if this table is a clone of a table that was set back, clone that "
        "again; or, if this branch ends before the batch after which the checkpoint was forked, "
        "rewind it to written_batch with this checkpoint",
    )


def refused(batch: Batch, message: str, /, **context: object) -> StreamIdentityError:
    """Return the error for a batch that is neither new nor a replay."""
    return StreamIdentityError(
        message, application=batch.application, writer=batch.writer, **context
    )


def _of_another(batch: Batch, entry: LedgerEntry, message: str) -> StreamIdentityError:
    return refused(
        batch,
        message,
        written_by=entry.query_id,
        written_batch=entry.batch_id,
        arriving=batch.query_id,
        arriving_batch=batch.batch_id,
    )


def _retired(batch: Batch, retirement: Retirement) -> StreamIdentityError:
    return StreamIdentityError(
        "this query was retired: the table was rewound, or another query replaced it. Run the "
        f"query of the fork; {_ANEW}",
        application=retirement.application,
        query=batch.query_id,
        retired_by_version=retirement.version,
        fork=retirement.fork,
    )
