"""Whether Spark's own reader can open the store of a table.

It reads by the file systems of Hadoop, each of which is a jar for one scheme. Where the jar is
missing, the library still reads by fsspec, in Python workers.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.file_scan import is_local
from fuse_stream.spark.jvm.proxies import java_class, jvm_of
from fuse_stream.spark.jvm.self_test import find_problem
from fuse_stream.storage.schemes import HADOOP_JARS
from fuse_stream.table.location import TableLocation

_LOG = logging.getLogger(__name__)

_found: dict[tuple[str, str], str | None] = {}
"""By the id of the application and the scheme: what is missing."""


def find_reader_problem(spark: SparkSession, location: TableLocation) -> str | None:
    """Return why Spark's own reader cannot read the blocks of a table; None if it can.

    Only whether there is a file system is asked: the store itself is not.
    """
    if (problem := find_problem(spark)) is not None:
        return problem
    store = location.store()
    places = [store.location(""), *(origin.location("") for origin in store.allowed)]
    for scheme in dict.fromkeys(at.partition("://")[0] for at in places if not is_local(at)):
        if (problem := _find_scheme_problem(spark, scheme)) is not None:
            return problem
    return None


def _find_scheme_problem(spark: SparkSession, scheme: str) -> str | None:
    key = spark.sparkContext.applicationId, scheme
    if key not in _found:
        _found[key] = None if _has_file_system(spark, scheme) else _missing(scheme)
        if _found[key] is not None:
            _LOG.warning(
                'tables on %s:// are read through format("fuse"), which is slower: %s',
                scheme,
                _found[key],
            )
    return _found[key]


def _missing(scheme: str) -> str:
    jar = f" (give Spark {HADOOP_JARS[scheme]})" if scheme in HADOOP_JARS else ""
    return f"Spark has no file system for {scheme}://{jar}"


def _has_file_system(spark: SparkSession, scheme: str) -> bool:
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    files = java_class(jvm_of(spark), "org.apache.hadoop.fs.FileSystem")
    try:
        files.getFileSystemClass(scheme, session.sessionState().newHadoopConf())
    except Py4JJavaError:  # no class is named, or it is in no jar
        return False
    return True
