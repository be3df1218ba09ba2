"""A tally of rows, independent of their order; the end of a run compares tallies.

Every row has its own number: a lost row does not cancel one that came twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.schema import Schema
from fuse_stream.optimize.fingerprint import fingerprint
from soak.places import write_whole

_MODULUS = 2**64
_ADDING = ["insert", "update_postimage"]


@dataclass(frozen=True, slots=True)
class Tally:
    """The tally of a multiset of rows; tallies of parts add up."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def plus(self, other: Tally, sign: int = 1) -> Tally:
        return Tally(
            self.rows + sign * other.rows,
            (self.first + sign * other.first) % _MODULUS,
            (self.second + sign * other.second) % _MODULUS,
        )


def tally_of(rows: pa.Table, schema: Schema) -> Tally:
    """Return the tally of rows that have the columns of `schema`, and perhaps others."""
    target = arrow_schema(schema)
    found = fingerprint(rows.select(target.names).cast(target), schema)
    return Tally(found.row_count, found.first, found.second)


def total(tallies: Iterable[Tally]) -> Tally:
    whole = Tally()
    for tally in tallies:
        whole = whole.plus(tally)
    return whole


def changes_of(changes: pa.Table, schema: Schema) -> Mapping[int, Tally]:
    """Return the tally of a part of a feed, by commit."""
    whole: dict[int, Tally] = {}
    versions = np.asarray(changes["_commit_version"])
    adds = np.asarray(pc.is_in(changes["_change_type"], pa.array(_ADDING)))
    edges = np.flatnonzero((versions[1:] != versions[:-1]) | (adds[1:] != adds[:-1])) + 1
    # By stretches of one commit's rows: a Python object for each row would leave the heap in
    # pieces, and memory is what the soak looks at.
    for start, stop in pairwise([0, *edges.tolist(), len(versions)]):
        if start == stop:
            continue
        version, sign = int(versions[start]), 1 if adds[start] else -1
        found = tally_of(changes.slice(start, stop - start), schema)
        whole[version] = whole.get(version, Tally()).plus(found, sign)
    return whole


def store_batch(folder: Path, batch_id: int, changes: Mapping[int, Tally]) -> None:
    """Store the tally of a batch: a repeated batch replaces itself."""
    lines = {str(at): [item.rows, item.first, item.second] for at, item in changes.items()}
    write_whole(folder / f"{batch_id}.json", json.dumps(lines))


def load_batches(folder: Path) -> Tally:
    """Return the tally of all batches."""
    return total(
        Tally(*item)
        for file in folder.glob("[0-9]*.json")
        for item in json.loads(file.read_text()).values()
    )
