"""A store on fsspec keeps the contract, trusts no cache, survives a fork and tells no secret."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import fsspec
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import (
    AlreadyExistsError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from fuse_stream.storage.adapters import modified_us
from fuse_stream.storage.base import ObjectInfo, Store
from fuse_stream.storage.remote import CREATE_LIMIT_BYTES, FsspecStore
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.testing.memory import MemoryObject
from tests.kit.memory_fs import MarkedMemoryFileSystem, MemoryFileSystem
from tests.storage.contract import KEY, StoreContract

URL = "fusetest://bucket/some/table"
MARKED_URL = "fusetest-marked://bucket/some/table"
SECRET = "wJalrXUtnFEMI/K7MDENG"


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryObject]:
    objects: dict[str, MemoryObject] = {}
    monkeypatch.setattr(MemoryFileSystem, "buckets", {"bucket": objects})
    return objects


@pytest.fixture
def store() -> FsspecStore:
    return FsspecStore(URL)


@pytest.mark.parametrize("is_async", [True, False])
def test_calls_overlap_where_the_file_system_is_made_for_it(
    monkeypatch: pytest.MonkeyPatch, store: FsspecStore, *, is_async: bool
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "async_impl", is_async)

    assert store.overlaps is is_async


@pytest.mark.parametrize("is_async", [True, False])
def test_many_are_deleted_at_a_time_only_where_calls_may_overlap(
    monkeypatch: pytest.MonkeyPatch, store: FsspecStore, *, is_async: bool
) -> None:
    callers = set[threading.Thread]()

    def delete(_fs: MemoryFileSystem, _path: str) -> None:
        callers.add(threading.current_thread())

    monkeypatch.setattr(MemoryFileSystem, "async_impl", is_async)
    monkeypatch.setattr(MemoryFileSystem, "rm_file", delete)
    store.delete_all([f"_b/{number}" for number in range(20)])

    assert (callers == {threading.current_thread()}) is not is_async


class TestFsspecStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore(URL)

    def raw_get(self, store: Store, key: str) -> bytes:
        return MemoryFileSystem.buckets["bucket"][f"some/table/{key}"].data

    def raw_put(self, store: Store, key: str, data: bytes) -> None:
        item = MemoryObject(data=data, modified_us=SYSTEM_CLOCK.now_us())
        MemoryFileSystem.buckets["bucket"][f"some/table/{key}"] = item

    def raw_keys(self, store: Store) -> set[str]:
        keys = MemoryFileSystem.buckets["bucket"]
        return {key.removeprefix("some/table/") for key in keys}


class TestStoreOfMarkedFolders(TestFsspecStore):
    """Folders are objects too, as on S3: no call shows one."""

    @pytest.fixture
    def store(self, bucket: dict[str, MemoryObject]) -> Store:
        MarkedMemoryFileSystem.mark(bucket, "some/table")
        return FsspecStore(MARKED_URL)

    def raw_put(self, store: Store, key: str, data: bytes) -> None:
        MarkedMemoryFileSystem().pipe_file(f"bucket/some/table/{key}", data)

    def raw_keys(self, store: Store) -> set[str]:
        return {key for key in super().raw_keys(store) if key and not key.endswith("/")}


@pytest.mark.parametrize("url", [URL, MARKED_URL])
@pytest.mark.parametrize("prefix", ["", "_refs/", "_refs/branches/"])
def test_the_marker_of_a_folder_is_not_listed(
    bucket: dict[str, MemoryObject], url: str, prefix: str
) -> None:
    for marker in ("/", "/_refs/", "/_refs/branches/", "/_refs/branches/x/", "/_refs_$folder$"):
        bucket[f"some/table{marker}"] = MemoryObject(data=b"", modified_us=1)
    bucket["some/table/_refs/branches_$folder$"] = MemoryObject(data=b"", modified_us=1)
    store = FsspecStore(url)
    before = list(store.list(prefix))
    store.put("_refs/branches/a.json", b"1")

    assert before == []
    assert [info.key for info in store.list(prefix)] == ["_refs/branches/a.json"]


def test_a_store_may_be_a_whole_bucket(bucket: dict[str, MemoryObject]) -> None:
    store = FsspecStore("fusetest://bucket/")
    store.put("_b/a", b"1")

    assert list(bucket) == ["_b/a"]
    assert [info.key for info in store.list("_b/")] == ["_b/a"]


# One conditional request


@pytest.mark.parametrize("data", [b"", bytes(CREATE_LIMIT_BYTES + 1)], ids=["empty", "large"])
def test_a_creation_that_may_lose_its_condition_is_refused(
    store: FsspecStore, bucket: dict[str, MemoryObject], data: bytes
) -> None:
    with pytest.raises(InvalidInputError):
        store.put_if_absent(KEY, data)

    assert bucket == {}


def test_only_a_creation_is_conditional(
    store: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        MemoryFileSystem, "pipe_file", lambda self, path, data, **options: calls.append(options)
    )

    store.put_if_absent(KEY, b"1")
    store.put(KEY, b"1")
    store.replace(KEY, b"1")

    assert calls == [{"mode": "create"}, {}, {}]


# What an error means


@pytest.mark.parametrize("verb", ["get", "open_input", "delete", "list", "put", "put_if_absent"])
def test_a_missing_bucket_is_a_failure_not_an_absence(verb: str) -> None:
    store = FsspecStore("fusetest://no-bucket/t")
    body = [b"1"] if verb.startswith("put") else []

    with pytest.raises(StorageError, match="create it or correct the path"):
        getattr(store, verb)(KEY, *body)


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (PermissionError("AccessDenied"), "check the credentials"),
        (PermissionError("(SignatureDoesNotMatch) no"), "missing, wrong or expired"),
        (OSError('Could not connect to the endpoint URL: "http://s3"'), "cannot be reached"),
        (TimeoutError("slow"), "check the network"),
        (OSError(22, "another server's conflict"), "see the reason"),
        (RuntimeError("a client's own error"), "see the reason"),
    ],
)
@pytest.mark.parametrize("verb", ["get", "open_input", "delete", "list", "put", "put_if_absent"])
def test_any_other_error_is_a_storage_error_with_a_remedy(
    store: FsspecStore,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    failure: Exception,
    remedy: str,
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "failure", failure)
    body = [b"1"] if verb.startswith("put") else []

    with pytest.raises(StorageError, match=remedy) as caught:
        getattr(store, verb)(KEY, *body)

    assert caught.value.context["key"] == KEY
    assert caught.value.__cause__ is failure


def test_a_failed_overwrite_is_not_a_taken_name(
    store: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "failure", FileExistsError("odd"))

    with pytest.raises(StorageError):
        store.put(KEY, b"1")


# Secrets


@pytest.mark.parametrize(
    "text",
    [f"bad key {SECRET}", f"GET https://h/p?sig={SECRET} failed", f"https://{SECRET}@h/p refused"],
)
@pytest.mark.parametrize("error_type", [OSError, FileNotFoundError, FileExistsError, RuntimeError])
@pytest.mark.parametrize("outside", [True, False], ids=["in the error", "in its cause"])
def test_no_error_shows_a_secret(
    monkeypatch: pytest.MonkeyPatch, text: str, error_type: type[Exception], *, outside: bool
) -> None:
    secret = SECRET if "bad key" in text else "unknown to the options"
    options = {"client_kwargs": {"secret": secret}, "endpoint_url": "http://h"}
    store = FsspecStore(URL, options)
    store.put("_b/a", b"1")
    failure = error_type(text if outside else "the call failed")
    failure.__cause__ = None if outside else RuntimeError(text)
    monkeypatch.setattr(MemoryFileSystem, "failure", failure)

    with pytest.raises(FuseError) as caught:
        store.put_if_absent(KEY, b"1")
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value.context)

    assert SECRET not in printed
    with pytest.raises(FuseError) as caught:
        store.get(KEY)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_options_and_stores_print_no_value(caplog: pytest.LogCaptureFixture) -> None:
    options = StorageOptions({"key": SECRET, "client_kwargs": {"token": SECRET}})
    store = FsspecStore(URL, options)
    logging.getLogger("t").warning("%s %r", options, store)

    printed = f"{options} {options!r} {store} {store!r} {store.url} {caplog.text}"

    assert SECRET not in printed
    assert repr(options) == "StorageOptions(2 options)"


def test_options_travel_with_their_values() -> None:
    options = StorageOptions({"key": SECRET})

    assert dict(pickle.loads(pickle.dumps(options))) == {"key": SECRET}


def test_options_do_not_follow_the_dictionary_they_were_made_of() -> None:
    values: dict[str, object] = {"key": "a"}
    options = StorageOptions(values)
    values["key"] = "b"

    assert options["key"] == "a"


# Processes


def test_a_store_travels_as_its_url_and_options(store: FsspecStore) -> None:
    store.put(KEY, b"1")

    travelled = pickle.loads(pickle.dumps(FsspecStore(URL, {"a": 1})))

    assert (travelled.url, dict(travelled.options)) == (URL, {"a": 1})
    assert travelled.get(KEY) == b"1"


def _pids_of_file_systems(store: FsspecStore, answers: Any) -> None:
    store.get(KEY)
    answers.put((os.getpid(), _BUILT_IN[-1], len(_BUILT_IN)))


_BUILT_IN: list[int] = []


class _NotingFileSystem(MemoryFileSystem):
    """Notes in which process each instance is made."""

    protocol = "fusetest-noting"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _BUILT_IN.append(os.getpid())


def test_a_forked_process_builds_its_own_file_system(store: FsspecStore) -> None:
    fsspec.register_implementation("fusetest-noting", _NotingFileSystem, clobber=True)
    _BUILT_IN.clear()
    store = FsspecStore("fusetest-noting://bucket/t")
    store.put(KEY, b"1")
    store.get(KEY)
    here = list(_BUILT_IN)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_pids_of_file_systems, args=(store, answers))
    child.start()
    child_pid, built_in, count = answers.get(timeout=30)
    child.join()

    assert here == [os.getpid()]
    assert (built_in, count) == (child_pid, 2)


def test_stores_do_not_share_a_file_system_with_others(store: FsspecStore) -> None:
    fsspec.register_implementation("fusetest-noting", _NotingFileSystem, clobber=True)
    _BUILT_IN.clear()
    fsspec.filesystem("fusetest-noting")
    fsspec.filesystem("fusetest-noting", use_listings_cache=False)

    with pytest.raises(NotFoundError):
        FsspecStore("fusetest-noting://bucket/t").get(KEY)

    assert len(_BUILT_IN) == 3


# Listings


def test_a_folder_that_cannot_be_listed_is_not_left_out(
    store: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("_refs/branches/a.json", b"1")
    store.put("_refs/leases", b"1")
    children = MemoryFileSystem._children  # noqa: SLF001 - the fault goes in here

    def fail(self: MemoryFileSystem, path: str) -> list[dict[str, Any]]:
        if path.endswith("branches"):
            raise PermissionError(path)
        return children(self, path)

    monkeypatch.setattr(MemoryFileSystem, "_children", fail)

    with pytest.raises(StorageError, match="check the credentials"):
        list(store.list("_refs/"))


class _ListsInOneGo(MemoryFileSystem):
    protocol = "fusetest-one-go"

    def find(self, path: str, **options: Any) -> dict[str, dict[str, Any]]:
        assert options == {"detail": True}
        folder = {"name": path, "type": "directory", "size": 0}
        file = {"name": f"{path}/a", "type": "file", "size": 1, "mtime": 2}
        return {path: folder, f"{path}/a": file}


def test_an_adapter_that_lists_in_one_go_does_so() -> None:
    fsspec.register_implementation("fusetest-one-go", _ListsInOneGo, clobber=True)

    listed = list(FsspecStore("fusetest-one-go://bucket/t").list("_b/"))

    assert listed == [ObjectInfo(key="_b/a", size=1, modified_us=2_000_000)]


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    "info",
    [
        {"LastModified": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)},
        {"last_modified": datetime(2026, 1, 2, 4, 4, 5, 6, tzinfo=timezone(timedelta(hours=1)))},
        {"mtime": datetime(2026, 1, 2, 3, 4, 5, 6)},  # noqa: DTZ001 - naive ones mean UTC
        {"mtime": 1767323045.000006},
    ],
    ids=["s3fs", "adlfs", "naive", "seconds"],
)
def test_the_time_of_an_object_is_read_from_any_adapter(
    far_from_utc: None, info: dict[str, object]
) -> None:
    assert modified_us(info) == 1_767_323_045_000_006


def test_a_listing_without_times_is_a_failure() -> None:
    with pytest.raises(StorageError):
        modified_us({"name": "a", "size": 1})


# Addresses


@pytest.mark.parametrize(
    ("url", "options", "location"),
    [
        ("s3://b/t", {}, "s3a://b/t/_b/a"),
        ("s3a://b/t/", {}, "s3a://b/t/_b/a"),
        ("gcs://b/t", {}, "gs://b/t/_b/a"),
        ("gs://b/[t]", {}, "gs://b/[t]/_b/a"),
        ("az://c/t", {"account_name": "n"}, "abfss://c@n.dfs.core.windows.net/t/_b/a"),
        ("abfs://c", {"account_name": "n"}, "abfss://c@n.dfs.core.windows.net/_b/a"),
        (
            "abfss://c@n.dfs.core.windows.net/t",
            {"account_name": "n"},
            "abfss://c@n.dfs.core.windows.net/t/_b/a",
        ),
    ],
)
def test_a_location_is_what_hadoop_calls_it(
    url: str, options: dict[str, object], location: str
) -> None:
    assert FsspecStore(url, options).location("_b/a") == location


def test_a_lost_creation_is_a_taken_name(store: FsspecStore) -> None:
    store.put_if_absent(KEY, b"1")

    with pytest.raises(AlreadyExistsError):
        FsspecStore(URL).put_if_absent(KEY, b"2")
