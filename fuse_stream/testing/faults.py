"""A store that fails on cue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from fuse_stream.errors import FuseError, StorageError
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper

T = TypeVar("T")


class Crash(BaseException):
    """The process died here. A BaseException, so that no `except Exception` survives it."""


class Fault(Enum):
    """What happens to the chosen call."""

    CRASH_BEFORE = "crash before it lands"
    CRASH_AFTER = "crash after it landed"
    FAILURE = "it does not land, and the caller is told so"
    LOST_REPLY = "it lands, and the caller is told that it failed"


class FaultyStore(StoreWrapper):
    """Forwards every call to `store`, except that the call number `at_call` meets `fault`.

    Reads count as well. After a crash every call crashes: the dead do not clean up.
    """

    overlaps = False  # one order of calls

    def __init__(
        self,
        store: Store,
        *,
        at_call: int | None = None,
        fault: Fault = Fault.FAILURE,
        keep_failing: bool = False,
    ) -> None:
        """Fail call `at_call`, counted from 1, or none; with `keep_failing` all later ones too."""
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []
        """Every call so far: verb and key."""

        self._at_call = at_call
        self._fault = fault
        self._lasts = keep_failing or fault in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        self.calls.append((verb, key))
        number = len(self.calls)
        if self._at_call is None or number < self._at_call:
            return act(self.store, key)
        if number > self._at_call:
            if not self._lasts:
                return act(self.store, key)
            if self._fault is Fault.CRASH_AFTER:
                raise Crash
        if self._fault in {Fault.CRASH_AFTER, Fault.LOST_REPLY}:
            with suppress(FuseError):  # that reply is lost as well
                act(self.store, key)
        if self._fault in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}:
            raise Crash
        what = "call failed" if self._fault is Fault.FAILURE else "reply was lost"
        raise StorageError(f"the {what} on cue", verb=verb, key=key)
