"""`fuse.attach`: the tables in a folder as a catalog of Spark's SQL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from fuse_stream.errors import AlreadyExistsError, InvalidInputError, UnsupportedEnvironmentError
from fuse_stream.format.layout import MAIN
from fuse_stream.spark.folders import Folders
from fuse_stream.spark.jvm.catalog import FuseCatalog
from fuse_stream.spark.jvm.doors import find_doors
from fuse_stream.spark.jvm.java_errors import let_errors_through
from fuse_stream.spark.jvm.session_catalogs import session_catalogs
from fuse_stream.table.location import TableLocation

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = frozenset({"spark_catalog", "system", "session", "builtin", "fuse", "global_temp"})


def attach(
    spark: SparkSession,
    name: str,
    root: str | os.PathLike[str],
    *,
    namespace: str = "default",
    storage_options: Mapping[str, object] | None = None,
    unsafe_single_writer: bool = False,
) -> Catalog:
    """Make the tables in the folder `root` a catalog of this session, and return the catalog.

    Then `SELECT * FROM lake.t` reads the table in the folder `t` of the root. The catalog is one of
    this session alone: attach it again in a session of `newSession`, and in the session of the
    DataFrame that `foreachBatch` gets. It is safe to repeat.

    Args:
        spark: a classic session.
        name: of the catalog: letters, digits and underscores.
        root: the folder: a local path or an fsspec URL. It may be empty, or not there yet.
        namespace: the name of the namespace that is the root itself; others are folders in it.
        storage_options: fsspec's, for a remote store. Spark's reader takes Hadoop's settings
            instead.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: the name is not valid, or the root is a table itself.
        AlreadyExistsError: the session has another catalog of this name, or one of this name with
            another root, namespace or options.
        UnsupportedEnvironmentError: it is a session of Spark Connect, or a version of Spark whose
            interfaces are not known.
    """
    given: dict[str, object] = {"name": name, "namespace": namespace}
    for what, text in given.items():
        if not isinstance(text, str) or not _NAME.fullmatch(text) or text.lower() in _TAKEN:
            raise InvalidInputError(
                f"the {what} is letters, digits and underscores, and none of Spark's own names",
                **{what: text, "taken": sorted(_TAKEN)},
            )
    location = TableLocation.of(
        root, MAIN, storage_options, unsafe_single_writer=unsafe_single_writer
    )
    folders = Folders(root=location.at(location.store().url), default=namespace)
    doors = find_doors(spark)
    if not any(reason is None for reason in doors.values()):
        raise UnsupportedEnvironmentError(
            'this session cannot have a catalog: read with fuse.read or format("fuse"), write with '
            "fuse.write, and change rows with the methods of Table",
            reason=next(iter(doors.values())),
        )
    folders.check_root()
    let_errors_through(spark)
    known = session_catalogs(spark)
    catalog = FuseCatalog(spark, name, folders)
    is_known = known.contains(name)
    configured = spark.conf.get(f"spark.sql.catalog.{name}", None)
    if configured is not None or (is_known and not catalog.equals(known.apply(name))):
        raise AlreadyExistsError(
            "this session has another catalog of this name: use another name, or detach it first",
            name=name,
        )
    if not is_known:
        known.put(name, catalog)
    return Catalog(spark=spark, name=name, root=folders.root.path, doors=doors)


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """A folder of tables that a session can name in SQL.

    Attributes:
        spark: the session.
        name: by which SQL names it.
        root: the folder.
        doors: what works in this session: `read`, `write`, `rows`, `changes`, `stream`, `call`.
            None if it works, else why it does not.
    """

    spark: SparkSession
    name: str
    root: str
    doors: Mapping[str, str | None]

    def __repr__(self) -> str:
        closed = sorted(door for door, reason in self.doors.items() if reason is not None)
        without = f", without={closed}" if closed else ""
        return f"Catalog(name={self.name!r}, root={self.root!r}{without})"

    def detach(self) -> None:
        """Remove the catalog from its session; no table is changed. It is safe to repeat."""
        session_catalogs(self.spark).remove(self.name)
