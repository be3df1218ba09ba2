"""A soak of seconds: its parts run together and the rows add up; growth is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
FAST = {
    "grace_s": 15,
    "killed_has_lease": True,
    "vacuum_age_s": 10,
    "maintenance_s": 3,
    "slow_s": 25,
    "lives_s": [0, 20],
    "sample_s": 2,
    "beat_s": 2,
    "rows": 500,
    "block_rows": 5000,
}


def test_a_short_soak_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "soak.run", "--minutes=0.8", f"--folder={tmp_path / 'soak'}"]
    done = subprocess.run(
        [*command, f"--settings={json.dumps(FAST)}", "--seed=1"],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )

    assert done.returncode == 0, done.stdout
    samples = json.loads((tmp_path / "soak" / "samples.json").read_text())
    assert len(samples["samples"]) > 10
    assert ET.parse(tmp_path / "soak" / "soak.svg").getroot().tag.endswith("svg")
