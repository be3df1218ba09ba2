"""The persisted records. Pure values: how they become bytes is the codec's business.

Field names are those of `docs/format.md`, which says what each MUST hold. Identity and order are
stated here where code relies on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from fuse_stream.format.schema import Schema

FORMAT_VERSION = 1

Value = bool | int | float | Decimal | str | bytes
"""A bound, in the physical domain: a date is an int of days, a timestamp an int of microseconds."""


class Operation(StrEnum):
    """What a snapshot did."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    UPDATE = "update"
    UPSERT = "upsert"
    ALTER = "alter"
    """Schema, properties, cluster key or ledger; no row."""
    COMPACT = "compact"
    """Other blocks, same rows. The change feed passes over it."""
    RECLUSTER = "recluster"
    """Other blocks, same rows. The change feed passes over it."""
    EXPIRE = "expire"
    REWIND = "rewind"
    REVERT = "revert"
    PUBLISH = "publish"


KEEPS_ROWS = frozenset(
    {
        Operation.CREATE,
        Operation.ALTER,
        Operation.COMPACT,
        Operation.RECLUSTER,
        Operation.EXPIRE,
    }
)
"""Operations that the change feed passes over."""

TAKES_CONTENT = frozenset({Operation.REWIND, Operation.PUBLISH})
"""Operations that hold what an earlier snapshot held."""

DROPS_ENTRIES = frozenset({Operation.EXPIRE, Operation.ALTER})
"""An entry that leaves the ledger by one of these leaves its rows behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStats:
    """Statistics of one leaf column: loose, never wrong, under Spark's order."""

    min: Value | None = None
    """No value but null and NaN is smaller; None where that is not known."""

    max: Value | None = None
    """No value but NaN is greater; None where that is not known."""

    null_count: int
    nan_count: int = 0
    in_memory_size: int
    """Bytes in Arrow's layout."""

    distinct_of_values: int | None = None
    """Exact for a block; above that the largest of the children, a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMeta:
    """Where a leaf column's chunk stands in its block."""

    offset: int
    len: int
    """Bytes, compressed, with the dictionary page."""
    num_values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The range of cluster key values: bounds, as loose as the columns' own."""

    columns: tuple[int, ...]
    """Column ids, in the order of the key."""
    min: tuple[Value | None, ...]
    max: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStats:
    """How a block stands in the order of the cluster key."""

    range: KeyRange
    level: int = 0
    """How often its rows were reclustered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """The deletion vector of a block."""

    id: str
    sha256: str
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One Parquet file with one row group."""

    id: str
    row_count: int
    block_size: int
    """Bytes, uncompressed."""
    file_size: int
    """Bytes, as stored."""
    sha256: str
    schema_id: int
    col_stats: Mapping[int, ColumnStats]
    """By column id; leaves that are not below a list or map. A leaf without one predates it."""
    col_metas: Mapping[int, ColumnMeta]
    """By column id; every leaf."""
    cluster_stats: ClusterStats | None = None
    compression: str
    origin: str | None = None
    """The id of the table that holds the file, where it is another one."""
    deletes: Deletes | None = None

    @property
    def identity(self) -> tuple[str, str | None]:
        """What makes two blocks the same in every comparison."""
        return self.id, self.deletes.id if self.deletes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Totals over blocks."""

    row_count: int = 0
    block_count: int = 0
    perfect_block_count: int = 0
    """Blocks that compaction has no reason to touch."""
    uncompressed_byte_size: int = 0
    compressed_byte_size: int = 0
    index_size: int = 0
    col_stats: Mapping[int, ColumnStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A list of blocks with merged statistics."""

    format_version: int = FORMAT_VERSION
    blocks: tuple[Block, ...]
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """A segment as its snapshot names it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The snapshot that this one was built on, or that a branch forked from."""

    branch_id: str
    version: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsets:
    """The text of a checkpoint's `offsets/<batch_id>`; long texts stand in an object."""

    batch_id: int
    sha256: str
    """Of the text in UTF-8: two texts are the same if these are."""
    text: str | None = None
    id: str | None = None
    """The object that holds the text, where `text` is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The last batch that one writer of one application committed."""

    query_id: str | None = None
    """Spark's id of the query, kept in its checkpoint: a new checkpoint is a new query.
    None where no query wrote: `Table.append(app_id=…)`."""
    batch_id: int
    offsets: tuple[SourceOffsets, ...] = ()
    """Of this batch and the one before it, oldest first; empty if they could not be read."""
    rows: int
    version: int
    timestamp_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """A query that a rewind, a publish or an adoption has put out of office."""

    application: str
    version: int
    """The snapshot of this branch that retired it."""
    fork: str | None = None
    """The id of the query that goes on in its place."""


LedgerKey = tuple[str, str]
"""(application, writer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who committed what last. Carried from snapshot to snapshot."""

    entries: Mapping[LedgerKey, LedgerEntry] = field(default_factory=dict)
    retired: Mapping[str, Retirement] = field(default_factory=dict)
    """By query id. Looked up first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One immutable version of the table, as it stands in its slot."""

    format_version: int = FORMAT_VERSION
    table_id: str
    branch_id: str
    version: int
    """0 is the operation `create`; the parent's plus 1 after that."""
    snapshot_id: str
    """Drawn once for a logical commit: tells a committer its own from a rival's."""
    timestamp_us: int
    """Strictly grows along a branch."""
    clock_us: int
    """The committer's raw clock."""
    prev_snapshot_id: str | None = None
    parent: Parent | None = None
    operation: Operation
    data_change: bool
    """Whether rows appeared or disappeared."""
    author: str = ""
    """What the user says, never taken from the system."""
    message: str = ""
    schema: Schema
    cluster_key: tuple[int, ...] = ()
    """Column ids."""
    required_features: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    summary: Summary
    segments: tuple[SegmentRef, ...] = ()
    """Oldest first."""
    added: tuple[str, ...] = ()
    """Ids of the segments that this commit brought."""
    target: Parent | None = None
    """The snapshot whose content a rewind or publish took, or whose commit a revert undid."""
    floor: int = 0
    """The oldest version that is not expired; never falls."""
    epoch: int = 0
    """Counts the fences of vacuum; never falls."""
    ledger: Ledger

    @property
    def source(self) -> Parent | None:
        """The snapshot whose content this one was made from; None for version 0."""
        return self.target if self.operation in TAKES_CONTENT else self.parent


CLONED_VERSION = 1
"""The version of a clone that brings the blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """`_fuse.json`: what is fixed when a table is created."""

    format_version: int = FORMAT_VERSION
    table_id: str
    created_us: int
    snapshot_id: str
    """Of version 0, so that whoever finishes an unfinished create writes the same bytes."""
    schema: Schema
    cluster_key: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    grace_us: int
    """How long a superseded snapshot stays readable at least."""
    origins: tuple[tuple[str, str], ...] = ()
    """In a clone: (table id, location) of the tables whose blocks it names, first the one that it
    was made of. Where they stood then; only what an opener allows is ever followed."""
