"""What a session can do with tables in a catalog, and why it cannot do the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from fuse_stream.format.schema import Column, Schema
from fuse_stream.spark.jvm.catalog import FuseCatalog
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.jvm.self_test import find_problem
from fuse_stream.spark.jvm.table_scan import (
    ChosenBlocks,
    TableScan,
    TableScanBuilder,
    parquet_scan,
)
from fuse_stream.spark.jvm.table_write import TableWriteBuilder
from fuse_stream.spark.jvm.tables import FuseTable

_LOG = logging.getLogger(__name__)

_found: dict[str, str | None] = {}
"""By the id of the application: what is missing."""

OPEN = ("read", "write")
"""The doors that are open if the session has what they need."""

LATER: Mapping[str, str] = {
    "rows": "UPDATE and MERGE are not statements of the catalog: use fuse.sql or fuse.merge",
    "changes": "CHANGES is not a clause of the catalog: use fuse.read_stream, or read the feed",
    "stream": "a table of the catalog is not read as a stream: use fuse.read_stream",
    "call": "the catalog has no procedures: use the functions of fuse_stream",
}


def find_doors(spark: SparkSession) -> dict[str, str | None]:
    """Return, for each door, why it is shut; None if it is open. Nothing is half open."""
    problem = find_problem(spark)
    if problem is None:
        application = spark.sparkContext.applicationId
        if application not in _found:
            _found[application] = _try(spark)
            if _found[application] is not None:
                _LOG.warning("tables cannot be named in SQL: %s", _found[application])
        problem = _found[application]
    if problem is not None:
        return dict.fromkeys((*OPEN, *LATER), problem)
    return {**dict.fromkeys(OPEN), **LATER}


def _try(spark: SparkSession) -> str | None:
    for what, check in CHECKS.items():
        try:
            check(spark)
        except Exception as error:  # noqa: BLE001 - whatever it is, the doors stay shut
            return f"{what} is not as in the Spark that was tested: {error}"[:500]
    return None


def _find_interfaces(spark: SparkSession) -> None:
    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    for proxy in (FuseCatalog, FuseTable, TableScanBuilder, TableScan, TableWriteBuilder):
        for name in proxy.Java.implements:
            loader.loadClass(name)


def _scan_no_block(spark: SparkSession) -> None:
    column = Column(id=1, name="x", type="long")
    schema = Schema(id=0, last_column_id=1, columns=(column,))
    scan = parquet_scan(spark, ChosenBlocks(schema=schema, blocks=(), options={}), ())
    found = list(scan.readSchema().fieldNames())
    if found != ["x"]:
        raise ValueError(f"columns={found}")


CHECKS: dict[str, Callable[[SparkSession], None]] = {
    "an interface of a catalog": _find_interfaces,
    "a scan of Parquet files": _scan_no_block,
}
