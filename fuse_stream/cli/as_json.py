"""The JSON values of records, for `--json`. Pure.

Rules:
- The keys are promised: a release may add some, never rename or drop one. docs/cli.md lists them.
- A record becomes an object whose keys are its fields, unless `_KEYS` names others for its class.
- Sizes are bytes, ids and hashes are whole. A field `x_us` is a time: the key is `x`, the value ISO
  text in UTC.
- In rows and bounds a decimal is text, binary is hex, a float that JSON lacks is "NaN", "Infinity"
  or "-Infinity", a map is a list of [key, value]. A time or date outside the years 1 to 9999 is
  "N us" or "N d", counted from 1970; a byte of text that is not UTF-8 is an escape.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from fuse_stream.check.audit import AuditReport, WriterAudit
from fuse_stream.check.findings import Finding
from fuse_stream.cli.history import Names
from fuse_stream.cli.text import bound, cell, iso
from fuse_stream.commit.ledger import Batch
from fuse_stream.errors import FuseError
from fuse_stream.format.records import (
    Block,
    ColumnStats,
    Ledger,
    LedgerEntry,
    SegmentRef,
    Snapshot,
    Summary,
    Value,
)
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.sides import side_views
from fuse_stream.format.source_offset import SourcePosition

Json = dict[str, Any]

_KEYS: dict[type, str] = {
    AuditReport: "path branch checkpoint query_id application head first_version agrees planned "
    "writers findings notes",
    Batch: "application writer batch_id query_id",
    Block: "id row_count=live_rows block_size file_size sha256 compression schema_id origin",
    Finding: "kind key wrong lost row_count versions",
    LedgerEntry: "query_id batch_id rows version timestamp_us",
    SegmentRef: "id sha256 level row_count block_count byte_size",
    SourcePosition: "name path table_id=offset.table_id branch_id=offset.branch_id "
    "version=offset.version snapshot_id=offset.snapshot_id index=offset.index",
    Summary: "row_count block_count perfect_block_count uncompressed_byte_size "
    "compressed_byte_size index_size",
    WriterAudit: "writer batch_count row_count last_batch empty",
}
"""The keys of records that do not show all their fields, or show them in another order."""
_ENTRY = (
    "version snapshot_id timestamp_us operation data_change row_count=summary.row_count "
    "row_count_change block_count=summary.block_count batches author message"
)
_WHOLE = (
    "table_id branch branch_id format_version clock_us prev_snapshot_id parent target schema "
    "cluster_key required_features properties summary segments added floor epoch ledger "
    "hidden_row_count=hidden_rows deletion_files deletion_files_added sides key sequence counts "
    "index_list"
)


_NO_NUMBERS: dict[str, float | str] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def pick(record: object, keys: str, **given: object) -> Json:
    """Return some attributes of a record as a JSON object.

    Args:
        record: the record.
        keys: keys with blanks between; `key=attribute` where the names differ, `key=a.b` for the
            attribute of an attribute. If `a` is None, the value is null.
        given: JSON values by key, for keys that are not attributes.
    """
    return dict(_item(record, given, *key.split("=")) for key in keys.split())


def json_value(value: object) -> Any:
    """Return the JSON value of a record, or of a value of a row."""
    match value:
        case None | bool() | int() | str():
            return value
        case Mapping():
            return {str(name): json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case Snapshot():
            return log_entry(value)
        case FuseError():
            return error_document(value)["error"]
    if dataclasses.is_dataclass(value):
        fields = " ".join(field.name for field in dataclasses.fields(value))
        return pick(value, next((_KEYS[one] for one in _KEYS if isinstance(value, one)), fields))
    if isinstance(value, float):
        return _NO_NUMBERS.get(str(value), value)
    return cell(value) if isinstance(value, bytes | Decimal | dt.datetime) else str(value)


def error_document(error: Exception) -> Json:
    """Return the JSON object of an error: its class, message and context."""
    message = error.message if isinstance(error, FuseError) else str(error)
    context = error.context if isinstance(error, FuseError) else {}
    named = {"class": type(error).__name__, "message": message, "context": json_value(context)}
    return {"error": named}


def log_entry(
    snapshot: Snapshot, row_count_change: int | None = None, names: Names | None = None
) -> Json:
    """Return a snapshot as `log --json` shows it; with `names`, also its branches and tags."""
    batches = [
        {
            "application": application,
            "writer": writer,
            "batch_id": entry.batch_id,
            "sources": json_value(entry.sources or ()),
        }
        for (application, writer), entry in snapshot.batches.items()
    ]
    entry = pick(snapshot, _ENTRY, row_count_change=row_count_change, batches=batches)
    if names is None:
        return entry
    tags = [tag.name for tag in names.tags_at(snapshot)]
    return {**entry, "labels": {"branches": names.branches_at(snapshot), "tags": tags}}


def snapshot_document(snapshot: Snapshot, row_count_change: int | None, names: Names) -> Json:
    """Return all fields of a snapshot: those that the log shows first, then the others."""
    columns = column_names(snapshot.schema)
    whole = pick(
        snapshot,
        _WHOLE,
        branch=names.find_name(snapshot.branch_id),
        schema=schema_document(snapshot.schema),
        cluster_key=[columns.get(column, str(column)) for column in snapshot.cluster_key],
        summary=_summary(snapshot),
        ledger=ledger_document(snapshot.ledger),
        sides={name: _side(view) for name, view in side_views(snapshot).items()},
        key=[columns.get(column, str(column)) for column in snapshot.key],
        sequence=_sequence(snapshot, columns),
        counts=snapshot.counts and dataclasses.asdict(snapshot.counts),
    )
    return {**log_entry(snapshot, row_count_change, names), **whole}


def block_document(block: Block, schema: Schema, only: int | None = None) -> Json:
    """Return a block; with `only`, a column id, without the statistics of other columns."""
    return {**json_value(block), "col_stats": _col_stats(block.col_stats, schema, only)}


def ledger_document(ledger: Ledger) -> Json:
    """Return the ledger's entries and its retired queries."""
    return {
        "entries": [
            {
                "application": application,
                "writer": writer,
                **json_value(entry),
                "sources": json_value(entry.sources or ()),
            }
            for (application, writer), entry in sorted(ledger.entries.items())
        ],
        "retired": [
            {"query_id": query_id, **pick(retired, "application version fork")}
            for query_id, retired in sorted(ledger.retired.items())
        ],
    }


def row_documents(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Json]:
    """Return an object for each row, with the columns' names as keys."""
    return [
        {name: json_value(value) for name, value in zip(names, row, strict=True)} for row in rows
    ]


def located(origins: Iterable[tuple[str, str]]) -> list[Json]:
    """Return an object for each (table id, location) of a clone's origins."""
    return [{"table_id": table_id, "location": location} for table_id, location in origins]


def column_names(schema: Schema) -> dict[int, str]:
    """Return the dotted name of every leaf, by column id."""
    return {leaf.column.id: ".".join(leaf.path) for leaf in schema.leaves()}


def _item(value: Any, given: Mapping[str, object], key: str, path: str = "") -> tuple[str, Any]:
    if key in given:
        return key, given[key]
    for name in (path or key).split("."):
        value = None if value is None else getattr(value, name)
    if not (path or key).endswith("_us"):
        return key, json_value(value)
    return key.removesuffix("_us"), None if value is None else iso(value, exact=True)


def _side(view: Snapshot) -> Json:
    return pick(
        view,
        "schema summary segments hidden_row_count=hidden_rows deletion_files",
        schema=schema_document(view.schema),
        summary=_summary(view),
    )


def _sequence(snapshot: Snapshot, columns: Mapping[int, str]) -> Json | None:
    sequence = snapshot.sequence
    if sequence is None:
        return None
    return {
        "scd_type": sequence.scd_type,
        "keys": [columns.get(column, str(column)) for column in sequence.keys],
        "tracked": [columns.get(column, str(column)) for column in sequence.tracked],
    }


def schema_document(schema: Schema) -> Json:
    """Return the columns of a table, without hidden ones."""
    return {"id": schema.id, "columns": [_column(column) for column in schema.visible.columns]}


def _summary(snapshot: Snapshot) -> Json:
    col_stats = _col_stats(snapshot.summary.col_stats, snapshot.schema)
    return {**json_value(snapshot.summary), "col_stats": col_stats}


def _column(column: Column) -> Json:
    document = pick(column, "id name type nullable")
    if column.stored is not None:
        document["stored"] = column.stored
    if column.comment is not None:
        document["comment"] = column.comment
    if column.children:
        document["children"] = [_column(child) for child in column.children]
    return document


def _col_stats(
    stats: Mapping[int, ColumnStats], schema: Schema, only: int | None = None
) -> dict[str, Json]:
    names = column_names(schema.visible if only is None else schema)
    types = schema.leaf_types
    return {
        names[column]: {
            **json_value(item),
            "min": _bound(item.min, types[column]),
            "max": _bound(item.max, types[column]),
        }
        for column, item in stats.items()
        if column in names and only in {None, column}
    }


def _bound(value: Value | None, type_name: str) -> object:
    if value is not None and type_name in {"date", "timestamp", "timestamp_ntz"}:
        return bound(value, type_name)
    return json_value(value)
