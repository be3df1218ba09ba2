"""The persisted records, as pure values. `codec` encodes them.

The field names are those of `docs/format.md`, which specifies the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum

from fuse_stream.errors import NotFoundError
from fuse_stream.format.bloom_filter import BloomFilter
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.line import LineStart
from fuse_stream.format.one_line import line_of, one_line
from fuse_stream.format.positions import Positions, others
from fuse_stream.format.schema import Schema
from fuse_stream.format.sequenced import Counts, Sequenced
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.format.stored_fields import IF_ANY, NOT_STORED

FORMAT_VERSION = 1

MAX_BLOCK_ROWS = 2**31 - 1

Value = bool | int | float | Decimal | str | bytes
"""A bound: a date is an int of days, a timestamp an int of microseconds."""


class Operation(StrEnum):
    """What a snapshot did."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    UPDATE = "update"
    UPSERT = "upsert"
    MERGE = "merge"
    REPLICATE = "replicate"
    """Applied the changes of another table, deletes among them."""
    ERASE = "erase"
    """Replaced blocks by others without some rows, hidden ones among them."""
    RETRY = "retry"
    """Applied events again that were kept in the quarantine."""
    ALTER = "alter"
    """Changed schema, properties, cluster key or ledger, but no row."""
    COMPACT = "compact"
    """Replaced blocks by others with the same rows."""
    RECLUSTER = "recluster"
    """Replaced blocks by others with the same rows in another order."""
    EXPIRE = "expire"
    INDEX = "index"
    """Changed the indexes, but no row."""
    REWIND = "rewind"
    REVERT = "revert"
    PUBLISH = "publish"


TAKES_CONTENT = frozenset({Operation.REWIND, Operation.PUBLISH})
"""Operations that take the content of another snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStats:
    """Statistics of one leaf column, in Spark's order of values; bounds may be loose."""

    min: Value | None = None
    """No value is smaller, except null and NaN; None if unknown."""

    max: Value | None = None
    """No value is greater, except NaN; None if unknown."""

    null_count: int
    nan_count: int = 0
    in_memory_size: int
    """Bytes in Arrow's layout."""

    distinct_of_values: int | None = None
    """Exact for a block; for segments and snapshots the maximum over the blocks, a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMeta:
    """The location of a leaf column's chunk in its block."""

    offset: int
    len: int
    """Compressed bytes, including the dictionary page."""
    num_values: int
    bloom: BloomFilter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The bounds of the cluster key's columns, as loose as those in `ColumnStats`."""

    columns: tuple[int, ...]
    """Column ids, in the order of the key."""
    min: tuple[Value | None, ...]
    max: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStats:
    """A block's range of the cluster key, and its level."""

    range: KeyRange
    level: int = 0
    """How often its rows were reclustered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One Parquet file with one row group, and which of its rows a reader must leave out."""

    id: str
    row_count: int
    """All rows of the file."""
    block_size: int
    """Bytes, uncompressed."""
    file_size: int
    """Bytes, as stored."""
    sha256: str
    schema_id: int
    col_stats: Mapping[int, ColumnStats]
    """By column id; for leaves that are not inside a list or map. A block that is older than a
    column has none for it."""
    col_metas: Mapping[int, ColumnMeta]
    """By column id; for every leaf."""
    cluster_stats: ClusterStats | None = None
    compression: str
    origin: str | None = None
    """The id of the table that has the file; None if it is this table."""
    hidden: Positions | None = field(default=None, metadata=NOT_STORED)
    """The rows that the deletion files of a snapshot hide; None for none. In a difference of
    snapshots, all rows but those that differ."""

    def __repr__(self) -> str:
        facts = {"id": self.id, "rows": self.live_rows, "bytes": self.file_size}
        return line_of("Block", {**facts, "origin": self.origin})

    @property
    def live_rows(self) -> int:
        """The number of rows that are not hidden."""
        return self.row_count - (len(self.hidden) if self.hidden else 0)

    @property
    def live_size(self) -> int:
        """About how many bytes the rows that are not hidden have, uncompressed."""
        return self._of_live(self.block_size)

    @property
    def live_file_size(self) -> int:
        """About how many bytes the rows that are not hidden have, as stored."""
        return self._of_live(self.file_size)

    @property
    def shown(self) -> Positions:
        """The rows that are not hidden."""
        return others(self.hidden, self.row_count)

    @property
    def index_size(self) -> int:
        """The bytes of its Bloom filters."""
        return sum(meta.bloom.len for meta in self.col_metas.values() if meta.bloom)

    def _of_live(self, size: int) -> int:
        return size * self.live_rows // self.row_count if self.hidden else size

    def hiding(self, hidden: Positions | None) -> Block:
        """Return the same block with other hidden rows."""
        return replace(self, hidden=hidden or None)

    def showing(self, rows: Positions) -> Block:
        """Return the same block with all rows hidden but these."""
        return self.hiding(others(rows, self.row_count))


def rows_of(blocks: Iterable[Block]) -> dict[str, Positions]:
    """Return the rows that blocks show."""
    return {block.id: block.shown for block in blocks if block.live_rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Totals over blocks."""

    row_count: int = 0
    """In a snapshot without the hidden rows; all other totals count them."""
    block_count: int = 0
    perfect_block_count: int = 0
    """Blocks that are large enough: compaction leaves them as they are."""
    uncompressed_byte_size: int = 0
    compressed_byte_size: int = 0
    index_size: int = 0
    col_stats: Mapping[int, ColumnStats] = field(default_factory=dict)

    __repr__ = one_line(
        "row_count block_count perfect_block_count uncompressed_byte_size compressed_byte_size"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A list of blocks with merged statistics."""

    format_version: int = FORMAT_VERSION
    blocks: tuple[Block, ...]
    summary: Summary

    __repr__ = one_line("blocks rows=summary.row_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """A snapshot's reference to a segment."""

    id: str
    sha256: str
    """Of the stored bytes."""
    level: int
    """0: written by a commit; n+1: merged from segments of level n."""
    row_count: int
    block_count: int
    byte_size: int
    """Bytes of the stored object."""
    key_range: KeyRange | None = None

    __repr__ = one_line("id rows=row_count blocks=block_count bytes=byte_size level")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFileRef:
    """A snapshot's reference to a deletion file: rows of its blocks that it hides."""

    id: str
    sha256: str
    level: int
    """0: written by a commit; n+1: merged from deletion files of level n."""
    row_count: int
    """Hidden rows."""
    block_count: int
    """Blocks of which it hides rows."""
    byte_size: int
    since_us: int
    """The time of the first commit that hid one of the rows."""

    __repr__ = one_line("id rows=row_count blocks=block_count bytes=byte_size level")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A second list of rows of a snapshot: they are no rows of the table."""

    schema: Schema
    """Has column ids of its own."""
    segments: tuple[SegmentRef, ...]
    """Oldest first; at least one."""
    deletion_files: tuple[DeletionFileRef, ...] = field(default=(), metadata=IF_ANY)
    """Oldest first. They hide rows of these segments alone."""
    summary: Summary
    """As a snapshot's: the row count without the hidden rows."""

    __repr__ = one_line("rows=summary.row_count blocks=summary.block_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A reference to a snapshot: the one that another was built on, or a fork point."""

    branch_id: str
    version: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsets:
    """The text of a checkpoint's `offsets/<batch_id>`; a long text is an object of its own."""

    batch_id: int
    sha256: str
    """Of the text in UTF-8. Texts are compared by it."""
    text: str | None = None
    id: str | None = None
    """The id of the object that holds the text; None if `text` holds it."""

    __repr__ = one_line("batch_id text id")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The last batch that one writer of one application committed."""

    query_id: str | None = None
    """Spark's id of the query, kept in its checkpoint: a new checkpoint is a new query.
    None if the writer was not a query: `Table.append(app_id=…)`."""
    batch_id: int
    offsets: tuple[SourceOffsets, ...] = ()
    """Those of this batch and the one before it, oldest first; empty if they were not readable."""
    sources: tuple[SourcePosition, ...] | None = None
    """The tables that the batch read, one for each reader; None if it read none, or is not known.
    Needs the feature `sources`."""
    rows: int
    fingerprint: str | None = None
    """Of the rows that the batch brought (`batch_sums`); None if a query wrote it, whose offsets
    identify its batches, or an older release."""
    version: int
    timestamp_us: int

    __repr__ = one_line("batch_id version rows query=query_id at_us=timestamp_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """A query that a rewind, a publish or an `adopt` has retired: it may not write any more."""

    application: str
    version: int
    """The snapshot of this branch that retired it."""
    fork: str | None = None
    """The id of the query that replaces it, if there is one."""


LedgerKey = tuple[str, str]
"""(application, writer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The last batch of each writer. Each snapshot has the whole ledger."""

    entries: Mapping[LedgerKey, LedgerEntry] = field(default_factory=dict)
    retired: Mapping[str, Retirement] = field(default_factory=dict)
    """By query id. Checked before the entries."""

    __repr__ = one_line("entries retired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One immutable version of the table: the content of its slot."""

    format_version: int = FORMAT_VERSION
    table_id: str
    branch_id: str
    version: int
    """0 for the operation `create`, then one more than the parent's."""
    snapshot_id: str
    """Random, the same in all attempts of a commit: by it a committer knows its own snapshot."""
    timestamp_us: int
    """Greater than that of every earlier snapshot of the branch."""
    clock_us: int
    """The time of the committer's own clock."""
    prev_snapshot_id: str | None = None
    parent: Parent | None = None
    operation: Operation
    data_change: bool
    """True if rows were added or removed."""
    author: str = ""
    """Given by the user, never taken from the system."""
    message: str = ""
    schema: Schema
    cluster_key: tuple[int, ...] = ()
    """Column ids."""
    required_features: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    key: tuple[int, ...] = field(default=(), metadata=IF_ANY)
    """Ids of the columns by which rows are unique; none if the table has no key."""
    sequence: Sequenced | None = None
    """None if rows do not come from events with sequences."""
    counts: Counts | None = None
    """Of the events that this commit brought, if it brought any."""
    summary: Summary
    segments: tuple[SegmentRef, ...] = ()
    """Oldest first."""
    added: tuple[str, ...] = ()
    """Ids of the segments that this commit added."""
    deletion_files: tuple[DeletionFileRef, ...] = field(default=(), metadata=IF_ANY)
    """Oldest first. No row is hidden by two of them, and each names only blocks of the segments."""
    deletion_files_added: tuple[str, ...] = field(default=(), metadata=IF_ANY)
    """Ids of the deletion files that this commit added, if it did nothing else to hidden rows."""
    sides: Mapping[str, Side] = field(default_factory=dict, metadata=IF_ANY)
    """By `SideName`."""
    index_list: IndexListRef | None = None
    """None if the branch has no index. Every commit but `index` carries it on."""
    target: Parent | None = None
    """The snapshot whose content a rewind or publish took, or whose commit a revert undid."""
    floor: int = 0
    """The oldest version that has not expired; never decreases."""
    epoch: int = 0
    """The number of times that vacuum raised it; never decreases."""
    ledger: Ledger
    line: LineStart | None = None
    """None in version 0, and where an earlier release made the first of the versions."""
    replayed: bool = field(default=False, compare=False, metadata=NOT_STORED)
    """True in the result of a write whose batch the table has already."""

    def __repr__(self) -> str:
        batches = (
            f"{'/'.join(filter(None, key))} #{entry.batch_id}"
            for key, entry in self.batches.items()
        )
        facts = {
            "version": self.version,
            "operation": self.operation,
            "rows": self.summary.row_count,
            "blocks": self.summary.block_count,
            "batch": ", ".join(batches),
            "at_us": self.timestamp_us,
            "message": self.message,
        }
        return line_of("Snapshot", facts)

    @property
    def batches(self) -> Mapping[LedgerKey, LedgerEntry]:
        """The entries of the ledger that the commit itself wrote, by their version."""
        entries = self.ledger.entries.items()
        return {key: entry for key, entry in entries if entry.version == self.version}

    @property
    def stored_rows(self) -> int:
        """The number of rows in the blocks, hidden ones included."""
        return sum(ref.row_count for ref in self.segments)

    @property
    def hidden_rows(self) -> int:
        """The number of rows that deletion files hide."""
        return sum(ref.row_count for ref in self.deletion_files)

    def side(self, name: str) -> Snapshot:
        """Return a view of this snapshot whose rows are those of one of its sides.

        Raises:
            NotFoundError: there is no such side; names those that there are.
        """
        if name not in list(self.sides):  # no lookup: a wrong name may have no hash
            raise NotFoundError(
                "this version of the table has no such side", side=name, sides=sorted(self.sides)
            )
        side = self.sides[name]
        return replace(
            self,
            schema=side.schema,
            cluster_key=(),
            key=(),
            summary=side.summary,
            segments=side.segments,
            added=(),
            deletion_files=side.deletion_files,
            deletion_files_added=(),
            sides={},
        )

    @property
    def source(self) -> Parent | None:
        """The snapshot from whose content this one was made; None for version 0."""
        return self.target if self.operation in TAKES_CONTENT else self.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """The content of `_fuse.json`, which is fixed when the table is created."""

    format_version: int = FORMAT_VERSION
    table_id: str
    created_us: int
    snapshot_id: str
    """That of version 0, so that every process that finishes a create writes the same bytes."""
    schema: Schema
    cluster_key: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    grace_us: int
    """The least time that a superseded snapshot stays readable."""
    origins: tuple[tuple[str, str], ...] = ()
    """In a clone: (table id, location at that time) of the tables whose blocks it names, first the
    one that was cloned. Readers use only locations that the user allows."""

    __repr__ = one_line("table_id created_us")
