"""What must hold of a table after any step, by the oracle and by the package."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fuse_stream.errors import FuseError, SchemaChangedError
from fuse_stream.table.handle import Table
from tests.oracle.reader import Oracle, OracleError, Row, Rows, listed_rows, rows_of
from torture.histories import Expected, find_tag_rows

KINDS_OF_CHANGE = {
    "insert": 1,
    "update_postimage": 1,
    "delete": -1,
    "update_preimage": -1,
}


class BrokenError(Exception):
    """A promise does not hold; the message says which and how."""


def check(holds: object, promise: str) -> None:
    """Raise `BrokenError` unless `holds`."""
    if not holds:
        raise BrokenError(promise)


def sound_oracle(objects: Mapping[str, bytes]) -> Oracle:
    """Return the oracle of a table whose chain of versions is whole.

    Raises:
        BrokenError: it is not.
    """
    oracle = Oracle(objects)
    try:
        oracle.check_chain()
    except (OracleError, KeyError, ValueError) as error:
        raise BrokenError(f"1: the chain of versions is broken: {error}") from error
    return oracle


def is_as(oracle: Oracle, expected: Expected) -> bool:
    """True if the head holds what the model does.

    Raises:
        BrokenError: the head cannot be read.
    """
    head = oracle.snapshot(oracle.head)
    return (
        rows_at(oracle, oracle.head) == expected.rows
        and oracle.ledger() == expected.ledger
        and head["properties"].get("owner") == expected.owner
    )


def rows_at(oracle: Oracle, version: int) -> Rows:
    """Return the rows of a version.

    Raises:
        BrokenError: a block, segment or deletion file is missing or is another one.
    """
    try:
        return oracle.rows(version)
    except OracleError as error:
        raise BrokenError(f"3: version {version} cannot be read: {error}") from error


def check_history(oracle: Oracle, expected: Expected, until: int) -> None:
    """Check that every retained version up to `until` has the rows that it was made with."""
    for version in range(max(oracle.floor, 1), until + 1):
        if version in expected.at:
            found = rows_at(oracle, version)
            wanted = expected.at[version][0]
            check(found == wanted, f"3: version {version} {difference(found, wanted)}")


def check_tags(table: Table, expected: Expected) -> None:
    """Check that every tag names the rows that it was made for."""
    for name, version in expected.tags.items():
        try:
            rows = find_tag_rows(table, name)
        except FuseError as error:
            raise BrokenError(f"5: the tag {name} cannot be read: {error}") from error
        check(rows is not None, f"5: the tag {name} is gone")
        if rows is not None and version in expected.at:
            found, wanted = rows_of(rows), expected.at[version][0]
            check(found == wanted, f"5: the tag {name} {difference(found, wanted)}")


def check_package(table: Table, oracle: Oracle, since: int) -> None:
    """Check that the package reads the head, the ledger and the changes as the oracle does.

    Args:
        table: a handle that has read nothing.
        oracle: of the same objects.
        since: the version after which changes are compared.
    """
    try:
        head = table.head()
        check(head.version == oracle.head, f"6: the package's head is {head.version}")
        found = rows_of(table.to_arrow())
        ledger = {key: entry.batch_id for key, entry in table.ledger().items()}
        changes = _changes_since(table, since) if since < oracle.head else None
    except FuseError as error:
        raise BrokenError(f"6: the package cannot read what the oracle can: {error}") from error
    wanted = oracle.rows()
    check(found == wanted, f"6: the package's table {difference(found, wanted)}")
    check(ledger == oracle.ledger(), "2: the package's ledger is not the oracle's")
    if changes is not None:
        total = feed_sum(changes)
        feed = oracle.feed(since, oracle.head)
        told = feed.inserted.copy()
        told.subtract(feed.removed)
        nets = {row: count for row, count in told.items() if count}
        check(total == nets, f"4: the changes since {since} add up to {total}, not {nets}")


def _changes_since(table: Table, since: int) -> pa.Table | None:
    """Return the changes after a version; None if the head has lost a column that they have."""
    try:
        return table.changes(since + 1).read_all()
    except SchemaChangedError:
        columns = set(table.schema.names)
        before = set(table.to_arrow(version=since).column_names)
        check(before - columns, "4: the changes are refused, and no column has gone")
        return None


def feed_sum(changes: pa.Table) -> dict[Row, int]:
    """Return how often each row came, less how often it went, where that is not 0."""
    total: dict[Row, int] = {}
    kinds = changes.column("_change_type").to_pylist()
    plain = changes.drop_columns(["_change_type", "_commit_version", "_commit_timestamp"])
    for row, kind in zip(listed_rows(plain), kinds, strict=True):
        total[row] = total.get(row, 0) + KINDS_OF_CHANGE[kind]
    return {row: count for row, count in total.items() if count}


def difference(found: Rows, wanted: Rows) -> str:
    """Return in words how rows differ from the wanted ones."""
    lost, extra = wanted - found, found - wanted
    return f"lacks {shown(lost)} and has too much {shown(extra)}"


def shown(rows: Rows) -> str:
    """Return a few of the rows as text."""
    some = [f"{dict(row)} x {count}" for row, count in list(rows.items())[:3]]
    more = f" and {len(rows) - 3} others" if len(rows) > 3 else ""
    return f"[{', '.join(some)}{more}]"
