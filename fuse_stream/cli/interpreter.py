"""Another Python, asked in a process of its own: what breaks there breaks nothing here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

_PATIENCE_S = 60
_MARK = "fuse-stream-doctor:"
"""Tells our line from what modules print when they are imported."""

# Runs first. `-c` puts the working directory first on the path; -P does not, from Python 3.11 on.
_LEAVE_WORKING_DIRECTORY = "import sys; sys.path[:] = [path for path in sys.path if path]\n"

# Run by Pythons of any age and package: standard library only, no new syntax.
_EXAMINE = """
import importlib, json, sys
missing = {}
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        missing[name] = type(error).__name__ + ": " + str(error)
minor = "%d.%d" % sys.version_info[:2]
print("\\n" + sys.argv[1] + json.dumps({"minor": minor, "missing": missing}))
"""
_LIST = """
import json, os, pkgutil, sys
try:
    from importlib.metadata import packages_distributions
    packages = packages_distributions()
except Exception:
    packages = {}
found = []
for info in pkgutil.iter_modules():
    if info.name.startswith("pyspark_"):
        spec = info.module_finder.find_spec(info.name)
        package = (packages.get(info.name) or [None])[0]
        found.append([info.name, getattr(spec, "origin", None) or "", package, False])
here = os.getcwd()
if not any(os.path.realpath(path) == here for path in sys.path):
    for info in pkgutil.iter_modules([here]):
        if info.name.startswith("pyspark_"):
            found.append([info.name, os.path.join(here, info.name), None, True])
print("\\n" + sys.argv[1] + json.dumps(found))
"""
# As pyspark/sql/worker/lookup_data_sources.py does it.
_LOOK_UP = """
import importlib, json, sys
from pyspark.sql.datasource import DataSource
module, name = importlib.import_module(sys.argv[2]), None
if hasattr(module, "DefaultSource") and issubclass(module.DefaultSource, DataSource):
    name = module.DefaultSource.name()
print("\\n" + sys.argv[1] + json.dumps(name))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonReport:
    """What a Python said of itself."""

    minor: str
    """Such as "3.11"."""
    missing: Mapping[str, str]
    """Modules that it cannot import, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """A module that Spark's lookup imports."""

    module: str
    file: str
    package: str | None
    """The pip package that brought it, if one did."""
    format: str | None = None
    """The data source that it offers."""
    error: str | None = None
    """Why the lookup fails at it."""
    is_here: bool = False
    """It lies in the working directory, where Spark's lookup takes it from; it was not tried."""


class Interpreter:
    """A Python executable."""

    def __init__(self, executable: str) -> None:
        self.executable = executable

    def examine(self, modules: Sequence[str]) -> PythonReport | None:
        """Return what it is and which of `modules` it lacks; None if it does not run."""
        said, _ = self._ask(_EXAMINE, *modules)
        if not isinstance(said, dict):
            return None
        return PythonReport(minor=said["minor"], missing=said["missing"])

    def plugins(self) -> list[PluginReport] | None:
        """Return its `pyspark_*` modules, each imported in a process; None if it does not run."""
        listed, _ = self._ask(_LIST)
        if not isinstance(listed, list):
            return None
        return [self._look_up(*item) for item in listed]

    def _look_up(
        self,
        module: str,
        file: str,
        package: str | None,
        is_here: bool,
    ) -> PluginReport:
        if is_here:
            return PluginReport(module=module, file=file, package=package, is_here=True)
        name, error = self._ask(_LOOK_UP, module)
        return PluginReport(
            module=module,
            file=file,
            package=package,
            format=name if isinstance(name, str) else None,
            error=error,
        )

    def _ask(self, code: str, *arguments: str) -> tuple[object, str | None]:
        """Run `code` and return the JSON that it says, and the reason if it says none."""
        try:
            result = subprocess.run(  # noqa: S603 - the Python that Spark would start
                [self.executable, "-c", _LEAVE_WORKING_DIRECTORY + code, _MARK, *arguments],
                env=_environment(),
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"still busy after {_PATIENCE_S} seconds"
        except OSError as error:
            return None, str(error)
        for line in result.stdout.decode(errors="replace").splitlines():
            if line.startswith(_MARK):
                return orjson.loads(line.removeprefix(_MARK)), None
        complaints = result.stderr.decode(errors="replace").strip().splitlines()
        return None, complaints[-1] if complaints else f"it left with code {result.returncode}"


def _environment() -> dict[str, str]:
    """Return this process's environment without the entries of PYTHONPATH that are no full path."""
    environ = dict(os.environ)
    if entries := environ.get("PYTHONPATH"):
        absolute = [entry for entry in entries.split(os.pathsep) if Path(entry).is_absolute()]
        environ["PYTHONPATH"] = os.pathsep.join(absolute)
    return environ
