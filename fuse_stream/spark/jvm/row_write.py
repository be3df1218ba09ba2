"""What the writes of a statement that changes rows have in common, however tasks write the rows."""

from __future__ import annotations

from typing import Any, Self

from fuse_stream.commit.plan import Intent
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.proxies import java_array

_METRIC = "org.apache.spark.sql.connector.metric"


class RowWrite(SpeakingProxy):
    """The write of a statement: its builder, the write, and its batch."""

    intent: Intent

    # ---- WriteBuilder, Write

    def build(self) -> Self:
        return self

    def buildForBatch(self) -> Self:  # noqa: N802 - Spark's names, here and below
        return self

    def buildForStreaming(self) -> Any:  # noqa: N802
        raise NotImplementedError("a statement that changes rows writes no stream")

    def description(self) -> str:
        return f"fuse {self.intent.operation}"

    def toString(self) -> str:  # noqa: N802
        return self.description()

    def toBatch(self) -> Self:  # noqa: N802
        return self

    def toStreaming(self) -> Any:  # noqa: N802
        raise NotImplementedError("a statement that changes rows writes no stream")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_METRIC}.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_METRIC}.CustomTaskMetric", ())
