"""Each real server keeps the contract of a store, and lets one of several processes win."""

from __future__ import annotations

from functools import partial
from typing import Any

import fsspec
import pytest

from fuse_stream.errors import StorageError
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import open_store
from fuse_stream.storage.probe import probe
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.testing.clock import ManualClock
from tests.kit.rivals import check_one_creates_each
from tests.kit.servers import Place
from tests.storage.contract import StoreContract

pytestmark = pytest.mark.long


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
    fs, root = fsspec.url_to_fs(store.url, **store.options, skip_instance_cache=True)
    return fs, root.rstrip("/")


def test_a_server_passes_the_probe(place: Place, url: str) -> None:
    store = open_store(url, storage_options=place.options)
    clock = ManualClock()
    probe(store, new_key=lambda: f"_probe/{clock.new_id()}", now_us=clock.now_us)
    assert list(store.list("")) == []


def test_of_several_processes_one_creates_each_object(place: Place, url: str) -> None:
    open_one = partial(open_store, url, storage_options=place.options)
    check_one_creates_each(open_one, start_method="spawn")


def test_a_bucket_that_is_not_there_is_an_error_that_says_so(place: Place) -> None:
    url = place.url.replace("fuse-test", "fuse-nowhere")
    store = open_store(f"{url}/t", storage_options=place.options)
    with pytest.raises(StorageError, match=r"(?i)bucket|container"):
        store.put("_b/x", b"1")
    with pytest.raises(StorageError, match=r"(?i)bucket|container"):
        store.get("_b/x")


def test_a_wrong_key_is_an_error_that_says_so_and_shows_no_secret(place: Place, url: str) -> None:
    wrong = {name: _spoiled(name, value) for name, value in place.options.items()}
    store = open_store(url, storage_options=wrong)
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
