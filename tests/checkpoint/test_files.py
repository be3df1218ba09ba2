"""What is read of a checkpoint, and what is no checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse_stream.checkpoint.files import (
    METADATA,
    UNFINISHED,
    load_checkpoint,
    load_offsets,
)
from fuse_stream.checkpoint.offsets import NOTHING_YET, PlannedSource, find_sources, parse_offsets
from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.storage.local import LocalStore
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import QUERY_ID, batch_files, fill, offsets_text, put


def test_a_checkpoint_is_known_from_a_listing_and_two_reads(store: MemoryStore) -> None:
    fill(store, 12, provider="hdfs")
    counted = FaultyStore(store)

    checkpoint = load_checkpoint(counted)

    assert checkpoint.query_id == QUERY_ID
    assert checkpoint.offsets == checkpoint.commits == tuple(range(12))
    assert checkpoint.is_stateful
    assert checkpoint.last_offsets == offsets_text({"logOffset": 11})
    assert [verb for verb, _ in counted.calls] == ["list", "get", "get"]


def test_checksums_and_temporary_files_are_not_part_of_a_checkpoint(store: MemoryStore) -> None:
    fill(store, 3, provider="rocksdb")
    put(store, {"commits/.3.7d1b.tmp": "half", "sources/0/.hidden": "x", "sinks/other": "kept"})

    keys = [file.key for file in load_checkpoint(store).files]

    assert not [key for key in keys if "crc" in key or "tmp" in key or "/." in key]
    assert "sinks/other" in keys


def test_a_query_without_a_batch_has_a_checkpoint(store: MemoryStore) -> None:
    put(store, {METADATA: f'{{"id":"{QUERY_ID}"}}'})

    checkpoint = load_checkpoint(store)

    assert (checkpoint.offsets, checkpoint.commits, checkpoint.last_offsets) == ((), (), None)
    assert not checkpoint.is_stateful


def test_a_folder_without_metadata_is_no_checkpoint(store: MemoryStore) -> None:
    put(store, batch_files(range(3)))

    with pytest.raises(NotFoundError, match="checkpointLocation"):
        load_checkpoint(store)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id":7}', "null"])
def test_broken_metadata_is_refused_as_broken(store: MemoryStore, text: str) -> None:
    put(store, {METADATA: text})

    with pytest.raises(CorruptObjectError, match="metadata"):
        load_checkpoint(store)


def test_an_unfinished_checkpoint_is_refused_as_unfinished(store: MemoryStore) -> None:
    put(store, {METADATA: f"{UNFINISHED.decode()}\n{{}}"})

    with pytest.raises(InvalidInputError, match="not finished"):
        load_checkpoint(store)


def test_offsets_that_spark_has_forgotten_are_not_there(store: MemoryStore) -> None:
    fill(store, 3)

    assert load_offsets(store, 1) == offsets_text({"logOffset": 1})
    with pytest.raises(NotFoundError, match="minBatchesToRetain"):
        load_offsets(store, 3)


def test_offsets_that_are_no_text_are_corrupt(store: MemoryStore) -> None:
    store.replace("offsets/0", b"\xff\xfe")

    with pytest.raises(CorruptObjectError):
        load_offsets(store, 0)


def test_offsets_have_one_line_per_source() -> None:
    parsed = parse_offsets(offsets_text({"logOffset": 3}, NOTHING_YET, 17, watermark_ms=5))

    assert parsed.lines == ('{"logOffset": 3}', NOTHING_YET, "17")
    assert parsed.watermark_ms == 5
    assert parse_offsets(offsets_text(17) + "\n") == parse_offsets(offsets_text(17))


def test_offsets_of_named_sources_are_found_by_name() -> None:
    text = 'v2\n{}\norders:{"logOffset":3}\n0:-'

    parsed = parse_offsets(text)

    assert parsed.of_folder("orders", ["orders"]) == '{"logOffset":3}'
    assert parsed.of_folder("0", ["orders"]) == NOTHING_YET


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UnsupportedFormatError),
        ("v9\n{}\n1", UnsupportedFormatError),
        ("v1", CorruptObjectError),
        ("v1\n{}", CorruptObjectError),
        ("v1\nnonsense\n1", CorruptObjectError),
        ("v1\n[]\n1", CorruptObjectError),
        ('v1\n{"batchWatermarkMs":"x"}\n1', CorruptObjectError),
        ("v2\n{}\nno colon", CorruptObjectError),
    ],
)
def test_what_are_no_offsets_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_offsets(text)


def test_a_source_is_found_by_its_number_unless_another_one_is_read_twice() -> None:
    twice = parse_offsets(offsets_text({"logOffset": 3}, {"logOffset": 3}, {"logOffset": 9}))
    once = parse_offsets(offsets_text({"logOffset": 3}, NOTHING_YET, "17"))

    # The third source has the second folder: nothing tells its line from that of the first one.
    with pytest.raises(InvalidInputError, match="twice"):
        twice.of_folder("1", ["0", "1"])
    assert twice.of_folder("1", ["0", "1", "2"]) == '{"logOffset": 3}'
    assert once.of_folder("1", ["0", "1"]) == NOTHING_YET
    assert once.of_folder("0", ["0"]) == '{"logOffset": 3}'


def test_a_checkpoint_in_a_folder_of_the_disk_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    fill(store, 2)

    assert load_checkpoint(store).offsets == (0, 1)


def fuse_offset(version: int, **changes: object) -> dict[str, object]:
    offset = {"table_id": "1" * 32, "branch_id": "main", "version": version}
    return {**offset, "snapshot_id": "2" * 32, "index": 0, **changes}


def planned(*paths: str | None) -> list[PlannedSource]:
    return [PlannedSource(path) for path in paths]


def test_the_sources_of_a_batch_are_the_tables_among_its_offsets_each_with_its_path() -> None:
    text = offsets_text(fuse_offset(4), {"logOffset": 7}, fuse_offset(6, index=-2))
    found = find_sources(text, planned("/lake/a", None, "s3://key:secret@lake/b"))

    assert found is not None
    assert [(one.offset.version, one.offset.index, one.path) for one in found] == [
        (4, 0, "/lake/a"),
        (6, -2, "s3://***@lake/b"),
    ]


def test_sources_with_names_have_the_paths_of_their_names() -> None:
    note, *lines = offsets_text(fuse_offset(4), fuse_offset(6), fuse_offset(8)).split("\n")[1:]
    named = [f"{name}:{line}" for name, line in zip("abc", lines, strict=True)]
    sources = [PlannedSource("/lake/b", "b"), PlannedSource("/lake/a", "a")]
    found = find_sources("\n".join(["v2", note, *named]), sources)

    assert found is not None
    assert [(one.offset.version, one.path) for one in found] == [
        (4, "/lake/a"),
        (6, "/lake/b"),
        (8, None),
    ]


@pytest.mark.parametrize("paths", [[], ["/lake/a"], ["/lake/a"] * 3])
def test_paths_that_do_not_match_the_offsets_are_left_out(paths: list[str]) -> None:
    found = find_sources(offsets_text(fuse_offset(4), fuse_offset(5)), planned(*paths))

    assert found is not None
    assert [one.path for one in found] == [None, None]


@pytest.mark.parametrize(
    "line",
    [
        {"logOffset": 7},
        fuse_offset(4, more=1),
        fuse_offset(4, table_id="../x"),
        fuse_offset(4, branch_id="fix"),
        fuse_offset(-1),
        fuse_offset(4, index=True),
        fuse_offset(4, snapshot_id=None),
    ],
)
def test_offsets_of_other_sources_are_no_tables(line: dict[str, object]) -> None:
    assert find_sources(offsets_text(line), planned("/lake/a")) is None
