"""The store: an immutable mapping, and the calls that an actor may make to it.

A key is a tuple whose first item is the kind of the object; a value is any hashable. Every
object has the time of its creation, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """The object under a key."""

    value: Hashable
    created: int


class Objects:
    """The objects of a store at one time; equal states are one Python object."""

    __slots__ = ("by_key",)
    _all: ClassVar[dict[frozenset[tuple[Key, Object]], Objects]] = {}

    def __init__(self, by_key: Mapping[Key, Object]) -> None:
        self.by_key = by_key

    @classmethod
    def of(cls, by_key: Mapping[Key, Object]) -> Objects:
        known = frozenset(by_key.items())
        if known not in cls._all:
            cls._all[known] = cls(by_key)
        return cls._all[known]

    def value(self, key: Key) -> Hashable:
        found = self.by_key.get(key)
        return None if found is None else found.value


@dataclass(frozen=True, slots=True)
class Get:
    """The value, or None."""

    key: Key

    def __str__(self) -> str:
        return f"get {name(self.key)}"

    def answer(self, objects: Objects, now: int) -> tuple[Objects, Hashable]:
        return objects, objects.value(self.key)


@dataclass(frozen=True, slots=True)
class List:
    """(key, value, time) of every object of some kinds, in one call: the values never change."""

    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"list {' '.join(self.kinds)}"

    def answer(self, objects: Objects, now: int) -> tuple[Objects, Hashable]:
        found = ((k, o.value, o.created) for k, o in objects.by_key.items() if k[0] in self.kinds)
        return objects, tuple(sorted(found, key=lambda item: str(item[0])))


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace; True."""

    key: Key
    value: Hashable

    def __str__(self) -> str:
        return f"put {name(self.key)}: {self.value}"

    def answer(self, objects: Objects, now: int) -> tuple[Objects, Hashable]:
        return Objects.of({**objects.by_key, self.key: Object(self.value, now)}), True


@dataclass(frozen=True, slots=True)
class PutIfAbsent:
    """Create; True if nothing was there."""

    key: Key
    value: Hashable

    def __str__(self) -> str:
        return f"create {name(self.key)}: {self.value}"

    def answer(self, objects: Objects, now: int) -> tuple[Objects, Hashable]:
        if self.key in objects.by_key:
            return objects, False
        return Put(self.key, self.value).answer(objects, now)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the object if it is there."""

    key: Key

    def __str__(self) -> str:
        return f"delete {name(self.key)}"

    def answer(self, objects: Objects, now: int) -> tuple[Objects, Hashable]:
        left = {key: item for key, item in objects.by_key.items() if key != self.key}
        return Objects.of(left), True


@dataclass(frozen=True, slots=True)
class Timed:
    """The answer of a call, and the caller's time at it."""

    call: Call

    def __str__(self) -> str:
        return str(self.call)

    def answer(self, objects: Objects, now: int) -> tuple[Objects, Hashable]:
        after, reply = self.call.answer(objects, now)
        return after, (reply, now)


def name(key: Key) -> str:
    return "/".join(map(str, key))


Call = Get | List | Put | PutIfAbsent | Delete | Timed


def objects_of(items: Iterable[tuple[Key, Hashable, int]]) -> Objects:
    return Objects.of({key: Object(value, created) for key, value, created in items})
