"""Blocks whose statistics stay JSON text until they are used.

Statistics are nearly all of a table's metadata. A plan needs the ids of all blocks, but for most
blocks no statistics, or those of one column.

Rules:
- A part is found by a mark: a JSON key with its quotes, comma and colon, such as `,"col_metas":`.
  The mark occurs nowhere else: inside a JSON string the quotes would be escaped.
- A part is decoded strictly at each use. Memory holds only the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fuse_stream.errors import CorruptObjectError, UnsupportedFormatError
from fuse_stream.format.columns import (
    READING_ERRORS,
    ByColumn,
    LeafTypes,
    as_corrupt,
    by_column,
    read_meta,
    read_stats,
)
from fuse_stream.format.jsonio import from_json, load_canonical
from fuse_stream.format.positions import Positions
from fuse_stream.format.records import MAX_BLOCK_ROWS, Block, ClusterStats

T = TypeVar("T")

_Texts = tuple[bytes, bytes, bytes]
"""The JSON texts of `cluster_stats` (empty if absent), `col_metas` and `col_stats`."""

_FIRST = b'{"block_size":'
_NEXT = b"," + _FIRST
_CLUSTER, _METAS, _STATS = b',"cluster_stats":', b',"col_metas":', b',"col_stats":'
_REST = b',"compression":'
_STATS_END, _META_END = b'"null_count":', b'"num_values":'
"""A field of one column's record; no record follows it inside that one."""
_BLOOM = b'"bloom":'

_FIELDS: dict[str, type] = {
    "block_size": int,
    "compression": str,
    "file_size": int,
    "id": str,
    "origin": str,
    "row_count": int,
    "schema_id": int,
    "sha256": str,
}
_NEEDED = frozenset(_FIELDS) - {"origin"}


def read_blocks(text: bytes, start: int, end: int, types: LeafTypes) -> tuple[Block, ...]:
    """Return the blocks in the JSON list in `text` from `start` to `end`, without its brackets.

    Raises:
        CorruptObjectError: the text is not the encoding of blocks. Damaged per-column records
            raise it when they are first used.
    """
    small, large = [], []
    for first, last in _pieces(text, start, end):
        metas = text.find(_METAS, first, last)
        stats = text.find(_STATS, metas, last)
        rest = text.rfind(_REST, stats, last)
        if not first < metas < stats < rest:
            raise CorruptObjectError("a segment has an item that is not a block")
        cluster = text.find(_CLUSTER, first, metas)
        if cluster < 0:
            cluster = metas
        small.append(text[first:cluster] + text[rest:last])
        large.append(
            (
                text[cluster + len(_CLUSTER) : metas],
                text[metas + len(_METAS) : stats],
                text[stats + len(_STATS) : rest],
            )
        )
    items = load_canonical(b"[" + b",".join(small) + b"]")
    if any(type(item) is dict and "deletes" in item for item in items):
        raise UnsupportedFormatError(  # ignoring the field would return deleted rows
            "a block has deleted rows in its record, which this release cannot read; upgrade "
            "fuse-stream"
        )
    try:
        return tuple(
            [
                BlockInText.found(item, texts, types)
                for item, texts in zip(items, large, strict=True)
            ]
        )
    except READING_ERRORS as error:
        raise as_corrupt(error, "Block") from error


def _pieces(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        after = text.find(_NEXT, start, end)
        if after < 0:
            after = end
        yield start, after
        start = after + 1


class BlockInText(Block):
    """A block whose per-column records are still JSON text; equal to the decoded `Block`."""

    __slots__ = ("_texts", "_types")

    _texts: _Texts
    _types: LeafTypes

    @classmethod
    def found(cls, item: dict[str, Any], texts: _Texts, types: LeafTypes) -> BlockInText:
        """Return the block with the decoded fields `item` and the texts of the other fields."""
        block = object.__new__(cls)
        fill = object.__setattr__
        if not item.keys() >= _NEEDED:
            raise KeyError(f"there is no {min(_NEEDED - item.keys())}")
        fill(block, "origin", None)
        fill(block, "hidden", None)
        for name, value in item.items():
            if type(value) is not _FIELDS[name]:
                raise TypeError(f"{name} is not of type {_FIELDS[name].__name__}")
            fill(block, name, value)
        if not 0 < block.row_count <= MAX_BLOCK_ROWS:
            raise ValueError(f"a block of {block.row_count} rows")
        if min(block.block_size, block.file_size, block.schema_id) < 0:
            raise ValueError("a number below zero")
        fill(block, "_texts", texts)
        fill(block, "_types", types)
        return block

    @property
    def index_size(self) -> int:
        return super().index_size if _BLOOM in self._texts[1] else 0

    def hiding(self, hidden: Positions | None) -> Block:
        if not hidden and self.hidden is None:
            return self
        block = object.__new__(type(self))
        fill, known = object.__setattr__, object.__getattribute__
        for name in _ALL_SLOTS:
            try:
                fill(block, name, known(self, name))
            except AttributeError:  # either the text or the decoded parts
                continue
        fill(block, "hidden", hidden or None)
        return block

    def __getattr__(self, name: str) -> Any:
        # Called only for the fields that `found` does not set.
        if name not in {"cluster_stats", "col_metas", "col_stats"}:
            raise AttributeError(name)
        cluster, metas, stats = self._texts
        if name == "col_stats":
            return _PartsOfText(stats, _STATS_END, self._types, read_stats)
        if name == "col_metas":
            return _PartsOfText(metas, _META_END, None, lambda item, _: read_meta(item))
        return from_json(ClusterStats, load_canonical(cluster), self._types) if cluster else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        names = [field.name for field in dataclasses.fields(Block)]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = Block.__hash__


_ALL_SLOTS = (*Block.__slots__, *BlockInText.__slots__)


class _PartsOfText(ByColumn[T]):
    """Per-column records in a JSON text, each found and decoded when it is looked up."""

    __slots__ = ("_end", "_read", "_text", "_types")

    def __init__(
        self, text: bytes, end: bytes, types: LeafTypes | None, read: Callable[[Any, str], T]
    ) -> None:
        """`end` is a late field of each record; columns that `types` lacks are left out."""
        self._text = text
        self._end = end
        self._types = types
        self._read = read

    def __getitem__(self, column: int) -> T:
        start = self._start(column)
        if start < 0:
            raise KeyError(column)
        end = self._text.find(b"}", self._text.find(self._end, start)) + 1
        item = load_canonical(self._text[start:end])
        try:
            return self._read(item, "" if self._types is None else self._types[column])
        except READING_ERRORS as error:
            raise as_corrupt(error, "a column's part of a block") from error

    def __contains__(self, column: object) -> bool:
        return self._start(column) >= 0

    def __iter__(self) -> Iterator[int]:
        try:
            columns = by_column(load_canonical(self._text))
        except READING_ERRORS as error:
            raise as_corrupt(error, "what a block holds by column") from error
        return (column for column in columns if self._types is None or column in self._types)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _start(self, column: object) -> int:
        if type(column) is not int or (self._types is not None and column not in self._types):
            return -1
        mark = b'"%d":' % column
        start = self._text.find(mark)
        return start if start < 0 else start + len(mark)
