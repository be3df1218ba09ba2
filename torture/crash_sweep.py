"""The crash sweep of the tests, as a campaign: a fixed script of commits meets every fault.

`tests/commit/test_crash_sweep.py` describes it. Its ten steps are the seeds 0 to 9; the seeds after
these repeat them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.commit.test_crash_sweep import SCRIPT, all_stages, sweep, view
from torture.campaign import Campaign, PromiseBrokenError


def trial(seed: int, _folder: Path) -> Counter[str]:
    """Sweep one step of the script."""
    index = seed % len(SCRIPT)
    stages = all_stages()
    try:
        met = sweep(stages, view(stages[index + 1]), index)
    except AssertionError as error:
        told = f"step {index} of the script of tests/commit/test_crash_sweep.py"
        raise PromiseBrokenError(
            "2: the table is not as without the fault", [told, f"{error}"]
        ) from error
    outcomes: Counter[str] = Counter()
    for (verb, fault), count in met.items():
        outcomes[f"{fault.lower().replace('_', ' ')} of {verb}: as without it after a restart"] += (
            count
        )
    return outcomes


CAMPAIGN = Campaign(
    name="crash-sweep",
    does="a fixed script of commits, long enough for a roll-up and a hint, meets faults at each "
    "call; after a restart the table is as without them",
    unit="faults of the script",
    trial=trial,
    in_ci=300,
    in_night=300,
)
