"""The namespaces of a catalog: the folders below its root that are no tables."""

from __future__ import annotations

from typing import Any

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.folders import Folders, Namespace
from fuse_stream.spark.jvm.java_errors import SpeakingProxy, ThrownInJavaError
from fuse_stream.spark.jvm.proxies import java_array, java_class, java_map, java_strings

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis"


class CatalogNamespaces(SpeakingProxy):
    """The methods of `SupportsNamespaces`."""

    folders: Folders

    def listNamespaces(self, *parent: Any) -> Any:  # noqa: N802
        inside = self.existing(parent[0]) if parent else ()
        found = self.folders.find_namespaces(inside)
        each = [java_strings(self.jvm, names) for names in found]
        return java_array(self.jvm, "[Ljava.lang.String;", each)

    def namespaceExists(self, namespace: Any) -> bool:  # noqa: N802
        return self.folders.has_namespace(namespace_of(namespace))

    def loadNamespaceMetadata(self, namespace: Any) -> Any:  # noqa: N802
        path = self.folders.path(self.existing(namespace))
        return java_map(self.jvm, {"location": path})

    def createNamespace(self, namespace: Any, _metadata: Any) -> None:  # noqa: N802
        if self.namespaceExists(namespace):
            raise self.thrown("NamespaceAlreadyExistsException", namespace)
        self.folders.create(namespace_of(namespace))

    def alterNamespace(self, namespace: Any, _changes: Any) -> None:  # noqa: N802
        raise InvalidInputError(
            "a namespace is a folder and has no properties", namespace=list(namespace)
        )

    def dropNamespace(self, namespace: Any, _cascade: bool) -> bool:  # noqa: N802, FBT001 - Spark's
        self.folders.drop(self.existing(namespace))
        return True

    def existing(self, namespace: Any) -> Namespace:
        """Return a namespace as the name of folders; Spark's error if it does not exist."""
        names = namespace_of(namespace)
        if not self.folders.has_namespace(names):
            raise self.thrown("NoSuchNamespaceException", namespace)
        return names

    def thrown(self, exception: str, of: Any) -> ThrownInJavaError:
        """Return the error that Spark knows for a name that it asked for."""
        made = java_class(self.jvm, f"{_ANALYSIS}.{exception}")(of)
        return ThrownInJavaError(made)


def namespace_of(names: Any) -> Namespace:
    """Return Spark's name of a namespace as that of folders."""
    return tuple(names)
