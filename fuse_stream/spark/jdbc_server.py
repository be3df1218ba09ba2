"""A server of Spark's for JDBC clients, with a catalog of the tables in a folder.

It is the Thrift server that Spark has, in one session, so each client sees the catalog. It has no
authentication: it listens to this machine alone, and whoever can connect can read and write.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from fuse_stream.errors import UnsupportedEnvironmentError
from fuse_stream.spark.attach import Catalog, attach
from fuse_stream.spark.jvm.proxies import java_class, jvm_of

HOST = "127.0.0.1"
DEFAULT_PORT = 10000
_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


class SqlServer:
    """A server that runs until it is closed; it owns its Spark session."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        name: str = "lake",
        port: int = DEFAULT_PORT,
        storage_options: Mapping[str, object] | None = None,
        unsafe_single_writer: bool = False,
    ) -> None:
        """Start a Spark session and its server.

        Args:
            root: the folder of the tables: a local path or an fsspec URL.
            name: of the catalog, in which each client begins.
            port: on which it listens.
            storage_options: fsspec's, for a remote store.
            unsafe_single_writer: allow a store that cannot tell two writers apart.

        Raises:
            InvalidInputError: the name is not valid, or the root is a table itself.
            UnsupportedEnvironmentError: this Spark has no such server, or the port is taken.
        """
        self.port = port
        # Of what Spark and its server keep for themselves, nothing is needed later.
        self._folder = tempfile.TemporaryDirectory(prefix="fuse-stream-sql-")
        self.spark = _session(port, self._folder.name)
        try:
            self.catalog: Catalog = attach(
                self.spark,
                name,
                root,
                storage_options=storage_options,
                unsafe_single_writer=unsafe_single_writer,
            )
            self.spark.catalog.setCurrentCatalog(name)
            self._server = _start(self.spark, port, self._folder.name)
        except BaseException:
            self._end()
            raise

    @property
    def url(self) -> str:
        """The address for JDBC clients."""
        return f"jdbc:hive2://{HOST}:{self.port}"

    def close(self) -> None:
        """End the connections, the server and the session."""
        self._server.stop()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _end(self) -> None:
        self.spark.stop()
        self._folder.cleanup()


def _session(port: int, folder: str) -> SparkSession:
    settings = {
        "spark.sql.warehouse.dir": folder,
        # Each connection would have a session of its own, without the catalog.
        "spark.sql.hive.thriftServer.singleSession": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.hadoop.hive.server2.thrift.bind.host": HOST,
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.authentication": "NONE",
        "spark.hadoop.hive.server2.enable.doAs": "false",
    }
    builder = SparkSession.builder.appName("fuse-stream sql-server")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _start(spark: SparkSession, port: int, folder: str) -> Any:
    log = str(Path(folder) / "derby.log")
    jvm_of(spark).java.lang.System.setProperty("derby.stream.error.file", log)
    context = spark._jsparkSession.sqlContext()  # noqa: SLF001 - pyspark offers no public way
    try:
        return java_class(jvm_of(spark), _SERVER).startWithContext(context)
    except (Py4JError, TypeError) as error:
        raise UnsupportedEnvironmentError(
            "Spark's server for JDBC did not start: the port may be taken (name another), or this "
            "Spark is built without it",
            port=port,
            reason=str(error).splitlines()[-1][:300] if str(error) else type(error).__name__,
        ) from error
