"""What Spark does with its own file system for S3: `python -m tests.stores.s3a_program`.

Standard input is one JSON object: `url`, a folder in a bucket; `options`, fsspec's; `folder`, a
local one for the source of the stream. The output is one JSON object: what each step found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from scripts.fetch_s3a import FOLDER
from tests.spark import conftest, streams

FILES = 5


def session(options: dict[str, str], warehouse: Path) -> SparkSession:
    settings = {
        "spark.driver.extraClassPath": f"{FOLDER}/*",
        "spark.hadoop.fs.s3a.access.key": options["key"],
        "spark.hadoop.fs.s3a.secret.key": options["secret"],
        "spark.hadoop.fs.s3a.endpoint": options["endpoint_url"],
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    builder = conftest.builder(warehouse)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Steps:
    """The steps of the program, each with what it found."""

    def __init__(self, spark: SparkSession, given: dict[str, Any]) -> None:
        self.found: dict[str, Any] = {}
        self._spark = spark
        self._folder = Path(given["folder"])
        self._url = given["url"]
        self._s3a = self._url.replace("s3://", "s3a://")
        self._options = given["options"]
        self._opening: dict[str, Any] = {"storage_options": self._options}
        self._table = f"{self._url}/t"

    def rewind(self) -> None:
        """A query with its state and its checkpoint on S3 is rewound, and repeated correctly."""
        streams.deliver(self._folder, range(FILES))
        old, new = f"{self._s3a}/checkpoint", f"{self._s3a}/checkpoint-2"

        def go(checkpoint: str, *, wrong: bool) -> str:
            frame = streams.read_stream(self._spark, self._folder).dropDuplicates(["id"])
            if wrong:
                frame = frame.selectExpr("id + 1000 AS id", "key")
            sink = fuse.fuse_sink(self._table, app_id="app", **self._opening)
            writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
            try:
                query = writer.option("checkpointLocation", checkpoint).start()
                query.awaitTermination()
            except StreamingQueryException as error:
                return str(error)
            return ""

        go(old, wrong=True)
        self.found["ids of the wrong query"] = self._ids()
        done = fuse.rewind(
            self._table,
            app_id="app",
            after_batch=1,
            checkpoints={old: new},
            **self._opening,
        )
        self.found["forks"] = len(done.forks)
        self.found["ids after the rewind"] = self._ids()
        self.found["the new query"] = go(new, wrong=False)
        self.found["ids of the new query"] = self._ids()
        streams.deliver(self._folder, range(FILES, FILES + 1))
        again = list(range(2 * streams.ROWS))  # the ids of the batches that the fork keeps
        doubled = pa.table({"id": again, "key": ["again"] * len(again)})
        streams.deliver_table(self._folder, FILES + 1, doubled)
        self.found["the old query"] = go(old, wrong=False)
        go(new, wrong=False)
        self.found["ids at last"] = self._ids()

    def read(self) -> None:
        found = fuse.read(self._spark, self._table, where="id % 10 = 3", **self._opening)
        self.found["plan of a read"] = plan(found)
        self.found["rows of a read"] = sorted(row.id for row in found.collect())
        fuse.Table.open(self._table, **self._opening).delete("id = 23")
        found = fuse.read(self._spark, self._table, where="id % 10 = 3", **self._opening)
        self.found["rows without the hidden one"] = sorted(row.id for row in found.collect())

    def follow(self) -> None:
        copy = f"{self._url}/copy"
        changes = fuse.read_stream(self._spark, self._table, **self._opening)
        source = changes._jdf.queryExecution().analyzed()  # noqa: SLF001 - pyspark has no public way
        self.found["source of a stream"] = str(source.getClass().getSimpleName())
        sink = fuse.fuse_sink(copy, mode="replicate", app_id="copy", **self._opening)
        writer = changes.writeStream.foreachBatch(sink).trigger(availableNow=True)
        checkpoint = f"{self._s3a}/copy-checkpoint"
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()
        rows = fuse.Table.open(copy, **self._opening).to_arrow()
        self.found["rows of a follower are the table's"] = sorted(rows["id"].to_pylist()) == sorted(
            self._ids()
        )

    def statements(self) -> None:
        sql = self._spark.sql
        fuse.attach(self._spark, "lake", self._url, **self._opening)
        source = "(SELECT * FROM VALUES (1001L, 'merged'), (500L, 'new') AS new(id, key)) s"
        sql("INSERT INTO lake.t VALUES (400, 'inserted')")
        sql(
            f"MERGE INTO lake.t t USING {source} ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET key = s.key WHEN NOT MATCHED THEN INSERT *"
        )
        wanted = "SELECT id, key FROM lake.t WHERE key IN ('inserted', 'merged', 'new')"
        self.found["plan of a SELECT"] = plan(sql(wanted))
        self.found["rows of a MERGE"] = sorted(map(list, sql(wanted).collect()))
        self._spark.conf.set("spark.fuse.rewriteBlocks", "true")
        sql("UPDATE lake.t SET key = 'rewritten' WHERE upper(key) = 'NEW'")
        self._spark.conf.unset("spark.fuse.rewriteBlocks")
        rewritten = sql("SELECT id FROM lake.t WHERE key = 'rewritten'")
        self.found["rows of an UPDATE by files"] = [row.id for row in rewritten.collect()]
        staged = fuse.Table.open(self._table, **self._opening).metadata.store.names("_staged/")
        self.found["staged files that are left"] = list(staged)

    def wrong_settings(self) -> None:
        other = self._spark.newSession()
        other.conf.set("fs.s3a.impl.disable.cache", "true")
        other.conf.set("fs.s3a.secret.key", "wrong")
        other.conf.set("fs.s3a.attempts.maximum", "1")
        try:
            fuse.read(other, self._table, **self._opening).collect()
        except PySparkException as error:  # Spark plans, so it gets the error first
            self.found["wrong settings"] = str(error)

    def _ids(self) -> list[int]:
        rows = fuse.Table.open(self._table, **self._opening).to_arrow(columns=["id"])
        return sorted(rows["id"].to_pylist())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())  # noqa: SLF001 - pyspark has no public way


def main() -> None:
    given = json.load(sys.stdin)
    spark = session(given["options"], Path(given["folder"]) / "warehouse")
    steps = Steps(spark, given)
    for step in (steps.rewind, steps.read, steps.follow, steps.statements, steps.wrong_settings):
        step()
    sys.stdout.write(f"{json.dumps(steps.found)}\n")
    spark.stop()


if __name__ == "__main__":
    main()
