"""Each real server keeps the contract of a store, and lets one of several processes win."""

from __future__ import annotations

import re
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import StorageError, UnsupportedStorageError
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import open_store
from fuse_stream.storage.probe import probe
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.testing.clock import ManualClock
from tests.kit.rivals import RIVALS, check_one_creates_each
from tests.kit.servers import Place, free_port, serve_without_locks
from tests.storage.contract import StoreContract

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("k", pa.int64())])


class TestServer(StoreContract):
    @pytest.fixture
    def store(self, place: Place, url: str) -> Store:
        return open_store(url, storage_options=place.options)

    def raw_get(self, store: Store, key: str) -> bytes:
        fs, root = _reached(store)
        data: bytes = fs.cat_file(f"{root}/{key}")
        return data

    def raw_put(self, store: Store, key: str, data: bytes) -> None:
        fs, root = _reached(store)
        fs.pipe_file(f"{root}/{key}", data)

    def raw_keys(self, store: Store) -> set[str]:
        fs, root = _reached(store)
        fs.invalidate_cache()
        return {path.removeprefix(f"{root}/") for path in fs.find(root)}


def _reached(store: Store) -> tuple[Any, str]:
    assert isinstance(store, FsspecStore)
    place = store.url.rpartition("/")[0].rpartition("/")[0]
    fs = _file_system(place, frozenset(store.options.items()))
    return fs, str(fs._strip_protocol(store.url))  # noqa: SLF001 - as fsspec itself does


@cache
def _file_system(url: str, options: frozenset[tuple[str, object]]) -> Any:
    return fsspec.url_to_fs(url, **dict(options), use_listings_cache=False)[0]


def test_a_server_passes_the_probe(place: Place, url: str) -> None:
    store = open_store(url, storage_options=place.options)
    clock = ManualClock()
    probe(store, new_key=lambda: f"_probe/{clock.new_id()}", now_us=clock.now_us)
    assert list(store.list("")) == []


def test_of_several_processes_one_creates_each_object(place: Place, url: str) -> None:
    opens = [partial(open_store, url, storage_options=place.options)] * RIVALS
    check_one_creates_each(opens, start_method="spawn", keys=500)


def test_the_race_sees_servers_that_do_not_lock(tmp_path: Path) -> None:
    with serve_without_locks(tmp_path) as places:
        opens = [
            partial(open_store, f"{place.url}/t", storage_options=place.options)
            for place in [*places, *places]
        ]
        with pytest.raises(AssertionError, match="several winners"):
            check_one_creates_each(opens, start_method="spawn", keys=100)


def test_a_server_that_ignores_the_condition_is_refused(places: dict[str, Place]) -> None:
    place = places["unconditional"]
    with pytest.raises(UnsupportedStorageError, match="second writer create an object"):
        fuse.Table.create(f"{place.url}/t", SCHEMA, storage_options=place.options).append(
            pa.table({"k": [1]})
        )


def test_a_bucket_that_is_not_there_is_an_error_that_says_so(place: Place) -> None:
    url = place.url.replace("fuse-test", "fuse-nowhere")
    store = open_store(f"{url}/t", storage_options=place.options)
    with pytest.raises(StorageError, match=r"(?i)bucket|container"):
        store.put("_b/x", b"1")
    with pytest.raises(StorageError, match=r"(?i)bucket|container"):
        store.get("_b/x")


def test_an_endpoint_that_nobody_serves_is_an_error_within_seconds(place: Place) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    options = {
        name: re.sub(r"http://127\.0\.0\.1:\d+", nowhere, value)
        if isinstance(value, str)
        else value
        for name, value in place.options.items()
    }
    store = open_store(f"{place.url}/t", storage_options={**options, "fuse_timeout_s": 6})
    began_s = time.monotonic()
    for act in (lambda: store.get("_b/x"), lambda: store.put_if_absent("_b/x", b"1")):
        with pytest.raises(StorageError, match=r"cannot be reached.*endpoint.*storage_options"):
            act()

    assert time.monotonic() - began_s < 2 * (6 + 2)


@pytest.mark.parametrize("kind", ["s3", "azure"])  # Google's checks no key
def test_a_wrong_key_is_an_error_that_says_so_and_shows_no_secret(
    places: dict[str, Place], kind: str
) -> None:
    place = places[kind]
    wrong = {name: _spoiled(name, value) for name, value in place.options.items()}
    store = open_store(f"{place.url}/t", storage_options=wrong)
    with pytest.raises(StorageError, match="access denied") as failed:
        store.get("_b/x")
    text = str(failed.value)
    assert not [value for value in _secrets(wrong) if value in text]


def _spoiled(name: str, value: object) -> object:
    text = str(value)
    if name == "secret":
        return "x" * len(text)
    if name == "connection_string":
        before, key, after = text.partition("AccountKey=Eby8")
        return f"{before}AccountKey=AAAA{after}" if key else text
    return value


def _secrets(options: dict[str, object]) -> list[str]:
    return [
        str(value) for name, value in options.items() if name in {"secret", "connection_string"}
    ]
