"""What a session can do with tables in a catalog, and why it cannot do the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import SparkSession

from fuse_stream.format.schema import Column, Schema
from fuse_stream.spark.jvm.catalog import FuseCatalog
from fuse_stream.spark.jvm.changelog import Changelog
from fuse_stream.spark.jvm.micro_batches import PlannedStream
from fuse_stream.spark.jvm.planned_scan import PlannedScan, ScanColumns, ScanWork, WorkReader
from fuse_stream.spark.jvm.procedure import BoundProcedure, UnboundProcedure
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.jvm.row_deltas import DeltaOperation
from fuse_stream.spark.jvm.row_groups import GroupOperation
from fuse_stream.spark.jvm.row_operations import RowOperationBuilder
from fuse_stream.spark.jvm.row_scan import GroupScan, RowScanBuilder
from fuse_stream.spark.jvm.self_test import find_problem
from fuse_stream.spark.jvm.session_catalogs import session_catalogs
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

DOORS = ("read", "write", "rows", "changes", "stream", "call")
"""They are open if the session has what they need."""


_PROXIES = (
    BoundProcedure,
    Changelog,
    DeltaOperation,
    FuseCatalog,
    FuseTable,
    GroupOperation,
    GroupScan,
    PlannedScan,
    PlannedStream,
    RowOperationBuilder,
    RowScanBuilder,
    TableScan,
    TableScanBuilder,
    TableWriteBuilder,
    UnboundProcedure,
)


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
    return dict.fromkeys(DOORS, problem)


def _try(spark: SparkSession) -> str | None:
    for what, check in CHECKS.items():
        try:
            check(spark)
        except Exception as error:  # noqa: BLE001 - whatever it is, the doors stay shut
            return f"{what} is not as in the Spark that was tested: {error}"[:500]
    return None


def _find_interfaces(spark: SparkSession) -> None:
    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    for proxy in _PROXIES:
        for name in proxy.Java.implements:
            loader.loadClass(name)


def _find_catalogs(spark: SparkSession) -> None:
    session_catalogs(spark).size()


def _scan_no_block(spark: SparkSession) -> None:
    column = Column(id=1, name="x", type="long")
    schema = Schema(id=0, last_column_id=1, columns=(column,))
    scan = parquet_scan(spark, ChosenBlocks(schema=schema, blocks=(), options={}), ())
    found = list(scan.readSchema().fieldNames())
    if found != ["x"]:
        raise ValueError(f"columns={found}")


def _plan_no_file(spark: SparkSession) -> None:
    column = Column(id=1, name="x", type="long")
    columns = ScanColumns(schema=Schema(id=0, last_column_id=1, columns=(column,)))
    reader = WorkReader(spark, columns, columns)
    found = len(reader.plan(ScanWork()))
    if found or reader.factory() is None:
        raise ValueError(f"partitions={found}")


CHECKS: dict[str, Callable[[SparkSession], None]] = {
    "an interface of a catalog": _find_interfaces,
    "the list of catalogs": _find_catalogs,
    "a scan of Parquet files": _scan_no_block,
    "a partition of Parquet files": _plan_no_file,
}
