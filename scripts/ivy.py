"""Download jars from Maven Central by Ivy, which comes with PySpark."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

TIMEOUT_S = 300

_SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_WANTED = """
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="jars"/>
  <dependencies>
{}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """A jar of Maven Central, alone."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        end = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{end}.jar"

    def wanted(self) -> str:
        """Return the jar as a dependency of Ivy."""
        kind = f' m:classifier="{self.classifier}"' if self.classifier else ""
        return (
            f'<dependency org="{self.group}" name="{self.artifact}" rev="{self.version}" '
            f'transitive="false"><artifact name="{self.artifact}" type="jar" ext="jar"{kind}/>'
            "</dependency>"
        )


def fetch(jars: Sequence[Jar], folder: Path) -> str | None:
    """Put the jars that a folder lacks into it; return why not, if they could not be downloaded.

    Raises:
        ValueError: another file than the pinned one came; no file was kept.
    """
    missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
    if not missing:
        return None
    with tempfile.TemporaryDirectory() as name:
        found = Path(name)
        (found / "settings.xml").write_text(_SETTINGS.strip())
        wanted = "\n".join(jar.wanted() for jar in missing)
        (found / "ivy.xml").write_text(_WANTED.format(wanted).strip())
        reason = _run(found)
        files = {jar: found / "found" / jar.group / f"{jar.artifact}.jar" for jar in missing}
        if not all(file.exists() for file in files.values()):
            return reason
        _keep({jar: file.read_bytes() for jar, file in files.items()}, folder)
    return None


def _keep(data: Mapping[Jar, bytes], folder: Path) -> None:
    for jar, content in data.items():
        if (sha256 := hashlib.sha256(content).hexdigest()) != jar.sha256:
            raise ValueError(f"{jar.file_name} has another hash than the pinned one: {sha256}")
    folder.mkdir(parents=True, exist_ok=True)
    for jar, content in data.items():
        partial = folder / f"{jar.file_name}.{os.getpid()}"  # two runs of make may fetch at once
        partial.write_bytes(content)
        partial.replace(folder / jar.file_name)


def _run(folder: Path) -> str:
    """Download the jars into `found/`; return the last lines of what Ivy says."""
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
        "found/[organisation]/[artifact].[ext]",
    ]
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-12:])
