"""A store that fails on cue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import BinaryIO, TypeVar

from fuse_stream.errors import FuseError, StorageError
from fuse_stream.storage.base import ObjectInfo, Store

T = TypeVar("T")


class Crash(BaseException):
    """The process died here. A BaseException, so that no `except Exception` survives it."""


class Fault(Enum):
    """What happens to the chosen call."""

    CRASH_BEFORE = "crash before it lands"
    CRASH_AFTER = "crash after it landed"
    FAILURE = "it does not land, and the caller is told so"
    LOST_REPLY = "it lands, and the caller is told that it failed"


class FaultyStore:
    """Passes every call on to `store`, except that the call number `at_call` meets `fault`.

    Reads count as well. After a crash every call crashes: the dead do not clean up.
    """

    def __init__(
        self,
        store: Store,
        *,
        at_call: int | None = None,
        fault: Fault = Fault.FAILURE,
        keep_failing: bool = False,
    ) -> None:
        """Fail call `at_call`, counted from 1, or none; with `keep_failing` all later ones too."""
        self.calls: list[tuple[str, str]] = []
        """Every call so far: verb and key."""

        self._store = store
        self._at_call = at_call
        self._fault = fault
        self._lasts = keep_failing or fault in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def overlaps(self) -> bool:
        return False  # one course of events a schedule

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self._store.get(key))

    def open_input(self, key: str) -> BinaryIO:
        return self._call("open_input", key, lambda: self._store.open_input(key))

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._call("put", key, lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self._call("put_if_absent", key, lambda: self._store.put_if_absent(key, data))

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self._call("replace", key, lambda: self._store.replace(key, data))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._call("list", prefix, lambda: self._store.list(prefix))

    def delete(self, key: str) -> None:
        self._call("delete", key, lambda: self._store.delete(key))

    def delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def location(self, key: str) -> str:
        return self._store.location(key)

    def _call(self, verb: str, key: str, act: Callable[[], T]) -> T:
        self.calls.append((verb, key))
        number = len(self.calls)
        if self._at_call is None or number < self._at_call:
            return act()
        if number > self._at_call:
            if not self._lasts:
                return act()
            if self._fault is Fault.CRASH_AFTER:
                raise Crash
        match self._fault:
            case Fault.CRASH_BEFORE:
                raise Crash
            case Fault.CRASH_AFTER:
                with suppress(FuseError):  # nobody is left to hear it
                    act()
                raise Crash
            case Fault.FAILURE:
                raise StorageError("the call failed on cue", verb=verb, key=key)
            case Fault.LOST_REPLY:
                with suppress(FuseError):  # that reply is lost as well
                    act()
                raise StorageError("the reply was lost on cue", verb=verb, key=key)
