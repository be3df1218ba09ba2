"""`make check` as tests: code that does not lint, is not formatted or mistypes is not done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    ["ruff check --output-format=concise", "ruff format --check", "mypy"],
)
def test_the_code_passes(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, f"\n{result.stdout}{result.stderr}"
