"""A range file fetches what is read, and no more."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.storage.range_file import RangeFile

DATA = bytes(range(256)) * 4

steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 1500)),
        st.tuples(st.just("seek"), st.integers(0, 1500)),
        st.tuples(st.just("from end"), st.integers(-1024, 10)),
    ),
    max_size=12,
)


@given(steps)
def test_it_reads_as_a_file_in_memory_does(steps: list[tuple[str, int]]) -> None:
    fetched: list[tuple[int, int]] = []

    def get(key: str, start: int, end: int) -> bytes:
        assert key == "_b/x"
        fetched.append((start, end))
        return DATA[start:end]

    file, known = RangeFile(get, "_b/x", len(DATA)), io.BytesIO(DATA)
    read = 0
    for step, value in steps:
        match step:
            case "read":
                found = file.read(value)
                assert found == known.read(value)
                read += len(found)
            case "seek":
                assert file.seek(value) == known.seek(value)
            case _:
                assert file.seek(value, io.SEEK_END) == known.seek(value, io.SEEK_END)
        assert file.tell() == known.tell()
    assert sum(end - start for start, end in fetched) == read
    assert all(start < end <= len(DATA) for start, end in fetched)


def test_a_position_before_the_start_is_refused() -> None:
    file = RangeFile(lambda *_: b"", "_b/x", 10)
    with pytest.raises(ValueError, match="before the start"):
        file.seek(-11, io.SEEK_END)
    assert file.tell() == 0
