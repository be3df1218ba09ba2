"""CREATE, ALTER and DROP of tables in a catalog: Spark's descriptions, as calls of this package.

What the format does not have is refused, with what to do instead; nothing is left out silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.evolve import first_schema
from fuse_stream.spark.types import columns_of_spark
from fuse_stream.table.handle import Table, create_at
from fuse_stream.table.location import TableLocation

CLUSTER_BY = "cluster_by"

_OF_SPARK = frozenset(
    {"provider", "owner", "location", "external", "is_managed_location", "table_type", "collation"}
)
"""Properties that Spark adds to a description; the catalog knows them itself."""
_OPTION = "option."


def create_table(location: TableLocation, parts: Sequence[Any]) -> Table:
    """Create a table by Spark's description: a `TableInfo`, or its parts.

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
    return create_at(
        location,
        first_schema(columns_of_spark(fields), case_sensitive=True),
        cluster_by=_cluster_key(list(transforms)),
        properties=_own_properties(dict(properties), location),
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
                partition=str(transform.describe()),
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
    if given is not None and given.rstrip("/") != location.path.rstrip("/"):
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
    properties = {
        str(change.property()): str(change.value())
        for change, kind in zip(changes, kinds, strict=True)
        if kind == "SetProperty"
    }
    if properties:
        table.set_properties(properties)
    for change, kind in zip(changes, kinds, strict=True):
        if kind == "ClusterBy":
            table.cluster_by([_name(reference) for reference in change.clusteringColumns()])


_CHANGES = frozenset({"SetProperty", "ClusterBy"})
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
