"""The frame: what a run reports, and that a night goes on where it was stopped."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import pytest

from torture.campaign import Campaign, PromiseBrokenError
from torture.campaigns import load_campaigns, what_is_missing
from torture.kept import load_kept, store_kept
from torture.report import Reached, as_json, as_markdown
from torture.run import Run, main, run_trial


def campaign(name: str = "some", **changes: object) -> Campaign:
    fields: dict[str, object] = {
        "name": name,
        "does": "something is broken",
        "unit": "faults",
        "trial": lambda _seed, _folder: Counter({"told right": 2}),
        "in_ci": 10,
        "in_night": 100,
    }
    return Campaign(**{**fields, **changes})  # type: ignore[arg-type]


def reached(seeds: set[int], **changes: object) -> Reached:
    found = Reached(campaign=campaign(), aim=10, seeds=seeds)
    found.outcomes = Counter({"told right": 3, "refused": 4})
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_every_campaign_has_a_name_of_its_own_and_an_aim() -> None:
    campaigns = load_campaigns()

    assert {"model", "every-io", "power-loss", "damage"} <= campaigns.keys()
    for name, one in campaigns.items():
        assert one.name == name
        assert 0 <= one.in_ci <= one.in_night


def test_what_a_campaign_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    assert "no Java" in what_is_missing(campaign(needs=("spark",)))
    assert not what_is_missing(campaign())


def test_a_night_continues_what_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    store_kept(file, [reached({1000, 1001}, seconds=1.5)])
    store_kept(file, [Reached(campaign=campaign("other"), aim=1)])
    found = Reached(campaign=campaign(), aim=10)
    load_kept(file, [found])

    assert (found.units, found.seeds, found.seconds) == (7, {1000, 1001}, 1.5)
    load_kept(tmp_path / "none.json", [found])
    assert found.units == 7


def test_the_report_has_every_figure() -> None:
    found = reached({0, 1, 2, 7}, seconds=1.25)
    (document,) = json.loads(as_json([found]))

    assert document["seeds"] == "0-2, 7"
    assert document["outcomes"] == {"refused": 4, "told right": 3}
    assert (document["reached"], document["aim"]) == (7, 10)
    assert document["state"] == "held, aim not reached"
    assert "| some | 7 faults | 10 | held, aim not reached | 1 | 0-2, 7 |" in as_markdown([found])


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"aim": 7}, "held"),
        ({"left_out": "there is no Java"}, "not run: there is no Java"),
        ({"broken": "2: twice", "broken_seed": 5}, "BROKEN"),
    ],
)
def test_the_state_is_told_in_a_word(changes: dict[str, object], state: str) -> None:
    assert reached({0}, **changes).state == state


def test_a_broken_promise_is_told_with_the_command_that_repeats_it() -> None:
    found = reached({0}, broken="2: twice", broken_seed=5)

    assert found.replay() == 'make torture ARGS="--only some --seed 5"'


def broken(_seed: int, _folder: Path) -> Counter[str]:
    raise PromiseBrokenError("2: a batch is there twice", ["append", "append"])


def failing(_seed: int, _folder: Path) -> Counter[str]:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("trial", "promise", "step"),
    [(broken, "2: a batch is there twice", "append"), (failing, "the trial failed", "Traceback")],
)
def test_a_trial_that_breaks_or_fails_is_told_with_its_history(
    monkeypatch: pytest.MonkeyPatch, trial: object, promise: str, step: str
) -> None:
    monkeypatch.setattr("torture.run.load_campaigns", lambda: {"some": campaign(trial=trial)})
    ended = run_trial("some", 5)

    assert ended.seed == 5
    assert promise in ended.broken
    assert step in ended.history[0]


class AtOnce:
    """Runs what is submitted in this process."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: object, *arguments: object) -> Future[object]:
        future: Future[object] = Future()
        future.set_result(function(*arguments))  # type: ignore[operator]
        return future


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let there be one campaign; return the list of the seeds that it runs."""
    seeds: list[int] = []

    def trial(seed: int, _folder: Path) -> Counter[str]:
        seeds.append(seed)
        if seed == 1003:
            raise PromiseBrokenError("2: a batch is there twice", ["append", "append"])
        return Counter({"told right": 2})

    monkeypatch.setattr("torture.run.load_campaigns", lambda: {"some": campaign(trial=trial)})
    monkeypatch.setattr("torture.run.ProcessPoolExecutor", AtOnce)
    return seeds


def test_a_run_ends_at_its_aim(some: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers=1"]) == 0
    assert some == [0, 1, 2, 3, 4]
    assert "10 faults" in capsys.readouterr().out


def test_one_seed_is_run_alone(some: list[int]) -> None:
    assert main(["--only=some", "--seed=42"]) == 0
    assert some == [42]


def test_faults_set_the_aim(some: list[int]) -> None:
    assert main(["--faults=4", "--workers=1"]) == 0
    assert some == [0, 1]


def test_an_unknown_campaign_is_refused(some: list[int]) -> None:
    assert main(["--only=none"]) == 2
    assert not some


def test_a_night_stops_at_a_broken_promise_and_skips_what_is_done(
    some: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "night.json"
    store_kept(kept, [Reached(campaign=campaign(), aim=1, seeds={1000, 1001})])

    options = [f"--kept={kept}", "--workers=1", f"--json={tmp_path / 'all.json'}"]
    assert main(["--night", *options]) == 1
    assert some == [1002, 1003]
    out = capsys.readouterr().out
    assert "seed 1003" in out
    assert "2: a batch is there twice" in out
    assert json.loads(kept.read_text())["some"]["seeds"] == [1000, 1001, 1002]
    (document,) = json.loads((tmp_path / "all.json").read_text())
    assert (document["broken_seed"], document["history"]) == (1003, ["append", "append"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "at least 1"),
        (["--minutes", "-1"], "above 0"),
        (["--kept", "x.json"], "goes with --night"),
        (["--json", "/dev/null/x.json"], "cannot be written"),
    ],
)
def test_options_that_cannot_work_are_refused_before_a_run(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


def test_a_damaged_night_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    file.write_text("{")

    with pytest.raises(SystemExit, match=r"night\.json is not what a night has kept"):
        load_kept(file, [])


def test_a_run_that_is_stopped_tells_what_it_has_reached(
    some: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(_run: Run, all_reached: list[Reached]) -> None:
        all_reached[0].outcomes["told right"] = 3
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "go", stop)

    assert main([f"--json={tmp_path / 'report.json'}"]) == 130
    assert "told right" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())[0]["reached"] == 3
    assert some == []
