"""Whether a session has all that the proxies need; without it `format("fuse")` serves.

Spark's interfaces are not public: another version may have others. So only versions that are tested
are used, and the classes that are needed are tried once in each session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.bulk import MANY
from fuse_stream.spark.jvm.file_scan import (
    Constant,
    FileListing,
    ScannedFile,
    directories,
    file_statuses,
    hadoop_path,
    scan_files,
)
from fuse_stream.spark.jvm.proxies import jvm_of

TESTED = ("4.2.", "4.3.")
"""The first characters of the versions of Spark whose interfaces are known."""

_LOG = logging.getLogger(__name__)

_found: dict[str, str | None] = {}
"""By the id of the application: what is missing."""


def find_problem(spark: SparkSession) -> str | None:
    """Return why Spark cannot call Python objects in this session; None if it can."""
    if not hasattr(spark, "_jsparkSession"):
        return "a session of Spark Connect has no JVM in this process"
    application = spark.sparkContext.applicationId
    if application not in _found:
        _found[application] = _try(spark)
        if _found[application] is not None:
            _LOG.warning(
                'tables are read through format("fuse"), which is slower: %s', _found[application]
            )
    return _found[application]


def _try(spark: SparkSession) -> str | None:
    if not spark.version.startswith(TESTED):
        return f"Spark {spark.version} is not one of those tested ({', '.join(TESTED)}*)"
    for what, check in CHECKS.items():
        try:
            check(spark)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is another way
            return f"{what} is not as in the Spark that was tested: {error}"[:500]
    return None


def _scan_no_file(spark: SparkSession) -> None:
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    fields = session.parseDataType('{"type":"struct","fields":[]}')
    constants = [Constant(name="constant", type="long")]
    listing = FileListing(find=lambda _filters: [], byte_count=0, identity=None)
    for is_streaming in (False, True):
        rows = scan_files(
            spark,
            session,
            listing,
            fields=fields,
            constants=constants,
            options={},
            is_streaming=is_streaming,
        )
        if rows.isStreaming() != is_streaming or list(rows.columns()) != ["constant"]:
            raise ValueError(f"isStreaming={rows.isStreaming()}, columns={list(rows.columns())}")


def _describe_files(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    files = [
        ScannedFile(location="/a %20", byte_count=2**40),
        ScannedFile(location="file://b/ü", byte_count=0),
    ]
    for file, (status,) in zip(files, file_statuses(jvm, [[file] for file in files]), strict=True):
        path = hadoop_path(jvm, file.location)
        is_whole = status.isFile() and status.getLen() == file.byte_count
        if not (is_whole and status.getPath().equals(path)):
            raise ValueError(status.toString())
    many = list(directories(jvm, [files[:1]] * MANY))
    if len(many) != MANY or many[-1].values().numFields() != 0:
        raise ValueError(f"{len(many)} partitions")


def _find_stream(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    for name in (
        "org.apache.spark.sql.execution.streaming.Source",
        "org.apache.spark.sql.execution.streaming.runtime.SerializedOffset",
        "org.apache.spark.sql.execution.streaming.runtime.StreamingExecutionRelation",
    ):
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


CHECKS: dict[str, Callable[[SparkSession], None]] = {
    "a scan of files": _scan_no_file,
    "the status of a file": _describe_files,
    "the source of a stream": _find_stream,
}
