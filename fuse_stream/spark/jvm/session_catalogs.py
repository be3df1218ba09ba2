"""The catalogs that a session of Spark's has loaded, by name: a private map of its JVM."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

FIELD = "catalogs"


def session_catalogs(spark: SparkSession) -> Any:
    """Return the map, which is Java's; nothing public of Spark's adds a catalog that is made."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    manager = session.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField(FIELD)
    field.setAccessible(True)
    return field.get(manager)
