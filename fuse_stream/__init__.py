"""Git for Spark streams: an incremental table with exactly-once commits and a change feed.

`Table`, the command line and the errors work without Spark; what needs it is loaded when it is
first asked for.
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
    from fuse_stream.table import Table
except ModuleNotFoundError as missing:
    # Most likely in a worker of Spark's, which runs another Python than the driver.
    raise ModuleNotFoundError(
        f"{missing.name} is missing in {sys.executable}: install fuse-stream there; or, if this is "
        "a worker of Spark's, set PYSPARK_PYTHON to one that has it; fuse-stream doctor looks",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from fuse_stream.maintenance.compact import CompactionResult
    from fuse_stream.maintenance.optimize import Optimization
    from fuse_stream.maintenance.overlap import Clustering
    from fuse_stream.maintenance.recluster import ReclusterResult
    from fuse_stream.recovery.audit import AuditReport
    from fuse_stream.recovery.bisect import BisectResult
    from fuse_stream.recovery.blame import BlamedCommit
    from fuse_stream.recovery.report import FsckReport
    from fuse_stream.spark.batch import read
    from fuse_stream.spark.lag import lag
    from fuse_stream.spark.optimize import compact
    from fuse_stream.spark.register import register
    from fuse_stream.spark.sink import CommitReport, FuseSink, fuse_sink
    from fuse_stream.spark.write import write
    from fuse_stream.verbs import audit, clone, rebuild_checkpoint, rewind

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
    "NotFoundError",
    "Optimization",
    "ReclusterResult",
    "SchemaChangedError",
    "SchemaMismatchError",
    "SnapshotExpiredError",
    "StorageError",
    "StreamIdentityError",
    "Table",
    "UnsupportedFormatError",
    "UnsupportedStorageError",
    "UnsupportedTypeError",
    "audit",
    "clone",
    "compact",
    "fuse_sink",
    "lag",
    "read",
    "rebuild_checkpoint",
    "register",
    "rewind",
    "write",
]

_LOADED_LATER = {
    "AuditReport": "recovery.audit",
    "BisectResult": "recovery.bisect",
    "BlamedCommit": "recovery.blame",
    "Clustering": "maintenance.overlap",
    "CommitReport": "spark.sink",
    "CompactionResult": "maintenance.compact",
    "FsckReport": "recovery.report",
    "FuseSink": "spark.sink",
    "Optimization": "maintenance.optimize",
    "ReclusterResult": "maintenance.recluster",
    "audit": "verbs",
    "clone": "verbs",
    "compact": "spark.optimize",
    "fuse_sink": "spark.sink",
    "lag": "spark.lag",
    "read": "spark.batch",
    "rebuild_checkpoint": "verbs",
    "register": "spark.register",
    "rewind": "verbs",
    "write": "spark.write",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"fuse_stream.{_LOADED_LATER[name]}"), name)
