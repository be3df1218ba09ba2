"""What a table holds when nobody writes to it any more, read by the oracle.

Every row of these campaigns names the batch that it came with, so loss and doubling are seen from
the rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from fuse_stream.table.handle import Table
from tests.oracle.reader import Oracle, OracleError
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
        self._oracle = Oracle.of_folder(folder)

    def history(self) -> list[str]:
        """Return a line for each snapshot: its version, what it did, and which batches it holds."""
        try:
            versions = range(self._oracle.floor, self._oracle.head + 1)
        except OracleError as error:
            return [str(error)]
        return list(map(self._line, versions))

    def _line(self, version: int) -> str:
        try:
            operation = self._oracle.snapshot(version)["operation"]
            ledger = sorted(self._oracle.ledger(version).items())
        except OracleError as error:
            return f"version {version}: {error}"
        batches = ", ".join(f"{app} {batch}" for (app, _), batch in ledger)
        return f"version {version}: {operation}, ledger {batches}"

    def batch_at(self, version: int, app: str) -> int | None:
        """Return the last batch of an application at a version; None if the version has none."""
        try:
            return self._oracle.ledger(version).get((app, ""))
        except OracleError:  # there is no such version
            return None

    def rows(self) -> Rows:
        """Return the rows of the head, after a look at the whole chain of versions.

        Raises:
            PromiseBrokenError: the objects are not those of a table.
        """
        try:
            self._oracle.check_chain()
            found = self._oracle.rows()
        except OracleError as error:
            raise PromiseBrokenError(str(error), self.history()) from error
        names = SCHEMA.names
        return Rows(
            {tuple(dict(row)[name] for name in names): count for row, count in found.items()}
        )


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


def _batches(rows: Rows) -> list[tuple[str, int]]:
    return sorted({(app, batch) for app, batch, _ in rows})[:_SHOWN]
