"""UPDATE, MERGE and DELETE by rewriting: not statements of the catalog, and refused with a remedy.

Spark asks for such an operation for each DELETE, too, before it asks whether the table can delete
by the condition alone. So an operation of DELETE is refused only when Spark begins to plan it.
"""

from __future__ import annotations

from typing import Any

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.proxies import java_array

_CONNECTOR = "org.apache.spark.sql.connector"
_WRITE = f"{_CONNECTOR}.write"


class RowOperationBuilder(SpeakingProxy):
    """Makes the operation of one statement."""

    def __init__(self, jvm: Any, path: str, command: Any) -> None:
        self.jvm = jvm
        self._path = path
        self._command = command
        if str(command.toString()) != "DELETE":
            raise refused(str(command.toString()), path)

    def build(self) -> Any:
        return _RowOperation(self.jvm, self._path, self._command)

    class Java:
        implements = (f"{_WRITE}.RowLevelOperationBuilder",)


class _RowOperation(SpeakingProxy):
    def __init__(self, jvm: Any, path: str, command: Any) -> None:
        self.jvm = jvm
        self._path = path
        self._command = command

    def description(self) -> str:
        return "fuse rows"

    def command(self) -> Any:
        return self._command

    def newScanBuilder(self, _options: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        raise refused("DELETE", self._path)

    def newWriteBuilder(self, _info: Any) -> Any:  # noqa: N802
        raise refused("DELETE", self._path)

    def requiredMetadataAttributes(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.expressions.NamedReference", ())

    class Java:
        implements = (f"{_WRITE}.RowLevelOperation",)


def refused(command: str, path: str) -> InvalidInputError:
    """Return the error for a statement that changes rows in a way that the catalog does not."""
    limit = (
        "runs a DELETE only if its condition compares columns with constants"
        if command == "DELETE"
        else f"runs no {command}"
    )
    return InvalidInputError(
        f"the catalog {limit}: run the statement by fuse.sql, with the table as fuse.`{path}`; or "
        "use fuse.merge, fuse.update or fuse.delete"
    )
