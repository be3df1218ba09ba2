"""A store that fails at a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from fuse_stream.errors import FuseError, StorageError
from fuse_stream.storage.base import ObjectInfo, Store
from fuse_stream.storage.local import STAGED_PREFIX
from fuse_stream.storage.wrappers import READS, StoreWrapper

T = TypeVar("T")


class Crash(BaseException):
    """Stands for the death of the process. A BaseException, so no `except Exception` catches it."""


class Fault(Enum):
    """The fault of the chosen call."""

    CRASH_BEFORE = "crash before the call has an effect"
    CRASH_AFTER = "crash after the call had its effect"
    TORN_WRITE = "crash within a write: a part of the bytes is left under a staged name"
    FAILURE = "the call has no effect, and raises"
    LOST_REPLY = "the call has its effect, and raises all the same"
    LATE_LANDING = "the call raises, and has its effect later: at the end of `land_after` more"
    STALE_LIST = "the listing lacks the object that was written last"

    def applies_to(self, verb: str) -> bool:
        """Return True if a call of the method `verb` of a store can meet this fault."""
        match self:
            case Fault.STALE_LIST:
                return verb == "list"
            case Fault.TORN_WRITE:
                return verb in {"put", "put_if_absent", "replace"}
            case Fault.CRASH_BEFORE | Fault.FAILURE:
                return True
            case _:  # a read whose answer nobody gets is one that did not happen
                return verb not in READS


AT_ANY_CALL = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAILURE, Fault.LOST_REPLY)
"""The faults that a call of every method can meet; the others are for writes or listings."""

_DEADLY = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_WRITE})


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
        land_after: int = 2,
    ) -> None:
        """Fail call `at_call`, counted from 1, or none; with `keep_failing` all later ones too.

        A write that lands late does so after `land_after` later calls, or at `land`.
        """
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []
        """The verb and the key of every call so far."""

        self._at_call = at_call
        self._fault = fault
        self._lasts = keep_failing or fault in _DEADLY
        self._land_after = land_after
        self._late: list[tuple[int, Callable[[], object]]] = []

    @property
    def fired(self) -> bool:
        """True if the fault has happened."""
        return self._at_call is not None and len(self.calls) >= self._at_call

    @property
    def has_late_writes(self) -> bool:
        """True if a write has yet to land."""
        return bool(self._late)

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        self.calls.append((verb, key))
        number = len(self.calls)
        self._land(number)
        if self._at_call is None or number < self._at_call:
            return act(self.store, key)
        if number > self._at_call:
            if not self._lasts:
                return act(self.store, key)
            if self._fault in {Fault.CRASH_AFTER, Fault.TORN_WRITE}:
                raise Crash
        return self._fail(verb, key, act)

    def land(self) -> None:
        """Let the writes that are late have their effect now; others may have come before them."""
        self._land(None)

    def _fail(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        match self._fault:
            case Fault.STALE_LIST:
                return act(_StaleStore(self.store), key)
            case Fault.TORN_WRITE:
                act(_TearingStore(self.store), key)
            case Fault.CRASH_AFTER | Fault.LOST_REPLY:
                with suppress(FuseError):  # an error would be a reply too
                    act(self.store, key)
            case Fault.LATE_LANDING:
                due = len(self.calls) + self._land_after
                self._late.append((due, lambda: act(self.store, key)))
        if self._fault in _DEADLY:
            raise Crash
        what = "call failed" if self._fault is Fault.FAILURE else "reply was lost"
        raise StorageError(f"the {what} on cue", verb=verb, key=key)

    def _land(self, number: int | None) -> None:
        """Let the late writes that are due before call `number` happen; all if None."""
        due = [act for at, act in self._late if number is None or at < number]
        self._late = self._late[len(due) :]
        for act in due:
            with suppress(FuseError):  # nobody waits for the reply
                act()


class _TearingStore(StoreWrapper):
    """A local store whose process dies within each write: half of the bytes have a staged name."""

    def put(self, key: str, data: bytes | memoryview) -> None:
        folder, slash, name = key.rpartition("/")
        self.store.put(f"{folder}{slash}{STAGED_PREFIX}{name}", data[: len(data) // 2])

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self.put(key, data)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self.put(key, data)


class _StaleStore(StoreWrapper):
    """A store whose listings lack the object that was written last."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(_without_newest(list(self.store.list(prefix))))


def _without_newest(found: Sequence[ObjectInfo]) -> Sequence[ObjectInfo]:
    newest = max(found, key=lambda info: (info.modified_us, info.key), default=None)
    return [info for info in found if info is not newest]
