"""The process that a service runs in, seen from the one that starts it.

Rules:
- What opens a table may be a secret: it goes over the pipe, never on a command line or in a log.
- It imports nothing from the working directory, which others may write.
- The pipe is the life line: when this process ends, however it ends, the other one reads the end.
- Nobody waits: a word that does not fit into the pipe is not said.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import threading
from collections.abc import Iterable

import orjson

from fuse_stream.service.isolated import isolated_python
from fuse_stream.service.place import Place

NICENESS = 10
"""About a tenth of a core where others want all of them."""

# Nice before anything is loaded.
_PROGRAM = f"import os; os.nice({NICENESS}); from fuse_stream.service.child import main; main()"
_log = logging.getLogger(__name__)


class ServiceProcess:
    """A niced process with one Arrow thread. Watches some tables, and is told of others."""

    def __init__(self, watched: Iterable[Place] = ()) -> None:
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

    def tell(self, place: Place) -> None:
        """Say that there was a commit. Never waits, and never raises."""
        data = pickle.dumps(place)
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
