"""CI's share of all campaigns: no promise is broken, and each reaches its aim."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.strides import NIGHT
from torture.campaigns import load_campaigns

ROOT = Path(__file__).parent.parent.parent

CROWDED = ("drivers", "processes")
"""Campaigns of many processes, or of Spark's: they need a machine without other tests."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([one for one in load_campaigns() if one not in CROWDED], id="others"),
        pytest.param(CROWDED, id="crowded", marks=NIGHT),
    ],
)
@pytest.mark.long
def test_no_campaign_breaks_a_promise(tmp_path: Path, names: list[str]) -> None:
    report = tmp_path / "report.json"
    options = [f"--only={name}" for name in names if load_campaigns()[name].in_ci]
    # Spark gives a Python worker 10 seconds to start: the tests beside it come first.
    command = ["nice", "-n", "5", sys.executable, "-m", "torture.run", *options]
    done = subprocess.run(
        [*command, "--workers=2", f"--json={report}"],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3_600,
    )
    assert done.returncode == 0, done.stdout

    documents = json.loads(report.read_text())
    left_out = [one for one in documents if one["state"].startswith("not run")]
    short = [one for one in documents if one["reached"] < one["aim"] and one not in left_out]
    assert [one["campaign"] for one in short] == []
    if left_out:
        pytest.skip("; ".join(f"{one['campaign']} was {one['state']}" for one in left_out))
