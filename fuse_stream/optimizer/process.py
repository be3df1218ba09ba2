"""The process that a service runs in, seen from the one that starts it.

Rules:
- What opens a table may be a secret: it goes over the pipe, never on a command line or in a log.
- It imports nothing from the working directory, which others may write.
- The pipe is the life line: when this process ends, however it ends, the other one reads the end.
- Nobody waits: a word that does not fit into the pipe is not said.

A Python process that imports what this one does, and nothing from the working directory.

Python puts the working directory (`-c`, `-m`) or the script's folder first on `sys.path`, and takes
an empty or relative entry of PYTHONPATH for a folder below the working directory. A file `queue.py`
there, a user's own or a trap in a folder that others may write, would run in the child.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import orjson

from fuse_stream.table.location import TableLocation

NICENESS = 10
"""About a tenth of a core where others want all of them."""

# Nice before anything is loaded.
_PROGRAM = f"import os; os.nice({NICENESS}); from fuse_stream.optimizer.main import main; main()"
_log = logging.getLogger(__name__)


class OptimizerProcess:
    """A niced process with one Arrow thread. Watches some tables, and is told of others."""

    def __init__(self, watched: Iterable[TableLocation] = ()) -> None:
        # No session of its own: where the kernel groups by session, nice would mean nothing.
        command, environ = isolated_python(_PROGRAM)
        self._process = subprocess.Popen(  # noqa: S603 - this Python, this package
            command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        self._commands = self._process.stdin.fileno()
        self._process.stdin.write(pickle.dumps(tuple(watched)))
        os.set_blocking(self._commands, False)
        self._relay = threading.Thread(target=self._relay_log, daemon=True)
        self._relay.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.poll()

    def notify(self, location: TableLocation) -> None:
        """Say that there was a commit. Never waits, and never raises."""
        data = pickle.dumps(location)
        try:
            written = os.write(self._commands, data)
        except OSError:
            return  # it has yet to read what it was told before, or has ended
        if written < len(data):
            self._hang_up()  # it could make nothing of the rest

    def stop(self, patience_s: float) -> None:
        """End it; after so long without its consent."""
        self._hang_up()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._relay.join()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        self._commands = -1  # the number may soon be another file's
        self._process.stdin.close()

    def _relay_log(self) -> None:
        lines = self._process.stdout
        assert lines is not None
        with lines:
            for line in iter(lines.readline, b""):
                _pass_on(line)
        self._process.wait()


def _pass_on(line: bytes) -> None:
    try:
        said = orjson.loads(line)
        logger, level, text = said["logger"], said["level"], said["text"]
    except (ValueError, LookupError, TypeError):
        _log.info("the service says: %s", line.decode(errors="replace").rstrip())
        return
    extra = {"fuse": said["fuse"]} if said.get("fuse") else {}
    logging.getLogger(logger).log(level, "%s", text, extra=extra)


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
