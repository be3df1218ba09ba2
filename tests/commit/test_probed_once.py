"""A process probes each server once, not each table that it opens."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit import create
from fuse_stream.commit.create import probe_store
from fuse_stream.errors import UnsupportedStorageError
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore

SECOND_US = 1_000_000


class CountingStore(LocalStore):
    """Counts the creations of probes."""

    creations = 0

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if key.startswith("_probe/"):
            CountingStore.creations += 1
        super().put_if_absent(key, data)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "_probed", {})
    monkeypatch.setattr(CountingStore, "creations", 0)


def metadata_of(store: Store) -> Metadata:
    return Metadata(store, SYSTEM_CLOCK)


def test_a_second_table_of_a_disk_is_not_probed(tmp_path: Path) -> None:
    probe_store(metadata_of(CountingStore(tmp_path / "a")))
    first = CountingStore.creations
    offset_us = probe_store(metadata_of(CountingStore(tmp_path / "b" / "c")))
    assert first > 0
    assert CountingStore.creations == first
    assert abs(offset_us) < 10 * SECOND_US
    assert not (tmp_path / "b").exists()


def test_a_second_handle_writes_without_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64())])
    Table.create(tmp_path / "t", schema)

    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("a probe")

    monkeypatch.setattr(create, "probe", refuse)
    Table.open(tmp_path / "t").append(pa.table({"k": [1]}))
    Table.create(tmp_path / "u", schema).append(pa.table({"k": [2]}))
    assert Table.open(tmp_path / "t").head().summary.row_count == 1


def test_a_refused_server_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(store: CountingStore, key: str, data: bytes) -> None:
        store.replace(key, data)

    with monkeypatch.context() as patched:
        patched.setattr(CountingStore, "put_if_absent", overwrite)
        for _ in range(2):
            with pytest.raises(UnsupportedStorageError, match="second writer"):
                probe_store(metadata_of(CountingStore(tmp_path)))
    probe_store(metadata_of(CountingStore(tmp_path)))
    assert CountingStore.creations > 0


def test_the_time_of_a_server_outlives_a_change_of_the_wall_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    store = LocalStore(tmp_path)
    first = probe_store(Metadata(store, clock))
    clock.wall_us += 3600 * SECOND_US
    second = probe_store(Metadata(store, clock))
    assert abs(first - second - 3600 * SECOND_US) < SECOND_US


def test_what_is_no_server_is_always_probed() -> None:
    assert MemoryStore().server is None


@pytest.mark.parametrize(
    ("url", "options", "is_same"),
    [
        ("memory://bucket/another/table", {"key": "k"}, True),
        ("memory://another/table", {"key": "k"}, False),
        ("memory://bucket/table", {"key": "another"}, False),
        ("memory://bucket/table", {}, False),
    ],
)
def test_a_server_is_a_bucket_as_it_is_reached(
    url: str, options: dict[str, object], *, is_same: bool
) -> None:
    known = FsspecStore("memory://bucket/table", {"key": "k"}).server
    assert (FsspecStore(url, options).server == known) is is_same
    assert "'k'" not in repr(known)
