"""What a session can do with tables in a catalog, and why it cannot do the rest."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.jvm.self_test import find_problem

_LOG = logging.getLogger(__name__)

_CONNECTOR = "org.apache.spark.sql.connector"
_V2 = "org.apache.spark.sql.execution.datasources.v2"

NEEDS: Mapping[str, tuple[str, ...]] = {
    "read": (
        f"{_CONNECTOR}.catalog.RelationCatalog",
        f"{_CONNECTOR}.catalog.V1Table",
        f"{_CONNECTOR}.catalog.View$Builder",
        "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
        "org.apache.spark.sql.execution.datasources.FileStatusCache",
        f"{_V2}.parquet.ParquetScanBuilder",
    ),
    "write": (
        f"{_CONNECTOR}.write.V1Write",
        f"{_CONNECTOR}.write.SupportsTruncate",
        "org.apache.spark.sql.sources.InsertableRelation",
    ),
    "changes": (
        f"{_CONNECTOR}.catalog.Changelog",
        f"{_CONNECTOR}.catalog.ChangelogRange",
        f"{_V2}.parquet.ParquetScan",
        "org.apache.spark.sql.execution.datasources.FilePartition",
    ),
    "stream": (
        f"{_CONNECTOR}.read.streaming.MicroBatchStream",
        f"{_CONNECTOR}.read.streaming.SupportsTriggerAvailableNow",
        f"{_CONNECTOR}.write.LogicalWriteInfoImpl",
        f"{_V2}.python.PythonDataSourceV2",
    ),
    "call": (
        f"{_CONNECTOR}.catalog.ProcedureCatalog",
        f"{_CONNECTOR}.catalog.procedures.BoundProcedure",
        f"{_CONNECTOR}.catalog.procedures.ProcedureParameter",
    ),
}
"""The classes of Spark behind each door."""

LATER: Mapping[str, str] = {
    "rows": "UPDATE and MERGE are not statements of the catalog: use fuse.sql or fuse.merge",
}


def find_doors(spark: SparkSession) -> dict[str, str | None]:
    """Return, for each door, why it is shut; None if it is open."""
    problem = find_problem(spark)
    if problem is not None:
        return dict.fromkeys((*NEEDS, *LATER), problem)
    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    found: dict[str, str | None] = {}
    for door, names in NEEDS.items():
        found[door] = _missing(loader, names)
        if found[door] is not None:
            _LOG.warning("the catalog cannot %s: %s", door, found[door])
    return {**found, **LATER}


def _missing(loader: object, names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            loader.loadClass(name)  # type: ignore[attr-defined]  # a class loader of Java's
        except Exception as error:  # noqa: BLE001 - whatever it is, the door stays shut
            return f"Spark has no usable {name}: {error}"[:300]
    return None
