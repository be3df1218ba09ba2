"""Lost checkpoints: which offsets are enough to go on from, and which are not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.checkpoint.fork import ForkPlan, StateOutcome
from fuse_stream.checkpoint.offsets import NOTHING_YET
from fuse_stream.checkpoint.rebuild import plan_rebuild
from fuse_stream.checkpoint.write_fork import finish_fork, store_fork
from fuse_stream.errors import CorruptObjectError, InvalidInputError, NotFoundError
from fuse_stream.format.source_offset import Offset, offset_to_json
from fuse_stream.storage.base import ObjectInfo
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import QUERY_ID, log_files, offsets_text, put

CLAIM = {"rebuilt": QUERY_ID}


def fuse(version: int) -> str:
    offset = Offset(
        table_id="t", branch_id="main", version=version, snapshot_id="s", index=0 if version else -1
    )
    return json.dumps(offset_to_json(offset))


def kafka(offset: int) -> str:
    return json.dumps({"orders": {"0": offset, "1": 2 * offset}, "clicks": {"0": 9}})


def files_of(store: MemoryStore) -> tuple[ObjectInfo, ...]:
    return tuple(store.list(""))


def rebuilt(plan: ForkPlan, survivors: MemoryStore | None = None) -> dict[str, str]:
    target = MemoryStore()
    store_fork(survivors, target, plan, CLAIM)
    finish_fork(target, QUERY_ID)
    assert load_checkpoint(target).query_id == QUERY_ID
    return {key: item.data.decode() for key, item in target.objects.items() if key != "metadata"}


@pytest.mark.parametrize("source", [kafka, fuse])
def test_offsets_that_need_no_files_make_a_checkpoint(source: object) -> None:
    assert callable(source)
    before, last = offsets_text(source(6), source(6)), offsets_text(source(7), NOTHING_YET)
    plan = plan_rebuild(7, offsets=last, previous=before)

    assert rebuilt(plan) == {
        "offsets/6": before,
        "offsets/7": last,
        "commits/6": 'v1\n{"nextBatchWatermarkMs":0}',
        "commits/7": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    assert (plan.batches, plan.state) == ((6, 7), StateOutcome.ABSENT)


def test_the_first_batch_has_none_before_it() -> None:
    files = rebuilt(plan_rebuild(0, offsets=offsets_text(fuse(0)), previous=None))

    assert set(files) == {"offsets/0", "commits/0"}


def test_a_file_source_continues_with_the_rest_of_its_log(store: MemoryStore) -> None:
    put(store, {f"sources/0/{name}": text for name, text in log_files(25).items()})
    put(store, {"offsets/3": "left alone", "metadata": "gone bad"})
    texts = [offsets_text({"logOffset": end}) for end in (11, 12)]

    files = rebuilt(
        plan_rebuild(12, offsets=texts[1], previous=texts[0], survivors=files_of(store)), store
    )
    expected = {f"sources/0/{name}" for name in log_files(13)}
    assert set(files) == expected | {"offsets/11", "offsets/12", "commits/11", "commits/12"}

    for key in [key for key in store.objects if "compact" in key or key == "sources/0/11"]:
        del store.objects[key]
    with pytest.raises(NotFoundError, match="lacks entries"):
        plan_rebuild(12, offsets=texts[1], previous=texts[0], survivors=files_of(store))


def test_a_rate_source_continues_if_its_start_is_left(store: MemoryStore) -> None:
    put(store, {"sources/0/0": "v1\n1795287078095"})
    before, last = offsets_text(8), offsets_text(9)
    plan = plan_rebuild(4, offsets=last, previous=before, survivors=files_of(store))

    assert "sources/0/0" in rebuilt(plan, store)
    for survivors in ((), (replace(files_of(store)[0], key="sources/0/notes"),)):
        with pytest.raises(InvalidInputError, match="have no meaning without"):
            plan_rebuild(4, offsets=last, previous=before, survivors=survivors)


@pytest.mark.parametrize(
    "line",
    [
        '{"sourceVersion":1,"reservoirId":"x"}',
        '{"0":{"value":7,"runTimeMs":9}}',
        '{"shard-1":{"0":"49590338271490256608559692538361571095921575989136588898"}}',
        "{}",
        "[1]",
        "true",
        "nonsense",
    ],
)
def test_offsets_of_an_unknown_kind_are_refused(store: MemoryStore, line: str) -> None:
    put(store, {"sources/1/0": "v1\n..."})
    before, last = offsets_text(fuse(3), line), offsets_text(fuse(4), line)

    with pytest.raises(
        InvalidInputError, match=r"may not be sufficient.* another app_id or with adopt="
    ):
        plan_rebuild(3, offsets=last, previous=before, survivors=files_of(store))


@pytest.mark.parametrize("line", ['{"logOffset":4}', "17"])
def test_offsets_that_mean_nothing_without_an_old_folder_are_refused(line: str) -> None:
    text = offsets_text(fuse(4), line)

    with pytest.raises(InvalidInputError, match=r"have no meaning.* another app_id or with adopt="):
        plan_rebuild(3, offsets=text, previous=text)


def test_a_source_that_is_read_twice_is_not_given_the_folder_of_another(
    store: MemoryStore,
) -> None:
    for folder in ("0", "1"):
        put(store, {f"sources/{folder}/{name}": text for name, text in log_files(9).items()})
    text = offsets_text({"logOffset": 3}, {"logOffset": 3}, {"logOffset": 5})

    with pytest.raises(InvalidInputError, match=r"sources/2/"):
        plan_rebuild(3, offsets=text, previous=text, survivors=files_of(store))


def test_a_query_that_shows_state_is_refused(store: MemoryStore) -> None:
    put(store, {"state/0/0/1.delta": "x"})
    plain, marked = offsets_text(fuse(4)), offsets_text(fuse(4), watermark_ms=1)

    with pytest.raises(InvalidInputError, match="keeps state"):
        plan_rebuild(3, offsets=plain, previous=plain, survivors=files_of(store))
    with pytest.raises(InvalidInputError, match="keeps state"):
        plan_rebuild(3, offsets=marked, previous=plain)


def test_texts_that_do_not_go_together_are_refused() -> None:
    one, two = offsets_text(fuse(4)), offsets_text(fuse(4), fuse(5))

    with pytest.raises(InvalidInputError, match="different sources"):
        plan_rebuild(3, offsets=one, previous=two)
    with pytest.raises(InvalidInputError, match="the one before"):
        plan_rebuild(3, offsets=one, previous=None)
    with pytest.raises(InvalidInputError):
        plan_rebuild(0, offsets=one, previous=one)
    with pytest.raises(CorruptObjectError):
        plan_rebuild(0, offsets="v1", previous=None)


def test_files_to_copy_need_a_store_to_copy_from(store: MemoryStore) -> None:
    put(store, {"sources/0/0": "v1\n1795287078095"})
    plan = plan_rebuild(0, offsets=offsets_text(9), previous=None, survivors=files_of(store))

    with pytest.raises(InvalidInputError, match="pass the old one's store"):
        store_fork(None, MemoryStore(), plan, CLAIM)
