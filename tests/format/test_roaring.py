"""The check of a bitmap accepts what the library writes, and nothing that it cannot hold."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from fuse_stream.format.roaring import check_bitmap64

ranges = st.builds(
    lambda start, length: range(start, start + length),
    st.one_of(st.integers(0, 2**18), st.integers(0, 2**32 - 2**18)),
    st.one_of(st.integers(1, 9), st.integers(1, 2**17)),
)


@given(
    runs=st.lists(ranges, max_size=6),
    single=st.sets(st.integers(0, 2**20), max_size=50),
    is_optimized=st.booleans(),
)
def test_every_bitmap_of_the_library_is_accepted(
    runs: list[range], single: set[int], *, is_optimized: bool
) -> None:
    bitmap = BitMap64(single)
    for run in runs:
        bitmap |= BitMap64(run)
    bitmap |= BitMap64(range(0, 20_000, 2))
    if is_optimized:
        bitmap.run_optimize()
    check_bitmap64(bitmap.serialize())
    check_bitmap64(BitMap64().serialize())


@given(runs=st.lists(ranges, min_size=1, max_size=5), data=st.data(), is_optimized=st.booleans())
def test_a_changed_bitmap_is_refused_or_means_exactly_its_bytes(
    runs: list[range], data: st.DataObject, *, is_optimized: bool
) -> None:
    bitmap = BitMap64(number for run in runs for number in run[:5000])
    if is_optimized:
        bitmap.run_optimize()
    changed = bytearray(bitmap.serialize())
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        check_bitmap64(bytes(changed))
    except ValueError:
        return
    found = BitMap64.deserialize(bytes(changed))
    again = BitMap64(list(found))

    assert len(again) == len(found)
    assert list(again) == sorted(set(found))
    assert again == found


ARRAY = struct.pack("<QI", 1, 0) + struct.pack("<II", 12346, 1)
RUNS = struct.pack("<QI", 1, 0) + struct.pack("<I", 12347) + b"\1"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 0) + b"x",
        struct.pack("<QI", 1, 1) + BitMap64([1]).serialize()[12:],
        ARRAY + struct.pack("<HHI", 0, 1, 16) + struct.pack("<HH", 5, 5),
        ARRAY + struct.pack("<HHI", 0, 1, 16) + struct.pack("<HH", 5, 4),
        ARRAY + struct.pack("<HHI", 0, 1, 99) + struct.pack("<HH", 4, 5),
        ARRAY + struct.pack("<HHI", 0, 9999, 16) + bytes(8192),
        ARRAY + struct.pack("<HHI", 0, 1, 16) + struct.pack("<HHH", 4, 5, 6),
        RUNS + struct.pack("<HH", 0, 65535) + struct.pack("<HHH", 1, 1, 65535),
        RUNS + struct.pack("<HH", 0, 19) + struct.pack("<HHHHH", 2, 0, 9, 5, 9),
        RUNS + struct.pack("<HH", 0, 4) + struct.pack("<HHH", 1, 0, 9),
        RUNS + struct.pack("<HH", 0, 0) + struct.pack("<H", 0),
        struct.pack("<QI", 1, 0) + struct.pack("<II", 12346, 2**31),
        struct.pack("<QI", 1, 0) + struct.pack("<II", 1, 1),
    ],
)
def test_a_bitmap_whose_parts_contradict_one_another_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="bitmap"):
        check_bitmap64(data)
