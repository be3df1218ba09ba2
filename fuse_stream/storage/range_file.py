"""A file of which only the bytes that are read are fetched, each read by one request.

fsspec's own files ask for the size first, and read ahead: for one column of a block, 58 MB of 83.
"""

from __future__ import annotations

import io
from collections.abc import Callable


class RangeFile(io.RawIOBase):
    """Reads an object of a known size."""

    def __init__(self, get: Callable[[str, int, int], bytes], key: str, size: int) -> None:
        """Read `size` bytes under `key` by `get`, which takes the key, the start and the end."""
        self._get = get
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"a position before the start of the file: {base + offset}")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        data = self._get(self._key, self._at, self._at + count)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()
