"""A longer search: the big scenarios in full, then random orders of events.

python -m tests.protocol.model --seconds 600 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.protocol.model.records import ALL_RULES
from tests.protocol.model.scenarios import BIG, everything
from tests.protocol.model.search import Search

MOST_STATES = 3_000_000


def main() -> int:
    """Return 1 if anything is lost, and print the events before the loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    return search(arguments.seconds, arguments.seed)


def search(seconds: float, first: int) -> int:
    """Search the scenarios and random orders for a time; return 1 if anything is lost."""
    end_s = time.monotonic() + seconds
    for build in BIG:
        found = Search(build(ALL_RULES)).exhaust(most=MOST_STATES, end_s=end_s)
        sys.stdout.write(f"{found.states} states, {'all' if found.is_whole else 'not all'}\n")
        if found.loss is not None:
            sys.stdout.write(f"{found.loss}\n")
            return 1
    everybody = Search(everything(ALL_RULES))
    seed = first
    while time.monotonic() < end_s:
        if (loss := everybody.walk(seed)) is not None:
            sys.stdout.write(f"seed {seed}:\n{loss}\n")
            return 1
        seed += 1
    sys.stdout.write(f"{seed - first} courses of events, nothing lost\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
