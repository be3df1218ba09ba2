"""Snapshots that hide rows, for queries: a view over a relation that leaves the hidden rows out.

Spark's connectors have no filter that a table applies to its own rows. So the name of such a table
is a view for a query, and the view reads a relation of this package: the plan of `fuse.read`. The
relation is found by an inner name, which no user gives: it is kept where Spark keeps the relations
of its own tables.

Rules:
- An inner name is of one snapshot, so a plan is never that of another snapshot.
- A relation that is no longer kept is an error, never another table.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.reading.scan import Selection
from fuse_stream.spark.jvm.loaded_table import Loaded
from fuse_stream.spark.jvm.proxies import java_class, java_map, java_strings, jvm_of, scala_object
from fuse_stream.spark.jvm.tables import columns_of
from fuse_stream.spark.read import read_rows
from fuse_stream.spark.types import quoted, spark_schema

_SQL = "org.apache.spark.sql"
_CATALOG = f"{_SQL}.connector.catalog"
_INNER = "_fuse_rows"
"""The namespace of inner names: no folder may have such a name."""
_MOST = 64
"""Relations that are kept: more than the tables of one query."""


class SnapshotViews:
    """The relations of one catalog."""

    def __init__(self, spark: SparkSession, catalog: Any, name: str) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._catalog = catalog
        self._name = name
        self._kept: OrderedDict[str, Any] = OrderedDict()
        """By inner name: the table of Spark's that stands for the relation."""

    def view_of(self, ident: Any, loaded: Loaded) -> Any:
        """Return what a query gets for the name `ident`: a table of Spark's that is a view."""
        inner = loaded.snapshot.snapshot_id
        self._keep(inner, loaded)
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        schema = loaded.snapshot.schema.visible
        fields = session.parseDataType(spark_schema(schema).json()).asNullable()
        names = ", ".join(quoted(name) for name in schema.names())
        text = f"SELECT {names} FROM {self._name}.{_INNER}.{quoted(inner)}"  # noqa: S608 - quoted
        # The text has the names as they are, and names may differ in case alone.
        as_they_are = java_map(self._jvm, {"spark.sql.caseSensitive": "true"})
        view = (
            java_class(self._jvm, f"{_CATALOG}.View$Builder")()
            .withColumns(columns_of(self._jvm, fields.json()))
            .withQueryText(text)
            .withCurrentCatalog(self._name)
            .withSqlConfigs(as_they_are)
            .withCurrentNamespace(java_strings(self._jvm, ()))
            .build()
        )
        table = scala_object(self._jvm, f"{_CATALOG}.V1Table")
        return table.apply(table.toCatalogTable(self._catalog, self._in_one_namespace(ident), view))

    def find(self, ident: Any) -> Any:
        """Return the table of Spark's that an inner name means; None for other names."""
        if list(ident.namespace()) != [_INNER]:
            return None
        return self._kept.get(ident.name())

    def _keep(self, inner: str, loaded: Loaded) -> None:
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        relations = session.sessionState().catalog()
        key = java_class(self._jvm, f"{_SQL}.catalyst.QualifiedTableName")
        schema = loaded.snapshot.schema
        rows = read_rows(
            self._spark,
            loaded.table.metadata,
            loaded.snapshot,
            Selection(schema=schema.visible, read=schema.visible),
        )
        relations.cacheTable(
            key(self._name, _INNER, inner),
            rows._jdf.queryExecution().analyzed(),  # noqa: SLF001
        )
        self._kept[inner] = self._described(inner)
        self._kept.move_to_end(inner)
        while len(self._kept) > _MOST:
            old, _ = self._kept.popitem(last=False)
            relations.invalidateCachedTable(key(self._name, _INNER, old))

    def _in_one_namespace(self, ident: Any) -> Any:
        """Return a name as Spark's own tables have one: columns are found by its last two parts."""
        namespace = ".".join(ident.namespace()) or self._name
        of = java_class(self._jvm, f"{_CATALOG}.Identifier").of
        return of(java_strings(self._jvm, [namespace]), ident.name())

    def _described(self, inner: str) -> Any:
        identifier = java_class(self._jvm, f"{_CATALOG}.Identifier").of(
            java_strings(self._jvm, [_INNER]), inner
        )
        info = (
            java_class(self._jvm, f"{_CATALOG}.TableInfo$Builder")()
            .withColumns(columns_of(self._jvm, spark_types.StructType().json()))
            .withProvider(_INNER)
            .build()
        )
        table = java_class(self._jvm, f"{_CATALOG}.DelegatingTable")(info, inner)
        made = scala_object(self._jvm, f"{_CATALOG}.V1Table")
        return made.apply(made.toCatalogTable(self._catalog, identifier, table))
