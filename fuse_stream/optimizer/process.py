"""Start an optimizer process, notify it and stop it.

Rules:
- Storage options may be secret: they go over the pipe, never on a command line or in a log.
- The child imports the modules that this process imports, but none from the working directory,
  which others may write.
- When this process ends, in whatever manner, the pipe closes: the child reads the end of its input
  and stops.
- No call waits: a notification that does not fit into the pipe is dropped.

Python puts the working directory (`-c`, `-m`) or the script's folder first on `sys.path`, and takes
an empty or relative entry of PYTHONPATH for a folder below the working directory. A file `queue.py`
there, whether a user's own or an attacker's, would run in the child.
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
"""About a tenth of a core when other processes want all cores."""

# Set the niceness before anything is loaded.
_PROGRAM = f"import os; os.nice({NICENESS}); from fuse_stream.optimizer.main import main; main()"
_log = logging.getLogger(__name__)


class OptimizerProcess:
    """A process of low priority with one Arrow thread, which optimizes tables.

    It checks the watched tables again and again, and others when it is notified of a commit.
    """

    def __init__(self, watched: Iterable[TableLocation] = ()) -> None:
        # No session of its own: if the kernel schedules by session, niceness would have no effect.
        command, environ = isolated_python(_PROGRAM)
        self._process = subprocess.Popen(  # noqa: S603 - this Python, this package
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
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
        """The exit code; None while the process runs."""
        return self._process.poll()

    def notify(self, location: TableLocation) -> None:
        """Notify the process of a commit. Never waits, and never raises."""
        data = pickle.dumps(location)
        try:
            written = os.write(self._commands, data)
        except OSError:
            return  # the pipe is full, or the process has ended
        if written < len(data):
            self._close_input()  # a partial message would make the next one unreadable

    def stop(self, patience_s: float) -> None:
        """Stop the process; kill it if it has not ended after `patience_s`."""
        self._close_input()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._relay.join()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._commands = -1  # the file descriptor may soon be another file's
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
        document = orjson.loads(line)
        logger, level, text = document["logger"], document["level"], document["text"]
    except (ValueError, LookupError, TypeError):
        _log.info("the optimizer printed: %s", line.decode(errors="replace").rstrip())
        return
    extra = {"fuse": document["fuse"]} if document.get("fuse") else {}
    logging.getLogger(logger).log(level, "%s", text, extra=extra)


_PYTHON_PATH = "PYTHONPATH"
_PACKAGES = str(Path(__file__).absolute().parents[2])
"""The folder or zip that contains this package."""

_SET_PATH = (
    "import sys; first = int(sys.argv[1]) + 2; "
    "sys.path[:] = dict.fromkeys([*sys.argv[2:first], *sys.path, *sys.argv[first:]]); "
)


def isolated_python(program: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run `program`, one line of Python.

    The program finds modules where this process does, except in the working directory and in the
    folder of the script that this process runs. If PYTHONPATH names one of these, or this package
    is in it, as in a checkout, it is searched last, so that no module there hides another.
    """
    environ = dict(os.environ)
    if sys.flags.ignore_environment:
        environ = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    entries = environ.get(_PYTHON_PATH, "").split(os.pathsep)
    named = [entry for entry in entries if Path(entry).is_absolute()]
    untrusted = _untrusted_folders()
    path = trusted(filter(_is_text, sys.path), untrusted)
    # Python reads PYTHONPATH before the program runs, for sitecustomize.
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
    return isinstance(entry, str)  # Python ignores other entries of a path, too


def _untrusted_folders() -> set[str]:
    """Return the real paths of the script's folder and the working directory, now and at start."""
    folders = {os.environ.get("PWD", os.sep)}
    with suppress(FileNotFoundError):  # a deleted folder: nothing can be imported from it
        folders.add(str(Path.cwd()))
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    if script is not None:
        # With `-m`, the folder that contains the script's package: the working directory at start,
        # even if PWD is another process's. If the module is installed, this folder is
        # site-packages, which is then searched last, and not left out.
        depth = 0 if main.__spec__ is None else main.__spec__.name.count(".")
        above = Path(script).absolute().parents
        folders.add(str(above[min(depth, len(above) - 1)]))
    return {os.path.realpath(folder) for folder in folders}
