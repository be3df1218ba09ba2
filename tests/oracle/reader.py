"""A reader of the branch `main`, written from docs/format.md; it shares no code with the package.

It reads all objects of a table (not a clone) and trusts no total: it checks every hash and count on
its way. It may look at listings and read slowly, since it runs when nobody writes.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

Row = tuple[tuple[str, Any], ...]
"""The names and values of a row's columns that are not null, in the order of the schema."""
Rows = Counter[Row]
Json = dict[str, Any]

NO_ROWS = frozenset({"create", "alter", "compact", "recluster", "expire"})
"""Operations that leave the rows as they are."""
CHUNK = 1000


class OracleError(Exception):
    """The objects are not a table that docs/format.md allows."""


@dataclass(frozen=True)
class Changes:
    """What one commit did to the rows."""

    removed: Rows
    inserted: Rows


class Oracle:
    """The table in `objects`: the bytes by key."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = {key: data for key, data in objects.items() if "/.tmp-" not in f"/{key}"}
        self._slots: dict[int, Json] = {}

    @classmethod
    def of_folder(cls, folder: Path) -> Oracle:
        files = (path for path in folder.rglob("*") if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in files})

    @cached_property
    def head(self) -> int:
        """The greatest version that has a slot or lies in an expired chunk."""
        slots = [int(_stem(key)) for key in self._keys("_ss/main/")]
        chunks = [(int(_stem(key)) + 1) * CHUNK - 1 for key in self._keys("_floor/main/")]
        _check(bool(slots), "the table has no snapshot")
        return max(slots + chunks)

    @property
    def floor(self) -> int:
        """The oldest version that has not expired."""
        return int(self.snapshot(self.head)["floor"])

    def snapshot(self, version: int) -> Json:
        """Return the record of a version, after comparing it with the table file and its parent."""
        if version not in self._slots:
            record = self._record(_slot_key(version))
            if "own_hash" in record["required_features"]:
                own = b'"sha256":"%s",' % record["sha256"].encode()
                bare = self._bytes(_slot_key(version)).replace(own, b"")
                is_own = hashlib.sha256(bare).hexdigest() == record["sha256"]
                _check(is_own, f"version {version} has changed")
            _check(record["version"] == version, f"slot {version} holds another version")
            _check(record["branch_id"] == "main", f"slot {version} holds another branch")
            table_id = self._record("_fuse.json")["table_id"]
            _check(record["table_id"] == table_id, f"version {version} is of another table")
            self._slots[version] = record
        return self._slots[version]

    def check_chain(self) -> None:
        """Check that all versions from the floor on are there, each with its parent's hash."""
        for version in range(self.floor + 1, self.head + 1):
            child, parent = self.snapshot(version), self.snapshot(version - 1)
            link = child["parent"]
            stored = hashlib.sha256(self._bytes(_slot_key(version - 1))).hexdigest()
            _check(link["version"] == version - 1, f"{version} names another parent")
            _check(link["sha256"] == stored, f"version {version - 1} has changed")
            _check(child["prev_snapshot_id"] == parent["snapshot_id"], f"{version}: another parent")
            _check(child["timestamp_us"] > parent["timestamp_us"], f"{version}: time goes back")
            for field in ("floor", "epoch"):
                _check(child[field] >= parent[field], f"version {version}: {field} goes back")

    def rows(self, version: int | None = None) -> Rows:
        """Return the rows of a version, of the head if not given."""
        snapshot = self.snapshot(self.head if version is None else version)
        hidden = self._hidden(snapshot)
        found, blocks = Rows(), 0
        for block in self._blocks(snapshot):
            found.update(self._shown(block, snapshot["schema"], hidden.pop(block["id"], set())))
            blocks += 1
        _check(not hidden, f"hidden rows of blocks that are not there: {sorted(hidden)}")
        total = snapshot["summary"]
        _check(total["row_count"] == found.total(), "the rows are not as many as the summary says")
        _check(total["block_count"] == blocks, "the blocks are not as many as the summary says")
        return found

    def ledger(self, version: int | None = None) -> dict[tuple[str, str], int]:
        """Return the last batch of each application and writer."""
        entries = self.snapshot(self.head if version is None else version)["ledger"]["entries"]
        found = {(entry["application"], entry["writer"]): entry["batch_id"] for entry in entries}
        _check(len(found) == len(entries), "two ledger entries of one writer")
        return found

    def changes(self, version: int) -> Changes:
        """Return what the commit of `version` did, each side in the schema of its version.

        Rows that went and came again are left out, but those of an `overwrite`, of which a reader
        is told whole.
        """
        new = self.snapshot(version)
        before = Rows() if version == 0 else self.rows(version - 1)
        after = self.rows(version)
        if new["operation"] == "overwrite":
            return Changes(before, after)
        if new["operation"] in NO_ROWS:
            _check(before == after, f"version {version} changed rows by {new['operation']}")
        return Changes(before - after, after - before)

    def feed(self, after: int, until: int) -> Changes:
        """Return the sum of the changes of all commits after `after`, up to `until`."""
        removed, inserted = Rows(), Rows()
        for version in range(after + 1, until + 1):
            changes = self.changes(version)
            removed += changes.removed
            inserted += changes.inserted
        return Changes(removed, inserted)

    def _blocks(self, snapshot: Json) -> Iterator[Json]:
        for ref in snapshot["segments"]:
            record = _segment(self._hashed(f"_sg/{ref['id']}_v1.json.zst", ref, "byte_size"))
            _check(len(record["blocks"]) == ref["block_count"], "a segment lacks blocks")
            rows = sum(block["row_count"] for block in record["blocks"])
            _check(rows == ref["row_count"], "a segment lacks rows")
            yield from record["blocks"]

    def _hidden(self, snapshot: Json) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for ref in snapshot.get("deletion_files", ()):
            data = self._hashed(f"_dv/{ref['id']}_v1.puffin", ref, "byte_size")
            for block_id, rows in _vectors(data):
                known = found.setdefault(block_id, set())
                _check(not known & rows, "two deletion files hide one row")
                known |= rows
        return found

    def _shown(self, block: Json, schema: Json, hidden: set[int]) -> Iterable[Row]:
        _check("origin" not in block, "the table is a clone")
        data = self._hashed(f"_b/{block['id']}_v1.parquet", block, "file_size")
        table = _table(data)
        _check(table.num_rows == block["row_count"], "a block lacks rows")
        columns = [column for column in schema["columns"] if not _is_hidden(column["name"])]
        values = [_column(table, column) for column in columns]
        names = [column["name"] for column in columns]
        for number in range(table.num_rows):
            if number not in hidden:
                row = ((name, column[number]) for name, column in zip(names, values, strict=True))
                yield tuple((name, value) for name, value in row if value is not None)

    def _hashed(self, key: str, ref: Json, size: str) -> bytes:
        data = self._bytes(key)
        _check(len(data) == ref[size], f"{key} has another size than its parent says")
        _check(hashlib.sha256(data).hexdigest() == ref["sha256"], f"{key} has another hash")
        return data

    def _record(self, key: str) -> Json:
        return _loads(self._bytes(key))

    def _bytes(self, key: str) -> bytes:
        _check(key in self.objects, f"{key} is missing")
        return self.objects[key]

    def _keys(self, prefix: str) -> Iterator[str]:
        return (key for key in self.objects if key.startswith(prefix))


def rows_of(table: pa.Table) -> Rows:
    """Return the rows of an Arrow table, in the form of `Oracle.rows`."""
    return Counter(listed_rows(table))


def listed_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of an Arrow table in their order, each in the form of `Oracle.rows`."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    for values in zip(*columns, strict=True):
        pairs = zip(table.column_names, values, strict=True)
        yield tuple((name, value) for name, value in pairs if value is not None)


def _check(holds: bool, what: str) -> None:  # noqa: FBT001 - as of assert
    if not holds:
        raise OracleError(what)


def _slot_key(version: int) -> str:
    return f"_ss/main/{version:020}_v1.json"


def _stem(key: str) -> str:
    return key.rpartition("/")[2].partition("_")[0]


def _is_hidden(name: str) -> bool:
    return name.lower().startswith("_fuse_")


def _loads(data: bytes) -> Json:
    try:
        record: Json = json.loads(data)
    except ValueError as error:
        raise OracleError(f"a record is not JSON: {error}") from error
    _check(record["format_version"] == 1, "a record of another format version")
    return record


@lru_cache(maxsize=512)
def _segment(data: bytes) -> Json:
    return _loads(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())


@lru_cache(maxsize=512)
def _table(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data), use_threads=False)


def _column(table: pa.Table, column: Json) -> list[Any]:
    for number, field in enumerate(table.schema):
        if _id_of(field) == column["id"]:
            convert = _converter(field, column)
            return [convert(value) for value in table.column(number).to_pylist()]
    return [None] * int(table.num_rows)


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {}).get(b"PARQUET:field_id", -1))


def _converter(field: pa.Field, column: Json) -> Callable[[Any], Any]:
    """Return the function that brings a value of a block to the columns of the schema, by id."""
    if not column["children"]:
        return _plain
    if pa.types.is_struct(field.type):
        parts = {_id_of(part): part for part in field.type}
        known = [
            (child["name"], parts[child["id"]].name, _converter(parts[child["id"]], child))
            for child in column["children"]
            if child["id"] in parts
        ]
        return lambda value: None if value is None else _struct(value, known)
    if pa.types.is_map(field.type):
        of_key = _converter(field.type.key_field, column["children"][0])
        of_item = _converter(field.type.item_field, column["children"][1])
        return lambda value: (
            None if value is None else tuple((of_key(key), of_item(item)) for key, item in value)
        )
    of_element = _converter(field.type.value_field, column["children"][0])
    return lambda value: None if value is None else tuple(map(of_element, value))


def _struct(value: Json, known: list[tuple[str, str, Callable[[Any], Any]]]) -> tuple[Any, ...]:
    pairs = ((name, convert(value[stored])) for name, stored, convert in known)
    return tuple((name, part) for name, part in pairs if part is not None)


def _plain(value: Any) -> Any:
    """Return a value that is equal to another where Spark groups them together."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((key, _plain(part)) for key, part in value.items() if part is not None)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value


def _vectors(data: bytes) -> Iterator[tuple[str, set[int]]]:
    """Yield the hidden rows of each block in a Puffin file."""
    _check(data[:4] == data[-4:] == b"PFA1" and data[-8:-4] == bytes(4), "not a Puffin file")
    size = struct.unpack("<i", data[-12:-8])[0]
    for blob in json.loads(data[-12 - size : -12])["blobs"]:
        if blob["type"] != "deletion-vector-v1":
            continue
        vector = data[blob["offset"] : blob["offset"] + blob["length"]]
        body = vector[4:-4]
        _check(vector[:4] == struct.pack(">I", len(body)), "a vector has another size")
        _check(vector[-4:] == struct.pack(">I", zlib.crc32(body)), "a vector's checksum is wrong")
        rows = set(BitMap64.deserialize(body[4:]))
        properties = blob["properties"]
        _check(int(properties["cardinality"]) == len(rows), "a vector hides another number of rows")
        yield properties["referenced-data-file"][len("_b/") : -len("_v1.parquet")], rows
