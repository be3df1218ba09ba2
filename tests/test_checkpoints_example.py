"""The committed sample is as `checkpoints_example/README.md` describes it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pyarrow.csv

import fuse_stream as fuse
from checkpoints_example.excerpts import load_segment, refresh

EXAMPLE = Path(__file__).parent.parent / "checkpoints_example"
CHECKPOINT, TABLE = EXAMPLE / "sample" / "checkpoint", EXAMPLE / "sample" / "table"
BATCHES = [0, 1, 2, 3]
NEUTRAL = b"/tmp/fuse_stream_example/"
SOME_MACHINE = re.compile(
    rb"/(?:home|root|Users|work|tmp|var|usr|opt|mnt|srv|private|Volumes)/[\w./-]*"
)


def sha256_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def slot(version: int) -> Path:
    return TABLE / "_ss" / "main" / f"{version:020}_v1.json"


def files_of(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def test_the_sample_holds_the_flights_each_once() -> None:
    flights = pyarrow.csv.read_csv(EXAMPLE / "flights.csv")
    landed = fuse.Table.open(TABLE).to_arrow()

    assert len(landed) == 48
    assert landed.cast(flights.schema).to_pylist() == flights.to_pylist()


def test_every_batch_is_one_version() -> None:
    snapshots = list(fuse.Table.open(TABLE).log())

    assert [snapshot.version for snapshot in snapshots] == [4, 3, 2, 1, 0]
    assert [snapshot.operation for snapshot in snapshots] == [*["append"] * 4, "create"]
    assert [snapshot.summary.row_count for snapshot in snapshots] == [48, 36, 24, 12, 0]


def test_the_ledger_agrees_with_the_checkpoint() -> None:
    query_id = json.loads((CHECKPOINT / "metadata").read_bytes())["id"]
    offsets = [(CHECKPOINT / "offsets" / str(batch)).read_text() for batch in BATCHES]
    table = fuse.Table.open(TABLE)

    for batch in BATCHES:
        ((key, entry),) = table.snapshot(batch + 1).ledger.entries.items()
        assert key == ("default", "")
        assert (entry.query_id, entry.batch_id, entry.rows) == (query_id, batch, 12)
        assert entry.version == batch + 1
        assert [item.text for item in entry.offsets] == offsets[max(0, batch - 1) : batch + 1]
        assert [item.sha256 for item in entry.offsets][-1] == sha256_of(
            CHECKPOINT / "offsets" / str(batch)
        )


def test_the_checkpoint_has_entries_for_every_batch() -> None:
    for folder in ("commits", "offsets", "sources/0"):
        assert sorted(file.name for file in (CHECKPOINT / folder).glob("[0-9]*")) == [
            str(batch) for batch in BATCHES
        ]


def test_every_object_has_the_hash_that_its_parent_holds() -> None:
    for version in (1, 2, 3, 4):
        fields = json.loads(slot(version).read_bytes())
        assert fields["parent"]["sha256"] == sha256_of(slot(version - 1))
        for ref in fields["segments"]:
            segment = TABLE / "_sg" / f"{ref['id']}_v1.json.zst"
            assert ref["sha256"] == sha256_of(segment)
            assert ref["byte_size"] == segment.stat().st_size
            for block in load_segment(segment)["blocks"]:
                file = TABLE / "_b" / f"{block['id']}_v1.parquet"
                assert block["sha256"] == sha256_of(file)
                assert block["file_size"] == file.stat().st_size


def test_a_replay_left_no_object() -> None:
    table = fuse.Table.open(TABLE)
    named = {f"{ref.id}_v1.json.zst" for ref in table.segments()}
    named |= {f"{block.id}_v1.parquet" for block in table.blocks()}

    stored = {file.name for part in ("_sg", "_b") for file in files_of(TABLE / part)}
    assert stored == named


def test_the_sample_names_no_users_machine() -> None:
    contents = {file: file.read_bytes() for file in files_of(EXAMPLE / "sample")}
    contents |= {
        file: json.dumps(load_segment(file)).encode() for file in contents if file.suffix == ".zst"
    }

    found = {path for content in contents.values() for path in SOME_MACHINE.findall(content)}
    assert {path for path in found if not path.startswith(NEUTRAL)} == set()
    assert len(found) == 4  # the source's files


def test_the_sample_is_small() -> None:
    assert sum(file.stat().st_size for file in files_of(EXAMPLE / "sample")) < 150_000


def test_the_page_shows_the_content_of_the_files() -> None:
    page = (EXAMPLE / "README.md").read_text()

    assert page == refresh(page, EXAMPLE / "sample")
