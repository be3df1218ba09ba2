"""A release installs from a Git URL, and has what the package needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"


def run(*arguments: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(one) for one in arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout of Git")
def test_a_git_url_installs_the_whole_package(tmp_path: Path) -> None:
    """It is built apart, by hatchling from the registry, and imported with the tests' packages."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    place = tmp_path / "installed"
    options = ("--no-deps", "--build-constraint", CONSTRAINTS, "--target", place)
    run(*pip, *options, f"git+file://{ROOT}", cwd=tmp_path)

    packages = ("fuse_stream", "pyspark_fuse")
    wanted = {
        file
        for file in run("git", "ls-files", *packages, cwd=ROOT).split()
        if (ROOT / file).exists()
    }
    found = {
        str(file.relative_to(place))
        for name in packages
        for file in (place / name).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "fuse_stream/py.typed" in wanted
    assert wanted == found
    program = (
        "import fuse_stream, pyspark_fuse; from importlib.metadata import distribution;"
        "print(fuse_stream.__file__, pyspark_fuse.__file__);"
        "print(*distribution('fuse-stream').entry_points.names)"
    )
    shown = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(place)).split()
    assert all(Path(file).is_relative_to(place) for file in shown[:2])
    assert "fuse-stream" in shown[2:]
