"""The soak, as a campaign: everything together on a real table, judged by `soak/verdict.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from torture.campaign import Campaign, PromiseBrokenError

ROOT = Path(__file__).parent.parent
MINUTES = 3
"""How long one trial runs: too short to tell what grows, which `make soak` does."""
PATIENCE_S = 900


def trial(seed: int, folder: Path) -> Counter[str]:
    """Soak for some minutes; count the minutes and the kills of a follower."""
    samples = folder / "samples.json"
    command = [sys.executable, "-m", "soak.run", f"--minutes={MINUTES}", f"--seed={seed}"]
    done = subprocess.run(
        [*command, f"--folder={folder / 'soak'}", f"--json={samples}"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if done.returncode != 0:
        raise PromiseBrokenError(
            "the soak failed", [*done.stdout.splitlines(), *done.stderr.splitlines()]
        )
    kills = json.loads(samples.read_text())["kills"]
    return Counter({"minutes: the rows add up": MINUTES, "kills of a follower": kills})


CAMPAIGN = Campaign(
    name="soak",
    does="writers, followers, an optimizer, expiry and vacuum run together with Spark for minutes "
    "while a follower is killed; the rows add up",
    unit="minutes and kills",
    trial=trial,
    in_ci=0,
    in_night=60,
    needs=("spark",),
)
