"""Make a small table and the Spark checkpoint beside it, then replay the last batch.

python checkpoints_example/run.py              in /tmp/fuse_stream_example, to look around in
python checkpoints_example/run.py --sample     the same, and copied to checkpoints_example/sample
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
# Without this the workers run the python3 of the PATH, which lacks this environment's packages.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import fuse_stream as fuse
from checkpoints_example.excerpts import refresh

HERE = Path(__file__).parent
NEUTRAL = Path("/tmp/fuse_stream_example")
"""Spark writes its source's path into the checkpoint: this one is nobody's."""

BATCHES = 4
MARK = ".fuse_stream_example"
"""In every folder that this script may empty."""


def main() -> None:
    """Stream four files, then take back Spark's note of the last one and start again."""
    options = parse_options()
    folder: Path = NEUTRAL if options.sample else options.folder.resolve()
    claim(folder)
    logging.basicConfig(format="  %(levelname)s %(message)s", stream=sys.stdout)
    logging.getLogger("fuse_stream").setLevel(logging.INFO)
    write_source(folder / "source")
    spark = start_session()

    print(f"The stream runs: {BATCHES} files of a dozen flights, one a micro-batch.")
    stream(spark, folder)
    before = fuse.Table.open(folder / "table").head()
    print(f"The table is at version {before.version}, {before.summary.row_count} rows.\n")

    last = folder / "checkpoint" / "commits" / str(BATCHES - 1)
    forget(last)
    print(f"Spark's commits/{last.name} is gone, as if the driver had died before writing it.")
    print("The same query starts again: Spark sends the batch once more.")
    stream(spark, folder)
    after = fuse.Table.open(folder / "table").head()
    spark.stop()
    if after != before or not last.exists():
        raise SystemExit("the replay changed the table: this is a bug")
    print(
        f"The table is at version {after.version}, {after.summary.row_count} rows: the snapshot "
        f"{after.snapshot_id} as before.\nSpark's commits/{last.name} is there again.\n"
    )
    print(f"All files are in {folder}; README.md goes through them.")
    if options.sample:
        shutil.rmtree(HERE / "sample", ignore_errors=True)
        for part in ("checkpoint", "table"):
            shutil.copytree(folder / part, HERE / "sample" / part)
        page = HERE / "README.md"
        page.write_text(refresh(page.read_text(), HERE / "sample"))
        print(f"Copied to {HERE / 'sample'}; the excerpts in README.md are those of the copy.")


def stream(spark: SparkSession, folder: Path) -> None:
    """Run the query until all files are in the table. A second call is a restart."""
    source = folder / "source"
    rows = spark.readStream.schema(spark.read.parquet(str(source)).schema)
    query = (
        rows.option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .writeStream.foreachBatch(fuse.fuse_sink(str(folder / "table")))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write_source(source: Path) -> None:
    """Write the flights as files whose times are their order."""
    source.mkdir()
    flights = pyarrow.csv.read_csv(
        HERE / "flights.csv",
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={
                "time_hour": pa.timestamp("us", tz="UTC"),
                "flight": pa.int32(),
                "dep_delay": pa.int32(),
            }
        ),
    )
    rows = len(flights) // BATCHES
    newest_s = int(time.time())
    for number in range(BATCHES):
        file = source / f"{number}.parquet"
        pq.write_table(flights.slice(number * rows, rows), file)
        os.utime(file, (newest_s - BATCHES + number,) * 2)


def forget(commit: Path) -> None:
    """Remove an entry of Spark's commit log, with the checksum that Hadoop keeps beside it."""
    commit.unlink()
    commit.with_name(f".{commit.name}.crc").unlink()


def claim(folder: Path) -> None:
    """Make the folder, empty but for a mark; refuse one that is not this script's."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise SystemExit(f"{folder} is not empty, nor left by an earlier run: name another")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def start_session() -> SparkSession:
    """Start a small, quiet Spark."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",  # a container's own host name may not resolve
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("checkpoints_example")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=NEUTRAL, help="to work in")
    parser.add_argument("--sample", action="store_true", help="make the committed sample anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
