"""CREATE, ALTER and DROP of tables in a catalog: Spark's descriptions, as calls of this package.

What the format does not have is refused, with what to do instead; nothing is left out silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.schema import Schema
from fuse_stream.spark.types import columns_of_spark
from fuse_stream.storage.open import open_store
from fuse_stream.table.alter import add_columns, widen_column
from fuse_stream.table.handle import Table, create_at
from fuse_stream.table.location import TableLocation

CLUSTER_BY = "cluster_by"

_OF_SPARK = frozenset(
    {"provider", "owner", "location", "external", "is_managed_location", "table_type", "collation"}
)
"""Properties that Spark adds to a description; the catalog knows them itself."""
_OPTION = "option."


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a statement says of a table that it creates."""

    schema: Schema
    cluster_by: tuple[str, ...]
    properties: Mapping[str, str]


def read_description(location: TableLocation, parts: Sequence[Any]) -> Description:
    """Return Spark's description of a table at a location: a `TableInfo`, or its parts.

    Raises:
        InvalidInputError: the format has no such column, partition or property.
        UnsupportedTypeError: the format does not have a column's type.
    """
    if len(parts) == 1:
        info = parts[0]
        if list(info.constraints()):
            raise InvalidInputError(
                "a table has no constraints but NOT NULL and its key: leave the constraint out, "
                "and set a key with Table.set_key"
            )
        schema, transforms, properties = info.schema(), info.partitions(), info.properties()
    else:
        schema, transforms, properties = parts
    fields = StructType.fromJson(json.loads(schema.json()))
    for field in fields.fields:
        check_field(field.name, field.metadata)
    return Description(
        schema=first_schema(columns_of_spark(fields), case_sensitive=True),
        cluster_by=_cluster_key(list(transforms)),
        properties=_own_properties(dict(properties), location),
    )


def create_table(location: TableLocation, description: Description) -> Table:
    """Create a table; raises the errors of `Table.create`."""
    return create_at(
        location,
        description.schema,
        cluster_by=description.cluster_by,
        properties=description.properties,
    )


def check_field(name: str, metadata: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if a column has something that the format does not keep."""
    kept = {key: value for key, value in metadata.items() if not key.startswith("__CHAR_VARCHAR")}
    if kept:
        raise InvalidInputError(
            "a column has a name, a type and NOT NULL: comments, defaults, generated and identity "
            "columns are not kept; leave them out",
            column=name,
            has=sorted(kept),
        )


def _cluster_key(transforms: Sequence[Any]) -> tuple[str, ...]:
    names: list[str] = []
    for transform in transforms:
        if str(transform.name()) != CLUSTER_BY:
            raise InvalidInputError(
                "a table has no partitions: its blocks are found by their bounds. Sort them by the "
                "columns instead: CLUSTER BY (column, …)",
                partition=str(transform.toString()),
            )
        names += [_name(reference) for reference in transform.references()]
    return tuple(names)


def _name(reference: Any) -> str:
    parts = list(reference.fieldNames())
    if len(parts) != 1:
        raise InvalidInputError(
            "a cluster key has columns that are not nested", column=".".join(parts)
        )
    return str(parts[0])


def _own_properties(properties: Mapping[str, str], location: TableLocation) -> dict[str, str]:
    provider = properties.get("provider", "fuse")
    if provider.lower() not in {"fuse", "parquet"}:
        raise InvalidInputError(
            "the tables of this catalog are fuse tables: write USING fuse, or leave USING out",
            using=provider,
        )
    given = properties.get("location")
    if given is not None and open_store(given).url != open_store(location.path).url:
        raise InvalidInputError(
            "a table of this catalog is the folder of its name: leave LOCATION out, or attach the "
            "folder above the location",
            location=given,
            folder=location.path,
        )
    return {
        name: value
        for name, value in properties.items()
        if name not in _OF_SPARK and not name.startswith(_OPTION)
    }


def alter_table(table: Table, changes: Sequence[Any]) -> None:
    """Apply Spark's changes of a table, each as one commit.

    Raises:
        InvalidInputError: the format does not have such a change; nothing after it was applied.
    """
    kinds = [change.getClass().getSimpleName() for change in changes]
    for kind in kinds:
        if kind not in _CHANGES:
            raise InvalidInputError(
                f"a table cannot change in this way: {_REASONS.get(kind, 'the format lacks it')}",
                change=kind,
            )
    by_kind = {
        kind: [change for change, its in zip(changes, kinds, strict=True) if its == kind]
        for kind in kinds
    }
    added = tuple(_added(change) for change in by_kind.get("AddColumn", ()))
    if added:
        add_columns(table, columns_of_spark(StructType(list(added))))
    for change in by_kind.get("UpdateColumnType", ()):
        widen_column(table, _field(change), _type_name(change.newDataType()))
    if changed := by_kind.get("SetProperty"):
        table.set_properties({str(each.property()): str(each.value()) for each in changed})
    if removed := by_kind.get("RemoveProperty"):
        table.unset_properties([str(each.property()) for each in removed])
    for change in by_kind.get("ClusterBy", ()):
        table.cluster_by([_name(reference) for reference in change.clusteringColumns()])


def _added(change: Any) -> StructField:
    name = _field(change)
    has = {
        "NOT NULL": not change.isNullable(),
        "COMMENT": change.comment() is not None,
        "FIRST or AFTER": change.position() is not None,
        "DEFAULT": change.defaultValue() is not None,
    }
    if any(has.values()):
        raise InvalidInputError(
            "a new column comes after the others, is null in older rows, and has no comment and no "
            "default: leave these out",
            column=name,
            has=[what for what, is_there in has.items() if is_there],
        )
    return StructField(name, _data_type(change.dataType()))


def _field(change: Any) -> str:
    parts = list(change.fieldNames())
    if len(parts) != 1:
        raise InvalidInputError(
            "the fields of a struct are changed by a write with merge_schema=True",
            field=".".join(parts),
        )
    return str(parts[0])


def _data_type(data_type: Any) -> DataType:
    field = {"name": "x", "type": json.loads(data_type.json()), "nullable": True, "metadata": {}}
    return StructField.fromJson(field).dataType


def _type_name(data_type: Any) -> str:
    (column,) = columns_of_spark(StructType([StructField("x", _data_type(data_type))]))
    return column.type


_CHANGES = frozenset(
    {"AddColumn", "UpdateColumnType", "SetProperty", "RemoveProperty", "ClusterBy"}
)
_REASONS = {
    "RenameColumn": "columns keep their names; give the column another name in the query or a view",
    "DeleteColumn": "columns stay, since older versions have them; leave the column out in a view",
    "UpdateColumnNullability": "whether a column may be null is decided when it is created",
    "UpdateColumnComment": "columns have no comments",
    "UpdateColumnPosition": "columns stay in their order; select them in another one",
    "UpdateColumnDefaultValue": "columns have no defaults; a new column is null in older rows",
    "AddConstraint": "there are no constraints but NOT NULL and the key (Table.set_key)",
    "DropConstraint": "there are no constraints but NOT NULL and the key (Table.set_key)",
}
