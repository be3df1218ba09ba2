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
_BITSET_WORDS = 4096
_CONTAINERS = 65_536
_AT_ONCE = 2**20
"""About so many words are checked at once, which takes some 50 MB."""
_U16 = np.dtype("<u2")


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
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = _array(data, at, (count + 7) // 8, np.uint8)
        is_run = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
        at += len(flags)
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _WITHOUT_RUNS:
        (count,) = _numbers("<I", data, at)
        if not 0 < count <= _CONTAINERS:
            raise ValueError("a bitmap has another number of containers than one can have")
        is_run = np.zeros(count, bool)
        at += 4
        has_offsets = True
    else:
        raise ValueError("a bitmap begins with another number than one of its format")
    header = _array(data, at, 2 * count, _U16).reshape(count, 2)
    at += 4 * count
    if not _grows(header[:, 0]):
        raise ValueError("the containers of a bitmap are out of order")
    held = header[:, 1].astype(np.int64) + 1
    body = at + 4 * count * has_offsets
    starts = (
        _array(data, at, count, np.dtype("<u4")) - np.int64(body - start) if has_offsets else None
    )
    words = _array(data, body, (len(data) - body) // 2, _U16)
    return body + 2 * _checked_containers(words, is_run, held, starts)


def _checked_containers(
    words: np.ndarray, is_run: np.ndarray, held: np.ndarray, offsets: np.ndarray | None
) -> int:
    """Return how many of the words the containers take, which hold so many numbers each.

    `offsets` are where the header says that the containers start, in bytes from the first.
    """
    sizes = np.where(held <= _MOST_IN_ARRAY, held, _BITSET_WORDS)
    if offsets is None:
        starts = _starts_one_by_one(words, is_run, sizes)
    else:
        starts = offsets // 2
        if starts.min() < 0 or starts.max() >= len(words):
            raise ValueError("a container of a bitmap is not where its header says")
    sizes[is_run] = 1 + 2 * words[starts[is_run]].astype(np.int64)
    ends = np.cumsum(sizes)
    if offsets is not None and not np.array_equal(2 * (ends - sizes), offsets):
        raise ValueError("a container of a bitmap is not where its header says")
    if ends[-1] > len(words):
        raise ValueError("a bitmap is cut")
    for part in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(ends // _AT_ONCE)) + 1):
        if not _are_sound(words, starts[part], sizes[part], is_run[part], held[part]):
            raise ValueError("a container of a bitmap does not hold what its header says")
    return int(ends[-1])


def _are_sound(
    words: np.ndarray, starts: np.ndarray, sizes: np.ndarray, is_run: np.ndarray, held: np.ndarray
) -> bool:
    is_array = ~is_run & (held <= _MOST_IN_ARRAY)
    is_bitset = ~is_run & ~is_array
    return (
        _are_arrays(words, starts[is_array], held[is_array])
        and _are_runs(words, starts[is_run], sizes[is_run] // 2, held[is_run])
        and _are_bitsets(words, starts[is_bitset], held[is_bitset])
    )


def _starts_one_by_one(words: np.ndarray, is_run: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    starts, at = [], 0
    for is_one, size in zip(is_run.tolist(), sizes.tolist(), strict=True):
        if at >= len(words):
            raise ValueError("a bitmap is cut")
        starts.append(at)
        at += 1 + 2 * int(words[at]) if is_one else size
    return np.array(starts, np.int64)


def _are_arrays(words: np.ndarray, starts: np.ndarray, held: np.ndarray) -> bool:
    """Whether each array has its numbers in order."""
    places, is_first = _places(starts, held)
    values = words[places]
    return bool((is_first[1:] | (values[1:] > values[:-1])).all())


def _are_runs(words: np.ndarray, starts: np.ndarray, counts: np.ndarray, held: np.ndarray) -> bool:
    """Whether each container of runs has some, in order and apart, with so many numbers in all."""
    if not len(starts):
        return True
    if not counts.min():
        return False
    places, is_first = _places(starts, counts)
    places += places - np.repeat(starts, counts) + 1
    first, more = words[places].astype(np.int64), words[places + 1].astype(np.int64)
    last = first + more
    found = np.add.reduceat(more, np.flatnonzero(is_first)) + counts
    is_apart = is_first[1:] | (first[1:] > last[:-1])
    return bool(last.max() < _CONTAINERS and is_apart.all() and np.array_equal(found, held))


def _are_bitsets(words: np.ndarray, starts: np.ndarray, held: np.ndarray) -> bool:
    """Whether each set of bits has as many as it should."""
    return all(
        int(np.bitwise_count(words[start : start + _BITSET_WORDS]).sum()) == number
        for start, number in zip(starts.tolist(), held.tolist(), strict=True)
    )


def _places(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places start, start + 1, ... of each of the starts, and which begin one."""
    ends = np.cumsum(counts)
    is_first = np.zeros(int(ends[-1]) if len(ends) else 0, bool)
    is_first[ends - counts] = True
    return np.arange(len(is_first)) + np.repeat(starts - ends + counts, counts), is_first


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
