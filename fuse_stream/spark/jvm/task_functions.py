"""Writers whose tasks give their rows to a function of Python, and what the function returns.

It is the writer of Spark's Python data sources. A data source itself would take three processes of
Python on the driver, to be made, to write and to commit.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.udf import _wrap_function  # pyspark offers no public way

from fuse_stream.spark.jvm.java_classes import new_instance
from fuse_stream.spark.jvm.proxies import java_class, jvm_of

_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python"
_MESSAGE = "message"

RowsFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class TaskFunction:
    """Gives the rows of a task to a function, and what it yields to the driver as one message."""

    def __init__(self, function: RowsFunction) -> None:
        self._function = function

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of one column: the batches that the function yields, in Arrow's format."""
        found = list(self._function(batches))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found[0].schema) as writer:
            for batch in found:
                writer.write_batch(batch)
        message = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([message], names=[_MESSAGE])


def writer_factory(spark: SparkSession, function: RowsFunction, schema: Any) -> Any:
    """Return a `DataWriterFactory` whose writers run `function`, which yields a batch at least.

    `schema` is the `StructType` of the rows, in the JVM.
    """
    jvm = jvm_of(spark)
    returned = spark_types.StructType([spark_types.StructField(_MESSAGE, spark_types.BinaryType())])
    run = TaskFunction(function).run
    context = spark.sparkContext
    environment = _wrap_function(context, run, returned)
    command = CloudPickleSerializer().dumps((run, returned))  # type: ignore[no-untyped-call]
    source = java_class(jvm, f"{_PYTHON}.UserDefinedPythonDataSource")(environment)
    nothing = jvm.scala.Option.empty()
    return java_class(jvm, f"{_PYTHON}.PythonBatchWriterFactory")(
        source, bytearray(command), schema, nothing, nothing
    )


def returned_rows(spark: SparkSession, messages: Iterable[Any]) -> list[Any]:
    """Return all rows that the functions of tasks have yielded, as those of a DataFrame."""
    found: list[Any] = []
    texts = new_instance(spark, "MessageTexts")
    for message in messages:
        data = b64decode(texts.of(message))
        if data:  # a task without rows may not have run the function
            with pa.ipc.open_stream(data) as reader:
                found += (spark_types.Row(**row) for row in reader.read_all().to_pylist())
    return found
