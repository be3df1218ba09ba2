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
    AmbiguousMergeError,
    ClockSkewError,
    CommitStateUnknownError,
    ConflictError,
    ConsumerBusyError,
    CorruptObjectError,
    DuplicateWriterError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    NumberOverflowError,
    SchemaChangedError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StorageError,
    StreamIdentityError,
    UnsupportedEnvironmentError,
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
    __version__: str
    from fuse_stream.check.audit import AuditReport
    from fuse_stream.check.findings import FsckReport
    from fuse_stream.dml.result import ChangeResult
    from fuse_stream.erasure.erase import ErasureReport
    from fuse_stream.expiry.expire import Expiry
    from fuse_stream.expiry.vacuum import VacuumReport
    from fuse_stream.feed.changes import Change
    from fuse_stream.feed.consumers import ConsumerState
    from fuse_stream.feed.diff import BlockDiff
    from fuse_stream.format.records import Block, LedgerEntry, SegmentRef, Snapshot
    from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
    from fuse_stream.indexes.define import IndexState
    from fuse_stream.indexes.refresh import IndexRefresh
    from fuse_stream.optimize.compact import CompactionResult
    from fuse_stream.optimize.overlap import Clustering
    from fuse_stream.optimize.recluster import Optimization, ReclusterResult
    from fuse_stream.optimizer.optimizer import Optimizer
    from fuse_stream.recovery.branch_off import PipelineBranch
    from fuse_stream.recovery.publish import Publication
    from fuse_stream.recovery.rebuild_checkpoint import RebuiltCheckpoint
    from fuse_stream.recovery.result import Rewind
    from fuse_stream.recovery.rewind import PipelineRewind
    from fuse_stream.refs.clone import Clone
    from fuse_stream.spark.aggregate import aggregate
    from fuse_stream.spark.attach import Catalog, attach
    from fuse_stream.spark.cdc.canal import from_canal
    from fuse_stream.spark.cdc.changes import from_changes
    from fuse_stream.spark.cdc.debezium import from_debezium
    from fuse_stream.spark.cdc.dms import from_dms
    from fuse_stream.spark.cdc.maxwell import from_maxwell
    from fuse_stream.spark.change_rows import delete, update
    from fuse_stream.spark.compact import compact
    from fuse_stream.spark.format import register
    from fuse_stream.spark.lag import SourceLag, lag
    from fuse_stream.spark.merge import Merge, merge
    from fuse_stream.spark.read import read
    from fuse_stream.spark.read_stream import read_stream
    from fuse_stream.spark.retry import retry
    from fuse_stream.spark.sink import CommitReport, FuseSink, fuse_sink
    from fuse_stream.spark.sql import sql
    from fuse_stream.spark.stream_error import stream_error
    from fuse_stream.spark.view import view
    from fuse_stream.spark.write import write
    from fuse_stream.table.alter import SchemaUpdate
    from fuse_stream.table.pipelines import branch, publish, rewind
    from fuse_stream.table.scan import Scan
    from fuse_stream.table.stats import TableStats
    from fuse_stream.table.transfer import copy, import_parquet
    from fuse_stream.table.verbs import audit, clone, lineage, rebuild_checkpoint
    from fuse_stream.trace.bisect import BisectResult
    from fuse_stream.trace.blame import BlamedCommit
    from fuse_stream.trace.lineage import Lineage
    from fuse_stream.transfer.copy import TableCopy
    from fuse_stream.transfer.import_parquet import ImportReport

__all__ = [
    "AlreadyExistsError",
    "AmbiguousMergeError",
    "AuditReport",
    "BisectResult",
    "BlamedCommit",
    "Block",
    "BlockDiff",
    "BranchRef",
    "Catalog",
    "Change",
    "ChangeResult",
    "ClockSkewError",
    "Clone",
    "CloneRef",
    "Clustering",
    "CommitReport",
    "CommitStateUnknownError",
    "CompactionResult",
    "ConflictError",
    "ConsumerBusyError",
    "ConsumerState",
    "CorruptObjectError",
    "DuplicateWriterError",
    "ErasureReport",
    "Expiry",
    "FsckReport",
    "FuseError",
    "FuseSink",
    "ImportReport",
    "IndexRefresh",
    "IndexState",
    "InvalidInputError",
    "LedgerEntry",
    "Lineage",
    "Merge",
    "NotFoundError",
    "NumberOverflowError",
    "Optimization",
    "Optimizer",
    "PipelineBranch",
    "PipelineRewind",
    "Publication",
    "RebuiltCheckpoint",
    "ReclusterResult",
    "Rewind",
    "Scan",
    "SchemaChangedError",
    "SchemaMismatchError",
    "SchemaUpdate",
    "SegmentRef",
    "Snapshot",
    "SnapshotExpiredError",
    "SourceLag",
    "StorageError",
    "StreamIdentityError",
    "Table",
    "TableCopy",
    "TableStats",
    "TagRef",
    "UnsupportedEnvironmentError",
    "UnsupportedFormatError",
    "UnsupportedStorageError",
    "UnsupportedTypeError",
    "VacuumReport",
    "__version__",
    "aggregate",
    "attach",
    "audit",
    "branch",
    "clone",
    "compact",
    "copy",
    "delete",
    "from_canal",
    "from_changes",
    "from_debezium",
    "from_dms",
    "from_maxwell",
    "fuse_sink",
    "import_parquet",
    "lag",
    "lineage",
    "merge",
    "publish",
    "read",
    "read_stream",
    "rebuild_checkpoint",
    "register",
    "retry",
    "rewind",
    "sql",
    "stream_error",
    "update",
    "view",
    "write",
]

_LOADED_LATER = {
    "AuditReport": "check.audit",
    "BisectResult": "trace.bisect",
    "BlamedCommit": "trace.blame",
    "Block": "format.records",
    "BlockDiff": "feed.diff",
    "BranchRef": "format.refs",
    "Catalog": "spark.attach",
    "Change": "feed.changes",
    "ChangeResult": "dml.result",
    "Clone": "refs.clone",
    "CloneRef": "format.refs",
    "Clustering": "optimize.overlap",
    "CommitReport": "spark.sink",
    "CompactionResult": "optimize.compact",
    "ConsumerState": "feed.consumers",
    "ErasureReport": "erasure.erase",
    "Expiry": "expiry.expire",
    "FsckReport": "check.findings",
    "FuseSink": "spark.sink",
    "ImportReport": "transfer.import_parquet",
    "IndexRefresh": "indexes.refresh",
    "IndexState": "indexes.define",
    "LedgerEntry": "format.records",
    "Lineage": "trace.lineage",
    "Merge": "spark.merge",
    "Optimization": "optimize.recluster",
    "Optimizer": "optimizer.optimizer",
    "PipelineBranch": "recovery.branch_off",
    "PipelineRewind": "recovery.rewind",
    "Publication": "recovery.publish",
    "RebuiltCheckpoint": "recovery.rebuild_checkpoint",
    "ReclusterResult": "optimize.recluster",
    "Rewind": "recovery.result",
    "Scan": "table.scan",
    "SchemaUpdate": "table.alter",
    "SegmentRef": "format.records",
    "Snapshot": "format.records",
    "SourceLag": "spark.lag",
    "TableCopy": "transfer.copy",
    "TableStats": "table.stats",
    "TagRef": "format.refs",
    "VacuumReport": "expiry.vacuum",
    "aggregate": "spark.aggregate",
    "attach": "spark.attach",
    "audit": "table.verbs",
    "branch": "table.pipelines",
    "clone": "table.verbs",
    "compact": "spark.compact",
    "copy": "table.transfer",
    "delete": "spark.change_rows",
    "from_canal": "spark.cdc.canal",
    "from_changes": "spark.cdc.changes",
    "from_debezium": "spark.cdc.debezium",
    "from_dms": "spark.cdc.dms",
    "from_maxwell": "spark.cdc.maxwell",
    "fuse_sink": "spark.sink",
    "import_parquet": "table.transfer",
    "lag": "spark.lag",
    "lineage": "table.verbs",
    "merge": "spark.merge",
    "publish": "table.pipelines",
    "read": "spark.read",
    "read_stream": "spark.read_stream",
    "rebuild_checkpoint": "table.verbs",
    "register": "spark.format",
    "retry": "spark.retry",
    "rewind": "table.pipelines",
    "sql": "spark.sql",
    "stream_error": "spark.stream_error",
    "update": "spark.change_rows",
    "view": "spark.view",
    "write": "spark.write",
}


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("fuse-stream")
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"fuse_stream.{_LOADED_LATER[name]}"), name)
