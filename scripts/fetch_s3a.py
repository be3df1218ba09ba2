"""Fetch Spark's file system for S3, 39 jars of 14 MB: `python -m scripts.fetch_s3a`.

They are kept in `.cache/s3a`. Without them the tests of Spark's own reader on S3 are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.ivy import Jar, fetch

_ROOT = Path(__file__).parent.parent
FOLDER = _ROOT / ".cache" / "s3a"


def jars() -> list[Jar]:
    """Return the jars that `requirements/s3a_jars.txt` pins."""
    lines = (_ROOT / "requirements" / "s3a_jars.txt").read_text().splitlines()
    found = []
    for line in lines:
        if not line.startswith("#"):
            group, artifact, version, sha256 = line.split()
            found.append(Jar(group=group, artifact=artifact, version=version, sha256=sha256))
    return found


def is_complete() -> bool:
    """True if all jars are there."""
    return all((FOLDER / jar.file_name).exists() for jar in jars())


if __name__ == "__main__":
    if problem := fetch(jars(), FOLDER):
        sys.stderr.write(f"{problem}\nno s3a for Spark: its tests are skipped\n")
