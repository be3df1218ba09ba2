"""Storage options: what opens a remote store, credentials included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class StorageOptions(Mapping[str, object]):
    """An immutable mapping that keeps its values out of every text that is made of it.

    It pickles with its values: executors need them.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        count = len(self)
        return f"StorageOptions({count} option{'' if count == 1 else 's'})"

    def __reduce__(self) -> tuple[object, ...]:
        return StorageOptions, (self._values,)
