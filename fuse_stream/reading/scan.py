"""Scan one snapshot: choose columns, prune segments and blocks, read the rest, filter the rows.

`MatchCounts` counts the matching rows of blocks: from statistics if they decide, else from the
rows, which are read once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress, groupby, tee
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.names import names_in, nearest
from fuse_stream.format.positions import each_without_hidden
from fuse_stream.format.records import Block, ColumnStats, KeyRange, SegmentRef, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import is_small, load_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import hidden_in, with_hidden
from fuse_stream.on_demand import OnDemand
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.bound import Bound, BoundAnd, BoundConstant, BoundNot, BoundOr
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.prune import StatsOf, may_match, must_match
from fuse_stream.predicate.tree import Predicate
from fuse_stream.reading.filters import Equalities, each_answer
from fuse_stream.reading.history import expiry_reported
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

if TYPE_CHECKING:
    from fuse_stream.predicate import parse
else:
    parse = OnDemand("fuse_stream.predicate.parse")

BATCH_ROWS = 65_536
READERS = 8
"""Small blocks that are read at once: from a remote store each is a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns and rows that a reader wants of a table with one schema."""

    schema: Schema
    """The wanted columns."""
    read: Schema
    """The wanted columns and those in the predicate."""
    predicate: Bound | None = None
    """Bound to the table's schema."""
    leaf_ids: Mapping[tuple[str, ...], int] = dataclasses.field(default_factory=dict)
    """The ids of the leaves with reliable statistics, by path."""


def select(
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
    time_zone: str = "UTC",
    case_sensitive: bool = False,
) -> Selection:
    """Return the selection of columns and rows of a table with `schema`.

    Raises:
        InvalidInputError: there is no such column (the error names the nearest one), or the
            predicate is invalid.
    """
    chosen = project(schema, columns, case_sensitive=case_sensitive)
    if where is None:
        return Selection(schema=chosen, read=chosen)
    return _restricted(schema, chosen, where, time_zone=time_zone, case_sensitive=case_sensitive)


def select_matches(schema: Schema, where: str | Predicate, *, time_zone: str = "UTC") -> Selection:
    """Return a selection of rows without columns, to count the rows that match.

    Raises:
        InvalidInputError: there is no such column, or the predicate is invalid.
    """
    nothing = dataclasses.replace(schema, columns=())
    return _restricted(schema, nothing, where, time_zone=time_zone, case_sensitive=False)


def project(
    schema: Schema, columns: Sequence[str] | None, *, case_sensitive: bool = False
) -> Schema:
    """Return `schema` with the named columns only, in the order of the names.

    Without names these are all columns but the hidden ones.
    """
    if columns is None:
        return schema.visible
    names = names_in("columns", columns)
    if not names:
        raise InvalidInputError("name at least one column, or leave columns out for all")
    known = {
        _folded(column.name, case_sensitive=case_sensitive): column for column in schema.columns
    }
    exact = {column.name: column for column in schema.columns}
    chosen = []
    for name in names:
        column = exact.get(name) or known.get(_folded(name, case_sensitive=case_sensitive))
        if column is None:
            raise InvalidInputError(
                "the table has no such column",
                column=name,
                nearest=nearest(name, schema.visible.names()),
                columns=list(schema.visible.names()),
            )
        if column not in chosen:
            chosen.append(column)
    return dataclasses.replace(schema, columns=tuple(chosen))


def scan_snapshot(
    metadata: Metadata, snapshot: Snapshot, selection: Selection
) -> pa.RecordBatchReader:
    """Return the wanted rows of a snapshot, read lazily.

    Raises:
        SnapshotExpiredError: the snapshot expires while its rows are read.
    """
    rows = read_blocks(metadata.store, prune(metadata, snapshot, selection), selection)
    return with_expiry_reported(metadata, snapshot, rows)


def with_expiry_reported(
    metadata: Metadata, snapshot: Snapshot, rows: pa.RecordBatchReader
) -> pa.RecordBatchReader:
    """Return `rows` of a snapshot; reading them raises if the snapshot expires meanwhile.

    Raises:
        SnapshotExpiredError: while rows are read, an object is missing and the snapshot has
            expired.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        with expiry_reported(metadata, (snapshot.branch_id, snapshot.version)):
            yield from rows

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def prune(metadata: Metadata, snapshot: Snapshot, selection: Selection) -> Iterator[Block]:
    """Yield the blocks of `snapshot` that may hold a wanted row, oldest segment first.

    Statistics rule blocks out, then Bloom filters.
    """
    blocks = _prune_by_stats(metadata, snapshot, selection)
    if selection.predicate is None or not has_filters(snapshot):
        yield from blocks
        return
    first, second = tee(blocks)
    kept = filters_may_match(metadata.store, ((block, selection) for block in first))
    yield from compress(second, kept)


def has_filters(snapshot: Snapshot) -> bool:
    """True if blocks of a snapshot have Bloom filters."""
    return snapshot.summary.index_size > 0


def filters_may_match(store: Store, blocks: Iterable[tuple[Block, Selection]]) -> Iterator[bool]:
    """Yield for each block whether its Bloom filters leave it possible that it has a wanted row.

    The statistics do, too.
    """
    known: dict[int, tuple[Selection, Equalities]] = {}  # holding them, so their ids stay theirs

    def may_match(pair: tuple[Block, Selection]) -> bool:
        block, selection = pair
        found = known.get(id(selection))
        if found is None:
            equalities = Equalities(selection.predicate, selection.leaf_ids)
            found = known[id(selection)] = selection, equalities
        stats = cache(_stats_of(selection, block.col_stats, block.row_count))
        return found[1].may_hold(store, block, stats)

    return each_answer(store, blocks, may_match)


def _prune_by_stats(
    metadata: Metadata, snapshot: Snapshot, selection: Selection
) -> Iterator[Block]:
    refs = [ref for ref in snapshot.segments if segment_may_match(selection, ref)]
    for segment in metadata.iter_segments(refs, snapshot.schema.leaf_types):
        summary = segment.summary
        if not stats_may_match(selection, summary.col_stats, summary.row_count):
            continue
        for block in with_hidden(segment.blocks, hidden_in(metadata, snapshot)):
            if block.live_rows and stats_may_match(selection, block.col_stats, block.row_count):
                yield block


def segment_may_match(selection: Selection, ref: SegmentRef) -> bool:
    """False if the segment certainly has no wanted row, by the key range in its reference."""
    return ref.key_range is None or _range_may_match(selection, ref.key_range, ref.row_count)


def stats_may_match(selection: Selection, stats: Mapping[int, ColumnStats], row_count: int) -> bool:
    """False if certainly none of the rows with these statistics is wanted."""
    if selection.predicate is None:
        return True
    return may_match(selection.predicate, _stats_of(selection, stats, row_count), row_count)


def stats_must_match(
    selection: Selection, stats: Mapping[int, ColumnStats], row_count: int
) -> bool:
    """True if certainly all rows with these statistics are wanted."""
    if selection.predicate is None:
        return True
    return must_match(selection.predicate, _stats_of(selection, stats, row_count), row_count)


def count_matches(store: Store, block: Block, selection: Selection) -> int:
    """Return the number of wanted rows that a block shows; reads the columns of the predicate."""
    if selection.predicate is None:
        return block.live_rows
    rows = load_block(store, block, selection.read)
    return pc.sum(filter_mask(selection.predicate, rows)).as_py() or 0


def count_snapshot(metadata: Metadata, snapshot: Snapshot, selection: Selection) -> int:
    """Return the number of wanted rows of a snapshot.

    Reads only blocks of which the statistics leave it open whether all or no rows are wanted.

    Raises:
        SnapshotExpiredError: the snapshot expires while its rows are read.
    """
    store = metadata.store

    def count(block: Block) -> int:
        if stats_must_match(selection, block.col_stats, block.row_count):
            return block.live_rows
        return count_matches(store, block, selection)

    with expiry_reported(metadata, (snapshot.branch_id, snapshot.version)):
        at_once = READERS if store.is_remote else 1
        blocks = prune(metadata, snapshot, selection)
        return sum(each(count, blocks, store, at_once=at_once, ahead=1))


def read_block(store: Store, block: Block, selection: Selection) -> pa.Table:
    """Return the wanted columns of the wanted rows that a block shows."""
    return _wanted(load_block(store, block, selection.read), selection)


def read_parts(store: Store, parts: Sequence[Block], selection: Selection) -> list[pa.Table]:
    """Return what `read_block` does for several sets of rows of one block; read it once."""
    rows = load_block(store, parts[0].hiding(None), selection.read)
    shown = each_without_hidden(rows, [part.hidden for part in parts])
    return [_wanted(part, selection) for part in shown]


def _wanted(rows: pa.Table, selection: Selection) -> pa.Table:
    if selection.predicate is not None:
        rows = rows.filter(filter_mask(selection.predicate, rows))
    if selection.read == selection.schema:
        return rows
    return rows.select(list(selection.schema.names()))


def read_blocks(
    store: Store, blocks: Iterator[Block], selection: Selection
) -> pa.RecordBatchReader:
    """Return the wanted rows of `blocks`, read lazily: one large block at a time, or small ones."""
    pairs = ((block, selection) for block in blocks)
    batches = (
        batch
        for rows in read_each(store, pairs, readers=READERS)
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS)
    )
    return pa.RecordBatchReader.from_batches(arrow_schema(selection.schema), batches)


def read_each(
    store: Store, blocks: Iterable[tuple[Block, Selection]], *, readers: int
) -> Iterator[pa.Table]:
    """Yield what `read_block` returns for each block, in order, with `readers` for small blocks."""
    for are_small, run in groupby(blocks, key=lambda pair: is_small(pair[0])):
        yield from each(
            lambda pair: read_block(store, *pair),
            run,
            store,
            at_once=readers if are_small else 1,
            ahead=1,
        )


def readers_in_task(store: Store) -> int:
    """Return how many small blocks a task reads at once: of a local disk other tasks read, too."""
    return READERS if store.is_remote else 1


def _restricted(
    schema: Schema, chosen: Schema, where: str | Predicate, *, time_zone: str, case_sensitive: bool
) -> Selection:
    if not isinstance(where, str | Predicate):
        raise InvalidInputError("where is a SQL predicate as text", where=where)
    parsed = parse.parse_where(where) if isinstance(where, str) else where
    predicate = bind(
        parsed, arrow_schema(schema), time_zone=time_zone, case_sensitive=case_sensitive
    )
    wanted = {column.id for column in chosen.columns}
    looked_at = set(_top_columns(predicate))
    read = tuple(
        column for column in schema.columns if column.id in wanted or column.name in looked_at
    )
    return Selection(
        schema=chosen,
        read=dataclasses.replace(schema, columns=read),
        predicate=predicate,
        leaf_ids=schema.bounded_ids,
    )


def _stats_of(selection: Selection, stats: Mapping[int, ColumnStats], row_count: int) -> StatsOf:
    all_null = ColumnStats(null_count=row_count, in_memory_size=0)

    def stats_of(path: tuple[str, ...]) -> ColumnStats | None:
        column = selection.leaf_ids.get(path)
        # A block without statistics of a column is older than the column, which is null in it.
        return None if column is None else stats.get(column, all_null)

    return stats_of


def _top_columns(predicate: Bound) -> Iterator[str]:
    match predicate:
        case BoundConstant():
            return
        case BoundNot(operand=operand):
            yield from _top_columns(operand)
        case BoundAnd(operands=operands) | BoundOr(operands=operands):
            for operand in operands:
                yield from _top_columns(operand)
        case _:
            yield predicate.column.path[0]


def _range_may_match(selection: Selection, key_range: KeyRange, row_count: int) -> bool:
    if selection.predicate is None:
        return True
    # A range does not show nulls and NaN, so assume one of each, and two more rows.
    ranges = {
        column: ColumnStats(min=low, max=high, null_count=1, nan_count=1, in_memory_size=0)
        for column, low, high in zip(key_range.columns, key_range.min, key_range.max, strict=True)
    }

    def stats_of(path: tuple[str, ...]) -> ColumnStats | None:
        return ranges.get(selection.leaf_ids.get(path, -1))

    return may_match(selection.predicate, stats_of, row_count + 2)


def _folded(name: str, *, case_sensitive: bool) -> str:
    return name if case_sensitive else name.casefold()


class MatchCounts:
    """The numbers of rows of blocks that match one predicate, cached: blocks never change.

    The predicate may be bound to several schemas of a history; the result for a block depends only
    on the columns that the block has.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[tuple[object, ...], int] = {}
        self.blocks_read = 0
        """The number of blocks read so far."""

    def find(self, block: Block, selection: Selection) -> int | None:
        """Return the number of rows that match; None if the block must be read first."""
        if not stats_may_match(selection, block.col_stats, block.row_count):
            return 0
        if stats_must_match(selection, block.col_stats, block.row_count):
            return block.live_rows
        return self._counts.get(_key(block, selection))

    def load(self, block: Block, selection: Selection) -> int:
        """Return the number of rows that match; reads the block if necessary.

        Raises:
            CorruptObjectError: the block is missing or damaged.
        """
        found = self.find(block, selection)
        if found is None:
            found = count_matches(self._store, block, selection)
            self._counts[_key(block, selection)] = found
            self.blocks_read += 1
        return found


def read_cost(block: Block, selection: Selection) -> int:
    """Return the number of bytes that `count_matches` reads of a block."""
    if is_small(block):
        return block.file_size
    return sum(block.col_metas[column].len for column in _held(block, selection))


def _key(block: Block, selection: Selection) -> tuple[object, ...]:
    return block.id, block.hidden, _held(block, selection)


def _held(block: Block, selection: Selection) -> tuple[int, ...]:
    """Return the ids of the leaves to read that a block has; the others are null in it."""
    leaves = (leaf.column.id for leaf in selection.read.leaves())
    return tuple(column for column in leaves if column in block.col_metas)
