"""Tables of a catalog for a test, and queries that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fuse_stream.spark.jvm.proxies import java_class, jvm_of
from fuse_stream.table.handle import Table

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PATIENCE_S = 240

Row = tuple[Any, ...]


def create(root: Path, name: str = "t", schema: pa.Schema = SCHEMA) -> Table:
    return Table.create(root / name, schema)


def rows(keys: list[int], value: int = 0) -> pa.Table:
    return pa.table([keys, [value] * len(keys)], schema=SCHEMA)


def collected(frame: DataFrame) -> list[Row]:
    return [tuple(row) for row in frame.collect()]


def run(frame: DataFrame, checkpoint: Path, into: list[Row]) -> StreamingQuery:
    """Run a query until it has all that is there now; append its rows to `into`."""

    def batch(part: DataFrame, _number: int) -> None:
        into.extend(collected(part))

    writer = frame.writeStream.foreachBatch(batch)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return query


def missing_methods(spark: SparkSession, proxy: Any) -> set[str]:
    """Return the methods of a proxy's interfaces that its class lacks."""
    jvm = jvm_of(spark)
    found: set[str] = set()
    for name in proxy.Java.implements:
        interface = java_class(jvm, name)
        assert isinstance(interface, JavaClass)
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for method in jvm.java.lang.Class.forName(name, False, loader).getMethods():  # noqa: FBT003
            if not jvm.java.lang.reflect.Modifier.isStatic(method.getModifiers()):
                found.add(str(method.getName()))
    return {name for name in found if not hasattr(proxy, name)}
