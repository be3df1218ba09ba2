"""What a rewind of several tables does not set back: refused, or told in the report.

A query also reads what is not one of the tables: tables that are not named, files, topics. Its fork
reads them again from where its last batch ended. A table also has rows that no forked query wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fuse_stream.checkpoint.files import load_offsets
from fuse_stream.checkpoint.offsets import parse_offsets
from fuse_stream.errors import FuseError, SnapshotExpiredError, StreamIdentityError
from fuse_stream.format.records import LedgerEntry
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.objects.slots import Metadata
from fuse_stream.recovery.closure import Closure, Planned
from fuse_stream.recovery.pipeline import Member

OpenSource = Callable[[str], Metadata]
"""Returns the metadata of the table at a path that a ledger names."""


def check_named(closure: Closure, members: Sequence[Member]) -> None:
    """Raise unless the checkpoints of all queries that have read undone versions are named.

    Raises:
        StreamIdentityError: a query without a fork wrote to one of the tables what it had read from
            versions that go back.
    """
    for member, application, entry in _unforked(closure, members):
        undone = [one for one in entry.sources or () if not closure.is_kept(one.offset)]
        if undone:
            raise StreamIdentityError(
                "a query has written to this table what it read from versions that go back, and "
                "its checkpoint is not named: add it to checkpoints; or rewind this table alone "
                "before, with the application in retire; or, if the table shall stay as it is, "
                "leave the table out",
                table=member.url,
                app_id=application,
                query=entry.query_id,
                has_read=undone[0].name,
            )


def iter_notes(
    closure: Closure, members: Sequence[Member], open_source: OpenSource | None
) -> Iterator[str]:
    """Yield what the caller must know before the tables go back, a sentence each.

    Raises:
        SnapshotExpiredError: a fork would read versions of another table that have expired.
    """
    for planned in closure.planned:
        yield from _notes_on(closure, planned, open_source)
    left = [
        member
        for member in members
        if not any(member.is_written_by(one.forked) for one in closure.planned)
    ]
    for member in left:
        if not member.is_first:
            yield f"{member.url} stays as it is: no checkpoint of a query that writes it is named"
    for member, application, entry in _unforked(closure, members):
        if entry.query_id is not None or member.is_first or member in left:
            continue
        kept = closure.target_of(member).snapshot.ledger.entries.values()
        if entry in kept:
            yield f"{member.url} keeps the rows of {application!r}, which no query has written"
        else:
            yield (
                f"{member.url} loses batches of {application!r}, which no query has written: "
                "deliver them again"
            )


def _notes_on(closure: Closure, planned: Planned, open_source: OpenSource | None) -> Iterator[str]:
    checkpoint, batch = planned.query.checkpoint, planned.cut.offsets_through
    if not closure.reads_of(planned) or batch is None:
        return
    of_it = f"the query of {checkpoint.url}"
    if checkpoint.is_stateful:
        yield (
            f"{of_it} has state, which goes back with it: if it reads feed=changes, it must "
            "deduplicate by _change_type too"
        )
    read = planned.read_by(batch)
    for position in read:
        if closure.is_outside(position.offset):
            found = closure.named(position)
            problem = _check_kept(found, open_source)
            yield f"{of_it} goes on in {found.name}: that table is not rewound{problem}"
    lines = parse_offsets(load_offsets(planned.query.source, batch)).lines
    if len(lines) > len(read):
        yield f"{of_it} reads its other sources again from where batch {batch} ended"


def _unforked(
    closure: Closure, members: Sequence[Member]
) -> Iterator[tuple[Member, str, LedgerEntry]]:
    """Yield the ledger entries of writers without a fork, with table and application."""
    for member in members:
        ledger = member.head.snapshot.ledger
        forked = {key for one in closure.planned for key in one.forked.keys(ledger)}
        for key, entry in sorted(ledger.entries.items()):
            if key not in forked:
                yield member, key[0], entry


def _check_kept(position: SourcePosition, open_source: OpenSource | None) -> str:
    """Raise if a table that is not rewound has lost the versions after a position.

    Returns why it cannot be looked at, for the end of a sentence; nothing if it can.
    """
    if open_source is None or position.path is None or position.offset.is_undecided:
        return ""
    try:
        metadata = open_source(position.path)
        head = metadata.load_head(position.offset.branch_id).snapshot
    except FuseError as error:
        return f" (it cannot be opened: {error.message})"
    if head.table_id == position.offset.table_id and position.version + 1 < head.floor:
        raise SnapshotExpiredError(
            "a fork would read versions of another table that have expired: choose a later target",
            source=position.path,
            version=position.version + 1,
            first=head.floor,
        )
    return ""
