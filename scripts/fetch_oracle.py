"""Fetch the jar with Spark's own table for row-level statements: `python -m scripts.fetch_oracle`.

Its tables live in memory and are the ones on which Spark tests MERGE, UPDATE and DELETE; so
tests/spark/test_merge_oracle.py compares with them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.ivy import Jar, fetch

SPARK = "4.2.0"
"""The release of the jar, also beside 4.3.0: no later one is published; its tables run on both."""

ORACLE = Jar(
    group="org.apache.spark",
    artifact="spark-catalyst_2.13",
    version=SPARK,
    classifier="tests",
    sha256="9f46cfb6d4cb5dff696b76f8af3db1ecfc56cbc43ffb0fa785ef947ac4ad2620",
)
JAR = Path(__file__).parent.parent / ".cache" / "oracle" / ORACLE.file_name


if __name__ == "__main__":
    if problem := fetch([ORACLE], JAR.parent):
        sys.stderr.write(f"{problem}\n{JAR.name} could not be fetched: its tests are skipped\n")
