"""What must hold between a head and the snapshot that is about to follow it.

Each rule is a named pure function that returns what is wrong, or None. All are checked before
every publish: a snapshot that breaks one is a bug, and must not become a table's history.
"""

from __future__ import annotations

from collections.abc import Callable

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.records import Operation, Snapshot

_KEEPS_ROWS = frozenset({Operation.COMPACT, Operation.RECLUSTER, Operation.ALTER, Operation.EXPIRE})
_MAY_SET_LEDGER_BACK = frozenset({Operation.REWIND, Operation.PUBLISH})
_MAY_DROP_ENTRIES = frozenset(
    {Operation.REWIND, Operation.PUBLISH, Operation.ALTER, Operation.EXPIRE}
)


def version_follows(head: Snapshot, new: Snapshot) -> str | None:
    if new.version != head.version + 1 or new.branch_id != head.branch_id:
        return f"version {new.version} does not follow {head.version}"
    return None if new.table_id == head.table_id else "the table's id changed"


def parent_is_head(head: Snapshot, new: Snapshot) -> str | None:
    parent = new.parent
    if parent is None or (parent.branch_id, parent.version) != (head.branch_id, head.version):
        return "the parent is not the head"
    return None if new.prev_snapshot_id == head.snapshot_id else "prev_snapshot_id is not the head"


def time_grows(head: Snapshot, new: Snapshot) -> str | None:
    return None if new.timestamp_us > head.timestamp_us else "the timestamp does not grow"


def counts_add_up(_head: Snapshot, new: Snapshot) -> str | None:
    rows = sum(ref.row_count for ref in new.segments)
    blocks = sum(ref.block_count for ref in new.segments)
    if (rows, blocks) != (new.summary.row_count, new.summary.block_count):
        return f"the segments hold {rows} rows in {blocks} blocks, the summary says otherwise"
    return None


def segments_are_unique(_head: Snapshot, new: Snapshot) -> str | None:
    ids = [ref.id for ref in new.segments]
    return None if len(set(ids)) == len(ids) else "a segment stands twice"


def rows_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    if new.operation not in _KEEPS_ROWS or new.summary.row_count == head.summary.row_count:
        return None
    return f"{new.operation} changed the number of rows"


def floor_and_epoch_stand(head: Snapshot, new: Snapshot) -> str | None:
    fell = new.floor < head.floor or new.epoch < head.epoch
    return "floor or epoch fell" if fell else None


def column_ids_stand(head: Snapshot, new: Snapshot) -> str | None:
    if new.schema.last_column_id < head.schema.last_column_id:
        return "column ids would be given again"
    changed = new.schema.columns != head.schema.columns
    return (
        "the schema changed under its id" if changed and new.schema.id == head.schema.id else None
    )


def ledger_stands(head: Snapshot, new: Snapshot) -> str | None:
    for key, entry in head.ledger.entries.items():
        now = new.ledger.entries.get(key)
        if now is None:
            if new.operation not in _MAY_DROP_ENTRIES:
                return f"the ledger entry {key} vanished"
        elif now.query_id == entry.query_id:
            back = now.batch_id < entry.batch_id or now.version < entry.version
            if back and new.operation not in _MAY_SET_LEDGER_BACK:
                return f"the ledger entry {key} went back"
        elif entry.query_id not in new.ledger.retired and new.operation not in _MAY_SET_LEDGER_BACK:
            return f"the ledger entry {key} passed to another query unretired"
    lost = head.ledger.retired.keys() - new.ledger.retired.keys()
    return f"retired queries vanished: {sorted(lost)}" if lost else None


RULES: tuple[Callable[[Snapshot, Snapshot], str | None], ...] = (
    version_follows,
    parent_is_head,
    time_grows,
    counts_add_up,
    segments_are_unique,
    rows_are_kept,
    floor_and_epoch_stand,
    column_ids_stand,
    ledger_stands,
)


def check(head: Snapshot, new: Snapshot) -> None:
    """Refuse to publish `new` after `head` if any rule is broken.

    Raises:
        CorruptObjectError: names the rule and what is wrong.
    """
    for rule in RULES:
        if wrong := rule(head, new):
            raise CorruptObjectError(
                "this commit would break the table and was not published; please report it",
                rule=rule.__name__,
                reason=wrong,
            )
