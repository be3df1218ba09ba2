"""The records of indexes: their definitions, and the parts that hold what was computed. Pure.

An index speaks of immutable blocks by id. So what it says of a block is true in every version,
branch and clone that names the block, and what it does not cover is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fuse_stream.errors import CorruptObjectError, UnsupportedFormatError
from fuse_stream.format.layout import id_checked, sha256_checked
from fuse_stream.format.one_line import one_line
from fuse_stream.format.stored_fields import IF_ANY

INDEX_FORMAT_VERSION = 1

AGGREGATE = "aggregate"
"""The kind of an index that keeps the states of a GROUP BY for each block."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

MAX_INDEXES = 100
"""The most definitions of a list."""
MAX_INDEX_COLUMNS = 100
"""The most columns of the result of one index."""
MAX_PART_BLOCKS = 64
"""The most blocks that one part covers."""
MAX_LISTED_BLOCKS = 400_000
"""The most blocks that all parts of a list name together: it is one JSON text."""
MAX_PART_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexListRef:
    """A snapshot's reference to its list of indexes."""

    id: str
    sha256: str
    """Of the stored bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexColumn:
    """A column of the result of an aggregate."""

    name: str
    """Its name in the result."""
    function: str | None = None
    """The aggregate function; None for a column by which rows are grouped."""
    column: int | None = None
    """The id of the table's column; None for `count(*)`."""
    stored: str | None = None
    """The name under which blocks have the column, which never changes: a column of another branch
    may have the same id. None for `count(*)`."""

    __repr__ = one_line("name function column")

    @property
    def holds_values(self) -> bool:
        """True if its states tell values of rows."""
        return self.function != "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDefinition:
    """What an index is for. It never changes: another index of the name has another id."""

    id: str
    name: str
    kind: str
    """`AGGREGATE`."""
    sql: str
    """As the user wrote it. What counts are the ids in `columns`, for a column may be renamed."""
    columns: tuple[IndexColumn, ...]
    created_us: int

    __repr__ = one_line("name kind sql")

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The ids of the table's columns that it needs, each once, in the order of the result."""
        return tuple(dict.fromkeys(one.column for one in self.columns if one.column is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPart:
    """An object with what was computed of some blocks."""

    id: str
    index: str
    """The id of the definition."""
    sha256: str
    byte_size: int
    types: tuple[str, ...]
    """The types of the columns of `IndexDefinition.column_ids` for which it was computed: a version
    in which one has another type does not use it."""
    blocks: tuple[str, ...]
    """The ids of the blocks that it covers; its object numbers them in this order."""
    skipped: tuple[str, ...] = field(default=(), metadata=IF_ANY)
    """The ids of blocks that were looked at, and are not worth covering."""
    origin: str | None = None
    """The id of the table that has the object; None if it is this table."""

    __repr__ = one_line("id blocks bytes=byte_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexList:
    """All indexes of a branch."""

    format_version: int = INDEX_FORMAT_VERSION
    definitions: tuple[IndexDefinition, ...] = ()
    """By name, which are unique."""
    parts: tuple[IndexPart, ...] = ()

    __repr__ = one_line("definitions parts")

    def find(self, name: str) -> IndexDefinition | None:
        """Return the definition of this name; None if there is none."""
        return next((one for one in self.definitions if one.name == name), None)

    def parts_of(self, definition: IndexDefinition) -> tuple[IndexPart, ...]:
        """Return the parts of one index."""
        return tuple(part for part in self.parts if part.index == definition.id)


def is_index_name(name: object) -> bool:
    """True if a text may name an index."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_index_list(found: IndexList) -> None:
    """Raise if a decoded list breaks a rule of the format.

    Raises:
        CorruptObjectError: no writer makes such a list.
        UnsupportedFormatError: it has an index of a kind that this release does not know.
    """
    kinds = {one.kind for one in found.definitions}
    if kinds - {AGGREGATE}:
        raise UnsupportedFormatError(
            "the table has an index of a kind that this release lacks; upgrade fuse-stream",
            kinds=sorted(kinds - {AGGREGATE}),
        )
    for definition in found.definitions:
        _check_definition(definition)
    ids = [id_checked(one.id) for one in found.definitions]
    names = [one.name for one in found.definitions]
    part_ids = [id_checked(part.id) for part in found.parts]
    for part in found.parts:
        _check_part(part, ids)
    block_count = sum(len(part.blocks) + len(part.skipped) for part in found.parts)
    is_valid = (
        not any(map(_has_twice, (ids, names, part_ids)))
        and names == sorted(names)
        and len(ids) <= MAX_INDEXES
        and block_count <= MAX_LISTED_BLOCKS
    )
    if not is_valid:
        raise CorruptObjectError("a list of indexes is invalid", indexes=len(ids))


def _check_definition(definition: IndexDefinition) -> None:
    columns = definition.columns
    is_valid = (
        0 < len(columns) <= MAX_INDEX_COLUMNS
        and not _has_twice(one.name for one in columns)
        and all(one.column is not None or one.function == "count" for one in columns)
        and all(one.column is None or one.column > 0 for one in columns)
        and all((one.column is None) is (one.stored is None) for one in columns)
    )
    if not is_valid or not is_index_name(definition.name):
        raise CorruptObjectError("an index is invalid", index=definition.name[:100])


def _check_part(part: IndexPart, index_ids: list[str]) -> None:
    sha256_checked(part.sha256)
    for block_id in (*part.blocks, *part.skipped):
        id_checked(block_id)
    if part.origin is not None:
        id_checked(part.origin)
    is_valid = (
        part.index in index_ids
        and 0 < part.byte_size <= MAX_PART_BYTES
        and len(part.blocks) <= MAX_PART_BLOCKS
        and not _has_twice((*part.blocks, *part.skipped))
    )
    if not is_valid:
        raise CorruptObjectError("a part of an index is invalid", part=part.id)


def _has_twice(items: Iterable[str]) -> bool:
    return any(count > 1 for count in Counter(items).values())
