"""A store that fails at a chosen call."""

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
    """Stands for the death of the process. A BaseException, so no `except Exception` catches it."""


class Fault(Enum):
    """The fault of the chosen call."""

    CRASH_BEFORE = "crash before the call has an effect"
    CRASH_AFTER = "crash after the call had its effect"
    FAILURE = "the call has no effect, and raises"
    LOST_REPLY = "the call has its effect, and raises all the same"


class FaultyStore(StoreWrapper):
    """Passes every call to `store`; call number `at_call` fails with `fault`.

    Reads count as well. After a crash every call crashes: a dead process cannot clean up.
    """

    overlaps = False  # so that the order of calls is fixed

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
        """The verb and the key of every call so far."""

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
            with suppress(FuseError):  # an error would be a reply too
                act(self.store, key)
        if self._fault in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}:
            raise Crash
        what = "call failed" if self._fault is Fault.FAILURE else "reply was lost"
        raise StorageError(f"the {what} on cue", verb=verb, key=key)
