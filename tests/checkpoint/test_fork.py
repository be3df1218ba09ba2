"""Forks of checkpoints: what is kept, in which order it is written, and what a crash leaves."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.checkpoint.files import (
    METADATA,
    UNFINISHED,
    load_checkpoint,
    load_offsets,
)
from fuse_stream.checkpoint.fork import (
    ForkPlan,
    StateOutcome,
    forkable_batches,
    plan_fork,
)
from fuse_stream.checkpoint.source_log import LogPart, cut_log, plan_log_cut
from fuse_stream.checkpoint.write_fork import (
    LARGE_AT_ONCE,
    LARGE_BYTES,
    Claim,
    finish_fork,
    load_claim,
    new_query_id,
    store_fork,
)
from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import (
    NEW_ID,
    QUERY_ID,
    UNIQUE,
    fill,
    log_files,
    offsets_text,
    put,
    state_files,
)

CLAIM = {"table_id": "t", "old": QUERY_ID, "new": NEW_ID, "through": [4, 4]}


def planned(store: Store, offsets_through: int | None, commits_through: int | None) -> ForkPlan:
    return plan_fork(
        load_checkpoint(store),
        offsets_through=offsets_through,
        commits_through=commits_through,
        offsets=None if offsets_through is None else load_offsets(store, offsets_through),
    )


def forked(store: Store, offsets_through: int | None, commits_through: int | None) -> MemoryStore:
    target = MemoryStore()
    store_fork(store, target, planned(store, offsets_through, commits_through), CLAIM)
    finish_fork(target, NEW_ID)
    return target


def contents(store: MemoryStore) -> dict[str, bytes]:
    return {key: item.data for key, item in store.objects.items()}


def names_below(store: MemoryStore, folder: str) -> set[str]:
    return {key.removeprefix(folder) for key in store.objects if key.startswith(folder)}


@given(
    batches=st.integers(1, 45),
    data=st.data(),
    provider=st.sampled_from([None, "hdfs", "rocksdb", "changelog"]),
)
def test_a_fork_holds_what_its_batches_made_and_nothing_later(
    batches: int, data: st.DataObject, provider: str | None
) -> None:
    old = MemoryStore()
    fill(old, batches, provider=provider)
    before = contents(old)
    offsets_through = data.draw(st.none() | st.integers(0, batches - 1))
    runs_again = offsets_through is not None and data.draw(st.booleans())
    planned_through = -1 if offsets_through is None else offsets_through
    done = planned_through - runs_again
    new = contents(forked(old, offsets_through, None if done < 0 else done))

    expected = MemoryStore()
    fill(expected, planned_through + 1)
    kept = {key for key in contents(expected) if "crc" not in key}
    kept -= {f"commits/{planned_through}"} if runs_again else set()
    if provider and done >= 0:
        kept |= set(state_files(1, done + 1, provider=provider))
        kept |= {key for key in before if "/SSTs/" in key}
    assert set(new) == kept
    assert {key: new[key] for key in kept if key != METADATA} == {
        key: before[key] for key in kept if key != METADATA
    }
    assert json.loads(new[METADATA])["id"] == NEW_ID
    assert contents(old) == before


def test_a_plan_has_the_batches_and_the_outcome_of_the_state(store: MemoryStore) -> None:
    fill(store, 6)
    assert planned(store, 4, 4).state is StateOutcome.ABSENT
    put(store, state_files(1, 6, provider="hdfs"))

    assert planned(store, 4, 3).state is StateOutcome.KEPT
    assert planned(store, 4, 3).batches == (0, 1, 2, 3, 4)
    assert planned(store, None, None).state is StateOutcome.EMPTY
    assert planned(store, None, None).batches == ()


def test_a_fork_from_scratch_keeps_where_its_sources_began(store: MemoryStore) -> None:
    files = log_files(3)
    put(store, {"metadata": json.dumps({"id": QUERY_ID})})
    put(store, {f"sources/0/{name}": text for name, text in files.items()})
    put(store, {"sources/1/0": "v1\n1795287078095"})
    put(store, {"offsets/0": offsets_text({"logOffset": 2}, 5), "commits/0": "v1\n{}"})

    assert set(forked(store, None, None).objects) == {METADATA, "sources/1/0"}
    assert set(forked(store, 0, None).objects) == {
        METADATA,
        "offsets/0",
        "sources/0/0",
        "sources/0/1",
        "sources/0/2",
        "sources/1/0",
    }


def test_the_log_of_a_source_is_cut_at_its_own_offset_not_at_the_batch(store: MemoryStore) -> None:
    fill(store, 6)
    put(store, {f"sources/1/{name}": text for name, text in log_files(2).items()})
    put(store, {"offsets/4": offsets_text({"logOffset": 3}, "-")})
    put(store, {"offsets/5": offsets_text({"logOffset": 5}, {"logOffset": 1})})

    new = forked(store, 4, 4)

    assert names_below(new, "sources/0/") == {"0", "1", "2", "3"}
    assert names_below(new, "sources/1/") == set()


def test_what_an_operator_noted_in_a_later_run_is_dropped(store: MemoryStore) -> None:
    fill(store, 6, provider="rocksdb")
    noted = ["state/0/_metadata/v2/0", "state/0/_metadata/v2/4"]
    described = [f"state/0/_stateSchema/default/{batch}_{UNIQUE}" for batch in (0, 4)]
    put(store, dict.fromkeys(noted + described, "x"))

    assert {key for key in (noted + described) if key in forked(store, 3, 3).objects} == {
        noted[0],
        described[0],
    }
    assert set(noted + described) <= set(forked(store, 4, 4).objects)


def test_every_store_of_a_join_is_cut_at_its_versions(store: MemoryStore) -> None:
    fill(store, 4)
    stores = ["left-keyToNumValues", "right-keyWithIndexToValue"]
    deltas = {f"state/0/1/{name}/{v}.delta": "x" for name in stores for v in range(1, 5)}
    put(store, deltas)

    new = forked(store, 1, 1)

    assert names_below(new, "state/0/1/left-keyToNumValues/") == {"1.delta", "2.delta"}
    del store.objects["state/0/1/right-keyWithIndexToValue/1.delta"]
    with pytest.raises(NotFoundError, match="cannot be forked after any batch"):
        planned(store, 1, 1)


def test_a_batch_that_was_cleaned_up_is_refused_with_those_that_are_there(
    store: MemoryStore,
) -> None:
    fill(store, 20)
    for batch in range(8):
        del store.objects[f"offsets/{batch}"], store.objects[f"commits/{batch}"]

    assert forkable_batches(load_checkpoint(store)) == tuple(range(9, 20))
    with pytest.raises(NotFoundError, match="choose one from 9 to 19"):
        planned(store, 8, 8)


def test_a_batch_whose_state_was_cleaned_up_is_refused(store: MemoryStore) -> None:
    fill(store, 20)
    put(store, state_files(9, 20, provider="hdfs"))
    put(store, {"state/0/0/12.snapshot": "x", "state/0/1/11.snapshot": "x"})

    # Partition 0 is whole at version 12, which batch 11 has made; the steps from there are left.
    assert forkable_batches(load_checkpoint(store)) == tuple(range(11, 20))
    with pytest.raises(NotFoundError, match=r"the state.* choose one from 11 to 19"):
        planned(store, 10, 10)


def test_the_state_of_an_unknown_store_is_not_taken_for_whole(store: MemoryStore) -> None:
    fill(store, 3)
    put(store, {"state/0/0/3.parquet": "x"})

    with pytest.raises(NotFoundError, match="cannot be forked after any batch"):
        planned(store, 2, 2)


def test_a_batch_that_has_not_ended_cannot_count_as_done(store: MemoryStore) -> None:
    fill(store, 5)
    del store.objects["commits/4"]

    assert planned(store, 4, 3).batches == (0, 1, 2, 3, 4)
    with pytest.raises(NotFoundError, match=r"the commit of this batch.* from 0 to 3"):
        planned(store, 4, 4)


@pytest.mark.parametrize("through", [(4, 2), (3, 4), (None, 0), (2, None), (-1, -1), (0, -1)])
def test_batches_that_do_not_go_together_are_refused(
    store: MemoryStore, through: tuple[int | None, int | None]
) -> None:
    fill(store, 6)

    with pytest.raises(InvalidInputError):
        plan_fork(
            load_checkpoint(store),
            offsets_through=through[0],
            commits_through=through[1],
            offsets=offsets_text({"logOffset": 1}),
        )


@given(
    entries=st.integers(1, 60),
    interval=st.sampled_from([2, 3, 5, 10]),
    data=st.data(),
)
def test_a_cut_log_is_the_log_that_stood_there_then(
    entries: int, interval: int, data: st.DataObject
) -> None:
    """Spark deletes what is older than the last compaction but one."""
    compactions = [entry for entry in range(entries) if (entry + 1) % interval == 0]
    oldest = max(0, *compactions[-2:-1]) if len(compactions) > 1 else 0
    deleted_before = data.draw(st.integers(0, oldest))
    if len(compactions) == 1 and data.draw(st.booleans()):
        deleted_before = compactions[0]
    now = log_files(entries, interval=interval, deleted_before=deleted_before)
    end = data.draw(st.integers(0, entries - 1))
    cut = plan_log_cut(now, end)
    made = cut_log(now[cut.compact].encode(), cut.parts) if cut.parts else {}
    after = {name: now[name].encode() for name in cut.keep} | made

    then = log_files(end + 1, interval=interval)
    # What Spark reads: the newest compaction, and every entry after it.
    start = max((entry for entry in compactions if entry <= end), default=0)
    needed = {name for name in then if int(name.removesuffix(".compact")) >= start}
    assert needed <= set(after) <= set(then)
    assert after == {name: then[name].encode() for name in after}


def test_a_log_with_one_compaction_left_is_cut_as_spark_will_read_it() -> None:
    """Without a `.compact` Spark takes its default interval, if that can have made this one."""
    cut = plan_log_cut(["19.compact", "20", "notes"], 12)

    assert [part.name for part in cut.parts] == ["9.compact", "10", "11", "12"]
    assert [part.name for part in plan_log_cut(["6.compact"], 2).parts] == ["0", "1", "2"]
    assert cut.keep == {"notes"}


def test_a_log_without_the_entries_of_a_batch_is_refused() -> None:
    with pytest.raises(NotFoundError, match="lacks entries"):
        plan_log_cut(["0", "2"], 2)


def test_a_log_that_cannot_be_read_is_refused() -> None:
    part = [LogPart(name="0", first=0, last=0)]

    with pytest.raises(UnsupportedFormatError):
        cut_log(b"v2\n{}", part)
    with pytest.raises(CorruptObjectError):
        cut_log(b'v1\n{"path":"x"}', part)


def test_an_interrupted_fork_is_continued(store: MemoryStore) -> None:
    fill(store, 15, provider="rocksdb")
    plan = planned(store, 4, 4)
    target = MemoryStore()
    heard: list[tuple[int, int]] = []
    store_fork(store, target, plan, CLAIM)
    lost = plan.copies[3].key
    del target.objects[lost]
    counted = FaultyStore(target)
    store_fork(
        store, counted, plan, CLAIM, progress=lambda done, total: heard.append((done, total))
    )

    assert [key for verb, key in counted.calls if verb == "replace"] == [lost]
    assert heard == [(plan.file_count - 1, plan.file_count), (plan.file_count, plan.file_count)]
    assert load_claim(target) == Claim(facts=CLAIM, query_id=None)


def test_a_finished_fork_is_left_alone(store: MemoryStore) -> None:
    fill(store, 5)
    target = forked(store, 3, 3)
    del target.objects["offsets/0"]  # Spark cleans up in it
    before = contents(target)

    store_fork(store, target, planned(store, 3, 3), CLAIM)
    finish_fork(target, NEW_ID)

    assert contents(target) == before
    assert load_claim(target) == Claim(facts=CLAIM, query_id=NEW_ID)
    assert load_checkpoint(target).query_id == NEW_ID
    with pytest.raises(AlreadyExistsError):
        finish_fork(target, QUERY_ID)


def test_a_folder_that_holds_something_else_is_refused(store: MemoryStore) -> None:
    fill(store, 5)
    plan = planned(store, 3, 3)
    foreign, other = MemoryStore(), MemoryStore()
    put(foreign, {"notes.txt": "mine"})
    store_fork(store, other, plan, CLAIM | {"table_id": "another"})
    before = contents(other)

    for target in (foreign, other, store):
        with pytest.raises(AlreadyExistsError):
            store_fork(store, target, plan, CLAIM)
    assert contents(other) == before
    assert load_claim(foreign) is None
    assert load_claim(store) is None
    with pytest.raises(NotFoundError):
        finish_fork(foreign, NEW_ID)


def test_of_two_forks_into_one_folder_one_succeeds(store: MemoryStore) -> None:
    fill(store, 5)
    plan, target = planned(store, 3, 3), MemoryStore()

    class Rival(FaultyStore):
        """Another process claims the folder just after this one has seen it empty."""

        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            store_fork(store, target, plan, CLAIM | {"table_id": "another"})
            super().put_if_absent(key, data)

    with pytest.raises(AlreadyExistsError, match="another copy"):
        store_fork(store, Rival(target), plan, CLAIM)


def test_a_file_that_spark_cleans_up_meanwhile_is_a_conflict(store: MemoryStore) -> None:
    fill(store, 5)
    plan = planned(store, 3, 3)
    del store.objects["offsets/0"]

    with pytest.raises(ConflictError, match="stop the query"):
        store_fork(store, MemoryStore(), plan, CLAIM)


def test_a_query_id_is_written_as_spark_writes_it(clock: ManualClock) -> None:
    target = MemoryStore()

    query_id = new_query_id(clock)
    store_fork(None, target, ForkPlan(batches=(), state=StateOutcome.ABSENT), CLAIM)
    finish_fork(target, query_id)

    assert load_checkpoint(target).query_id == query_id
    with pytest.raises(InvalidInputError):
        finish_fork(target, clock.new_id())


@pytest.mark.parametrize("fault", AT_ANY_CALL)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_crash_leaves_a_folder_that_is_inert_or_done(fault: Fault, side: str) -> None:
    old = MemoryStore()
    fill(old, 15, provider="rocksdb")
    for entry in range(9):
        del old.objects[f"sources/0/{entry}"]
    plan = planned(old, 6, 5)

    def fork(source: Store, target: Store) -> None:
        store_fork(source, target, plan, CLAIM)
        finish_fork(target, NEW_ID)

    undisturbed = MemoryStore()
    counted = FaultyStore(old if side == "source" else undisturbed)
    fork(*((counted, undisturbed) if side == "source" else (old, counted)))
    assert {f"sources/0/{entry}" for entry in range(7)} < set(undisturbed.objects)
    assert len(counted.calls) > 20
    for at_call in range(1, len(counted.calls) + 1):
        target = MemoryStore()
        faulty = FaultyStore(old if side == "source" else target, at_call=at_call, fault=fault)
        try:
            fork(*((faulty, target) if side == "source" else (old, faulty)))
        except (Crash, FuseError):
            assert is_inert(target, undisturbed)
        fork(old, target)

        assert contents(target) == contents(undisturbed)


def is_inert(target: MemoryStore, whole: MemoryStore) -> bool:
    """Whether Spark would refuse to start here, or nothing is here, or all is."""
    if not target.objects or contents(target) == contents(whole):
        return True
    return target.objects[METADATA].data.startswith(UNFINISHED)


def test_files_are_copied_by_several_threads_where_both_stores_can(tmp_path: Path) -> None:
    old, new = LocalStore(tmp_path / "old"), LocalStore(tmp_path / "new")
    fill(old, 30, provider="rocksdb")
    for name in log_files(19):
        (tmp_path / "old/sources/0" / name).unlink()
    plan, heard = planned(old, 13, 13), list[int]()
    store_fork(old, new, plan, CLAIM, progress=lambda done, _: heard.append(done))
    finish_fork(new, NEW_ID)

    in_memory = MemoryStore()
    store_fork(old, in_memory, plan, CLAIM)
    finish_fork(in_memory, NEW_ID)
    found = {info.key: new.get(info.key) for info in new.list("")}
    log = {key.removeprefix("sources/0/") for key in found if key.startswith("sources/0/")}
    assert found == contents(in_memory)
    assert log == {"9.compact", "10", "11", "12", "13"}
    assert heard == sorted(heard)
    assert heard[-1] == plan.file_count
    assert plan.byte_size == sum(len(old.get(file.key)) for file in plan.copies)


def test_few_large_files_are_in_memory_at_once(tmp_path: Path) -> None:
    old = CountingStore(tmp_path / "old")
    fill(old, 2, provider="hdfs")
    for version in (1, 2):
        for partition in range(6):
            old.replace(f"state/0/{partition}/{version}.snapshot", bytes(LARGE_BYTES + 1))
    plan = planned(old, 1, 1)
    store_fork(old, LocalStore(tmp_path / "new"), plan, CLAIM)

    assert 0 < old.most_large <= LARGE_AT_ONCE


class CountingStore(LocalStore):
    """Knows how many large objects were being read at one time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._lock, self._large, self.most_large = Lock(), 0, 0

    def get(self, key: str) -> bytes:
        is_large = key.endswith(".snapshot")
        with self._lock:
            self._large += is_large
            self.most_large = max(self.most_large, self._large)
        try:
            return super().get(key)
        finally:
            with self._lock:
                self._large -= is_large


def test_a_failure_in_one_of_many_threads_is_raised(tmp_path: Path) -> None:
    old = LocalStore(tmp_path / "old")
    fill(old, 30)
    plan = planned(old, 20, 20)
    (tmp_path / "old/commits/7").unlink()

    with pytest.raises(ConflictError, match="commits/7"):
        store_fork(old, LocalStore(tmp_path / "new"), plan, CLAIM)
