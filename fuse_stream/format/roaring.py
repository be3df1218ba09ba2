"""Check the bytes of a roaring bitmap before the library in C reads them.

The library checks that it stays within the bytes, not that the containers are what it relies on:
numbers in order, and as many as the header says. Wrong ones would make it write past its memory.
The format: https://github.com/RoaringBitmap/RoaringFormatSpec, with its extension to 64 bits.
"""

from __future__ import annotations

import struct

import numpy as np

_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_OFFSETS_FROM = 4
"""A bitmap with runs has the offsets of its containers only if it has as many of these."""
_MOST_IN_ARRAY = 4096
_BITSET_BYTES = 8192
_CONTAINERS = 65_536


def check_bitmap64(data: bytes) -> None:
    """Raise ValueError unless `data` are a 64-bit bitmap of numbers below 2**32, and no more."""
    (maps,) = _numbers("<Q", data, 0)
    if maps == 0 and len(data) == 8:
        return
    if maps != 1 or _numbers("<I", data, 8) != (0,):
        raise ValueError("a bitmap has numbers that no row of a block has")
    if _end_of_bitmap32(data, 12) != len(data):
        raise ValueError("a bitmap does not end with its bytes")


def _end_of_bitmap32(data: bytes, at: int) -> int:
    """Return where a 32-bit bitmap that begins at `at` ends."""
    start = at
    (cookie,) = _numbers("<I", data, at)
    at += 4
    is_run = np.zeros(0, bool)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = _array(data, at, (count + 7) // 8, np.uint8)
        is_run = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
        at += len(flags)
    elif cookie == _WITHOUT_RUNS:
        (count,) = _numbers("<I", data, at)
        at += 4
    else:
        raise ValueError("a bitmap begins with another number than one of its format")
    if not 0 < count <= _CONTAINERS:
        raise ValueError("a bitmap has another number of containers than one can have")
    header = _array(data, at, 2 * count, np.dtype("<u2")).reshape(count, 2)
    at += 4 * count
    if not _grows(header[:, 0]):
        raise ValueError("the containers of a bitmap are out of order")
    offsets = None
    if not len(is_run) or count >= _OFFSETS_FROM:
        offsets = _array(data, at, count, np.dtype("<u4"))
        at += 4 * count
    for number, held in enumerate((header[:, 1].astype(int) + 1).tolist()):
        if offsets is not None and offsets[number] != at - start:
            raise ValueError("a container of a bitmap is not where its header says")
        at = _end_of_container(data, at, held, is_run=bool(len(is_run)) and bool(is_run[number]))
    return at


def _end_of_container(data: bytes, at: int, held: int, *, is_run: bool) -> int:
    """Return where a container that holds so many numbers ends."""
    if is_run:
        (count,) = _numbers("<H", data, at)
        runs = _array(data, at + 2, 2 * count, np.dtype("<u2")).reshape(count, 2).astype(int)
        ends = runs.sum(axis=1)
        is_sound = count and ends.max() < _CONTAINERS and (runs[1:, 0] > ends[:-1]).all()
        found, end = int(runs[:, 1].sum()) + count, at + 2 + 4 * count
    elif held <= _MOST_IN_ARRAY:
        is_sound = _grows(_array(data, at, held, np.dtype("<u2")))
        found, end = held, at + 2 * held
    else:
        bits = np.unpackbits(_array(data, at, _BITSET_BYTES, np.uint8))
        is_sound, found, end = True, int(bits.sum()), at + _BITSET_BYTES
    if not is_sound or found != held:
        raise ValueError("a container of a bitmap does not hold what its header says")
    return end


def _grows(values: np.ndarray) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _numbers(form: str, data: bytes, at: int) -> tuple[int, ...]:
    if at + struct.calcsize(form) > len(data):
        raise ValueError("a bitmap is cut")
    return struct.unpack_from(form, data, at)


def _array(data: bytes, at: int, count: int, kind: np.dtype | type) -> np.ndarray:
    if at + count * np.dtype(kind).itemsize > len(data):
        raise ValueError("a bitmap is cut")
    return np.frombuffer(data, kind, count, at)
