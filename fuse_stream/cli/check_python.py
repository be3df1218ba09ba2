"""Python as Spark sees it: the packages, the workers' interpreter, everybody's `pyspark_*` modules.

Spark starts Python by itself, by these rules (PythonUtils and lookup_data_sources.py, 4.3):
- workers run PYSPARK_PYTHON, else `python3` of the PATH;
- data sources are looked up by PYSPARK_DRIVER_PYTHON, else the same. The lookup imports every
  module whose name starts with `pyspark_`, and the first that fails hides every format.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from fuse_stream.cli.findings import Finding, ok, problem, ranges, satisfies, warning
from fuse_stream.cli.interpreter import Interpreter, PluginReport

OWN_PACKAGE, OWN_FORMAT = "fuse-stream", "fuse"
WORKER_MODULES = ("pyarrow", "pandas", "orjson", "fuse_stream")
"""What a worker imports for us."""

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
    """Return whether an installed version lies in the tested range."""
    if installed is None:
        return problem(package, "not installed", f"pip install '{package}{specifier}'")
    if not satisfies(installed, specifier):
        return problem(
            package,
            f"{installed} lies outside the tested range {specifier}",
            f"pip install '{package}{specifier}'",
        )
    return ok(package, f"{installed}{f' ({specifier})' if specifier else ''}")


def find_version(package: str) -> str | None:
    """Return the version of a package; Spark's also where it stands unpacked on PYTHONPATH."""
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


def check_workers(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Start the workers' Python and see whether it has what they need."""
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
    report = Interpreter(executable).examine(WORKER_MODULES)
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
            check, f"{executable} ({origin}) will do here; elsewhere it may not", use_this
        )


def check_plugins(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Do what Spark's lookup of Python data sources does, module by module."""
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
        else f"mend or remove {plugin.file}"
    )
    return problem(
        check,
        f"the module {plugin.module} of {package or 'no package'} ({plugin.file}) fails when it "
        f"is imported, which hides every Python format: {plugin.error}",
        f"{remedy}; {_WITHOUT_PLUGIN}",
    )
