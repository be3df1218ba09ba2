"""A Python process that imports what this one does, and nothing from the working directory.

Python puts the working directory (`-c`, `-m`) or the script's folder first on `sys.path`, and takes
an empty or relative entry of PYTHONPATH for a folder below the working directory. A file `queue.py`
there, a user's own or a trap in a folder that others may write, would run in the child.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

_PYTHON_PATH = "PYTHONPATH"
_PACKAGES = str(Path(__file__).absolute().parents[2])
"""Where this package lies: a folder or a zip."""

_SET_PATH = (
    "import sys; first = int(sys.argv[1]) + 2; "
    "sys.path[:] = dict.fromkeys([*sys.argv[2:first], *sys.path, *sys.argv[first:]]); "
)


def isolated_python(program: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run `program`, Python on one line.

    The program finds modules where this process does, but for the working directory and the folder
    of the script that this process runs. If PYTHONPATH names one of these, or this package lies
    there, as in a checkout, it is the last to be asked: no module there hides another.
    """
    environ = dict(os.environ)
    if sys.flags.ignore_environment:
        environ = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    entries = environ.get(_PYTHON_PATH, "").split(os.pathsep)
    named = [entry for entry in entries if Path(entry).is_absolute()]
    untrusted = _untrusted_folders()
    path = trusted(filter(_is_text, sys.path), untrusted)
    # Python reads it before the program runs, for sitecustomize.
    environ[_PYTHON_PATH] = os.pathsep.join(trusted(named, untrusted))
    flags = ["-P", "-s"] if sys.flags.no_user_site else ["-P"]
    arguments = [str(len(path)), *path, *named, _PACKAGES]
    return [sys.executable, *flags, "-c", _SET_PATH + program, *arguments], environ


def trusted(entries: Iterable[str], untrusted: Collection[str]) -> list[str]:
    """Return the absolute entries of a module path whose real path is not in `untrusted`."""
    return [
        entry
        for entry in entries
        if Path(entry).is_absolute() and os.path.realpath(entry) not in untrusted
    ]


def _is_text(entry: object) -> bool:
    return isinstance(entry, str)  # what else may be in a path, Python passes over


def _untrusted_folders() -> set[str]:
    """Return the real paths of the script's folder and the working directory, now and at start."""
    folders = {os.environ.get("PWD", os.sep)}
    with suppress(FileNotFoundError):  # deleted: nothing can be imported from there
        folders.add(str(Path.cwd()))
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    if script is not None:
        # Run by -m, the folder in which its package lies: the working directory of the start, if
        # PWD is another process's. Of an installed module it is asked last, and not left out.
        depth = 0 if main.__spec__ is None else main.__spec__.name.count(".")
        above = Path(script).absolute().parents
        folders.add(str(above[min(depth, len(above) - 1)]))
    return {os.path.realpath(folder) for folder in folders}
