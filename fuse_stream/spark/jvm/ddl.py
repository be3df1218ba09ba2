"""CREATE, ALTER and DROP of tables in a catalog: Spark's descriptions, as calls of this package.

What the format does not have is refused, with what to do instead; nothing is left out silently.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.alter_schema import find_column
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.schema import Column, Schema
from fuse_stream.spark.types import columns_of_spark
from fuse_stream.storage.open import open_store
from fuse_stream.table.alter import SchemaUpdate
from fuse_stream.table.handle import Table, create_at
from fuse_stream.table.location import TableLocation

CLUSTER_BY = "cluster_by"
COMMENT = "comment"
"""In the metadata of Spark's fields."""

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
        schema=first_schema(_commented(columns_of_spark(fields), fields), case_sensitive=True),
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
    kept = {
        key: value
        for key, value in metadata.items()
        if key != COMMENT and not key.startswith("__CHAR_VARCHAR")
    }
    if kept:
        raise InvalidInputError(
            "a column has a name, a type, NOT NULL and a comment: defaults, generated and identity "
            "columns are not kept; leave them out",
            column=name,
            has=sorted(kept),
        )


def _commented(columns: tuple[Column, ...], fields: StructType) -> tuple[Column, ...]:
    """Return the columns of Spark's fields with their comments, at every depth of structs."""
    return tuple(
        dataclasses.replace(
            column,
            comment=field.metadata.get(COMMENT) or None,
            children=_commented_parts(column, field.dataType),
        )
        for column, field in zip(columns, fields.fields, strict=True)
    )


def _commented_parts(column: Column, data_type: DataType) -> tuple[Column, ...]:
    if isinstance(data_type, StructType):
        return _commented(column.children, data_type)
    types: tuple[DataType, ...] = ()
    if isinstance(data_type, ArrayType):
        types = (data_type.elementType,)
    if isinstance(data_type, MapType):
        types = (data_type.keyType, data_type.valueType)
    return tuple(
        dataclasses.replace(part, children=_commented_parts(part, type_))
        for part, type_ in zip(column.children, types, strict=True)
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
    """Apply Spark's changes of a table: those of columns as one commit, each other one as one.

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
    with table.update_schema(on_conflict="replan") as update:
        for change, kind in zip(changes, kinds, strict=True):
            if kind in _OF_COLUMNS:
                _OF_COLUMNS[kind](update, _path(change), change)
    if changed := by_kind.get("SetProperty"):
        table.set_properties({str(each.property()): str(each.value()) for each in changed})
    if removed := by_kind.get("RemoveProperty"):
        table.unset_properties([str(each.property()) for each in removed])
    for change in by_kind.get("ClusterBy", ()):
        table.cluster_by([_name(reference) for reference in change.clusteringColumns()])


def _add(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    has = {
        "NOT NULL": not change.isNullable(),
        "DEFAULT": change.defaultValue() is not None,
    }
    if any(has.values()):
        raise InvalidInputError(
            "a new column is null in older rows, and has no default: leave these out",
            column=".".join(path),
            has=[what for what, is_there in has.items() if is_there],
        )
    field = StructField(path[-1], _data_type(change.dataType()))
    comment = change.comment()
    if comment:
        field.metadata[COMMENT] = str(comment)
    fields = StructType([field])
    (column,) = _commented(columns_of_spark(fields), fields)
    update.add_column(path, column, **_place(change.position()))


def _rename(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    update.rename_column(path, str(change.newName()))


def _delete(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    if change.ifExists() and find_column(update.schema, path) is None:
        return
    update.delete_column(path)


def _set_type(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    update.update_column(path, type=_type_name(change.newDataType()))


def _set_nullable(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    update.update_column(path, nullable=bool(change.nullable()))


def _set_comment(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    update.update_column(path, comment=str(change.newComment() or ""))


def _set_position(update: SchemaUpdate, path: tuple[str, ...], change: Any) -> None:
    place = _place(change.position())
    if "after" in place:
        update.move_after(path, str(place["after"]))
    else:
        update.move_first(path)


def _place(position: Any) -> dict[str, Any]:
    if position is None:
        return {}
    if position.getClass().getSimpleName() == "First":
        return {"first": True}
    return {"after": str(position.column())}


def _path(change: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in change.fieldNames())


def _data_type(data_type: Any) -> DataType:
    field = {"name": "x", "type": json.loads(data_type.json()), "nullable": True, "metadata": {}}
    return StructField.fromJson(field).dataType


def _type_name(data_type: Any) -> str:
    (column,) = columns_of_spark(StructType([StructField("x", _data_type(data_type))]))
    return column.type


_OF_COLUMNS: Mapping[str, Callable[[SchemaUpdate, tuple[str, ...], Any], None]] = {
    "AddColumn": _add,
    "RenameColumn": _rename,
    "DeleteColumn": _delete,
    "UpdateColumnType": _set_type,
    "UpdateColumnNullability": _set_nullable,
    "UpdateColumnComment": _set_comment,
    "UpdateColumnPosition": _set_position,
}
_CHANGES = frozenset({*_OF_COLUMNS, "SetProperty", "RemoveProperty", "ClusterBy"})
_REASONS = {
    "UpdateColumnDefaultValue": "columns have no defaults; a new column is null in older rows",
    "AddConstraint": "there are no constraints but NOT NULL and the key (Table.set_key)",
    "DropConstraint": "there are no constraints but NOT NULL and the key (Table.set_key)",
}
