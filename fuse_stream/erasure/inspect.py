"""Inspect one object of a table for erased rows: decode it, and search what it says.

Rules:
- An object that cannot be decoded is reported as such. Its bytes are searched all the same.
- Parquet is decoded with all columns, dictionaries included: their pages may be compressed, and a
  dictionary may hold a value that no row has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fuse_stream.erasure.search import views_of
from fuse_stream.erasure.sought import ROWS, RowTest, Sought
from fuse_stream.erasure.traces import Needle, in_bytes, in_record, in_text, needles_of
from fuse_stream.errors import FuseError
from fuse_stream.format import raw_text
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.block import stored_columns
from fuse_stream.format.codec import (
    decode_claim,
    decode_lease,
    decode_ref,
    decode_segment,
    decode_snapshot,
    decode_table_file,
    sha256_hex,
    unpacked_segment,
)
from fuse_stream.format.deletions import decode_deletions
from fuse_stream.format.index_codec import decode_index_list, unpacked_index_list
from fuse_stream.format.layout import BLOCKS_PREFIX, id_in
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import ColumnStats, Snapshot
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.stats import physical
from fuse_stream.predicate.bound import BoundColumn, BoundCompare
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.tree import Op

SNAPSHOT, SEGMENT, BLOCK = "snapshot", "segment", "block"
INDEX_LIST, INDEX_PART = "list of indexes", "part of an index"
DELETION_FILE, OFFSETS, TABLE_FILE = "deletion file", "text of source offsets", "table file"
BRANCH, TAG, PIN, LEASE, CLAIM = "branch", "tag", "pin of a clone", "lease", "service claim"
PLAIN = "hint, marker or probe"

_DECODERS: dict[str, Callable[[bytes], object]] = {
    TABLE_FILE: decode_table_file,
    BRANCH: lambda data: decode_ref(BranchRef, data),
    TAG: lambda data: decode_ref(TagRef, data),
    PIN: lambda data: decode_ref(CloneRef, data),
    LEASE: decode_lease,
    CLAIM: decode_claim,
}
"""Records without bounds."""

DECODING_ERRORS = (FuseError, pa.ArrowException, OSError, ValueError, KeyError)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedObject:
    """One object under the table's folder, and what a verification found in it."""

    key: str
    kind: str
    """Such as "block", "snapshot" or "tag"."""
    byte_size: int
    row_count: int = 0
    """The rows that were decoded; of a block."""
    found: tuple[str, ...] = ()
    """What it holds of the erased rows; nothing, if all is well."""
    problem: str | None = None
    """Why it could not be read as a whole; what it holds is not known then."""

    __repr__ = one_line("key found problem rows=row_count bytes=byte_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A trace of the erased rows in one object."""

    text: str
    needle: Needle | None = None
    """The value that was found; None for rows and bounds, which are the erased rows' own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """The result of the inspection of one object."""

    object: InspectedObject
    """Without its findings."""
    findings: tuple[Finding, ...] = ()


class Inspector:
    """Inspects the objects of one table, snapshots first: they have the schemas of the segments."""

    def __init__(self, sought: Sought) -> None:
        self.needles = needles_of(sought.given)
        self.shared: Counter[str] = Counter()
        """By value: how many rows that do not match hold it in the column of the predicate."""

        self._sought = sought
        self._schemas: dict[str, tuple[str, Schema]] = {}
        """By the id of a segment: the list that it is in, and that list's schema."""
        self._all_schemas: dict[tuple[str, Schema], None] = {(ROWS, sought.schema): None}
        self._sides: dict[str, str] = {}
        """By the id of a block that is in a side: that side."""

    def inspect(self, key: str, kind: str, data: bytes) -> Inspected:
        """Return what the object under `key` holds; `kind` is one of this module's, or another."""
        problem, rows = None, 0
        findings: list[Finding] = []
        try:
            for item in self._read(key, kind, data):
                if isinstance(item, int):
                    rows += item
                else:
                    findings.append(item)
        except DECODING_ERRORS as error:
            wrong = error.message if isinstance(error, FuseError) else str(error)
            problem = f"it cannot be read as a {kind}, so only its bytes were searched: {wrong}"
            findings += self._of_values(in_bytes(self.needles, data), "its bytes hold")
        return Inspected(
            object=InspectedObject(
                key=key,
                kind=kind,
                byte_size=len(data),
                row_count=rows,
                problem=None if problem is None else problem[:300],
            ),
            findings=tuple(dict.fromkeys(findings)),
        )

    def _read(self, key: str, kind: str, data: bytes) -> Iterator[Finding | int]:
        """Yield what an object holds, and the numbers of rows that were decoded."""
        if kind == SNAPSHOT:
            yield from self._snapshot(data)
        elif kind == SEGMENT:
            yield from self._segment(key, data)
        elif kind == BLOCK:
            yield from self._block(key, data)
        elif kind == INDEX_LIST:
            yield from self._index_list(data)
        elif kind == INDEX_PART:
            yield from self._index_part(data)
        elif kind == DELETION_FILE:
            yield from self._of_values(in_bytes(self.needles, data), "its bytes hold")
            decode_deletions(data)  # positions only
        elif kind in {OFFSETS, PLAIN}:
            yield from self._of_values(in_text(self.needles, data), "its text has")
            data.decode()
        elif kind in _DECODERS:
            yield from self._record(data)
            _DECODERS[kind](data)
        else:
            yield from self._unknown(data)

    def _of_values(self, needles: list[Needle], what: str) -> Iterator[Finding]:
        for needle in needles:
            yield Finding(text=f"{what} {needle.shown}", needle=needle)

    def _record(self, data: bytes) -> Iterator[Finding]:
        yield from self._of_values(in_record(self.needles, data), "a text in it is")

    # ---- records

    def _snapshot(self, data: bytes) -> Iterator[Finding]:
        yield from self._record(data)
        snapshot = decode_snapshot(data)
        self._learn(snapshot)
        for side, view in views_of(snapshot):
            of_side = f" of side {side}" if side != ROWS else ""
            sought = self._sought.of(side)
            for name in sought.shows(view.schema, view.summary.col_stats):
                yield Finding(text=f"its totals{of_side} have a bound of {name}")
            for ref in view.segments:
                for name in sought.ranges(view.schema, ref.key_range):
                    yield Finding(text=f"the key range of segment {ref.id} has a bound of {name}")

    def _learn(self, snapshot: Snapshot) -> None:
        for side, view in views_of(snapshot):
            self._all_schemas[side, view.schema] = None
            for ref in view.segments:
                self._schemas.setdefault(ref.id, (side, view.schema))

    def _segment(self, key: str, data: bytes) -> Iterator[Finding]:
        sha256 = sha256_hex(data)
        yield from self._record(unpacked_segment(data, sha256))
        known = next((schema for id_, schema in self._schemas.items() if id_ in key), None)
        candidates = list(self._all_schemas) if known is None else [known]
        for side, schema in candidates:
            try:
                segment = decode_segment(data, sha256, schema.leaf_types)
                found = list(self._bounds(segment, schema, self._sought.of(side)))
            except DECODING_ERRORS:
                if (side, schema) == candidates[-1]:
                    raise
                continue
            if known is not None and side != ROWS:
                self._sides.update((block.id, side) for block in segment.blocks)
            yield from found
            return

    def _bounds(self, segment: Any, schema: Schema, sought: Sought) -> Iterator[Finding]:
        for name in sought.shows(schema, segment.summary.col_stats):
            yield Finding(text=f"its totals have a bound of {name}")
        for block in segment.blocks:
            names = sought.shows(schema, block.col_stats)
            if block.cluster_stats is not None:
                names += sought.ranges(schema, block.cluster_stats.range)
            for name in dict.fromkeys(names):
                yield Finding(text=f"the record of block {block.id} has a bound of {name}")

    def _index_list(self, data: bytes) -> Iterator[Finding]:
        sha256 = sha256_hex(data)
        yield from self._record(unpacked_index_list(data, sha256))
        decode_index_list(data, sha256)

    def _index_part(self, data: bytes) -> Iterator[Finding]:
        """Search states of aggregates: a group or an extreme is a value of a row."""
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        rows = file.read(use_threads=False)
        yield from self._of_values(in_bytes(self.needles, data), "its bytes hold")
        yield from self._in_texts(data, file.schema_arrow, rows)

    def _unknown(self, data: bytes) -> Iterator[Finding]:
        yield from self._of_values(in_bytes(self.needles, data), "its bytes hold")
        if not self.needles:
            raise ValueError("this release does not know it, and there is no value to search for")
        try:
            data.decode()
        except UnicodeDecodeError:
            raise ValueError("this release does not know it") from None

    # ---- rows

    def _block(self, key: str, data: bytes) -> Iterator[Finding | int]:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        columns = _columns_of(file.schema_arrow)
        schema = Schema(id=0, last_column_id=max(_ids(columns)), columns=columns)
        rows = file.read(use_threads=False)
        yield len(rows)
        sought = self._sought.of(self._sides.get(id_in(key, BLOCKS_PREFIX) or "", ROWS))
        matching = self._matching(sought, rows, columns, schema)
        if matching:
            yield Finding(text=f"rows that match: {matching:,}")
        yield from self._footer(sought, file, schema)
        yield from self._of_values(in_bytes(self.needles, data), "its bytes hold")
        yield from self._in_texts(data, file.schema_arrow, rows)

    def _matching(
        self, sought: Sought, rows: pa.Table, columns: tuple[Column, ...], schema: Schema
    ) -> int:
        """Return how many rows match, by the names in the block or by the newest names."""
        if sought is not self._sought:
            return _count_in_side(sought.test(schema), rows)
        counts = []
        for held in (schema, self._sought.schema):
            selection = self._sought.matches(held)
            if selection.predicate is None:
                continue
            try:
                wide = adapt(rows, columns, selection.read)
            except FuseError:
                if held is schema:
                    raise
                continue  # a column of another branch has this id
            mask = filter_mask(selection.predicate, wide)
            counts.append(pc.sum(mask).as_py() or 0)
            if held is schema:
                self._count_shared(wide, pc.invert(pc.fill_null(mask, fill_value=False)))
        return max(counts, default=0)

    def _count_shared(self, rows: pa.Table, others: Any) -> None:
        rest = rows.filter(others)
        types = {column.name: column for column in columns_of_arrow(rest.schema)}
        for item in self._sought.given:
            column = _at(types, item.path)
            if column is None:
                continue
            equal = BoundCompare(
                column=BoundColumn(path=item.path, type=column.type), op=Op.EQ, value=item.value
            )
            self.shared[repr(item.value)] += pc.sum(filter_mask(equal, rest)).as_py() or 0

    def _footer(self, sought: Sought, file: pq.ParquetFile, schema: Schema) -> Iterator[Finding]:
        stats: dict[int, ColumnStats] = {}
        fields = list(schema.leaves())
        for group in range(file.metadata.num_row_groups):
            for place, leaf in enumerate(fields):
                held = file.metadata.row_group(group).column(place).statistics
                if held is None or not held.has_min_max or leaf.repeated:
                    continue
                field = _arrow_type(file.schema_arrow, leaf.path)
                stats[leaf.column.id] = ColumnStats(
                    min=physical(pa.scalar(held.min, field)),
                    max=physical(pa.scalar(held.max, field)),
                    null_count=0,
                    in_memory_size=0,
                )
            for name in sought.shows(schema, stats):
                yield Finding(text=f"its footer has a bound of {name}")

    def _in_texts(self, data: bytes, schema: pa.Schema, rows: pa.Table) -> Iterator[Finding]:
        texts = [field.name for field in schema if field.type in (pa.string(), pa.binary())]
        source = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, pre_buffer=False)
        encoded = source.read(columns=texts, use_threads=False) if texts else rows.select([])
        for field in schema:
            values = encoded.column(field.name) if field.name in texts else rows.column(field.name)
            for needle in self.needles:
                if needle.raw is not None and any(
                    _holds(part, needle) for chunk in values.chunks for part in _texts_in(chunk)
                ):
                    yield Finding(
                        text=f"a value of column {field.name} has {needle.shown}", needle=needle
                    )


def _count_in_side(test: RowTest, rows: pa.Table) -> int:
    found = pa.chunked_array([pa.repeat(pa.scalar(value=True), len(rows))])
    if test.selection.predicate is not None:
        found = filter_mask(test.selection.predicate, rows)
    if test.keeps is not None:
        found = pc.and_(found, test.keeps(rows))
    return pc.sum(found).as_py() or 0


def _columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    return stored_columns(schema.serialize().to_pybytes())


def _ids(columns: tuple[Column, ...]) -> Iterator[int]:
    for column in columns:
        yield column.id
        yield from _ids(column.children)


def _at(columns: dict[str, Column], path: tuple[str, ...]) -> Column | None:
    found = columns.get(path[0])
    for name in path[1:]:
        parts = {child.name: child for child in found.children} if found else {}
        found = parts.get(name)
    return found


def _arrow_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    kind = schema.field(schema.get_field_index(path[0])).type
    for name in path[1:]:
        kind = kind.field(kind.get_field_index(name)).type
    return kind


def _texts_in(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the texts and binaries in an array, of all levels, and those of dictionaries."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        yield from _texts_in(values.dictionary)
    elif kind in (pa.string(), pa.binary()):
        yield values
        if kind == pa.string():
            yield _messages_in(values)
    elif pa.types.is_struct(kind):
        for part in values.flatten():
            yield from _texts_in(part)
    elif pa.types.is_map(kind):
        yield from _texts_in(values.keys)
        yield from _texts_in(values.items)
    elif pa.types.is_list(kind):
        yield from _texts_in(values.values)


def _messages_in(texts: pa.Array) -> pa.Array:
    """Return the messages that texts keep in base64, which shows none of their values."""
    kept = texts.filter(pc.starts_with(texts.cast(pa.binary()), raw_text.PREFIX))
    return pa.array(map(raw_text.bytes_of, kept.to_pylist()), pa.binary())


def _holds(texts: pa.Array, needle: Needle) -> bool:
    # As binary: a text in Spark need not be UTF-8.
    data = texts.cast(pa.binary())
    if pc.any(pc.match_substring(data, needle.raw)).as_py():
        return True
    if needle.text is None:
        return False
    escaped = data.filter(pc.match_substring(data, b"\\")).to_pylist()
    return any(needle.text.search(text) is not None for text in escaped)
