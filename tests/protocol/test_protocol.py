"""The rules of expiry, vacuum and pipelines: with all nothing is lost, without one something is."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator

import pytest

from tests.protocol.model import pipelines
from tests.protocol.model.records import ALL_RULES, Rules
from tests.protocol.model.scenarios import CASES, Build, Case, everything
from tests.protocol.model.search import Found, Search

MOST_STATES = 150_000
WALKS = 10


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: it takes a third of the time, and the states have no cycles."""
    gc.disable()
    yield
    gc.enable()


@functools.cache
def found_with_all_rules(build: Build) -> Found:
    return Search(build(ALL_RULES)).exhaust(most=MOST_STATES)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if case.fewest], ids=lambda c: c.rule)
def test_under_all_rules_no_order_of_events_loses_anything(case: Case) -> None:
    found = found_with_all_rules(case.build)

    assert str(found.loss) == "None"
    assert found.is_whole
    assert found.states >= case.fewest
    assert {"published", "acknowledged"} <= found.facts


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_without_any_one_rule_something_is_lost(case: Case) -> None:
    rules = Rules(**{case.rule: False})
    found = Search(case.build(rules)).exhaust(most=MOST_STATES)
    print(f"without {case.rule}:\n{found.loss}")  # noqa: T201 - `pytest -s` shows how

    assert found.loss is not None
    assert case.loss in found.loss.promise


def test_every_rule_that_prevents_a_loss_is_left_out_once() -> None:
    taken_out = {case.rule for case in CASES}

    assert taken_out == set(Rules.__dataclass_fields__) - {"epochs_apart"}


@pytest.mark.parametrize("rules", [ALL_RULES, Rules(epochs_apart=False)])
def test_all_actors_of_the_model_together_lose_nothing(rules: Rules) -> None:
    search = Search(everything(rules))
    losses = [str(loss) for seed in range(WALKS) if (loss := search.walk(seed)) is not None]

    assert losses == []


@pytest.mark.parametrize("build", sorted({*pipelines.CASES.values()}, key=str))
def test_a_pipeline_goes_back_in_every_order_of_events(build: pipelines.Build) -> None:
    found = Search(build(pipelines.ALL_RULES)).exhaust(most=MOST_STATES)

    assert str(found.loss) == "None"
    assert found.is_whole
    assert found.states > 10_000


@pytest.mark.long
@pytest.mark.parametrize("rule", pipelines.CASES)
def test_without_any_one_rule_a_pipeline_loses_something(rule: str) -> None:
    rules = pipelines.Rules(**{rule: False})
    found = Search(pipelines.CASES[rule](rules)).exhaust(most=MOST_STATES)
    print(f"without {rule}:\n{found.loss}")  # noqa: T201 - `pytest -s` shows how

    assert found.loss is not None
