"""What a table holds when nobody writes to it any more, read by plain JSON and pyarrow.

Every row of these campaigns names the batch that it came with, so loss and doubling are seen from
the rows alone. Nothing here is the package's, but where a promise is about what the package says.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.table.handle import Table
from torture.campaign import PromiseBrokenError

Row = tuple[str, int, int]
"""Application, batch, and the number of the row within the batch."""
Rows = Counter[Row]

SCHEMA = pa.schema([("app", pa.string()), ("batch", pa.int64()), ("row", pa.int64())])
ROWS = 3
"""Rows of a batch."""

_SHOWN = 20


def batch_of(app: str, batch: int) -> pa.Table:
    """Return the rows of a batch; the same whoever delivers it, and whenever."""
    return pa.table(
        {"app": [app] * ROWS, "batch": [batch] * ROWS, "row": list(range(ROWS))}, SCHEMA
    )


def rows_wanted(batches: Mapping[str, int]) -> Rows:
    """Return the rows of the first batches of each application: as many as `batches` says."""
    return Counter(
        (app, batch, row)
        for app, count in batches.items()
        for batch in range(count)
        for row in range(ROWS)
    )


class Files:
    """The files of a table's branch `main`, in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slots = sorted((folder / "_ss" / "main").glob("*_v1.json"))

    def history(self) -> list[str]:
        """Return a line for each snapshot: its version, what it did, and which batches it holds."""
        return [
            f"version {record['version']}: {record['operation']}, ledger "
            + ", ".join(f"{app} {batch}" for (app, _), batch in sorted(ledger_of(record).items()))
            for record in map(_loads, self._slots)
        ]

    def check_chain(self) -> None:
        """Raise unless the versions have no gap, and each names its parent by its hash."""
        before: Path | None = None
        for slot in self._slots:
            record = _loads(slot)
            if before is not None:
                parent = _loads(before)
                follows = record["version"] == parent["version"] + 1
                self._check(follows, f"no version follows {parent['version']}")
                named = record["parent"]["sha256"] == _sha256(before.read_bytes())
                self._check(named, f"version {record['version']} was built on another parent")
                later = record["timestamp_us"] > parent["timestamp_us"]
                self._check(later, f"the time of version {record['version']} is not later")
            before = slot

    def batch_at(self, version: int, app: str) -> int | None:
        """Return the last batch of an application at a version; None if the version has none."""
        found = [slot for slot in self._slots if int(slot.name.partition("_")[0]) == version]
        return ledger_of(_loads(found[0])).get((app, "")) if found else None

    def rows(self) -> Rows:
        """Return the rows of the head, whose objects all have the hashes that name them."""
        head = _loads(self._slots[-1])
        self._check(not head.get("deletion_files"), "rows are hidden that nobody deleted")
        found = Rows()
        for ref in head["segments"]:
            stored = self._checked(f"_sg/{ref['id']}_v1.json.zst", ref["sha256"])
            text = pa.CompressedInputStream(pa.BufferReader(stored), "zstd").read()
            for block in json.loads(text)["blocks"]:
                data = self._checked(f"_b/{block['id']}_v1.parquet", block["sha256"])
                table = pq.read_table(pa.BufferReader(data))
                found.update(rows_in(table))
        return found

    def _checked(self, key: str, sha256: str) -> bytes:
        path = self._folder / key
        self._check(path.exists(), f"{key} is missing")
        data = path.read_bytes()
        self._check(_sha256(data) == sha256, f"{key} has other bytes than were committed")
        return data

    def _check(self, holds: bool, promise: str) -> None:  # noqa: FBT001 - as of assert
        if not holds:
            raise PromiseBrokenError(promise, self.history())


def rows_in(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of an Arrow table."""
    yield from zip(*(table.column(name).to_pylist() for name in SCHEMA.names), strict=True)


def check_rows(found: Rows, wanted: Rows, what: str, history: list[str]) -> None:
    """Raise unless two multisets of rows are equal; names the batches that differ."""
    lost, more = wanted - found, found - wanted
    if lost or more:
        raise PromiseBrokenError(
            f"{what}: lost {_batches(lost)}, doubled or never sent {_batches(more)}", history
        )


def check_settled(table: Table, folder: Path, batches: Mapping[str, int]) -> None:
    """Raise unless a table has each batch once, its feed is its rows, and no object is damaged.

    `folder` has the table's files; `batches` says how many each application has delivered.
    """
    files, wanted = Files(folder), rows_wanted(batches)
    files.check_chain()
    check_rows(files.rows(), wanted, "the table", files.history())
    report = table.fsck(deep=True)
    if not report.is_sound:
        raise PromiseBrokenError(f"fsck finds damage: {report}", files.history())


def check_feed(table: Table, folder: Path, batches: Mapping[str, int]) -> None:
    """Raise unless the feed from version 0 sums to what was delivered."""
    changes = table.changes(0).read_all()
    inserts = [kind == "insert" for kind in changes.column("_change_type").to_pylist()]
    rows = list(rows_in(changes.select(SCHEMA.names)))
    added = Rows(row for row, is_added in zip(rows, inserts, strict=True) if is_added)
    gone = Rows(row for row, is_added in zip(rows, inserts, strict=True) if not is_added)
    history = Files(folder).history()
    check_rows(added, rows_wanted(batches) + gone, "the sum of the feed", history)
    if gone:
        raise PromiseBrokenError(f"the feed removes rows: {_batches(gone)}", history)


def ledger_of(record: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return the last batch of each application and writer in a snapshot's record."""
    entries = record["ledger"]["entries"]
    return {(entry["application"], entry["writer"]): entry["batch_id"] for entry in entries}


def _loads(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _batches(rows: Rows) -> list[tuple[str, int]]:
    return sorted({(app, batch) for app, batch, _ in rows})[:_SHOWN]
