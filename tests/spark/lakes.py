"""A catalog for a test: a session of its own, whose SQL names the tables in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fuse_stream.spark.attach import Catalog, attach

FAILURES = (PySparkException, Py4JJavaError)
IS_SPARK_4_2 = version("pyspark").startswith("4.2.")
"""docs/limits.md says what cannot be done there."""


@contextmanager
def attached(spark: SparkSession, root: Path) -> Iterator[Lake]:
    """Attach `root` as `lake` in a new session; detach it afterwards."""
    session = spark.newSession()
    catalog = attach(session, "lake", root)
    yield Lake(session, catalog, root)
    session.catalog.clearCache()
    catalog.detach()


class Lake:
    """Runs statements in the session of a catalog."""

    def __init__(self, spark: SparkSession, catalog: Catalog, root: Path) -> None:
        self.spark = spark
        self.catalog = catalog
        self.root = root

    def sql(self, statement: str) -> list[Any]:
        """Return the rows of a statement as tuples; those of one column as values."""
        rows = [tuple(row) for row in self.spark.sql(statement).collect()]
        return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows

    def refuses(self, statement: str, *texts: str) -> str:
        """Check that a statement fails with texts in its message; return the message."""
        with pytest.raises(FAILURES) as failed:
            self.sql(statement)
        message = str(failed.value)
        assert [text for text in texts if text not in message] == []
        return message
