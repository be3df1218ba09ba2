"""A run that lost or doubled a row, or whose memory or files grow, fails."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from soak.places import FOLLOWERS, KILLED, SLOW, Places, Settings
from soak.sample import Sample
from soak.tally import Tally, store_batch, tally_of
from soak.verdict import BEYOND, Verdict, judge

LONG = Settings(minutes=30)
ROWS = pa.table({"number": [1, 2, 3]})


def level(_at: int) -> int:
    return 300


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places(tmp_path)
    Table.create(places.table, ROWS.schema).append(ROWS)
    for follower in FOLLOWERS:
        store_batch(places.feed(follower), 0, {1: tally(places, ROWS)})
    return places


def tally(places: Places, rows: pa.Table) -> Tally:
    return tally_of(rows, Table.open(places.table).head().schema)


def samples(files: Callable[[int], int], memory: Callable[[int], float]) -> list[Sample]:
    return [
        Sample(
            seconds=float(at),
            rows=3,
            version=1,
            floor=0,
            epoch=at // 250,
            live_blocks=1,
            files={"blocks": 1, "segments": files(at)},
            file_bytes={"blocks": 10, "segments": 1000},
            memory={"writer-1: python": memory(at), f"{KILLED}: python": 100 + at},
        )
        for at in range(0, 1800, 5)
    ]


def judged(
    places: Places,
    *,
    files: Callable[[int], int] = level,
    memory: Callable[[int], float] = level,
    written: pa.Table = ROWS,
) -> Verdict:
    found = samples(files, memory)
    return judge(places, LONG, found, written=tally(places, written), kills=1)


def broken(verdict: Verdict) -> set[str]:
    # Nothing expired in a table that was made by hand.
    made = {"versions, of which expired", "raises of the epoch"}
    return {line.what for line in verdict.lines if line.holds is False} - made


def test_a_run_that_adds_up_and_does_not_grow_passes(places: Places) -> None:
    verdict = judged(places, files=lambda at: 300 + at % 250)

    assert broken(verdict) == set()
    assert ET.fromstring(verdict.picture).tag.endswith("svg")


def test_a_row_missing_from_the_table_fails_every_comparison(places: Places) -> None:
    more = pa.table({"number": [1, 2, 3, 4]})

    assert broken(judged(places, written=more)) == {
        "rows of the table",
        *(f"feed of the {follower}" for follower in FOLLOWERS),
    }


def test_a_row_that_a_follower_got_twice_fails_the_run(places: Places) -> None:
    store_batch(places.feed(SLOW), 1, {2: tally(places, ROWS.slice(2))})

    assert broken(judged(places)) == {f"feed of the {SLOW}"}


def test_a_row_in_place_of_another_fails_the_run(places: Places) -> None:
    store_batch(places.feed(SLOW), 0, {1: tally(places, pa.table({"number": [1, 2, 2]}))})

    assert broken(judged(places)) == {f"feed of the {SLOW}"}


def test_growing_numbers_of_files_fail_the_run(places: Places) -> None:
    assert broken(judged(places, files=lambda at: 300 + at // 10)) == {BEYOND}


def test_a_process_whose_memory_grows_fails_the_run(places: Places) -> None:
    assert broken(judged(places, memory=lambda at: 100 + at / 100)) == {"writer-1: python"}


def test_growth_is_not_judged_in_a_short_run(places: Places) -> None:
    found = samples(lambda at: 300 + at, lambda at: 100 + at)
    verdict = judge(places, Settings(minutes=3), found, written=tally(places, ROWS), kills=1)

    assert broken(verdict) == set()
