"""The search for the newest version, in rounds: what it finds while versions come and expire."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format import layout
from fuse_stream.format.layout import CHUNK_VERSIONS, LAST_VERSION, chunk_of
from fuse_stream.objects.head_search import LOOKS, MOST_ROUNDS, Answers, HeadSearch
from fuse_stream.objects.slots import HINT_EVERY

LOOKS_OF = pytest.mark.parametrize("looks", [1, LOOKS], ids=["one by one", "several at once"])
STEPS = {looks: math.ceil(HINT_EVERY / looks) for looks in (1, LOOKS)}


@dataclass
class Branch:
    """The versions of a branch: `head` is the newest one."""

    head: int
    lost: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    """Slots below the floor that a tag keeps."""
    floor: int = 0
    grows: Iterable[int] = ()
    """How many versions are committed before each slot is asked for."""
    asked: list[Sequence[int]] = field(default_factory=list)
    markers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._growth = iter(self.grows)

    def ask(self, versions: Sequence[int], marker: int | None) -> Answers:
        self.asked.append(versions)
        found = {}
        for version in versions:
            self.head += next(self._growth, 0)
            if self._has_slot(version):
                found[version] = b"%d" % version
        if marker is not None:
            self.markers.append(marker)
        return Answers(slots=found, is_expired=marker is not None and self._is_expired(marker))

    def search(self, start: int, looks: int, *, is_fresh: bool = False) -> HeadSearch:
        return HeadSearch(ask=self.ask, looks=looks, is_fresh=lambda: is_fresh, newest=start)

    def found_from(self, hint: int, looks: int) -> int:
        """Return what a search without a known head finds."""
        step = STEPS[looks]
        search = self.search(0, looks)
        return search.find(range(hint, hint + HINT_EVERY + step, step), step, past_gaps=True)

    def _is_expired(self, version: int) -> bool:
        return chunk_of(version) < chunk_of(self.floor)

    def _has_slot(self, version: int) -> bool:
        if version > self.head or version in self.lost:
            return False
        return not self._is_expired(version) or version in self.kept


@LOOKS_OF
@given(head=st.integers(0, 4000), hint=st.integers(0, 5000), data=st.data())
def test_the_newest_version_is_found_from_any_hint(
    looks: int, head: int, hint: int, data: st.DataObject
) -> None:
    floor = data.draw(st.integers(0, head))
    kept = data.draw(st.sets(st.integers(0, head), max_size=5))

    assert Branch(head, floor=floor, kept=kept).found_from(hint, looks) == head


@LOOKS_OF
@given(head=st.integers(2, 300), data=st.data())
def test_one_lost_slot_is_no_end(looks: int, head: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(1, head - 1))
    hint = data.draw(st.integers(0, head).filter(lambda hint: hint != lost))

    assert Branch(head, lost={lost}).found_from(hint, looks) == head


@LOOKS_OF
@given(
    head=st.integers(0, 200),
    grows=st.lists(st.integers(0, 3), max_size=40),
    hint=st.integers(0, 200),
)
def test_while_versions_come_what_is_found_was_the_newest_one_or_came_since(
    looks: int, head: int, grows: list[int], hint: int
) -> None:
    branch = Branch(head, grows=grows)

    assert head <= branch.found_from(hint, looks) <= branch.head


@pytest.mark.parametrize("head", range(HINT_EVERY))
def test_from_a_hint_two_rounds_find_the_newest_version(head: int) -> None:
    branch = Branch(64 + head)

    assert branch.found_from(64, LOOKS) == 64 + head
    assert len(branch.asked) == 2
    assert sum(map(len, branch.asked)) + len(branch.markers) <= 2 * (LOOKS + 2)


@LOOKS_OF
@pytest.mark.parametrize("head", [0, 1, 2, 5, 100, 10**19])
def test_from_nothing_the_rounds_are_logarithmic(looks: int, head: int) -> None:
    branch = Branch(head)

    assert branch.found_from(0, looks) == head
    assert len(branch.asked) <= 8 + 2 * math.log(head + 1, looks + 1)


def test_a_head_of_a_short_time_ago_needs_no_marker() -> None:
    branch = Branch(7)
    search = branch.search(7, LOOKS, is_fresh=True)

    assert search.find([7, 8], 1, past_gaps=False) == 7
    assert (branch.asked, branch.markers) == ([[7, 8]], [])
    assert search.slots == {7: b"7"}


@LOOKS_OF
def test_a_head_of_long_ago_may_be_kept_alone_among_freed_slots(looks: int) -> None:
    branch = Branch(2 * CHUNK_VERSIONS, floor=CHUNK_VERSIONS, kept={7})

    assert branch.search(7, looks).find([7, 8], 1, past_gaps=False) == 2 * CHUNK_VERSIONS
    assert branch.markers[0] == 8


@LOOKS_OF
def test_each_chunk_in_which_a_slot_is_missing_has_its_marker_asked_for(looks: int) -> None:
    branch = Branch(CHUNK_VERSIONS - 2)

    assert branch.found_from(CHUNK_VERSIONS - 8, looks) == CHUNK_VERSIONS - 2
    assert set(map(chunk_of, branch.markers)) == {0, 1}


@LOOKS_OF
def test_a_marker_is_asked_for_after_its_slot_was_missing(looks: int) -> None:
    missing: set[int] = set()

    class Watched(Branch):
        def ask(self, versions: Sequence[int], marker: int | None) -> Answers:
            assert marker is None or marker in missing
            answers = super().ask(versions, marker)
            missing.update(set(versions) - answers.slots.keys())
            return answers

    branch = Watched(3000, floor=2000)

    assert branch.found_from(0, looks) == 3000
    assert branch.markers


@LOOKS_OF
def test_a_search_past_many_lost_slots_ends(looks: int) -> None:
    class Leaping(Branch):
        """Of any two neighbours the second one that is asked for is there."""

        def _has_slot(self, version: int) -> bool:
            is_second = version - 1 in self.lost
            self.lost |= set() if is_second else {version}
            return is_second

    branch = Leaping(0)
    with pytest.raises(CorruptObjectError, match="fsck"):
        branch.search(0, looks).find([0], 1, past_gaps=True)

    assert len(branch.asked) == MOST_ROUNDS


@LOOKS_OF
def test_a_search_ends_where_every_version_is_there(looks: int) -> None:
    branch = Branch(LAST_VERSION + 5)

    assert branch.found_from(0, looks) == LAST_VERSION
    assert max(version for versions in branch.asked for version in versions) == LAST_VERSION


@LOOKS_OF
def test_a_search_that_slept_through_an_expiry_finds_a_head_with_its_bytes(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr(layout, "CHUNK_VERSIONS", 4)
    heads = set()
    for slept_at in range(30):
        branch = Branch(head=10)
        calls: list[Sequence[int]] = []

        def ask(
            versions: Sequence[int],
            marker: int | None,
            branch: Branch = branch,
            slept_at: int = slept_at,
            calls: list[Sequence[int]] = calls,
        ) -> Answers:
            if len(calls) == slept_at:
                branch.head, branch.floor = 16, 16
            calls.append(versions)
            return branch.ask(versions, marker)

        search = HeadSearch(ask=ask, looks=looks, is_fresh=lambda: False, newest=0)
        head = search.find([0, 32], 32, past_gaps=True)

        assert search.slots[head] == b"%d" % head
        heads.add(head)
    assert heads == {10, 16}
