"""Writes to a table of the catalog: rows go to the same functions as those of `fuse.write`."""

from __future__ import annotations

import dataclasses
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fuse_stream.commit.plan import Intent
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Operation
from fuse_stream.spark.change_rows import commit_inserts
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import Loaded
from fuse_stream.spark.jvm.proxies import java_array, jvm_of, options_of
from fuse_stream.spark.jvm.stream_by_name import streaming_write
from fuse_stream.spark.options import WriteOptions, location_options, parse_write_options
from fuse_stream.spark.write import write
from fuse_stream.table.location import TableLocation

_CONNECTOR = "org.apache.spark.sql.connector"
_WRITE = f"{_CONNECTOR}.write"
_TEXTS = ("message", "author")
_OPTIONS = ("appId", "author", "batchId", "branch", "message", "writer")
"""Of `format("fuse")`; the others are about creating the table, or are the catalog's."""


class TableWriteBuilder(SpeakingProxy):
    """Collects how a statement writes: it adds rows, or it replaces all of them."""

    def __init__(self, spark: SparkSession, loaded: Loaded, info: Any) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._loaded = loaded
        self._info = info
        self._mode = "append"

    def truncate(self) -> Any:
        self._mode = "overwrite"
        return self

    def canOverwrite(self, predicates: Any) -> bool:  # noqa: N802 - Spark's names, here and below
        raise InvalidInputError(
            "INSERT OVERWRITE replaces the whole table: to replace some rows, delete them with "
            "DELETE FROM and insert the new ones, or merge with fuse.merge",
            where=" AND ".join(str(each.toString()) for each in predicates),
        )

    def overwrite(self, predicates: Any) -> Any:
        raise NotImplementedError("canOverwrite refuses it")

    def build(self) -> Any:
        return _TableWrite(self._spark, self._loaded, self._info, self._mode)

    def buildForBatch(self) -> Any:  # noqa: N802
        raise NotImplementedError("a write of DataFrames has no batch of its own")

    def buildForStreaming(self) -> Any:  # noqa: N802
        raise NotImplementedError("a stream is written by fuse_sink")

    class Java:
        implements = (f"{_WRITE}.WriteBuilder", f"{_WRITE}.SupportsOverwriteV2")


class _TableWrite(SpeakingProxy):
    def __init__(self, spark: SparkSession, loaded: Loaded, info: Any, mode: str) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._loaded = loaded
        self._info = info
        self._mode = mode

    def toInsertableRelation(self) -> Any:  # noqa: N802
        options = insert_options(self._loaded.table.location, self._info)
        return _Insertable(self._spark, self._loaded, options, self._mode)

    def description(self) -> str:
        return f"fuse {self._mode}"

    def toBatch(self) -> Any:  # noqa: N802
        raise NotImplementedError("a write of DataFrames has no batch of its own")

    def toStreaming(self) -> Any:  # noqa: N802
        if self._mode != "append":
            raise InvalidInputError(
                "a stream adds rows: write the output mode append, or use fuse_sink in foreachBatch"
            )
        return streaming_write(self._spark, self._loaded.table.location, self._info)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomTaskMetric", ())

    class Java:
        implements = (f"{_WRITE}.V1Write",)


class _Insertable(SpeakingProxy):
    def __init__(
        self, spark: SparkSession, loaded: Loaded, options: WriteOptions, mode: str
    ) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._loaded = loaded
        self._options = options
        self._mode = mode

    def insert(self, rows: Any, _overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        table, df, options = self._loaded.table, DataFrame(rows, self._spark), self._options
        plan = rows.queryExecution().logical()
        is_plain = options.location == table.location and options.app_id is None
        if self._mode == "append" and is_plain and _excludes_rows_of(plan, table.table_id):
            # For Spark a MERGE that only inserts is an append. But its rows are those that match
            # no row of one snapshot, so they may be no new rows for another.
            intent = Intent(
                operation=Operation.MERGE, message=options.message, author=options.author
            )
            commit_inserts(df, table, self._loaded.snapshot, intent)
            return
        write(
            df,
            options.location.path,
            mode=self._mode,
            branch=options.location.branch,
            app_id=options.app_id,
            batch_id=options.batch_id,
            writer=options.writer,
            message=options.message,
            author=options.author,
            storage_options=options.location.storage_options,
            unsafe_single_writer=options.location.unsafe_single_writer,
        )

    class Java:
        implements = ("org.apache.spark.sql.sources.InsertableRelation",)


def _excludes_rows_of(plan: Any, table_id: str) -> bool:
    """True if a plan of Spark's leaves out rows for which a table has rows: an anti join."""
    if plan.nodeName() == "Join" and str(plan.joinType().toString()) == "LeftAnti":
        leaves = plan.right().collectLeaves()
        relations = (leaves.apply(at) for at in range(leaves.size()))
        if any(hasattr(each, "table") and each.table().id() == table_id for each in relations):
            return True
    children = plan.children()
    return any(_excludes_rows_of(children.apply(at), table_id) for at in range(children.size()))


def insert_options(location: TableLocation, info: Any) -> WriteOptions:
    """Return the options of a write to a table, which are among those of `format("fuse")`.

    Raises:
        InvalidInputError: an option is unknown, or has no meaning here.
    """
    given = options_of(info.options())
    parsed = parse_write_options({**location_options(location), **given}, streaming=False)
    known = {option.lower() for option in _OPTIONS}
    if others := sorted(name for name in given if name.lower() not in known):
        raise InvalidInputError(
            "this option has no meaning where a table is written by its name: leave it out, or use "
            "fuse.write",
            options=others,
            known=list(_OPTIONS),
        )
    chosen = dataclasses.replace(location, branch=parsed.location.branch)
    return dataclasses.replace(parsed, location=chosen)


def statement_intent(operation: Operation, options: Any) -> Intent:
    """Return the commit of an UPDATE, DELETE or MERGE, with the texts that `WITH (…)` gives.

    Raises:
        InvalidInputError: an option is unknown, or has no meaning here.
    """
    given = {name.lower(): value for name, value in options_of(options).items()}
    if others := sorted(given.keys() - set(_TEXTS)):
        raise InvalidInputError(
            "an UPDATE, DELETE or MERGE has no such option, and changes the branch main; "
            "fuse.update, fuse.delete and fuse.merge change another one: branch=…",
            options=others,
            known=list(_TEXTS),
        )
    return Intent(
        operation=operation, message=given.get("message", ""), author=given.get("author", "")
    )
