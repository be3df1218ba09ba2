"""What a long run has reached, in a file, so that the next one continues it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torture.report import Reached


def load_kept(file: Path, all_reached: Iterable[Reached]) -> None:
    """Put what `file` has of each campaign into its record; leave it as it is if there is none.

    Raises:
        SystemExit: the file is damaged; the message says what to do.
    """
    if not file.exists():
        return
    try:
        kept: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise SystemExit(f"{file} is not what a night has kept ({error}); delete it") from error
    for reached in all_reached:
        if (found := kept.get(reached.campaign.name)) is not None:
            reached.outcomes = Counter(found["outcomes"])
            reached.seeds = set(found["seeds"])
            reached.seconds = found["seconds"]


def store_kept(file: Path, all_reached: list[Reached]) -> None:
    """Replace the records of these campaigns in `file`; those of others stay."""
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for reached in all_reached:
        kept[reached.campaign.name] = {
            "outcomes": reached.outcomes,
            "seeds": sorted(reached.seeds),
            "seconds": reached.seconds,
        }
    file.parent.mkdir(parents=True, exist_ok=True)
    staged = file.with_suffix(".new")
    staged.write_text(json.dumps(kept))
    staged.replace(file)  # a run that is killed leaves the old file or the new one
