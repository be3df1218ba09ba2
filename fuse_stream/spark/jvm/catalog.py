"""A catalog of Spark's: the tables in a folder, by their names.

Rules:
- It holds no state but its place: each call opens the table, so each statement sees the newest
  snapshot. What a statement reads is one snapshot, chosen when Spark resolves the name.
- A table is loaded as itself for commands and for writes. Of a snapshot that hides rows, what
  queries get is a view, which leaves them out. If it is not certain that a name is a command's, it
  is a query's.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.errors import FuseError, InvalidInputError, NotFoundError
from fuse_stream.format.times import Timestamp
from fuse_stream.spark.folders import Folders
from fuse_stream.spark.jvm.catalog_namespaces import CatalogNamespaces, namespace_of
from fuse_stream.spark.jvm.catalog_verbs import CatalogVerbs
from fuse_stream.spark.jvm.catalog_views import CatalogWithoutViews
from fuse_stream.spark.jvm.ddl import alter_table, create_table, read_description
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.java_errors import ThrownInJavaError
from fuse_stream.spark.jvm.loaded_table import Loaded
from fuse_stream.spark.jvm.metadata_tables import MetadataRelation
from fuse_stream.spark.jvm.proxies import (
    is_called_by,
    java_array,
    java_class,
    java_set,
    java_strings,
    jvm_of,
)
from fuse_stream.spark.jvm.snapshot_views import SnapshotViews
from fuse_stream.spark.jvm.staged_tables import CreatedTable, ReplacedTable
from fuse_stream.spark.jvm.stream_by_name import is_for_stream
from fuse_stream.spark.jvm.tables import FuseTable
from fuse_stream.table.drop import drop_table
from fuse_stream.table.handle import open_at
from fuse_stream.table.metadata_tables import METADATA

_CONNECTOR = "org.apache.spark.sql.connector"
_CATALOG = f"{_CONNECTOR}.catalog"
_COMMANDS = "lookupTableOrView"
"""The method of Spark's that finds the tables of commands."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class FuseCatalog(CatalogWithoutViews, CatalogNamespaces, CatalogVerbs):
    """The catalog of one session."""

    def __init__(self, spark: SparkSession, name: str, folders: Folders) -> None:
        self.spark = spark
        self.jvm = jvm_of(spark)
        self._name = name
        self.folders = folders
        self._views = SnapshotViews(spark, self, name)

    def toString(self) -> str:  # noqa: N802 - Java's name
        return f"FuseCatalog of {self.folders.root.path}"

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        root = self.folders.root
        options = sorted(map(repr, root.storage_options.items()))  # kept out of every text
        of = (root.path, root.unsafe_single_writer, self.folders.default, *options)
        return hash(of) & 0x7FFF_FFFF

    def equals(self, other: Any) -> bool:
        # The other is Java's, also where it is a proxy: what it says comes from its Python object.
        return (
            other is not None
            and bool(other.toString() == self.toString())
            and bool(other.hashCode() == self.hashCode())
        )

    # ---- CatalogPlugin

    def initialize(self, _name: str, _options: Any) -> None:
        """Do nothing: it is complete."""

    def name(self) -> str:
        return self._name

    def defaultNamespace(self) -> Any:  # noqa: N802 - Spark's names, here and below
        return java_strings(self.jvm, [self.folders.default])

    # ---- TableCatalog: reading

    def capabilities(self) -> Any:
        return java_set(self.jvm, ())

    def tableStateOptionKeys(self) -> Any:  # noqa: N802
        return java_set(self.jvm, ())

    def changelogStateOptionKeys(self) -> Any:  # noqa: N802
        return java_set(self.jvm, ())

    def useNullableQuerySchema(self) -> bool:  # noqa: N802
        return True

    def listTables(self, namespace: Any) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CATALOG}.Identifier", self._tables(namespace))

    def listTableSummaries(self, namespace: Any) -> Any:  # noqa: N802
        of = java_class(self.jvm, f"{_CATALOG}.TableSummary").of
        made = [of(table, "MANAGED") for table in self._tables(namespace)]
        return java_array(self.jvm, f"{_CATALOG}.TableSummary", made)

    def _tables(self, namespace: Any) -> list[Any]:
        """Return the identifiers of the tables in a namespace."""
        of = java_class(self.jvm, f"{_CATALOG}.Identifier").of
        names = self.folders.find_table_names(self.existing(namespace))
        # Spark's own list of tables cannot name one in no namespace.
        place = java_strings(self.jvm, list(namespace) or [self.folders.default])
        return [of(place, name) for name in names]

    def loadTable(self, ident: Any, *wanted: Any) -> Any:  # noqa: N802
        """Load a table for a command or a write; with a version or a time, for a query."""
        version, timestamp = _travel(wanted)
        if version is None and timestamp is None:
            return self._load(ident, is_for_write=_is_for_write(wanted))
        return self._load_rows(ident, version, timestamp)

    def loadRelation(self, ident: Any) -> Any:  # noqa: N802
        """Load the newest snapshot of a table for a query; the table for a command."""
        if not self._is_for_command():
            return self._load_rows(ident, None, None)
        found = self._load(ident)
        if found is None:
            raise self.thrown("NoSuchTableException", ident)
        return found

    def tableExists(self, ident: Any) -> bool:  # noqa: N802
        return self._find(ident) is not None

    def invalidateTable(self, _ident: Any) -> None:  # noqa: N802
        """Do nothing: nothing is cached."""

    # ---- TableCatalog: changing

    def createTable(self, ident: Any, *parts: Any) -> Any:  # noqa: N802
        self._create(ident, parts)
        return self._load(ident)

    def createTableLike(self, ident: Any, info: Any, _source: Any) -> Any:  # noqa: N802
        return self.createTable(ident, info)

    def alterTable(self, ident: Any, changes: Any) -> Any:  # noqa: N802
        table = self._found(ident).table
        try:
            alter_table(table, list(changes))
        except FuseError as error:
            # What Spark makes of an IllegalArgumentException here is shown with its stack trace.
            text = f"{type(error).__name__}: {error}"
            raise ThrownInJavaError(
                self.jvm.java.lang.UnsupportedOperationException(text)
            ) from error
        return self._load(ident)

    def dropTable(self, ident: Any) -> bool:  # noqa: N802
        try:
            drop_table(self.folders.readable(namespace_of(ident.namespace()), ident.name()))
        except NotFoundError:
            return False
        return True

    def purgeTable(self, ident: Any) -> bool:  # noqa: N802
        return self.dropTable(ident)

    def renameTable(self, old: Any, new: Any) -> None:  # noqa: N802
        raise InvalidInputError(
            "a table is the folder of its name, and the files of a store cannot be moved at once: "
            "fuse.clone makes a table of another name without copying rows",
            table=old.name(),
            to=new.name(),
        )

    # ---- StagingTableCatalog

    def stageCreate(self, ident: Any, *parts: Any) -> Any:  # noqa: N802
        self._create(ident, parts)
        return CreatedTable(self.spark, self._found(ident))

    def stageReplace(self, ident: Any, *parts: Any) -> Any:  # noqa: N802
        loaded = self._found(ident)
        return ReplacedTable(
            self.spark, loaded, read_description(loaded.table.location, list(parts))
        )

    def stageCreateOrReplace(self, ident: Any, *parts: Any) -> Any:  # noqa: N802
        is_new = self._find(ident) is None
        return (self.stageCreate if is_new else self.stageReplace)(ident, *parts)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomMetric", ())

    # ---- RelationCatalog

    def listRelationSummaries(self, namespace: Any) -> Any:  # noqa: N802
        return self.listTableSummaries(namespace)

    # ---- finding

    def _find(self, ident: Any) -> Loaded | None:
        """Return the newest snapshot of a table; None if there is no table."""
        namespace = namespace_of(ident.namespace())
        try:
            table = open_at(self.folders.readable(namespace, ident.name()))
        except NotFoundError:
            return None
        except InvalidInputError:  # no folder can have this name
            return None
        name = ".".join((self._name, *namespace, ident.name()))
        return Loaded(name=name, table=table, snapshot=table.head())

    def _found(self, ident: Any) -> Loaded:
        loaded = self._find(ident)
        if loaded is None:
            raise self.thrown("NoSuchTableException", ident)
        return loaded

    def _create(self, ident: Any, parts: Sequence[Any]) -> None:
        if self._find(ident) is not None:
            raise self.thrown("TableAlreadyExistsException", ident)
        namespace = namespace_of(ident.namespace())
        self.folders.check_no_table_above(namespace)
        location = self.folders.location(namespace, ident.name())
        create_table(location, read_description(location, parts))

    def _load(self, ident: Any, *, is_for_write: bool = False) -> Any:
        """Return a table as a command or a write takes it; None if there is none."""
        loaded = self._find(ident)
        if loaded is None:
            return self._find_other(ident)
        return FuseTable(self.spark, loaded, is_for_write=is_for_write)

    def _load_rows(self, ident: Any, version: str | None, timestamp: Timestamp | None) -> Any:
        """Return what a query reads of a table."""
        loaded = self._find(ident)
        if loaded is None:
            other = self._find_other(ident)
            if other is None or version is not None or timestamp is not None:
                raise self.thrown("NoSuchTableException", ident)
            return other
        if version is not None or timestamp is not None:
            snapshot = loaded.table.snapshot(version, timestamp=timestamp)
            loaded = dataclasses.replace(loaded, snapshot=snapshot)
        # A stream leaves hidden rows out by itself, and Spark refuses to read a view as a stream.
        # So do the Python workers that read where Spark's own reader cannot.
        is_view = loaded.snapshot.deletion_files and not is_for_stream(self.jvm)
        if is_view and find_reader_problem(self.spark, loaded.table.location) is None:
            return self._views.view_of(ident, loaded)
        return FuseTable(self.spark, loaded)

    def _find_other(self, ident: Any) -> Any:
        """Return what has a name that is no table's; None if there is nothing."""
        *namespace, table = list(ident.namespace()) or [""]
        of_table = java_class(self.jvm, f"{_CATALOG}.Identifier").of(
            java_strings(self.jvm, namespace), table
        )
        if ident.name() in METADATA and (loaded := self._find(of_table)) is not None:
            name = f"{loaded.name}.{ident.name()}"
            return MetadataRelation(self.spark, name, loaded.table, ident.name())
        return self._views.find(ident)

    def _is_for_command(self) -> bool:
        """True if Spark resolves the name of a command, such as DESCRIBE, in this call."""
        # It asks in the same way for both, so only the stack of its thread tells them apart.
        return is_called_by(self.jvm, _COMMANDS)

    class Java:
        implements = (
            f"{_CATALOG}.RelationCatalog",
            f"{_CATALOG}.StagingTableCatalog",
            f"{_CATALOG}.SupportsNamespaces",
            f"{_CATALOG}.ProcedureCatalog",
        )


def _travel(wanted: tuple[Any, ...]) -> tuple[str | None, Timestamp | None]:
    """Return the version or the time among the arguments of `loadTable` after the name."""
    if not wanted:
        return None, None
    first = wanted[0]
    if isinstance(first, str):
        return first, None
    if isinstance(first, int):
        return None, _EPOCH + dt.timedelta(microseconds=first)
    if not hasattr(first, "timeTravel") or first.getClass().getSimpleName() != "TableContext":
        return None, None  # what the statement will write
    travel = first.timeTravel()
    if travel.isEmpty():
        return None, None
    chosen = travel.get()
    if chosen.getClass().getSimpleName() == "AsOfVersion":
        return str(chosen.version()), None
    return None, _EPOCH + dt.timedelta(microseconds=chosen.micros())


def _is_for_write(wanted: tuple[Any, ...]) -> bool:
    """True if the arguments of `loadTable` after the name say that a statement writes the table."""
    if not wanted:
        return False
    first = wanted[0]
    privileges = first if isinstance(first, AbstractSet) else first.writePrivileges()
    return len(privileges) > 0
