"""The tests notice seeded bugs: five are drawn in each run, all by `make mutants`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.mutants.kill import ROOT, Fate, MutantError, check_passes, draw, kill, patched
from tests.mutants.seeded import MUTANTS, Mutant

SEED = int(os.environ.get("SEED") or secrets.randbelow(10_000))
COUNT = 5


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_its_module_and_names_a_test_file(mutant: Mutant) -> None:
    source = (ROOT / "fuse_stream" / mutant.path).read_text("utf-8")
    changed = patched(mutant, source)

    compile(changed, mutant.path, "exec")
    assert changed != source
    assert Path(ROOT, "tests", mutant.killed_by.partition("::")[0]).is_file()


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_patch_whose_text_is_gone_says_so() -> None:
    mutant = MUTANTS[0]

    with pytest.raises(MutantError, match=r"0 times .* write the patch again"):
        patched(mutant, "the module as it is now")


def test_a_seed_draws_the_same_mutants_again() -> None:
    assert draw(COUNT, 7) == draw(COUNT, 7)
    assert draw(COUNT, 7) != draw(COUNT, 8)


@pytest.mark.long
@pytest.mark.parametrize("number", range(COUNT))
def test_a_drawn_mutant_is_killed(number: int) -> None:
    mutant = draw(COUNT, SEED)[number]
    print(f"SEED={SEED} draws it again: {mutant.name}")  # noqa: T201 - pytest shows it on failure

    check_passes(mutant.killed_by)
    assert kill(mutant).fate is Fate.KILLED, f"SEED={SEED}: {mutant}"
