"""Git for Spark streams: an incremental table with exactly-once commits and a change feed.

`Table`, the command line and the errors work without Spark. Names that need Spark are loaded at
their first use.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from fuse_stream.errors import (
    AlreadyExistsError,
    ClockSkewError,
    CommitStateUnknownError,
    ConflictError,
    ConsumerBusyError,
    CorruptObjectError,
    DuplicateWriterError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaChangedError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StorageError,
    StreamIdentityError,
    UnsupportedFormatError,
    UnsupportedStorageError,
    UnsupportedTypeError,
)

try:
    from fuse_stream.table.handle import Table
except ModuleNotFoundError as missing:
    # Most likely in one of Spark's workers, which runs another Python than the driver.
    raise ModuleNotFoundError(
        f"{missing.name} is missing in {sys.executable}: install fuse-stream there; or, in one of "
        "Spark's workers, set PYSPARK_PYTHON to a Python that has it; fuse-stream doctor checks it",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from fuse_stream.check.audit import AuditReport
    from fuse_stream.check.findings import FsckReport
    from fuse_stream.optimize.compact import CompactionResult
    from fuse_stream.optimize.overlap import Clustering
    from fuse_stream.optimize.recluster import Optimization, ReclusterResult
    from fuse_stream.optimizer.optimizer import Optimizer
    from fuse_stream.spark.compact import compact
    from fuse_stream.spark.format import register
    from fuse_stream.spark.lag import lag
    from fuse_stream.spark.read import read
    from fuse_stream.spark.sink import CommitReport, FuseSink, fuse_sink
    from fuse_stream.spark.write import write
    from fuse_stream.table.pipelines import branch, publish, rewind
    from fuse_stream.table.stats import TableStats
    from fuse_stream.table.verbs import audit, clone, lineage, rebuild_checkpoint
    from fuse_stream.trace.bisect import BisectResult
    from fuse_stream.trace.blame import BlamedCommit
    from fuse_stream.trace.lineage import Lineage

__all__ = [
    "AlreadyExistsError",
    "AuditReport",
    "BisectResult",
    "BlamedCommit",
    "ClockSkewError",
    "Clustering",
    "CommitReport",
    "CommitStateUnknownError",
    "CompactionResult",
    "ConflictError",
    "ConsumerBusyError",
    "CorruptObjectError",
    "DuplicateWriterError",
    "FsckReport",
    "FuseError",
    "FuseSink",
    "InvalidInputError",
    "Lineage",
    "NotFoundError",
    "Optimization",
    "Optimizer",
    "ReclusterResult",
    "SchemaChangedError",
    "SchemaMismatchError",
    "SnapshotExpiredError",
    "StorageError",
    "StreamIdentityError",
    "Table",
    "TableStats",
    "UnsupportedFormatError",
    "UnsupportedStorageError",
    "UnsupportedTypeError",
    "audit",
    "branch",
    "clone",
    "compact",
    "fuse_sink",
    "lag",
    "lineage",
    "publish",
    "read",
    "rebuild_checkpoint",
    "register",
    "rewind",
    "write",
]

_LOADED_LATER = {
    "AuditReport": "check.audit",
    "BisectResult": "trace.bisect",
    "BlamedCommit": "trace.blame",
    "Clustering": "optimize.overlap",
    "CommitReport": "spark.sink",
    "CompactionResult": "optimize.compact",
    "FsckReport": "check.findings",
    "FuseSink": "spark.sink",
    "Lineage": "trace.lineage",
    "Optimization": "optimize.recluster",
    "Optimizer": "optimizer.optimizer",
    "ReclusterResult": "optimize.recluster",
    "TableStats": "table.stats",
    "audit": "table.verbs",
    "branch": "table.pipelines",
    "clone": "table.verbs",
    "compact": "spark.compact",
    "fuse_sink": "spark.sink",
    "lag": "spark.lag",
    "lineage": "table.verbs",
    "publish": "table.pipelines",
    "read": "spark.read",
    "rebuild_checkpoint": "table.verbs",
    "register": "spark.format",
    "rewind": "table.pipelines",
    "write": "spark.write",
}


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"fuse_stream.{_LOADED_LATER[name]}"), name)
