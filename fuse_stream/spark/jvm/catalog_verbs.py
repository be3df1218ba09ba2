"""What a catalog has beside its tables: the changes of each table, and the procedures."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.spark.folders import Folders
from fuse_stream.spark.jvm.catalog_namespaces import namespace_of
from fuse_stream.spark.jvm.changelog import Changelog
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.procedures import PROCEDURES, SYSTEM, find_procedure
from fuse_stream.spark.jvm.proxies import java_array, java_class, java_strings
from fuse_stream.spark.types import quoted
from fuse_stream.table.location import TableLocation

_IDENTIFIER = "org.apache.spark.sql.connector.catalog.Identifier"


class CatalogVerbs(SpeakingProxy):
    """The methods of `ProcedureCatalog`, and `loadChangelog` of `TableCatalog`."""

    spark: SparkSession
    folders: Folders

    def loadChangelog(self, ident: Any, context: Any, *_options: Any) -> Any:  # noqa: N802
        namespace = namespace_of(ident.namespace())
        location = self.folders.readable(namespace, ident.name())
        name = ".".join((self.name(), *namespace, ident.name()))
        return Changelog(self.spark, name, location, context)

    def loadProcedure(self, ident: Any) -> Any:  # noqa: N802
        names = namespace_of(ident.namespace())
        return find_procedure(
            self.spark, names, ident.name(), self.locate, refresh=self.forget_cached
        )

    def listProcedures(self, namespace: Any) -> Any:  # noqa: N802
        names = namespace_of(namespace)
        is_whole = names in {(), (self.folders.default,), (SYSTEM,)}
        of = java_class(self.jvm, _IDENTIFIER).of
        system = java_strings(self.jvm, [SYSTEM])
        found = [of(system, name) for name in PROCEDURES] if is_whole else []
        return java_array(self.jvm, _IDENTIFIER, found)

    def locate(self, name: str) -> TableLocation:
        """Return the location of a table by its name, with this catalog's or without."""
        *namespace, table = self._parts(name)
        return self.folders.readable(tuple(namespace), table)

    def forget_cached(self, name: str) -> None:
        """Read a table anew where the session has kept its rows (CACHE TABLE)."""
        session: Any = self.spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        if session.sharedState().cacheManager().isEmpty():
            return
        *namespace, table = self._parts(name)
        inner = self.folders.folded(tuple(namespace))
        # Spark keeps rows by the name that was used, and the default namespace may be left out.
        for place in (inner,) if inner else ((), (self.folders.default,)):
            full = ".".join(quoted(part) for part in (self.name(), *place, table))
            self.spark.catalog.refreshTable(full)

    def _parts(self, name: str) -> list[str]:
        session: Any = self.spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        found = session.sessionState().sqlParser().parseMultipartIdentifier(name)
        parts = [found.apply(at) for at in range(found.size())]
        return parts[1:] if parts[:1] == [self.name()] and len(parts) > 1 else parts

    def name(self) -> str:
        """Return the catalog's name."""
        raise NotImplementedError
