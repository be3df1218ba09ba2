"""Apply messages of which the quarantine has only the text, after they were read again.

Rules:
- A message is done if the reader made at least one event of it and all of its events are good. Its
  rows then leave the quarantine in the commit that applies the events. A message of which the
  reader makes nothing stays: a filter in the reader must not lose it.
- Rows from the same place of the source are one message, whatever their text is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.dml.event_sides import ID, OP, RAW, Retried, is_text_alone
from fuse_stream.dml.events import SOURCE, Events
from fuse_stream.dml.result import ChangeResult
from fuse_stream.dml.retry import kept_events, rules_of
from fuse_stream.dml.sequenced import SequencedStaging
from fuse_stream.errors import InvalidInputError
from fuse_stream.format import raw_text
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Metadata, Stored

KAFKA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
"""The columns of messages."""

_KEPT_SOURCE = "source"
_PLACE = re.compile(r"(.*)/(-?[0-9]{1,9})?/(-?[0-9]{1,18})?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Messages in the quarantine."""

    frame: pa.Table
    """Each distinct message, with the columns of `KAFKA`."""
    ids: pa.Array
    """The ids of their rows."""
    places: tuple[str, ...]
    """For each row the place of its message: an event of the message has it as its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """How messages that were read again are applied."""

    too_late: bool = False
    """Apply events that came after their key was forgotten."""
    ignore_null_updates: bool = False
    merge_schema: bool = False
    case_sensitive: bool = False
    """Columns whose names differ in case are different ones."""


def find_messages(metadata: Metadata, head: Snapshot, where: str | None) -> Messages:
    """Return the messages that have a row that matches, with all of their rows.

    Raises:
        InvalidInputError: an unknown column or a broken predicate.
    """
    rows = _text_rows(metadata, head, None)
    frame: dict[tuple[str | None, str], dict[str, object]] = {}
    places: list[str] = []
    pairs = zip(rows.column(_KEPT_SOURCE).to_pylist(), rows.column(RAW).to_pylist(), strict=True)
    for source, raw in pairs:
        message = frame.setdefault((source, raw), _message(source, raw, len(frame)))
        places.append(_place(message))
    ids = rows.column(ID).combine_chunks()
    if where is not None:
        matching = pc.is_in(ids, value_set=_ids(_text_rows(metadata, head, where))).to_pylist()
        wanted = {place for place, matches in zip(places, matching, strict=True) if matches}
        ids = ids.filter(pa.array([place in wanted for place in places], pa.bool_()))
        places = [place for place in places if place in wanted]
        frame = {at: message for at, message in frame.items() if _place(message) in wanted}
    found = pa.Table.from_pylist(list(frame.values()), schema=KAFKA)
    return Messages(frame=found, ids=ids, places=tuple(places))


def apply_messages(
    committer: Committer, messages: Messages, events: Events, how: Reread, intent: Intent
) -> ChangeResult:
    """Apply the events that a reader made of messages; bad ones stay in the quarantine as text.

    Raises:
        InvalidInputError: an event names none of the messages as its source.
        SchemaMismatchError, CorruptObjectError, ConflictError, CommitStateUnknownError: as
            `Table.upsert`.
    """
    numbers = {place: number for number, place in enumerate(dict.fromkeys(messages.places))}
    sources = events.source.to_pylist()
    if strange := next((source for source in sources if source not in numbers), ""):
        raise InvalidInputError(
            f"the reader made an event of none of the messages that it was given: leave {SOURCE} "
            "as from_debezium and its siblings make it, and the columns topic, partition and "
            "offset as they are",
            source=strange,
        )
    of_event = np.array([numbers.get(source, -1) for source in sources], np.int64)
    of_row = np.array([numbers[place] for place in messages.places], np.int64)
    metadata = committer.metadata
    staging: SequencedStaging | None = None

    def stage(on: Stored, before: Staged | None) -> Staged:
        nonlocal staging
        staging = None
        kept = _ids(_text_rows(metadata, on.snapshot, None))
        # Others may have retried some meanwhile, or rewound the table to before it had them.
        is_kept = pc.is_in(messages.ids, value_set=kept).to_numpy(zero_copy_only=False)
        is_wanted = np.isin(of_event, of_row[is_kept])
        is_read = is_kept & np.isin(of_row, of_event)
        sequence = on.snapshot.sequence
        if not is_wanted.any() or sequence is None:
            raise NothingToDoError
        staging = SequencedStaging(
            metadata,
            events.take(np.flatnonzero(is_wanted)),
            rules_of(sequence, forgives=how.too_late, ignore_null_updates=how.ignore_null_updates),
            keys=None,
            batch=None,
            merge_schema=how.merge_schema,
            case_sensitive=how.case_sensitive,
            may_be_empty=False,
            retried=Retried(
                rows=pa.table({ID: messages.ids.filter(pa.array(is_read))}),
                of_row=of_row[is_read],
                of_event=of_event[is_wanted],
                stays=True,
            ),
        )
        return staging.stage(on, before)

    try:
        outcome = committer.commit(intent, stage)
    except NothingToDoError:
        if staging is None:
            return ChangeResult()
        counts = staging.counts
        return ChangeResult(events=counts.events, quarantined=counts.quarantined)
    assert staging is not None
    return staging.result(outcome.snapshot)


def _text_rows(metadata: Metadata, head: Snapshot, where: str | None) -> pa.Table:
    """Return id, text and source of the rows of the quarantine that have no values."""
    rows = kept_events(metadata, head, where, (ID, OP, RAW, _KEPT_SOURCE))
    return rows.filter(is_text_alone(rows))


def _ids(rows: pa.Table) -> pa.Array:
    return rows.column(ID).combine_chunks()


def _message(source: str | None, raw: str, number: int) -> dict[str, object]:
    known = None if source is None else _PLACE.fullmatch(source)
    topic, partition, offset = (source, None, None) if known is None else known.groups()
    if offset is None:
        # Without a place in Kafka: a partition that Kafka does not have tells messages apart.
        partition = -1 - number
    return {
        "value": raw_text.bytes_of(raw),
        "topic": topic or None,
        "partition": None if partition is None else int(partition),
        "offset": None if offset is None else int(offset),
    }


def _place(message: dict[str, object]) -> str:
    """Return the source of the events that a reader makes of a message, as text."""
    parts = (message[name] for name in ("topic", "partition", "offset"))
    return "/".join("" if part is None else str(part) for part in parts)
