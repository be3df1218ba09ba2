"""A local folder keeps the contract, over crashes, full disks, lost rights and rival processes."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    NotFoundError,
    StorageError,
    UnsupportedStorageError,
)
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import STAGED_PREFIX, LocalStore
from tests.kit.rivals import RIVALS, check_one_creates_each
from tests.storage.contract import StoreContract

ROOT_FOLDER = "some table"


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / ROOT_FOLDER)

    def raw_get(self, store: Store, key: str) -> bytes:
        return Path(store.url, key).read_bytes()

    def raw_put(self, store: Store, key: str, data: bytes) -> None:
        target = Path(store.url, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def raw_keys(self, store: Store) -> set[str]:
        root = Path(store.url)
        return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "t")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Rivals


def test_of_several_processes_one_creates_each_object(tmp_path: Path) -> None:
    opens = [partial(LocalStore, tmp_path)] * RIVALS
    check_one_creates_each(opens, start_method="fork", keys=100)


def test_a_reader_never_sees_a_part_of_an_object(store: LocalStore) -> None:
    size = 300_000
    bodies = {bytes([letter]) * size for letter in b"ab"}
    store.replace("_hint/main", min(bodies))
    done = threading.Event()

    def write() -> None:
        for _ in range(30):
            for body in bodies:
                store.replace("_hint/main", body)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(store.get("_hint/main"))
    writer.join()

    assert seen <= bodies


def test_listing_and_deleting_side_by_side_fails_neither(store: LocalStore) -> None:
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            folder = Path(store.url, "_b", str(number % 7))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "x").write_bytes(b"1")
            shutil.rmtree(folder)
            number += 1

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        listings = [list(store.list("_b/")) for _ in range(1000)]
    finally:
        stop.set()
        churner.join()

    assert {info.size for infos in listings for info in infos} <= {0, 1}


def test_a_file_that_vanishes_while_it_is_listed_is_left_out(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("_b/a", b"1")
    store.put("_b/gone", b"1")
    scandir = os.scandir

    class Listed(list[object], contextlib.AbstractContextManager["Listed"]):
        def __exit__(self, *_error: object) -> None: ...

    def listed_before(folder: Path) -> Listed:
        with scandir(folder) as entries:
            found = Listed(entries)
        Path(store.url, "_b/gone").unlink()
        return found

    monkeypatch.setattr(os, "scandir", listed_before)

    assert [info.key for info in store.list("_b/")] == ["_b/a"]


# Crashes

CRASHING_WRITER = """
import os, signal, sys
from pathlib import Path
from fuse_stream.storage import local

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

module, name = sys.argv[2].split(".")
setattr({"os": os, "local": local}[module], name, die)
local.LocalStore(Path(sys.argv[1])).put_if_absent("_ss/main/1", b"x" * 100_000)
"""


@pytest.mark.parametrize("at", ["os.fsync", "os.link", "local.make_folder"])
def test_what_a_killed_writer_leaves_behind_is_invisible(store: LocalStore, at: str) -> None:
    store.put("_ss/main/0" if at != "local.make_folder" else "_b/0", b"0")
    before = [info.key for info in store.list("")]

    writer = subprocess.run([sys.executable, "-c", CRASHING_WRITER, store.url, at], check=False)

    assert writer.returncode == -signal.SIGKILL
    assert [info.key for info in store.list("")] == before
    with pytest.raises(NotFoundError):
        store.get("_ss/main/1")
    store.put_if_absent("_ss/main/1", b"again")
    assert store.get("_ss/main/1") == b"again"


def test_staged_files_are_not_listed(store: LocalStore) -> None:
    store.put("_b/a", b"1")
    Path(store.url, "_b", f"{STAGED_PREFIX}0123").write_bytes(b"half")

    assert [info.key for info in store.list("")] == ["_b/a"]


# Power cuts: what is on disk when a call returns


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file and folder that was synced, by the name that it had."""
    paths: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_every_new_folder_is_synced_into_its_parent(tmp_path: Path, synced: list[Path]) -> None:
    root = tmp_path / "new/deep/t"

    LocalStore(root).put_if_absent("_ss/main/1", b"1")

    parents = {tmp_path, tmp_path / "new", tmp_path / "new/deep", root, root / "_ss"}
    assert parents <= set(synced)
    assert synced[-1] == root / "_ss/main", "the name is synced last"


def test_folders_that_another_process_made_are_synced_once(
    tmp_path: Path, store: LocalStore, synced: list[Path]
) -> None:
    (tmp_path / "t/_ss/main").mkdir(parents=True)

    store.put_if_absent("_ss/main/1", b"1")

    assert {tmp_path, tmp_path / "t", tmp_path / "t/_ss"} <= set(synced)


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "replace"])
def test_a_write_into_a_known_folder_costs_two_syncs(
    store: LocalStore, synced: list[Path], verb: str
) -> None:
    store.put("_ss/main/0", b"0")
    synced.clear()

    getattr(store, verb)("_ss/main/1", b"1")

    file, folder = synced
    assert file.name.startswith(STAGED_PREFIX)
    assert folder == Path(store.url, "_ss/main")


def test_a_taken_name_is_on_disk_before_the_caller_hears_of_it(
    store: LocalStore, synced: list[Path]
) -> None:
    store.put("_ss/main/0", b"0")
    Path(store.url, "_ss/main/1").write_bytes(b"of a process that died before it synced")
    synced.clear()

    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("_ss/main/1", b"1")

    assert Path(store.url, "_ss/main") in synced


def test_a_delete_is_synced(store: LocalStore, synced: list[Path]) -> None:
    store.put("_refs/tags/a.json", b"0")
    synced.clear()

    store.delete("_refs/tags/a.json")

    assert synced == [Path(store.url, "_refs/tags")]


# Failures of the disk


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB where that can be had; the error itself is tested below in any case."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_says_so_and_keeps_no_part(tiny_disk: Path) -> None:
    store = LocalStore(tiny_disk)
    store.put("_b/small", b"1")

    with pytest.raises(StorageError, match="free space") as caught:
        store.put("_b/large", b"x" * 1_000_000)

    assert caught.value.context["key"] == "_b/large"
    assert _names(tiny_disk / "_b") == ["small"]


def test_a_disk_mounted_read_only_says_so(tiny_disk: Path) -> None:
    store = LocalStore(tiny_disk)
    store.put("_b/a", b"1")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)

    with pytest.raises(StorageError, match="mounted read-only"):
        store.put_if_absent("_b/b", b"1")
    with pytest.raises(StorageError, match="mounted read-only"):
        store.delete("_b/a")

    assert store.get("_b/a") == b"1"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "free space"),
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "change the rights"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
@pytest.mark.parametrize("verb", ["put", "put_if_absent", "replace"])
def test_a_failed_write_names_the_key_and_the_remedy_and_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, verb: str, number: int, remedy: str
) -> None:
    store.put("_b/first", b"1")

    def fail(descriptor: int, data: memoryview) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(StorageError, match=remedy) as caught:
        getattr(store, verb)("_b/second", b"2")

    assert caught.value.context == {"key": "_b/second", "store": store.url}
    assert isinstance(caught.value.__cause__, OSError)
    assert _names(Path(store.url, "_b")) == ["first"]


def test_a_failed_delete_of_many_names_the_key(store: LocalStore) -> None:
    keys = [f"_b/{number}" for number in range(9)]
    for key in keys:
        store.put(key, b"1")
    (store.root / keys[4]).unlink()
    (store.root / keys[4]).mkdir()

    with pytest.raises(StorageError) as caught:
        store.delete_all(keys)
    assert caught.value.context["key"] == keys[4]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_disk_without_hard_links_is_refused(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(UnsupportedStorageError, match="another disk"):
        store.put_if_absent("_b/a", b"1")

    assert _names(Path(store.url, "_b")) == []


def test_a_write_below_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"a file")
    store = LocalStore(tmp_path / "t")

    with pytest.raises(StorageError, match="is a file, not a folder"):
        store.put("_b/a", b"1")


def test_an_unclear_failure_to_read_is_never_not_found(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"a file")
    store = LocalStore(tmp_path / "t")

    with pytest.raises(StorageError, match="is a file, not a folder"):
        store.get("_b/a")
    with pytest.raises(StorageError, match="is a file, not a folder"):
        list(store.list("_b/"))


@pytest.mark.parametrize("swap", [False, True], ids=["gone", "an empty folder in its place"])
def test_a_store_whose_disk_is_unmounted_is_not_an_empty_store(
    tmp_path: Path, store: LocalStore, *, swap: bool
) -> None:
    store.put("_ss/main/0", b"0")
    Path(store.url).rename(tmp_path / "elsewhere")
    if swap:
        Path(store.url).mkdir()

    with pytest.raises(StorageError, match="is gone"):
        store.get("_ss/main/1")
    with pytest.raises(StorageError, match="is gone"):
        store.put_if_absent("_ss/main/1", b"1")
    with pytest.raises(StorageError, match="is gone"):
        list(store.list("_ss/"))

    if swap:
        assert _names(Path(store.url)) == []
    assert _names(tmp_path) == (["elsewhere", "t"] if swap else ["elsewhere"])


def test_a_short_write_is_continued(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))

    store.put("_b/a", b"x" * 100)

    assert Path(store.url, "_b/a").read_bytes() == b"x" * 100


# Links, pipes, folders and large files in the place of objects


def _outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a").write_bytes(b"secret")
    return folder


READS: dict[str, Callable[[LocalStore], object]] = {
    "get": lambda store: store.get("_b/a"),
    "open_input": lambda store: store.open_input("_b/a"),
    "location": lambda store: store.location("_b/a"),
}
WRITES: dict[str, Callable[[LocalStore], object]] = {
    "put": lambda store: store.put("_b/c", b"1"),
    "put_if_absent": lambda store: store.put_if_absent("_b/c", b"1"),
    "replace": lambda store: store.replace("_b/a", b"1"),
    "delete": lambda store: store.delete("_b/a"),
    "delete_all": lambda store: store.delete_all(["_b/a"]),
    "list": lambda store: list(store.list("_b/")),
}


@pytest.mark.parametrize("verb", READS)
def test_a_link_in_place_of_an_object_is_refused_and_named(
    tmp_path: Path, store: LocalStore, verb: str
) -> None:
    store.put("_b/first", b"1")
    Path(store.url, "_b/a").symlink_to(_outside(tmp_path) / "a")

    with pytest.raises(CorruptObjectError, match="symbolic link") as caught:
        READS[verb](store)
    assert caught.value.context["link"] == "_b/a"


@pytest.mark.parametrize("verb", [*READS, *WRITES])
def test_a_link_in_place_of_a_folder_is_refused_and_named(
    tmp_path: Path, store: LocalStore, verb: str
) -> None:
    outside = _outside(tmp_path)
    store.put("_ss/main/0", b"1")
    Path(store.url, "_b").symlink_to(outside)

    with pytest.raises(CorruptObjectError, match="symbolic link") as caught:
        {**READS, **WRITES}[verb](store)
    assert caught.value.context["link"] == "_b"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"a": b"secret"}


def test_a_link_in_place_of_an_object_is_replaced_and_deleted_itself(
    tmp_path: Path, store: LocalStore
) -> None:
    outside = _outside(tmp_path)
    store.put("_b/first", b"1")
    for key in ("_b/a", "_b/c"):
        Path(store.url, key).symlink_to(outside / "a")

    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("_b/a", b"2")
    store.replace("_b/a", b"2")
    store.delete("_b/c")

    assert store.get("_b/a") == b"2"
    assert (outside / "a").read_bytes() == b"secret"
    assert [info.key for info in store.list("_b/")] == ["_b/a", "_b/first"]


def test_a_listing_follows_no_link(tmp_path: Path, store: LocalStore) -> None:
    outside = _outside(tmp_path)
    store.put("_ss/main/0", b"1")
    Path(store.url, "_ss/away").symlink_to(outside)
    Path(store.url, "_ss/loop").symlink_to(Path(store.url, "_ss"))

    assert [info.key for info in store.list("_ss/")] == ["_ss/away", "_ss/loop", "_ss/main/0"]


def test_the_root_and_what_is_above_it_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "disk/t").mkdir(parents=True)
    (tmp_path / "lake").symlink_to("disk")
    (tmp_path / "lake/link").symlink_to("t")
    store = LocalStore(tmp_path / "lake/link")
    store.put_if_absent("_ss/main/0", b"1")

    assert store.get("_ss/main/0") == b"1"
    assert [info.key for info in store.list("")] == ["_ss/main/0"]
    assert store.location("_ss/main/0") == f"{tmp_path}/lake/link/_ss/main/0"


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_refused_without_waiting(
    store: LocalStore, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("_b/first", b"1")
    path = Path(store.url, "_b/a")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("a")
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("making a device needs root")

    with pytest.raises((CorruptObjectError, StorageError)):
        store.get("_b/a")
    with pytest.raises((CorruptObjectError, StorageError)):
        store.open_input("_b/a")


def test_an_object_that_is_too_large_is_refused_before_it_is_read(store: LocalStore) -> None:
    store.put("_b/a", b"1")
    os.truncate(Path(store.url, "_b/a"), 2**40)

    with pytest.raises(CorruptObjectError, match="too large") as caught:
        store.get_up_to("_b/a", 100)
    assert caught.value.context["size_bytes"] == 2**40


def test_a_read_that_returns_less_is_continued(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("_b/a", bytes(range(100)))
    read = os.read
    monkeypatch.setattr(os, "read", lambda file, count: read(file, min(count, 7)))

    assert store.get("_b/a") == bytes(range(100))


# Addresses


def test_a_location_is_the_path_as_it_is(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a b%20=#ü[1]{x,y}*?\\")

    location = store.location("_b/1")

    assert location == f"{tmp_path}/a b%20=#ü[1]{{x,y}}*?\\/_b/1"


def test_the_time_of_an_object_is_that_of_its_file(store: LocalStore) -> None:
    store.put("_b/a", b"1")
    os.utime(Path(store.url, "_b/a"), ns=(0, 1_234_567_890_123_456_789))

    (info,) = store.list("_b/")

    assert info.modified_us == 1_234_567_890_123_456


def test_a_store_travels_to_a_worker(store: LocalStore) -> None:
    store.put("_b/a", b"1")

    assert pickle.loads(pickle.dumps(store)).get("_b/a") == b"1"
