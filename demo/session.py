"""A Spark session on two cores, quiet, with all its temporary files in one folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession


def start_session(scratch: Path) -> SparkSession:
    """Start Spark; `scratch` is the folder for what it leaves behind."""
    # Without this the workers run the python3 of the PATH, which lacks fuse_stream.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",  # a container's own host name may not resolve
        "spark.driver.host": "127.0.0.1",
        # A driver lives for half a minute here: compiling its code any better does not pay.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData "
        "-XX:TieredStopAtLevel=1",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("fuse_stream demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def spark_session(root: Path) -> Iterator[SparkSession]:
    """Run Spark in the folder of a run: what it says goes to `spark.log` there."""
    scratch, log = root / "scratch", root / "spark.log"
    scratch.mkdir()
    try:
        with _stderr_to(log):
            spark = start_session(scratch)  # its JVM keeps the standard error that it starts with
        try:
            yield spark
        finally:
            spark.stop()
    except Exception as error:
        error.add_note(f"what Spark says: {log}")
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
