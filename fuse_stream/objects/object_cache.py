"""Decoded immutable objects in memory, within a limit; those that are missing are read in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

AT_ONCE = 16
"""Objects for which a remote store is asked at once. Memory holds as many, as they are stored."""


class Named(Protocol):
    """A reference to an object."""

    @property
    def id(self) -> str:
        """The object's."""
        ...


Ref = TypeVar("Ref", bound=Named)
T = TypeVar("T")


class ObjectCache(Generic[T]):
    """Objects of one kind, by id; the ones used least recently are dropped.

    An object is decoded in one of several ways, the `variant`; each is kept by itself.
    """

    def __init__(self, limit: int) -> None:
        """Keep objects whose costs sum up to `limit`, and always the last one."""
        self._limit = limit
        self._items: OrderedDict[tuple[str, Hashable], tuple[T, int]] = OrderedDict()
        self._cost = 0

    def keep(self, object_id: str, item: T, cost: int, variant: Hashable = None) -> None:
        """Keep an object that is not here."""
        self._items[object_id, variant] = item, cost
        self._cost += cost
        while self._cost > self._limit and len(self._items) > 1:
            _, (_, dropped) = self._items.popitem(last=False)
            self._cost -= dropped

    def iter_loaded(
        self,
        store: Store,
        refs: Sequence[Ref],
        get: Callable[[Ref], bytes],
        decode: Callable[[Ref, bytes], tuple[T, int]],
        variant: Hashable = None,
    ) -> Iterator[T]:
        """Yield the objects of `refs` in order; get those that are not here, and keep them.

        `get` may be called by several threads; `decode` also returns an object's cost. An error of
        either is raised in place of its object.
        """
        held = [self._items.get((ref.id, variant)) for ref in refs]
        lacking = [ref for ref, known in zip(refs, held, strict=True) if known is None]
        read = each(get, lacking, store, at_once=AT_ONCE if store.is_remote else 1, ahead=1)
        for ref, known in zip(refs, held, strict=True):
            if known is None:
                item, cost = decode(ref, next(read))
                self.keep(ref.id, item, cost, variant)
                yield item
                continue
            if (ref.id, variant) in self._items:  # not dropped meanwhile
                self._items.move_to_end((ref.id, variant))
            yield known[0]
