"""Rules that must hold between a head and the snapshot that is to follow it.

Each rule is a named pure function that returns what is wrong, or None. All are checked before
each put of a slot: a snapshot that breaks a rule shows a bug, and must not be committed.
"""

from __future__ import annotations

from collections.abc import Callable

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.operations import CHANGES_ROWS, KEEPS_ROWS
from fuse_stream.format.records import TAKES_CONTENT, Operation, Snapshot
from fuse_stream.format.sides import row_lists, side_views
from fuse_stream.format.stats import contains

_MAY_SET_LEDGER_BACK = frozenset({Operation.REWIND, Operation.PUBLISH})
_KEEPS_HIDDEN = CHANGES_ROWS | {
    Operation.APPEND,
    Operation.ALTER,
    Operation.EXPIRE,
    Operation.INDEX,
}
"""Operations that may hide rows, and show none that were hidden."""
_KEEPS_BOUNDS = frozenset({Operation.APPEND, Operation.ALTER, Operation.INDEX})
"""Operations that remove no extreme value."""
_KEEPS_BLOCKS_OF_SIDES = _KEEPS_HIDDEN | {Operation.OVERWRITE}
"""Operations that may bring blocks to sides and hide rows of them, no more."""
_MAY_DROP_ENTRIES = frozenset(
    {Operation.REWIND, Operation.PUBLISH, Operation.ALTER, Operation.EXPIRE}
)


def version_follows(head: Snapshot, new: Snapshot) -> str | None:
    if new.version != head.version + 1:
        return f"version {new.version} does not follow {head.version}"
    # The first commit of another branch follows the snapshot that it forked off.
    if new.branch_id != head.branch_id and new.branch_id == MAIN:
        return f"main does not fork off branch {head.branch_id}"
    return None if new.table_id == head.table_id else "the table's id changed"


def parent_is_head(head: Snapshot, new: Snapshot) -> str | None:
    parent = new.parent
    if parent is None or (parent.branch_id, parent.version) != (head.branch_id, head.version):
        return "the parent is not the head"
    return None if new.prev_snapshot_id == head.snapshot_id else "prev_snapshot_id is not the head"


def parent_hash_is_heads(head_sha256: str, new: Snapshot) -> str | None:
    stated = new.parent.sha256 if new.parent else None
    return None if stated == head_sha256 else "the parent's hash is not the head's"


def time_grows(head: Snapshot, new: Snapshot) -> str | None:
    return None if new.timestamp_us > head.timestamp_us else "the timestamp does not grow"


def counts_add_up(_head: Snapshot, new: Snapshot) -> str | None:
    return _first(*map(_counts_add_up, row_lists(new)))


def _counts_add_up(new: Snapshot) -> str | None:
    rows = new.stored_rows - new.hidden_rows
    blocks = sum(ref.block_count for ref in new.segments)
    if (rows, blocks) != (new.summary.row_count, new.summary.block_count):
        return f"there are {rows} rows in {blocks} blocks, the summary says otherwise"
    return None if rows >= 0 else "more rows are hidden than there are"


def bounds_contain(head: Snapshot, new: Snapshot) -> str | None:
    stats = new.summary.col_stats
    if new.operation in _KEEPS_BOUNDS:
        for column, old in head.summary.col_stats.items():
            if column not in new.schema.leaf_types:
                continue  # dropped
            now = stats.get(column)
            empty = old.null_count + old.nan_count >= head.stored_rows
            if now is None or not (
                contains(now, old.min, old.max) or (empty and old.min is None and old.max is None)
            ):
                return f"the bounds of column {column} do not contain those of the head"
    for ref in new.segments:
        parts = ref.key_range
        for column, low, high in (
            zip(parts.columns, parts.min, parts.max, strict=True) if parts else ()
        ):
            known = stats.get(column)
            if known and not contains(
                known, known.min if low is None else low, known.max if high is None else high
            ):
                return f"the bounds of column {column} do not contain those of segment {ref.id}"
    return None


def added_are_new(head: Snapshot, new: Snapshot) -> str | None:
    added = set(new.added)
    if added - {ref.id for ref in new.segments}:
        return "an added segment is missing from the list of segments"
    is_old = bool(added & {ref.id for ref in head.segments})
    return "an added segment was in the head already" if is_old else None


def segments_are_unique(_head: Snapshot, new: Snapshot) -> str | None:
    lists = row_lists(new)
    ids = [ref.id for held in lists for ref in held.segments]
    return None if len(set(ids)) == len(ids) else "a segment is listed twice"


def deletion_files_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    lists = row_lists(new)
    ids = [ref.id for held in lists for ref in held.deletion_files]
    if len(set(ids)) < len(ids):
        return "a deletion file is listed twice"
    added = set(new.deletion_files_added)
    if added - _hiding_ids(new) or added & _hiding_ids(head):
        return "an added deletion file is missing from the list, or was in the head already"
    kept = new.hidden_rows - sum(ref.row_count for ref in new.deletion_files if ref.id in added)
    # The first commit of a clone brings what its origin hides.
    if new.operation in _KEEPS_HIDDEN and head.segments and kept != head.hidden_rows:
        return f"{new.operation} changed which rows are hidden"
    return None


def _hiding_ids(snapshot: Snapshot) -> set[str]:
    return {ref.id for ref in snapshot.deletion_files}


def rows_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    if new.operation not in KEEPS_ROWS or new.summary.row_count == head.summary.row_count:
        return None
    return f"{new.operation} changed the number of rows"


def erasure_adds_no_row(head: Snapshot, new: Snapshot) -> str | None:
    if new.operation is not Operation.ERASE:
        return None
    before = {name: view.summary.row_count for name, view in side_views(head).items()}
    adds = new.summary.row_count > head.summary.row_count or any(
        view.summary.row_count > before.get(name, 0) for name, view in side_views(new).items()
    )
    return "an erasure added rows" if adds else None


def sides_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    if new.operation in KEEPS_ROWS and new.sides.keys() - head.sides.keys():
        return f"{new.operation} brought a side"
    after = side_views(new)
    for name, before in side_views(head).items():
        now = after.get(name)
        rows = now.summary.row_count if now else 0
        if new.operation in KEEPS_ROWS and rows != before.summary.row_count:
            return f"{new.operation} changed the number of rows of side {name}"
        if new.operation in _KEEPS_BLOCKS_OF_SIDES and (
            now is None
            or now.stored_rows < before.stored_rows
            or now.hidden_rows < before.hidden_rows
        ):
            return f"{new.operation} took rows out of side {name}, or showed hidden ones"
    return None


def indexes_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    # The first commit of a clone brings its indexes; an erasure drops parts.
    may_change = new.operation in {Operation.INDEX, Operation.ERASE} or head.version == 0
    is_kept = may_change or new.index_list == head.index_list
    return None if is_kept else f"{new.operation} changed the indexes"


def floor_and_epoch_do_not_fall(head: Snapshot, new: Snapshot) -> str | None:
    fell = new.floor < head.floor or new.epoch < head.epoch
    return "floor or epoch fell" if fell else None


def column_ids_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    before, after = side_views(head), side_views(new)
    both = sorted(before.keys() & after.keys())
    flaw = _first(*(_column_ids_are_kept(before[name], after[name]) for name in both))
    if flaw is None and new.operation not in TAKES_CONTENT:
        for name in both:
            if lost := _leaf_ids(before[name]) - _leaf_ids(after[name]):
                flaw = f"side {name} lost the columns {sorted(lost)}"
    return _first(_column_ids_are_kept(head, new), flaw)


def _leaf_ids(snapshot: Snapshot) -> set[int]:
    return set(snapshot.schema.leaf_types)


def _column_ids_are_kept(head: Snapshot, new: Snapshot) -> str | None:
    if new.schema.last_column_id < head.schema.last_column_id:
        return "the id of a dropped column could be given to a new one"
    changed = new.schema.columns != head.schema.columns
    return (
        "the schema changed under its id" if changed and new.schema.id == head.schema.id else None
    )


def ledger_is_kept(head: Snapshot, new: Snapshot) -> str | None:
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
            return f"the ledger entry {key} passed to a query that did not retire the one before"
    lost = head.ledger.retired.keys() - new.ledger.retired.keys()
    return f"retired queries vanished: {sorted(lost)}" if lost else None


RULES: tuple[Callable[[Snapshot, Snapshot], str | None], ...] = (
    version_follows,
    parent_is_head,
    time_grows,
    counts_add_up,
    bounds_contain,
    segments_are_unique,
    added_are_new,
    deletion_files_are_kept,
    rows_are_kept,
    erasure_adds_no_row,
    sides_are_kept,
    indexes_are_kept,
    floor_and_epoch_do_not_fall,
    column_ids_are_kept,
    ledger_is_kept,
)


def _first(*flaws: str | None) -> str | None:
    return next((flaw for flaw in flaws if flaw), None)


def check(head: Snapshot, head_sha256: str, new: Snapshot) -> None:
    """Raise if `new` breaks a rule as the successor of `head`, whose slot has that hash.

    Raises:
        CorruptObjectError: a rule is broken; names the rule and what is wrong.
    """
    found = {rule.__name__: rule(head, new) for rule in RULES}
    found[parent_hash_is_heads.__name__] = parent_hash_is_heads(head_sha256, new)
    for rule, wrong in found.items():
        if wrong:
            raise CorruptObjectError(
                "this commit would break the table and was not published; please report it",
                rule=rule,
                reason=wrong,
            )
