"""Fetch the jar with Spark's own table for row-level statements: `python -m scripts.fetch_oracle`.

Its tables live in memory and are the ones on which Spark tests MERGE, UPDATE and DELETE; so
tests/spark/test_merge_oracle.py compares with them. Ivy, which comes with PySpark, downloads it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

SPARK = "4.2.0"
"""The release of the jar, also beside 4.3.0: no later one is published; its tables run on both."""

SHA256 = "9f46cfb6d4cb5dff696b76f8af3db1ecfc56cbc43ffb0fa785ef947ac4ad2620"
MODULE = "spark-catalyst_2.13"
JAR = Path(__file__).parent.parent / ".cache" / "oracle" / f"{MODULE}-{SPARK}-tests.jar"
TIMEOUT_S = 300

SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
WANTED = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="oracle"/>
  <dependencies>
    <dependency org="org.apache.spark" name="{MODULE}" rev="{SPARK}" transitive="false">
      <artifact name="{MODULE}" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def fetch() -> str | None:
    """Put the jar at `JAR` unless it is there; return why not, if it could not be downloaded.

    Raises:
        ValueError: another file than the pinned one came; it was not kept.
    """
    if JAR.exists():
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "settings.xml").write_text(SETTINGS.strip())
        (folder / "ivy.xml").write_text(WANTED.strip())
        reason = _run_ivy(folder)
        found = folder / "found" / f"{MODULE}.jar"
        if not found.exists():
            return reason
        data = found.read_bytes()
    if (sha256 := hashlib.sha256(data).hexdigest()) != SHA256:
        raise ValueError(f"{JAR.name} has another hash than the pinned one: {sha256}")
    JAR.parent.mkdir(parents=True, exist_ok=True)
    partial = JAR.with_suffix(f".{os.getpid()}")  # two runs of make may fetch at once
    partial.write_bytes(data)
    partial.replace(JAR)
    return None


def _run_ivy(folder: Path) -> str:
    """Download the jar into `found/`; return the last lines of what Ivy says."""
    command = [
        str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"),
        "-cp",
        str(Path(pyspark.__file__).parent / "jars" / "*"),
        "org.apache.ivy.Main",
        "-settings",
        "settings.xml",
        "-ivy",
        "ivy.xml",
        "-cache",
        "cache",
        "-retrieve",
        "found/[artifact].[ext]",
    ]
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-12:])


if __name__ == "__main__":
    if problem := fetch():
        sys.stderr.write(f"{problem}\n{JAR.name} could not be fetched: its tests are skipped\n")
