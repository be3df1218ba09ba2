"""A store in memory, with the full contract of `Store`; tests can read and change its objects."""

from __future__ import annotations

import io
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from fuse_stream.storage.base import ObjectInfo, check_size
from fuse_stream.storage.local import STAGED_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryObject:
    """One stored object."""

    data: bytes
    modified_us: int


class MemoryStore:
    """Keeps objects in a dictionary. `clock` is the store's own; writers should have another."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.objects: dict[str, MemoryObject] = {}
        """By key. Tests may read and change it."""

        self.clock = clock
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "memory-store"

    @property
    def server(self) -> Hashable | None:
        return None

    @property
    def overlaps(self) -> bool:
        return False  # so that the order of calls is fixed

    @property
    def is_remote(self) -> bool:
        return False

    def get(self, key: str) -> bytes:
        with self._lock:
            found = self.objects.get(key)
        if found is None:
            raise NotFoundError("no such object", key=key, store=self.url)
        return found.data

    def get_up_to(self, key: str, most_bytes: int | None) -> bytes:
        data = self.get(key)
        check_size(len(data), most_bytes, key, self.url)
        return data

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:  # noqa: ARG002 - as in Store
        return io.BytesIO(self.get(key))

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.replace(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if not data:
            raise InvalidInputError("an object that must be created once is not empty", key=key)
        with self._lock:
            if key in self.objects:
                raise AlreadyExistsError("the name is taken", key=key, store=self.url)
            self.objects[key] = self._object(data)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        with self._lock:
            self.objects[key] = self._object(data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._listed(prefix, staged=False)

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self._listed("", staged=True)

    def names(self, prefix: str) -> Sequence[str]:
        below = [info.key.removeprefix(prefix) for info in self.list(prefix)]
        parts = {key.partition("/") for key in below}
        return sorted({name + slash for name, slash, _ in parts})

    def delete(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def location(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _listed(self, prefix: str, *, staged: bool) -> Iterator[ObjectInfo]:
        with self._lock:
            found = [
                ObjectInfo(key=key, size=len(item.data), modified_us=item.modified_us)
                for key, item in sorted(self.objects.items(), key=lambda pair: pair[0])
                if key.startswith(prefix)
                and key.rpartition("/")[2].startswith(STAGED_PREFIX) is staged
            ]
        return iter(found)

    def _object(self, data: bytes | memoryview) -> MemoryObject:
        return MemoryObject(data=bytes(data), modified_us=self.clock.now_us())
