"""The Java that Spark would start: there, new enough, whole."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fuse_stream.cli.findings import Finding, ok, problem

OLDEST_JAVA = 17
VECTOR_MODULE = "jdk.incubator.vector"
"""Spark passes it to `--add-modules`; a Java without it does not start."""

_CHECK = "Java"
_INSTALL = (
    f"install Java {OLDEST_JAVA} or later (Debian: apt-get install openjdk-17-jre-headless) and "
    "set JAVA_HOME to its folder"
)
_PATIENCE_S = 30


def check_java(environ: Mapping[str, str]) -> Finding:
    """Examine the Java that `spark-class` would take: of JAVA_HOME, else of the PATH."""
    home = environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environ.get("PATH"))
    if java is None:
        return problem(_CHECK, "JAVA_HOME is not set and the PATH has no java", _INSTALL)
    if home and not Path(java).is_file():
        return problem(_CHECK, f"JAVA_HOME names {home}, where there is no bin/java", _INSTALL)
    settings = _run(java, "-XshowSettings:properties", "-version")
    major = java_major(settings)
    if major is None:
        return problem(_CHECK, f"{java} does not start", _INSTALL)
    if major < OLDEST_JAVA:
        return problem(_CHECK, f"{java} is Java {major}, too old for Spark", _INSTALL)
    if VECTOR_MODULE not in _run(java, "--list-modules"):
        return problem(
            _CHECK,
            f"{java} is Java {major} without the module {VECTOR_MODULE} that Spark needs",
            f"this is a trimmed runtime; {_INSTALL}",
        )
    return ok(_CHECK, f"Java {major}, {java}{' (JAVA_HOME)' if home else ' (PATH)'}")


def java_major(settings: str) -> int | None:
    """Return the major version that `java -XshowSettings:properties` printed; None if none."""
    match = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)
    return int(match[1]) if match else None


def _run(java: str, *arguments: str) -> str:
    """Return what Java printed, nothing if it did not start."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own Java, which Spark would start
            [java, *arguments], capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (result.stdout + result.stderr).decode(errors="replace")
