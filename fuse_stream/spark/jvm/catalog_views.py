"""The views of a catalog, of which there are none: it holds tables alone."""

from __future__ import annotations

from typing import Any

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.jvm.java_errors import SpeakingProxy, ThrownInJavaError
from fuse_stream.spark.jvm.proxies import java_array, java_class

_IDENTIFIER = "org.apache.spark.sql.connector.catalog.Identifier"
_NO_VIEW = "org.apache.spark.sql.catalyst.analysis.NoSuchViewException"


class CatalogWithoutViews(SpeakingProxy):
    """The methods of `ViewCatalog`."""

    def listViews(self, _namespace: Any) -> Any:  # noqa: N802
        return java_array(self.jvm, _IDENTIFIER, ())

    def loadView(self, ident: Any) -> Any:  # noqa: N802
        raise self._no_such_view(ident)

    def viewExists(self, _ident: Any) -> bool:  # noqa: N802
        return False

    def invalidateView(self, _ident: Any) -> None:  # noqa: N802
        """Do nothing: nothing is cached."""

    def createView(self, ident: Any, _view: Any) -> Any:  # noqa: N802
        raise _no_views(ident)

    def replaceView(self, ident: Any, _view: Any) -> Any:  # noqa: N802
        raise _no_views(ident)

    def createOrReplaceView(self, ident: Any, _view: Any) -> Any:  # noqa: N802
        raise _no_views(ident)

    def dropView(self, _ident: Any) -> bool:  # noqa: N802
        return False

    def renameView(self, old: Any, _new: Any) -> None:  # noqa: N802
        raise self._no_such_view(old)

    def _no_such_view(self, ident: Any) -> ThrownInJavaError:
        return ThrownInJavaError(java_class(self.jvm, _NO_VIEW)(ident))


def _no_views(ident: Any) -> InvalidInputError:
    return InvalidInputError(
        "the catalog holds tables alone: create the view in spark_catalog, or as a temporary view",
        view=ident.name(),
    )
