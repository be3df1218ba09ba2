"""Programs of the tests that need a process of their own, such as for another session of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def told_by(
    module: str, *arguments: str, patience_s: float, given: object = None, **environment: str
) -> dict[str, Any]:
    """Run a module as a program; return what the last line of its output says, in JSON.

    The program can read `given` from its input, in JSON too. A program that fails fails the test.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=json.dumps(given),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
