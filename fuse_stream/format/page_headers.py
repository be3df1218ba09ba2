"""Read the headers of Parquet pages: whether each page has a checksum, which no footer says.

Source: `PageHeader` of parquet.thrift, in Thrift's compact protocol.
"""

from __future__ import annotations

_COMPRESSED_SIZE, _CRC = 3, 4
_BOOLEANS, _BYTE, _VARINTS = frozenset({1, 2}), 3, frozenset({4, 5, 6})
_DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = 7, 8, frozenset({9, 10}), 11, 12
_MOST_NESTED = 16


def has_checksums(chunk: memoryview) -> bool:
    """True if each page of a column chunk has a checksum; False also if it cannot be followed."""
    at = 0
    try:
        while at < len(chunk):
            reader = _Reader(chunk, at)
            fields = reader.struct()
            if _CRC not in fields:
                return False
            at = reader.at + max(fields[_COMPRESSED_SIZE], 0)
    except (IndexError, KeyError, RecursionError):
        return False
    return at == len(chunk)


class _Reader:
    """Reads values of the compact protocol; `at` is where the next one begins."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Read a struct; return the integers among its fields, by field id."""
        if depth > _MOST_NESTED:
            raise RecursionError
        fields: dict[int, int] = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            if kind in _VARINTS:
                fields[field] = self._signed()
            else:
                self._skip(kind, depth)
        return fields

    def _skip(self, kind: int, depth: int, *, is_item: bool = False) -> None:
        if kind in _BOOLEANS:
            self.at += is_item
        elif kind == _BYTE:
            self.at += 1
        elif kind in _VARINTS:
            self._varint()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            size = self._varint()
            self.at += size
        elif kind in _LISTS:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            self._skip_items([head & 15], count, depth)
        elif kind == _MAP:
            if count := self._varint():
                kinds = self._byte()
                self._skip_items([kinds >> 4, kinds & 15], count, depth)
        elif kind == _STRUCT:
            self.struct(depth + 1)
        else:
            raise IndexError(kind)

    def _skip_items(self, kinds: list[int], count: int, depth: int) -> None:
        if depth > _MOST_NESTED:
            raise RecursionError
        for _ in range(min(count, len(self._data) + 1)):
            for kind in kinds:
                self._skip(kind, depth + 1, is_item=True)
            if self.at > len(self._data):
                raise IndexError(self.at)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise IndexError(self.at)

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
