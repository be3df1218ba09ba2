"""A process that sleeps between two calls of its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper

T = TypeVar("T")


class StallingStore(StoreWrapper):
    """A store of a process that sleeps before its call `at_call`, while `meanwhile` happens."""

    overlaps = False

    def __init__(self, store: Store, at_call: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(store)
        self.slept = False
        self._left = at_call
        self._meanwhile = meanwhile

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:  # noqa: ARG002
        self._left -= 1
        if self._left == 0:
            self.slept = True
            self._meanwhile()
        return act(self.store, key)
