"""What every store must do, as tests. A store's own test class subclasses `StoreContract`.

The raw accessors reach the bytes without the store, so that `get` and `put` do not vouch for each
other.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import AlreadyExistsError, NotFoundError
from fuse_stream.storage.base import Store

KEY = "_ss/main/00000000000000000007_v1.json"
MINUTE_US = 60_000_000


class StoreContract(ABC):
    @pytest.fixture
    @abstractmethod
    def store(self) -> Store:
        """A new, empty store."""

    @abstractmethod
    def raw_get(self, store: Store, key: str) -> bytes: ...

    @abstractmethod
    def raw_put(self, store: Store, key: str, data: bytes) -> None: ...

    @abstractmethod
    def raw_keys(self, store: Store) -> set[str]:
        """Return every key, of leftovers too."""

    def test_get_returns_the_bytes(self, store: Store) -> None:
        self.raw_put(store, KEY, b"\x00bytes\xff")

        assert store.get(KEY) == b"\x00bytes\xff"

    def test_get_of_nothing_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFoundError) as caught:
            store.get(KEY)

        assert caught.value.context["key"] == KEY

    def test_a_folder_of_objects_is_no_object(self, store: Store) -> None:
        self.raw_put(store, "_b/a", b"1")

        with pytest.raises((NotFoundError, OSError)):
            store.get("_b")

    def test_names_are_those_of_one_level(self, store: Store) -> None:
        for key in ("a.txt", "_b/a", "_b/b", "_ss/main/1"):
            self.raw_put(store, key, b"1")

        assert list(store.names("")) == ["_b/", "_ss/", "a.txt"]
        assert list(store.names("_ss/")) == ["main/"]
        assert list(store.names("nowhere/")) == []

    def test_an_opened_object_is_read_in_pieces(self, store: Store) -> None:
        self.raw_put(store, KEY, b"0123456789")

        with store.open_input(KEY) as file:
            file.seek(-3, 2)
            tail = file.read()
            file.seek(2)
            middle = file.read(4)

        assert (tail, middle) == (b"789", b"2345")

    def test_an_object_of_known_size_is_read_in_pieces(self, store: Store) -> None:
        self.raw_put(store, KEY, b"0123456789")

        with store.open_input(KEY, 10) as file:
            file.seek(-3, 2)
            tail = file.read()
            file.seek(2)
            middle = file.read(4)

        assert (tail, middle) == (b"789", b"2345")

    def test_reading_nothing_of_known_size_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFoundError), store.open_input(KEY, 10) as file:
            file.read(4)

    def test_opening_nothing_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            store.open_input(KEY)

    @pytest.mark.parametrize("verb", ["put", "put_if_absent", "replace"])
    @pytest.mark.parametrize("kind", [bytes, memoryview])
    def test_a_write_stores_exactly_the_bytes(
        self, store: Store, verb: str, kind: type[bytes | memoryview]
    ) -> None:
        data = bytes(range(256)) * 1000

        getattr(store, verb)(KEY, kind(data))

        assert self.raw_get(store, KEY) == data
        assert self.raw_keys(store) == {KEY}

    def test_a_taken_name_is_refused_and_keeps_its_bytes(self, store: Store) -> None:
        self.raw_put(store, KEY, b"first")

        with pytest.raises(AlreadyExistsError) as caught:
            store.put_if_absent(KEY, b"second")

        assert caught.value.context["key"] == KEY
        assert self.raw_get(store, KEY) == b"first"
        assert self.raw_keys(store) == {KEY}

    def test_the_same_bytes_are_refused_too(self, store: Store) -> None:
        store.put_if_absent(KEY, b"mine")

        with pytest.raises(AlreadyExistsError):
            store.put_if_absent(KEY, b"mine")

    def test_of_many_threads_one_creates_the_object(self, store: Store) -> None:
        contenders = 8
        barrier = threading.Barrier(contenders)

        def create(key: str, number: int) -> int | None:
            barrier.wait()
            try:
                store.put_if_absent(key, f"{number}".encode())
            except AlreadyExistsError:
                return None
            return number

        for round_number in range(20):
            key = f"_ss/main/{round_number}"
            with ThreadPoolExecutor(contenders) as pool:
                wins = list(pool.map(create, [key] * contenders, range(contenders)))
            winners = [number for number in wins if number is not None]

            assert [f"{number}".encode() for number in winners] == [self.raw_get(store, key)]

    def test_replace_overwrites(self, store: Store) -> None:
        self.raw_put(store, KEY, b"a longer first text")

        store.replace(KEY, b"second")

        assert self.raw_get(store, KEY) == b"second"

    def test_a_name_is_free_again_after_delete(self, store: Store) -> None:
        self.raw_put(store, KEY, b"first")

        store.delete(KEY)
        keys = self.raw_keys(store)
        store.put_if_absent(KEY, b"second")

        assert keys == set()
        assert self.raw_get(store, KEY) == b"second"

    def test_deleting_nothing_is_no_error(self, store: Store) -> None:
        self.raw_put(store, "_b/other", b"1")

        store.delete(KEY)

        assert self.raw_keys(store) == {"_b/other"}

    def test_many_are_deleted_at_once_and_no_other(self, store: Store) -> None:
        keys = [f"_b/{number:032x}.parquet" for number in range(23)]
        for key in keys:
            self.raw_put(store, key, b"1")
        store.delete_all([*keys[3:], "_b/nothing"])
        store.delete_all([])

        assert self.raw_keys(store) == set(keys[:3])

    def test_a_listing_is_complete_sorted_and_sized(self, store: Store) -> None:
        for key in ["_b/b", "_b/a-b", "_b/a/b", "_b/a.b", "_bb/no", "_a/no", "_b/a/c/d"]:
            self.raw_put(store, key, b"x" * len(key))

        listed = [(info.key, info.size) for info in store.list("_b/")]

        keys = ["_b/a-b", "_b/a.b", "_b/a/b", "_b/a/c/d", "_b/b"]
        assert listed == [(key, len(key)) for key in keys]

    def test_a_listing_of_nothing_is_empty(self, store: Store) -> None:
        self.raw_put(store, "_a/x", b"1")

        assert list(store.list("_b/")) == []

    def test_a_listing_is_never_an_old_one(self, store: Store) -> None:
        self.raw_put(store, "_b/a", b"1")
        before = [info.key for info in store.list("_b/")]
        self.raw_put(store, "_b/c", b"1")

        after = [info.key for info in store.list("_b/")]

        assert (before, after) == (["_b/a"], ["_b/a", "_b/c"])

    def test_a_missing_object_is_found_once_it_is_there(self, store: Store) -> None:
        list(store.list("_ss/main/"))
        with pytest.raises(NotFoundError):
            store.get(KEY)

        self.raw_put(store, KEY, b"now")

        assert store.get(KEY) == b"now"

    def test_a_listing_has_the_time_of_the_last_write(self, store: Store) -> None:
        store.put(KEY, b"1")

        (info,) = store.list("_ss/")

        assert abs(info.modified_us - SYSTEM_CLOCK.now_us()) < MINUTE_US

    def test_deleting_while_listing_harms_neither(self, store: Store) -> None:
        for number in range(50):
            self.raw_put(store, f"_b/{number:02}", b"1")

        for info in store.list("_b/"):
            store.delete(info.key)

        assert self.raw_keys(store) == set()

    def test_a_location_names_the_object(self, store: Store) -> None:
        assert store.location(KEY).endswith(f"/{KEY}")
