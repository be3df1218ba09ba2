"""Python and Java as Spark starts them: packages, the workers' interpreter, `pyspark_*` modules.

Each Python is examined in a process of its own, so its errors do not affect this one.

Spark starts Python by itself, by these rules (PythonUtils and lookup_data_sources.py, 4.3):
- workers run PYSPARK_PYTHON, else `python3` of the PATH;
- data sources are looked up by PYSPARK_DRIVER_PYTHON, else the same. The lookup imports every
  module whose name starts with `pyspark_`, and the first that fails hides every format.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

import orjson

from fuse_stream.cli.findings import Finding, ok, problem, warning

_PATIENCE_S = 60
_MARK = "fuse-stream-doctor:"
"""Begins the line with our JSON: modules may print other lines when they are imported."""

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
    """The version of a Python, and the modules that it lacks."""

    minor: str
    """Such as "3.11"."""
    missing: Mapping[str, str]
    """Modules that it cannot import, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """A `pyspark_*` module, which Spark's lookup of data sources imports."""

    module: str
    file: str
    package: str | None
    """The pip package that it belongs to, if any."""
    format: str | None = None
    """The data source that it offers."""
    error: str | None = None
    """Why the lookup fails at it."""
    is_here: bool = False
    """True if it is in the working directory, where Spark finds it; it was not imported."""


class Interpreter:
    """A Python executable."""

    def __init__(self, executable: str) -> None:
        self.executable = executable

    def examine(self, modules: Sequence[str]) -> PythonReport | None:
        """Return its version and which of `modules` it lacks; None if it does not run."""
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

    def _look_up(self, module: str, file: str, package: str | None, is_here: bool) -> PluginReport:
        name, error = (None, None) if is_here else self._ask(_LOOK_UP, module)
        found = name if isinstance(name, str) else None
        return PluginReport(
            module=module, file=file, package=package, format=found, error=error, is_here=is_here
        )

    def _ask(self, code: str, *arguments: str) -> tuple[object, str | None]:
        """Run `code`; return (its JSON output, None), or (None, why there is none)."""
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
    """Return this process's environment with only the absolute paths of PYTHONPATH."""
    environ = dict(os.environ)
    if entries := environ.get("PYTHONPATH"):
        absolute = [entry for entry in entries.split(os.pathsep) if Path(entry).is_absolute()]
        environ["PYTHONPATH"] = os.pathsep.join(absolute)
    return environ


OWN_PACKAGE, OWN_FORMAT = "fuse-stream", "fuse"
WORKER_MODULES = ("pyarrow", "pandas", "orjson", "fuse_stream")
"""The modules that a worker imports for this package."""

_WITHOUT_PLUGIN = "until then call fuse.register(spark) in each session"


def check_packages() -> Iterator[Finding]:
    """Compare the installed packages with the ranges that this release was tested with."""
    try:
        wanted = ranges(requires(OWN_PACKAGE) or ())
    except PackageNotFoundError:
        wanted = {"pyspark": "", "pandas": "", "pyarrow": ""}
        yield warning(
            OWN_PACKAGE,
            "not installed as a package; its ranges of versions are not known",
            "pip install fuse-stream, or pip install -e . in its folder",
        )
    for package, specifier in wanted.items():
        yield compare(package, find_version(package), specifier)


def compare(package: str, installed: str | None, specifier: str) -> Finding:
    """Return a finding: is the installed version in the tested range."""
    if installed is None:
        return problem(package, "not installed", f"pip install '{package}{specifier}'")
    if not satisfies(installed, specifier):
        return problem(
            package,
            f"{installed} is outside the tested range {specifier}",
            f"pip install '{package}{specifier}'",
        )
    return ok(package, f"{installed}{f' ({specifier})' if specifier else ''}")


def find_version(package: str) -> str | None:
    """Return the version of a package, also of a Spark that is unpacked on PYTHONPATH."""
    try:
        return version(package)
    except PackageNotFoundError:
        spec = find_spec(package) if package == "pyspark" else None
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0], "version.py")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    match = re.search(r"__version__[^=]*=\s*['\"]([^'\"]+)", text)
    return match[1] if match else None


def spark_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the Spark that would be started; None if there is none."""
    if home := environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None


def check_spark_home(environ: Mapping[str, str], pyspark: str | None) -> Iterator[Finding]:
    """Compare SPARK_HOME, whose Spark is started if it is set, with the pyspark of this Python."""
    home = environ.get("SPARK_HOME")
    if not home:
        return
    names = [jar.name for jar in Path(home, "jars").glob("spark-core_*.jar")]
    match = re.search(r"spark-core_[\d.]+-(.+)\.jar", names[0]) if names else None
    if match is None:
        found = f"{home} holds no Spark, but would be used"
        yield problem("SPARK_HOME", found, "unset SPARK_HOME: pyspark brings its own Spark")
    elif match[1] != pyspark:
        found = f"Spark {match[1]} in {home} would run with pyspark {pyspark}"
        remedy = f"unset SPARK_HOME, or pip install pyspark=={match[1]}"
        yield problem("SPARK_HOME", found, remedy)
    else:
        yield ok("SPARK_HOME", f"Spark {match[1]} in {home}")


def check_workers(environ: Mapping[str, str], *modules: str) -> Iterator[Finding]:
    """Start the workers' Python, and check its version, its modules and further `modules`."""
    named = environ.get("PYSPARK_PYTHON")
    executable = shutil.which(named or "python3", path=environ.get("PATH"))
    use_this = f"export PYSPARK_PYTHON={sys.executable}"
    check = "worker Python"
    if executable is None:
        said = (
            f"PYSPARK_PYTHON names {named}, which"
            if named
            else "PYSPARK_PYTHON is not set; python3"
        )
        yield problem(check, f"{said} is not there", use_this)
        return
    origin = "PYSPARK_PYTHON" if named else "python3 of the PATH, for PYSPARK_PYTHON is not set"
    report = Interpreter(executable).examine((*WORKER_MODULES, *modules))
    if report is None:
        yield problem(check, f"{executable} ({origin}) does not start", use_this)
        return
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if report.minor != own:
        found = f"{executable} ({origin}) is Python {report.minor}, the driver's is {own}"
        yield problem(check, found, use_this)
    elif report.missing:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in report.missing.items())
        yield problem(check, f"{executable} ({origin}) cannot import {reasons}", use_this)
    elif named:
        yield ok(check, f"Python {report.minor}, {executable} (PYSPARK_PYTHON)")
    else:
        yield warning(
            check, f"{executable} ({origin}) works here; on other machines it may not", use_this
        )


def check_plugins(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Import, as Spark's lookup of Python data sources does, each `pyspark_*` module."""
    check = "format lookup"
    driver = environ.get("PYSPARK_DRIVER_PYTHON")
    named = driver or environ.get("PYSPARK_PYTHON") or "python3"
    executable = shutil.which(named, path=environ.get("PATH"))
    plugins = Interpreter(executable).plugins() if executable else None
    if plugins is None:
        origin = "PYSPARK_DRIVER_PYTHON" if driver else "PYSPARK_PYTHON or python3"
        found = f"Spark looks formats up with {named} ({origin}), which does not run Python code"
        remedy = (
            "unset PYSPARK_DRIVER_PYTHON" if driver else f"export PYSPARK_PYTHON={sys.executable}"
        )
        yield problem(check, found, f"{remedy}; {_WITHOUT_PLUGIN}")
        return
    for plugin in plugins:
        if plugin.is_here:
            yield warning(
                check,
                f"Spark would import {plugin.file}, which lies in the working directory; whether "
                "that works was not tried",
                "start Spark in another folder, or move it",
            )
    plugins = [plugin for plugin in plugins if not plugin.is_here]
    broken = [plugin for plugin in plugins if plugin.error]
    yield from (_broken(check, plugin) for plugin in broken)
    ours = [plugin.module for plugin in plugins if plugin.format == OWN_FORMAT]
    if not ours and not any(plugin.module == "pyspark_fuse" for plugin in broken):
        found = f"{executable} has no module pyspark_fuse, so Spark does not know this format"
        yield problem(check, found, f"{executable} -m pip install fuse-stream; {_WITHOUT_PLUGIN}")
    elif len(ours) > 1:
        found = f"several modules call their format {OWN_FORMAT}: {', '.join(ours)}; the last wins"
        yield problem(check, found, "uninstall all but one")
    elif not broken:
        others = sorted(plugin.format or plugin.module for plugin in plugins)
        yield ok(check, f"format('{OWN_FORMAT}') is found (all: {', '.join(others)})")


def _broken(check: str, plugin: PluginReport) -> Finding:
    package = plugin.package
    remedy = (
        f"pip install --upgrade {package}, or pip uninstall {package}"
        if package
        else f"repair or remove {plugin.file}"
    )
    return problem(
        check,
        f"the module {plugin.module} of {package or 'no package'} ({plugin.file}) fails when it "
        f"is imported, which hides every Python format: {plugin.error}",
        f"{remedy}; {_WITHOUT_PLUGIN}",
    )


OLDEST_JAVA = 17
VECTOR_MODULE = "jdk.incubator.vector"
"""Spark passes it to `--add-modules`; a Java without it does not start."""

_CHECK = "Java"
_INSTALL = (
    f"install Java {OLDEST_JAVA} or later (Debian: apt-get install openjdk-17-jre-headless) and "
    "set JAVA_HOME to its folder"
)
_JAVA_PATIENCE_S = 30


def check_java(environ: Mapping[str, str]) -> Finding:
    """Check the Java that `spark-class` starts: that of JAVA_HOME, else of the PATH."""
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
    """Return the output of Java; an empty text if it did not start."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own Java, which Spark would start
            [java, *arguments], capture_output=True, timeout=_JAVA_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (result.stdout + result.stderr).decode(errors="replace")


def satisfies(version: str, specifier: str) -> bool:
    """True if a version is in a range such as ">=4.2,<4.4", as `pyproject.toml` writes ranges.

    A pre-release counts as its release; a part of the range that is not understood is ignored.
    """
    release = _release(version)
    for part in specifier.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*", part)
        if match and not _COMPARE[match[1]](release, _release(match[2])):
            return False
    return True


def ranges(requirements: Sequence[str]) -> dict[str, str]:
    """Return the version ranges of the packages that are always required, by package."""
    found = {}
    for requirement in requirements:
        wanted, _, marker = requirement.partition(";")
        match = re.fullmatch(r"\s*([A-Za-z0-9._-]+)\s*\(?([^()\[\]]*)\)?\s*", wanted)
        if match and "extra" not in marker:
            found[match[1].lower().replace("_", "-")] = match[2].strip()
    return found


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()  # 4.2 is 4.2.0
    return tuple(numbers)


_COMPARE = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}
