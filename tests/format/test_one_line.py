"""The lines that records print."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.one_line import LONGEST, line_of, one_line


class Kind(Enum):
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    inner: Inner | None = None
    kind: Kind = Kind.NOTE
    made_us: int = 1_795_418_216_692_134
    names: tuple[str, ...] = ()
    schema: dict[str, str] = field(default_factory=dict)

    __repr__ = one_line("version=inner.version kind made_us names schema")


def test_a_line_shows_values_as_a_person_reads_them() -> None:
    sample = Sample(inner=Inner(version=3), names=("a", "b"), schema={"a": "int", "b": "long"})

    assert repr(sample) == (
        "Sample(version=3, kind='note', made=2026-11-23T07:16:56Z, names=['a', 'b'], schema=2)"
    )


def test_a_line_leaves_out_what_is_none_or_empty() -> None:
    assert repr(Sample()) == "Sample(kind='note', made=2026-11-23T07:16:56Z)"


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert line_of("A", {"at_us": 2**63}) == f"A(at={2**63})"


@given(st.lists(st.text() | st.integers() | st.lists(st.text()).map(tuple) | st.none()))
def test_no_line_is_too_long(values: list[object]) -> None:
    facts = {f"fact{at}": value for at, value in enumerate(values)}
    line = line_of("Record", facts)

    assert "\n" not in line
    assert len(line) <= LONGEST or line.count("fact") == 1
