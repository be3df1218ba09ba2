"""A schedule that a sweep leaves out ends like the one that it runs instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import FuseError
from fuse_stream.storage.base import Store
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.dml.two_writers import every_pair
from tests.kit.commuting import Equivalents
from tests.kit.interleave import Call, run_interleaved

KEYS = ["a/1", "a/2", "b/1"]
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["get", "put", "put_if_absent", "replace", "delete"]),
        st.sampled_from(KEYS),
    ),
    st.tuples(st.sampled_from(["list", "names"]), st.sampled_from(["a/", "b/"])),
)
PROGRAMS = st.lists(STEPS, min_size=1, max_size=5)


def actor(program: list[tuple[str, str]]) -> Callable[[Store], list[str]]:
    """Return an actor that writes what it has seen so far."""

    def act(store: Store) -> list[str]:
        seen = [f"{program}"]
        for verb, key in program:
            try:
                seen.append(_step(store, verb, key, "".join(seen).encode()))
            except FuseError as error:
                seen.append(type(error).__name__)
        return seen

    return act


def _step(store: Store, verb: str, key: str, data: bytes) -> str:
    if verb == "get":
        return str(store.get(key))
    if verb == "list":
        return str([info.key for info in store.list(key)])
    if verb in {"names", "delete"}:
        return str(getattr(store, verb)(key))
    return str(getattr(store, verb)(key, data))


@pytest.mark.long
@given(first=PROGRAMS, second=PROGRAMS)
@settings(max_examples=60)
def test_a_schedule_that_is_left_out_ends_like_one_that_is_run(
    first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    equivalents = Equivalents(len(first), len(first) + len(second))
    ends = {}
    for schedule in every_pair(len(first), len(second)):
        store = MemoryStore(clock=ManualClock())
        store.put("a/1", b"0")
        trace: list[Call] = []
        seen = run_interleaved(store, [actor(first), actor(second)], schedule, trace)
        pair = schedule.count(0), schedule.count(1)
        ends[pair] = seen, {key: item.data for key, item in store.objects.items()}
        run = equivalents.find(pair)
        if run is None:
            equivalents.note(pair, trace)
        else:
            assert ends[pair] == ends[run], (pair, run)
