"""A hostile table harms no reader: not by its objects, not by its folder, not by what it is called.

`torture/hostile.py` tries far more tables; here each table made by hand is tried with some verbs.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuse_stream.storage.base import Store
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.hostile.cases import cases, folders
from tests.hostile.mutants import NUMBERS, TEXTS, random_mutant
from tests.hostile.tables import forged, head_key, keys_of, made
from tests.hostile.trials import VERBS, chosen_verbs, outcomes_on
from tests.hostile.verbs import follow_from
from tests.hostile.watch import BrokenRuleError, WatchedStore, outcomes_of
from torture.campaign import PromiseBrokenError
from torture.hostile import CAMPAIGN

PARTS = 12
"""The tables made by hand are tried in so many tests."""


@pytest.mark.parametrize("part", range(PARTS))
def test_tables_made_by_hand_give_answers_or_typed_errors(part: int) -> None:
    found = cases()
    for name in sorted(found)[part::PARTS]:
        choose = random.Random(name)
        try:
            outcomes_on(found[name](made("plain")), chosen_verbs(choose, 1))
        except BrokenRuleError as error:
            pytest.fail(f"{name}: {error}")


@pytest.mark.long
@pytest.mark.night
@pytest.mark.parametrize("part", range(PARTS))
def test_tables_made_by_hand_harm_no_verb(part: int) -> None:
    found = cases()
    for name in sorted(found)[part::PARTS]:
        try:
            outcomes_on(found[name](made("plain")), VERBS)
        except BrokenRuleError as error:
            pytest.fail(f"{name}: {error}")


def test_there_are_enough_tables_made_by_hand() -> None:
    assert len(cases()) + len(folders()) >= 1_000


@pytest.mark.parametrize("kind", ["plain", "events"])
def test_every_verb_answers_on_the_table_that_is_changed(kind: str) -> None:
    outcomes = outcomes_on(made(kind), VERBS)

    assert outcomes["answer"] >= len(VERBS) - 8, outcomes
    assert outcomes["CorruptObjectError"] == 0


def test_a_trial_of_the_campaign_counts_each_table(tmp_path: Path) -> None:
    outcomes = CAMPAIGN.trial(1, tmp_path)

    assert sum(outcomes.values()) == 60
    assert set(outcomes) == {"harmless", "refused"}
    assert list(tmp_path.iterdir()) == []


def test_the_same_seed_makes_the_same_mutant() -> None:
    first, second = (random_mutant(made("plain"), random.Random(7)) for _ in range(2))

    assert first == second
    assert first[1] != made("plain")


def test_a_forged_table_has_right_hashes() -> None:
    objects = made("plain")
    key = keys_of(objects, "_ss/main/")[2]
    changed = forged(objects, {key: objects[key].replace(b'"message":"m 1"', b'"message":"m!1"')})

    assert changed[key] != objects[key]
    assert outcomes_on(changed, ["log", "scan", "fsck", "refs", "vacuum"]) == {"answer": 5}
    (plain,) = outcomes_on({**objects, key: changed[key]}, ["vacuum"])
    assert plain == "CorruptObjectError"


# ---- the watch itself: what it looks for, it finds


def fail_with(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: fail_with(KeyError("x")), "KeyError"),
        (lambda: fail_with(RecursionError()), "RecursionError"),
        (lambda: fail_with(MemoryError()), "MemoryError"),
        (lambda: bytearray(300 * 2**20).count(0), "MiB"),
        (lambda: sum(number * number for number in range(40_000_000)), "took"),
        (lambda: WatchedStore(MemoryStore()).get("../x"), "asked for the key"),
        (lambda: WatchedStore(MemoryStore()).get("/etc/passwd"), "asked for the key"),
        (lambda: WatchedStore(MemoryStore()).get("_b/a\0b"), "asked for the key"),
    ],
)
def test_the_watch_notices(act: object, said: str) -> None:
    with pytest.raises(BrokenRuleError, match=said):
        outcomes_of({"an act": act})  # type: ignore[dict-item]  # the acts have no common type


def test_an_error_of_a_trial_names_the_promise_and_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERBS, "open", lambda _store, _clock: fail_with(KeyError("x")))

    with pytest.raises(PromiseBrokenError) as caught:
        CAMPAIGN.trial(0, tmp_path)
    assert caught.value.history[0].startswith("table: ")
    assert "KeyError" in caught.value.history[1]


# ---- single rules


def opened(objects: dict[str, bytes]) -> Store:
    store = MemoryStore(clock=ManualClock())
    for key, data in objects.items():
        store.replace(key, data)
    return WatchedStore(store)


def offsets_of_streams() -> list[str]:
    head = json.loads(made("plain")[head_key(made("plain"))])
    good = {
        "table_id": head["table_id"],
        "branch_id": "main",
        "version": 3,
        "snapshot_id": head["snapshot_id"],
        "index": 0,
    }
    wild = [{**good, name: value} for name in good for value in (*NUMBERS, *TEXTS, None, [], {})]
    return [json.dumps(one) for one in wild]


def test_offsets_of_streams_with_wild_content_are_refused() -> None:
    store = opened(dict(made("plain")))
    for text in offsets_of_streams():
        verb = follow_from(text)
        outcomes = outcomes_of({text[:200]: lambda verb=verb: verb(store, ManualClock())})  # type: ignore[misc]  # a default argument binds the name
        assert set(outcomes) <= {"StreamIdentityError", "SnapshotExpiredError", "NotFoundError"}


# ---- on a local disk

SCRIPT = Path(__file__).parent / "local_run.py"


@pytest.mark.parametrize("part", range(4))
def test_a_hostile_folder_leads_no_verb_out_of_the_table(tmp_path: Path, part: int) -> None:
    """In a process of its own: it watches every file that is opened, and a pipe could stop it."""
    command = [sys.executable, "-m", "tests.hostile.local_run", str(tmp_path), str(part), "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "tried" in done.stdout
