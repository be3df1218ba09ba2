"""The order of a source's events as numbers: the column `_seq`.

Rules:
- One struct for all sources, compared field by field: `p1` to `p4` are the source's own position,
  `offset` is Kafka's. Fields that a source does not need are 0.
- It is null where the position is missing or cannot be read; such an event is not applied.
- PostgreSQL: a change may be logged before, and committed after, the snapshot or another change.
  Its events are ordered by the last commit before it and then by its own place in the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from fuse_stream.cdc.json_text import text_of
from fuse_stream.errors import InvalidInputError

AUTO, OFFSET = "auto", "offset"

PARTS = ("p1", "p2", "p3", "p4")

Position = tuple[int, ...]
"""At most as long as `PARTS`."""

_LSN = re.compile(r"([0-9a-fA-F]{8}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})")
_LAST_COMMIT = re.compile(r'\[\s*"?(\d+)"?\s*,', re.ASCII)
_FILE_NUMBER = re.compile(r"\.(\d+)$", re.ASCII)
_POSITION = re.compile(r"\.(\d+):(\d+)$", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_LAST_ROW = 2**62
_GREATEST = 2**63 - 1


def check_sequence(sequence: str) -> None:
    """Raise `InvalidInputError` unless `sequence` is known."""
    if sequence not in {AUTO, OFFSET}:
        raise InvalidInputError("sequence is 'auto' or 'offset'", sequence=sequence)


def by_offset(offset: int | None, row: int = 0) -> Position | None:
    """Return the position of a message by its place in Kafka, and of a row in it."""
    return None if offset is None else (offset, row)


def of_maxwell(event: dict[str, Any]) -> Position | None:
    """Return the position of an event with a binlog position such as `master.000006:800911`.

    Rows of one transaction count by `xoffset`; the last one, which has the commit, has none.
    """
    match = _POSITION.search(text_of(event, "position") or "")
    row = _LAST_ROW if event.get("commit") is True else _number(text_of(event, "xoffset")) or 0
    return match and _complete(_number(match[1]), _number(match[2]), row)


def of_debezium(source: dict[str, Any] | None) -> Position | None:
    """Return the position of a Debezium event, by the connector that its `source` names."""
    if source is None:
        return None
    connector = text_of(source, "connector")
    if connector is None:  # some releases did not name it
        marks = ("file", "lsn", "commit_lsn", "scn", "ord")
        mark = next((name for name in marks if source.get(name) is not None), "")
        connector = _CONNECTOR_WITH.get(mark, "")
    position_of = _POSITION_OF.get(connector)
    return position_of and position_of(source)


def _postgres(source: dict[str, Any]) -> Position | None:
    lsn = _number(text_of(source, "lsn"))
    match = _LAST_COMMIT.match(text_of(source, "sequence") or "")
    last_commit = _number(match[1]) if match else None
    return _complete(lsn if last_commit is None else last_commit, lsn)


def _mysql(source: dict[str, Any]) -> Position | None:
    match = _FILE_NUMBER.search(text_of(source, "file") or "")
    place = _number(text_of(source, "pos"))
    return match and _complete(_number(match[1]), place, _number(text_of(source, "row")) or 0)


def _sql_server(source: dict[str, Any]) -> Position | None:
    commit = _lsn(text_of(source, "commit_lsn"))
    if commit is None:
        return None
    # A row of the snapshot has no change.
    block, slot = _lsn(text_of(source, "change_lsn")) or (0, 0)
    serial = _number(text_of(source, "event_serial_no")) or 0
    return *commit, block, slot << 32 | serial


def _oracle(source: dict[str, Any]) -> Position | None:
    scn, commit = _number(text_of(source, "scn")), _number(text_of(source, "commit_scn"))
    return _complete(scn if commit is None else commit, scn)


def _mongo(source: dict[str, Any]) -> Position | None:
    return _complete(_number(text_of(source, "ts_ms")), _number(text_of(source, "ord")) or 0)


_CONNECTOR_WITH = {
    "file": "mysql",
    "lsn": "postgresql",
    "commit_lsn": "sqlserver",
    "scn": "oracle",
    "ord": "mongodb",
}
_POSITION_OF: dict[str, Callable[[dict[str, Any]], Position | None]] = {
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sql_server,
    "oracle": _oracle,
    "mongodb": _mongo,
}


def _lsn(text: str | None) -> tuple[int, int] | None:
    """Return the file and the block of an LSN as one number, and the slot."""
    match = _LSN.fullmatch(text or "")
    if match is None:
        return None
    file, block, slot = (int(group, 16) for group in match.groups())
    return (file << 32 | block, slot) if file < 2**31 else None


def _number(text: str | None) -> int | None:
    """Return a text as a long; None if it is none."""
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_GREATEST <= number <= _GREATEST else None


def _complete(*parts: int | None) -> Position | None:
    return None if None in parts else cast("Position", parts)
