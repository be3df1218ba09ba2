"""The exactly-once rule. Pure: what an arriving batch is, given the ledger of the head.

Rule: a batch is new, or it is proven to be a replay, or it is an error. Never silence.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum

from fuse_stream.errors import StreamIdentityError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.records import (
    Ledger,
    LedgerEntry,
    LedgerKey,
    Retirement,
    SourceOffsets,
)

DEFAULT_APPLICATION = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch as it arrives."""

    application: str = DEFAULT_APPLICATION
    writer: str = ""
    query_id: str | None = None
    """Spark's id of the query; None where no query writes."""
    batch_id: int
    offsets: SourceOffsets | None = None
    """What the checkpoint says that the batch holds; None if it cannot be read."""
    adopt: str | None = None
    """The query id whose entry the user passes to this query."""

    @property
    def key(self) -> LedgerKey:
        return self.application, self.writer


class Verdict(Enum):
    """What to do with a batch."""

    NEW = "commit it"
    REPLAY = "it is in the table: write nothing"
    ADOPTED_REPLAY = "its rows are in the table, under the query whose entry it adopts"


def offsets_of(batch_id: int, text: str | None) -> SourceOffsets | None:
    """Return the text of a checkpoint's offsets file as the ledger holds it."""
    if text is None:
        return None
    return SourceOffsets(batch_id=batch_id, sha256=sha256_hex(text.encode()), text=text)


def judge(ledger: Ledger, batch: Batch) -> Verdict:
    """Return what `batch` is to a table with this ledger.

    Raises:
        StreamIdentityError: it is neither new nor a proven replay; the message says what to do.
    """
    if batch.query_id is not None and batch.query_id in ledger.retired:
        raise _retired(batch, ledger.retired[batch.query_id])
    entry = ledger.entries.get(batch.key)
    if entry is None:
        return Verdict.NEW
    if entry.query_id != batch.query_id:
        if batch.adopt is None or batch.adopt != entry.query_id:
            raise _another_query(batch, entry)
        same = batch.batch_id == entry.batch_id and _same_offsets(entry, batch) is True
        return Verdict.ADOPTED_REPLAY if same else Verdict.NEW
    if batch.batch_id > entry.batch_id:
        return Verdict.NEW
    if batch.batch_id < entry.batch_id:
        raise StreamIdentityError(
            "the checkpoint was set back without the table (Spark replays its last batch only); "
            "restore the checkpoint as it was, and set both back together with fuse.rewind or "
            "fuse-stream rewind; or start a new one under another app_id",
            application=batch.application,
            writer=batch.writer,
            committed_batch=entry.batch_id,
            arriving_batch=batch.batch_id,
        )
    if _same_offsets(entry, batch) is False:
        raise StreamIdentityError(
            "this batch was committed with other source offsets: the checkpoint was cut or "
            "restored by hand. Restore it as it was, and set it back together with the table with "
            "fuse.rewind or fuse-stream rewind; or start a new one under another app_id",
            application=batch.application,
            writer=batch.writer,
            batch=batch.batch_id,
            committed_version=entry.version,
        )
    return Verdict.REPLAY


def enter(ledger: Ledger, batch: Batch, *, rows: int, version: int, timestamp_us: int) -> Ledger:
    """Return the ledger of the snapshot `version`, which commits `batch`."""
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
        rows=rows,
        version=version,
        timestamp_us=timestamp_us,
    )
    return Ledger(entries={**ledger.entries, batch.key: entry}, retired=retired)


def forget(ledger: Ledger, application: str) -> Ledger:
    """Return the ledger without the entries of `application`; its retired queries stay so."""
    entries = {key: entry for key, entry in ledger.entries.items() if key[0] != application}
    return dataclasses.replace(ledger, entries=entries)


def _same_offsets(entry: LedgerEntry, batch: Batch) -> bool | None:
    """Whether entry and batch hold the same source offsets; None where either is unknown."""
    committed = next((item for item in entry.offsets if item.batch_id == entry.batch_id), None)
    if committed is None or batch.offsets is None:
        return None
    return committed.sha256 == batch.offsets.sha256


def _another_query(batch: Batch, entry: LedgerEntry) -> StreamIdentityError:
    return StreamIdentityError(
        "another query has written under this application: a second query, or a checkpoint that "
        "was deleted. Give this query its own app_id; or, if it goes on in the other's place, pass "
        "adopt=<the query id in written_by>; or restore the checkpoint; or set table and "
        "checkpoint back together with fuse.rewind or fuse-stream rewind",
        application=batch.application,
        writer=batch.writer,
        written_by=entry.query_id,
        written_batch=entry.batch_id,
        arriving=batch.query_id,
        arriving_batch=batch.batch_id,
    )


def _retired(batch: Batch, retirement: Retirement) -> StreamIdentityError:
    return StreamIdentityError(
        "this query was retired: the table was rewound, or another query took its place; run the "
        "query of the fork, or start a new checkpoint under another app_id",
        application=retirement.application,
        query=batch.query_id,
        retired_by_version=retirement.version,
        fork=retirement.fork,
    )
