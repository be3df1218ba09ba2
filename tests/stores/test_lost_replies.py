"""Requests of a commit that break on the wire: the writer is told right, and nothing is doubled."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.commit import slot_put
from fuse_stream.errors import CommitStateUnknownError, StorageError
from tests.kit.servers import Place
from tests.kit.wire import Breakage, Kind, Wire, wired

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("k", pa.int64())])
REQUESTS = 4
"""Of a small commit: three PUT and a GET."""
TIMEOUT_S = 2.0
ATTEMPTS = 4
"""Instead of eight, on each slot; less waiting, nothing else."""
CALLS = 2 + ATTEMPTS
"""One put of the slot, the reads of it, and one call before."""
PAUSES_S = 3.0
LOAD_S = 15.0
"""What a busy machine adds."""


@dataclass
class Line:
    """A table, its writer behind a wire, and another handle that reaches it around the wire."""

    wire: Wire
    writer: fuse.Table
    around: fuse.Table
    batches: Iterator[int] = field(default_factory=itertools.count)

    def append(self, table: fuse.Table, batch: int) -> fuse.Snapshot:
        return table.append(pa.table({"k": [batch]}), app_id="app", batch_id=batch)

    def keys(self) -> list[int]:
        """Return what a reader around the wire sees."""
        return sorted(self.around.to_arrow()["k"].to_pylist())


@pytest.fixture(scope="module")
def lines(places: dict[str, Place]) -> Iterator[dict[str, list[Line]]]:
    """Lines to the server of each kind: one for each request, before and after its work."""
    with ExitStack() as wires:
        yield Lines(wires, places)


class Lines(dict[str, list[Line]]):
    """Makes the lines to a server when it is asked for them."""

    def __init__(self, wires: ExitStack, places: dict[str, Place]) -> None:
        super().__init__()
        self._wires, self._places = wires, places

    def __missing__(self, kind: str) -> list[Line]:
        place = self._places[kind]
        self[kind] = [self._line(place, number) for number in range(2 * REQUESTS)]
        return self[kind]

    def _line(self, place: Place, number: int) -> Line:
        url = f"{place.url}/lost replies/{number}"
        wire, through = self._wires.enter_context(wired(place))
        around = fuse.Table.create(url, SCHEMA, storage_options=place.options)
        writer = opened(url, {**through.options, "fuse_timeout_s": TIMEOUT_S})
        return Line(wire=wire, writer=writer, around=around)


def opened(url: str, options: dict[str, object]) -> fuse.Table:
    """Open a table; again if the client takes too long to start on a busy machine."""
    for _ in range(4):
        with suppress(StorageError):
            return fuse.Table.open(url, storage_options=options)
    return fuse.Table.open(url, storage_options=options)


CASES = [
    ("s3", kind, lasts)
    for kind in Kind
    for lasts in ((False,) if kind is Kind.LATE else (False, True))
] + [
    (store, kind, lasts)
    for store in ("azure", "gcs")
    for kind, lasts in [(Kind.RESET, False), (Kind.STALL, False), (Kind.STALL, True)]
]


@pytest.mark.parametrize(("store", "kind", "lasts"), CASES)
def test_a_commit_whose_request_breaks_is_told_right(
    lines: dict[str, list[Line]],
    store: str,
    kind: Kind,
    lasts: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slot_put, "SLOT_ATTEMPTS", ATTEMPTS)
    breakages = [
        Breakage(kind=kind, at=at, is_done=is_done, lasts=lasts)
        for at in range(1, REQUESTS + 1)
        for is_done in (False, True)
    ]
    with ThreadPoolExecutor(len(breakages)) as pool:
        told = list(pool.map(told_by_broken_commit, lines[store], breakages))

    if not lasts and kind is not Kind.LATE:
        assert "committed" in told
    if lasts:
        assert "committed" not in told[:-1]  # but by the last request, if it has done its work
        assert "unknown" in told


def told_by_broken_commit(line: Line, breakage: Breakage) -> str:
    """Commit while a request breaks, and check what the writer is told; return that."""
    line.append(line.writer, next(line.batches))
    batch = next(line.batches)
    before = list(range(batch))
    line.wire.arm(breakage)
    began_s = time.monotonic()
    try:
        line.append(line.writer, batch)
    except CommitStateUnknownError:
        told, possible = "unknown", [before, [*before, batch]]
    except StorageError:
        told, possible = "failed", [before]
    else:
        told, possible = "committed", [[*before, batch]]
    took_s = time.monotonic() - began_s
    broken_count = line.wire.broken_count
    seen = line.keys()
    line.append(line.around, batch)  # a replay, or what was not committed
    line.wire.release()  # what is late arrives

    assert broken_count >= 1
    assert seen in possible
    assert took_s < CALLS * (TIMEOUT_S + 1) + PAUSES_S + LOAD_S
    assert line.keys() == [*before, batch]
    return told
