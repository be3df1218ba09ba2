"""The Spark session of a worker, for the tests in this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.fetch_oracle import JAR

# Without this the workers run the python3 of the PATH, which lacks this environment's packages.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",  # a container's own host name may not resolve
    # No test runs for long enough to gain from the JVM's optimizing compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def builder(warehouse: Path) -> SparkSession.Builder:
    """Return what makes a session; a test that kills its driver makes its own."""
    made = SparkSession.builder.master("local[2]").appName("fuse_stream tests")
    made = made.config("spark.sql.warehouse.dir", str(warehouse))
    for name, value in SETTINGS.items():
        made = made.config(name, value)
    return made


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that tests share: settings are changed in `spark.newSession()` only."""
    made = builder(tmp_path_factory.mktemp("warehouse"))
    if JAR.exists():
        made = made.config("spark.jars", str(JAR))
    session = made.getOrCreate()
    yield session
    session.stop()
