"""The order of a source's events as numbers: the column `_seq`.

Rules:
- One struct for all sources, compared field by field: `p1` to `p4` are the source's own position,
  `offset` is Kafka's. Fields that a source does not need are 0.
- It is null where the position is missing or cannot be read; such an event is not applied.
- PostgreSQL: a change may be logged before, and committed after, the snapshot or another change.
  Its events are ordered by the last commit before it and then by its own place in the log.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.functions import (
    coalesce,
    conv,
    length,
    lit,
    regexp_extract,
    shiftleft,
    struct,
    when,
)

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.cdc.binding import let

AUTO, OFFSET = "auto", "offset"

PARTS = ("p1", "p2", "p3", "p4")

SEQUENCE = "struct<" + ",".join(f"{part}:bigint" for part in (*PARTS, "offset")) + ">"
"""The type of `_seq`."""

SOURCE_FIELDS = (
    *("connector", "lsn", "sequence", "file", "pos", "row"),
    *("change_lsn", "commit_lsn", "event_serial_no", "scn", "commit_scn", "ts_ms", "ord"),
)
"""What Debezium's `source` says of a position."""

_LSN = r"^([0-9a-fA-F]{8}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})$"
_LAST_COMMIT = r'^\[\s*"?(\d+)"?\s*,'
_FILE_NUMBER = r"\.(\d+)$"
_POSITION = r"\.(\d+):(\d+)$"
_LAST_ROW = 2**62


def check_sequence(sequence: str) -> None:
    """Raise `InvalidInputError` unless `sequence` is known."""
    if sequence not in {AUTO, OFFSET}:
        raise InvalidInputError("sequence is 'auto' or 'offset'", sequence=sequence)


def make_sequence(parts: list[Column], offset: Column) -> Column:
    """Return the struct of a position; null if the first part is."""
    zero = lit(0).cast("bigint")
    padded = [*parts, *[zero] * (len(PARTS) - len(parts))]
    fields = [part.alias(name) for part, name in zip(padded, PARTS, strict=True)]
    made = struct(*fields, coalesce(offset, zero).alias("offset"))
    return let(made, lambda known: when(known[PARTS[0]].isNotNull(), known))


def by_offset(offset: Column, row: Column | None = None) -> Column:
    """Return the sequence of a message by its place in Kafka, and of a row in it."""
    return make_sequence([offset, *([] if row is None else [row])], offset)


def of_maxwell(position: Column, xoffset: Column, is_last: Column, offset: Column) -> Column:
    """Return the sequence of a binlog position such as `master.000006:800911`.

    Rows of one transaction count by `xoffset`; the last one, which has the commit, has none.
    """
    file = _number(regexp_extract(position, _POSITION, 1))
    place = _number(regexp_extract(position, _POSITION, 2))
    row = when(is_last, lit(_LAST_ROW)).otherwise(coalesce(_number(xoffset), lit(0)))
    return make_sequence([_all(file, place), place, row.cast("bigint")], offset)


def of_debezium(source: Column, offset: Column) -> Column:
    """Return the sequence of a Debezium event, by the connector that its `source` names."""
    # Some releases did not name the connector.
    connector = coalesce(
        source["connector"],
        when(source["file"].isNotNull(), lit("mysql"))
        .when(source["lsn"].isNotNull(), lit("postgresql"))
        .when(source["commit_lsn"].isNotNull(), lit("sqlserver"))
        .when(source["scn"].isNotNull(), lit("oracle"))
        .when(source["ord"].isNotNull(), lit("mongodb")),
    )
    made = lit(None).cast(SEQUENCE)
    for names, parts in (
        (("postgresql",), _postgres(source)),
        (("mysql", "mariadb"), _mysql(source)),
        (("sqlserver",), _sql_server(source)),
        (("oracle",), _oracle(source)),
        (("mongodb",), _mongo(source)),
    ):
        made = when(connector.isin(*names), make_sequence(parts, offset)).otherwise(made)
    return made


def _postgres(source: Column) -> list[Column]:
    lsn = _number(source["lsn"])
    last_commit = _number(regexp_extract(source["sequence"], _LAST_COMMIT, 1))
    return [_all(coalesce(last_commit, lsn), lsn), lsn]


def _mysql(source: Column) -> list[Column]:
    file = _number(regexp_extract(source["file"], _FILE_NUMBER, 1))
    place = _number(source["pos"])
    return [_all(file, place), place, coalesce(_number(source["row"]), lit(0).cast("bigint"))]


def _sql_server(source: Column) -> list[Column]:
    commit, change = source["commit_lsn"], source["change_lsn"]
    zero = lit(0).cast("bigint")
    serial = coalesce(source["event_serial_no"].try_cast("int"), lit(0)).cast("bigint")
    slot = coalesce(_hexadecimal(change, 3), zero)  # a row of the snapshot has no change
    return [
        _log_block(commit),
        _hexadecimal(commit, 3),
        coalesce(_log_block(change), zero),
        shiftleft(slot, 32).bitwiseOR(serial),
    ]


def _oracle(source: Column) -> list[Column]:
    scn = _number(source["scn"])
    return [_all(coalesce(_number(source["commit_scn"]), scn), scn), scn]


def _mongo(source: Column) -> list[Column]:
    return [_number(source["ts_ms"]), coalesce(_number(source["ord"]), lit(0).cast("bigint"))]


def _log_block(lsn: Column) -> Column:
    """Return the file and the block of an LSN as one number."""
    file = _hexadecimal(lsn, 1)
    return when(file < 2**31, shiftleft(file, 32).bitwiseOR(_hexadecimal(lsn, 2)))


def _hexadecimal(lsn: Column, group: int) -> Column:
    digits = regexp_extract(lsn, _LSN, group)
    return when(length(digits) > 0, conv(digits, 16, 10)).try_cast("bigint")


def _number(text: Column) -> Column:
    return text.try_cast("bigint")


def _all(first: Column, *others: Column) -> Column:
    """Return the first value, or null if one of them is null."""
    known = first.isNotNull()
    for other in others:
        known = known & other.isNotNull()
    return when(known, first)
