"""Apply each seeded bug to a copy of the package, and see its test fail.

    python -m tests.mutants.kill                # all, as a table
    python -m tests.mutants.kill --count=5      # five, drawn by a seed that is printed
    python -m tests.mutants.kill --only=ledger  # those with this in their names; may be repeated

Nothing of the checkout changes. A test counts as failed if it ran and failed: a test that is not
found, or a module that cannot be imported, is a mistake in the list.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.seeded import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
PACKAGE = "fuse_stream"
PATIENCE_S = 300

_PASSED, _FAILED = 0, 1
"""Exit codes of pytest; the others mean that no test ran as asked."""


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killing:
    """A mutant, its fate, and how long its test took."""

    mutant: Mutant
    fate: Fate
    seconds: float

    def __str__(self) -> str:
        one = self.mutant
        return f"{self.fate:<9} {self.seconds:6.1f}  {one.name:<58} {one.path:<28} {one.killed_by}"


class MutantError(Exception):
    """The list of mutants does not fit the package or its tests."""


def patched(mutant: Mutant, source: str) -> str:
    """Return the source of a mutant's module with the bug.

    Raises:
        MutantError: the text to replace is not in it exactly once.
    """
    count = source.count(mutant.text)
    if not mutant.text or count != 1:
        raise MutantError(
            f"{mutant.name}: the text to replace is {count} times in {PACKAGE}/{mutant.path}, and "
            "must be there once: the module has changed, so write the patch again"
        )
    return source.replace(mutant.text, mutant.replacement)


def put_copy(folder: Path, mutant: Mutant | None) -> None:
    """Copy the package into `folder`, with the bug of `mutant` if there is one."""
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE)  # with its times: compiled files stay valid
    if mutant is not None:
        module = folder / PACKAGE / mutant.path
        module.write_text(patched(mutant, module.read_text("utf-8")), "utf-8")


def fails(test: str, mutant: Mutant | None) -> bool:
    """Run a test with a copy of the package; return True if it failed.

    Raises:
        MutantError: it did not run as asked.
    """
    with TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        put_copy(folder, mutant)
        try:
            done = subprocess.run(
                [sys.executable, *_OPTIONS, f"--basetemp={folder}/tmp", str(ROOT / "tests" / test)],
                cwd=ROOT,
                env=_environment(folder),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode(errors="replace")[-3000:]
            raise MutantError(f"{test} did not end with {_named(mutant)}:\n{said}") from error
    if done.returncode not in {_PASSED, _FAILED}:
        raise MutantError(
            f"{test} did not run with {_named(mutant)}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
        )
    return done.returncode == _FAILED


_OPTIONS = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=120")


def _environment(folder: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "PYTHONSAFEPATH": "1",  # otherwise the checkout's package would be found first
        "CI": "1",  # examples are the same in every run
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }


def _named(mutant: Mutant | None) -> str:
    return "the package as it is" if mutant is None else f"the bug {mutant.name!r}"


def kill(mutant: Mutant) -> Killing:
    """Run a mutant's test with its bug; errors of `fails`."""
    start_s = time.monotonic()
    fate = Fate.KILLED if fails(mutant.killed_by, mutant) else Fate.SURVIVED
    return Killing(mutant=mutant, fate=fate, seconds=time.monotonic() - start_s)


def check_passes(test: str) -> None:
    """Raise unless a test passes with the package as it is.

    Raises:
        MutantError: it fails, so it shows nothing about a mutant.
    """
    if fails(test, None):
        raise MutantError(f"{test} fails with the package as it is: repair that first")


def draw(count: int, seed: int) -> Sequence[Mutant]:
    """Return `count` mutants, drawn by `seed`."""
    return random.Random(seed).sample(MUTANTS, count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=len(MUTANTS), help="try so many, drawn by the seed"
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10_000), help="a number; random if not given"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="those with this text in their names; repeatable",
    )
    parser.add_argument("--list", action="store_true", help="list all mutants and stop")
    asked = parser.parse_args()
    if asked.list:
        for one in MUTANTS:
            print(f"{one.name:<58} {one.path:<32} {one.killed_by}")
        return
    chosen = [
        mutant
        for mutant in MUTANTS
        if not asked.only or any(text in mutant.name for text in asked.only)
    ]
    if asked.count < len(chosen):
        print(f"seed {asked.seed}: the same mutants again with --seed={asked.seed}")
        chosen = [mutant for mutant in draw(asked.count, asked.seed) if mutant in chosen]
    survived, wrong, tested = 0, 0, set[str]()
    for mutant in chosen:
        try:
            if mutant.killed_by not in tested:
                check_passes(mutant.killed_by)
                tested.add(mutant.killed_by)
            killing = kill(mutant)
        except MutantError as error:
            wrong += 1
            print(error, flush=True)
            continue
        survived += killing.fate is Fate.SURVIVED
        print(killing, flush=True)
    print(f"{len(chosen)} mutants: {len(chosen) - survived - wrong} killed, {survived} survived")
    if survived or wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
