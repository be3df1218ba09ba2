"""The flights, repeated, as small files that appear one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.flights import load_flights
from fuse_stream.format.schema import Schema
from soak.tally import Tally, tally_of

NUMBER = "number"
"""The column that differs between two copies of a flight."""


def pieces(rows: int) -> Iterator[pa.Table]:
    """Yield the flights endlessly, `rows` at a time, with consecutive numbers."""
    flights = load_flights()
    number = 0
    while True:
        for start in range(0, len(flights), rows):
            part = flights.slice(start, rows)
            numbers = pa.array(range(number, number + len(part)), pa.int64())
            number += len(part)
            yield part.append_column(NUMBER, numbers)


def put_file(rows: pa.Table, folder: Path, name: str, schema: Schema) -> Tally:
    """Make a file of these rows appear in `folder` at once; return its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f".{name}"  # a stream of files skips such names
    pq.write_table(rows, staged)
    staged.replace(folder / f"{name}.parquet")
    return tally_of(rows, schema)
