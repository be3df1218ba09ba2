"""The recorded disk loses what was not synced, and nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fuse_stream.storage.local import LocalStore
from torture.disk import Disk, Name, Recorder, SyncFile, SyncFolder, Unname, Write


def state(disk: Disk, keeps: Callable[[], bool]) -> dict[str, bytes]:
    return disk.state(keeps, random.Random(0))


def never() -> bool:
    return False


def always() -> bool:
    return True


@pytest.fixture
def disk() -> Disk:
    """A disk with the synced file `t/old`."""
    disk = Disk()
    for event in (
        Name("t", "t"),
        SyncFolder(""),
        Name("t/old", 1),
        Write(1, b"old"),
        SyncFile(1),
        SyncFolder("t"),
    ):
        disk.happen(event)
    return disk


def test_what_was_synced_is_there(disk: Disk) -> None:
    assert disk.is_synced
    assert state(disk, never) == {"t/old": b"old"}


def test_a_name_that_was_not_synced_may_be_missing(disk: Disk) -> None:
    for event in (Name("t/new", 2), Write(2, b"new"), SyncFile(2)):
        disk.happen(event)

    assert not disk.is_synced
    assert state(disk, never) == {"t/old": b"old"}
    assert state(disk, always) == {"t/old": b"old", "t/new": b"new"}


def test_bytes_that_were_not_synced_may_be_missing_or_other_ones(disk: Disk) -> None:
    for event in (Name("t/new", 2), Write(2, b"new"), SyncFolder("t")):
        disk.happen(event)
    found = {disk.state(never, random.Random(seed))["t/new"] for seed in range(60)}

    assert state(disk, always)["t/new"] == b"new"
    assert {b"", b"n", b"\0\0\0", b"n\0\0"} <= found


def test_a_rename_is_there_as_a_whole_or_not(disk: Disk) -> None:
    disk.happen(Name("t/new", 1, moved_from="t/old"))

    assert state(disk, never) == {"t/old": b"old"}
    assert state(disk, always) == {"t/new": b"old"}


def test_a_name_that_was_removed_may_be_back(disk: Disk) -> None:
    disk.happen(Unname("t/old"))

    assert state(disk, never) == {"t/old": b"old"}
    assert state(disk, always) == {}


def test_what_is_in_a_folder_goes_with_its_name() -> None:
    disk = Disk()
    for event in (Name("t", "t"), Name("t/new", 1), Write(1, b"new"), SyncFile(1), SyncFolder("t")):
        disk.happen(event)

    assert state(disk, never) == {}
    assert state(disk, always) == {"t/new": b"new"}


def test_all_that_a_local_store_does_is_recorded(tmp_path: Path) -> None:
    root = tmp_path / "table"
    store = LocalStore(root)
    recorder = Recorder(root)
    kept = os.fsync
    with recorder.recording():
        store.put_if_absent("_ss/main/0", b"slot")
        store.put("_b/1", b"block")
        store.put("_b/2", b"block")
        store.replace("_hint/main", b"1")
        store.replace("_hint/main", b"2")
        store.delete("_b/1")
    disk = Disk()
    for event in recorder.events:
        disk.happen(event)

    assert os.fsync is kept
    assert disk.is_synced
    files = {"table/_ss/main/0": b"slot", "table/_b/2": b"block", "table/_hint/main": b"2"}
    assert state(disk, never) == files
