"""A model of a table, to compare a real table with; and a check of a real table's objects.

The model shares no code with the package. It has the ledger's rules for `Table.append`: one entry
for each (application, writer); an equal batch is a replay if its rows have the same sums, and else
refused, as is a lower one.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.format.layout import block_key, segment_key, slot_key
from fuse_stream.format.records import Snapshot
from fuse_stream.format.sides import row_lists
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table

Row = tuple[object, ...]
Rows = Counter[Row]
Sums = list[tuple[int, int, int]]


class ModelRefusalError(Exception):
    """The model refuses this batch."""


@dataclass(slots=True)
class ModelTable:
    """The state that a table must have after the same calls."""

    rows: Rows = field(default_factory=Counter)
    operations: list[str] = field(default_factory=lambda: ["create"])
    versions: list[Rows] = field(default_factory=lambda: [Counter()])
    """The rows at each version."""
    ledger: dict[tuple[str, str], int] = field(default_factory=dict)
    """The last batch by (application, writer)."""
    sums: dict[tuple[str, str], Sums] = field(default_factory=dict)
    """Those of the last batch."""
    properties: dict[str, str] = field(default_factory=dict)

    def write(
        self, operation: str, rows: Iterable[Row], *, batch: tuple[str, str, int] | None = None
    ) -> bool:
        """Append or overwrite rows; return False for a replay, else True."""
        if batch is not None:
            key, arriving = batch[:2], batch[2]
            last = self.ledger.get(key)
            sums = sums_of(rows := list(rows))
            if last is not None and arriving == last:
                if sums != self.sums[key]:
                    raise ModelRefusalError(f"other rows came as {arriving}")
                return False
            if last is not None and arriving < last:
                raise ModelRefusalError(f"{arriving} comes after {last}")
            self.ledger[key], self.sums[key] = arriving, sums
        kept = Counter() if operation == "overwrite" else self.rows
        self._commit(operation, kept + Counter(rows))
        return True

    def set_properties(self, properties: dict[str, str]) -> None:
        self.properties |= properties
        self._commit("alter", self.rows)

    def forget(self, app_id: str) -> None:
        self.ledger = {key: last for key, last in self.ledger.items() if key[0] != app_id}
        self._commit("alter", self.rows)

    def _commit(self, operation: str, rows: Rows) -> None:
        self.rows = rows
        self.operations.append(operation)
        self.versions.append(rows)


def sums_of(rows: Iterable[Row]) -> Sums:
    """Return for each column how many numbers or texts it has, their length and their sum."""
    found = []
    for values in zip(*rows, strict=True):
        numbers = [value for value in values if isinstance(value, int)]
        texts = [value.encode() for value in values if isinstance(value, str)]
        count = len(numbers) + len(texts)
        found.append((count, sum(map(len, texts)), sum(numbers) + sum(map(sum, texts))))
    return found


def rows_of(table: pa.Table) -> Rows:
    """Return the rows of `table` as a multiset."""
    return Counter(
        zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
    )


def assert_sound(store: Store, table: Table, *, since: int = 0) -> None:
    """Assert that `store` holds all objects of `table` from version `since` on, by their hashes.

    No version is missing; every snapshot has its parent's hash and a later time; every segment and
    block exists with the size and hash that its parent records.
    """
    head = table.head()
    slots = [store.get(slot_key("main", version)) for version in range(since, head.version + 1)]
    for before, after in pairwise(slots):
        parent, child = json.loads(before), json.loads(after)
        assert child["parent"]["sha256"] == hashlib.sha256(before).hexdigest()
        assert child["version"] == parent["version"] + 1
        assert child["timestamp_us"] > parent["timestamp_us"]
    for held in row_lists(head):
        _assert_whole(store, table, held)


def _assert_whole(store: Store, table: Table, head: Snapshot) -> None:
    for ref in head.segments:
        stored = store.get(segment_key(ref.id))
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (ref.byte_size, ref.sha256)
    blocks = tuple(iter_blocks(table.metadata, head))
    for block in blocks:
        data = store.get(block_key(block.id, block.origin))
        assert (len(data), hashlib.sha256(data).hexdigest()) == (block.file_size, block.sha256)
        assert pq.read_metadata(pa.BufferReader(data)).num_rows == block.row_count
    assert len({block.id for block in blocks}) == len(blocks) == head.summary.block_count
    assert sum(block.live_rows for block in blocks) == head.summary.row_count
    hidden = table.metadata.deletions.hidden_by(head.deletion_files)
    assert hidden == {block.id: block.hidden for block in blocks if block.hidden}
