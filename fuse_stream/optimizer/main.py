"""The main program of an optimizer process, which `fuse_stream.optimizer.process` starts.

It reads the tables to optimize from its standard input and writes its log to its standard output.
It stops at the end of its input: the process that started it has ended, or stops it.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
from typing import BinaryIO, TextIO

import orjson
import pyarrow as pa

from fuse_stream.optimizer.worker import Stop, Worker
from fuse_stream.table.location import TableLocation

PATIENCE_S = 5.0
"""How long the current step may run on after the order to stop."""

LOGGER = "fuse_stream"
GIVEN_UP = os.EX_TEMPFAIL
"""The exit code where a step, or the end itself, took longer."""


def main() -> None:
    """Optimize the tables that the standard input names, until it ends or no more are named."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this
    signal.signal(signal.SIGTERM, _stop)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(_Relay(sys.stdout))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        # Not sys.stdin: Python would take its lock when it ends, and `_listen` holds that.
        commands = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
        watched: tuple[TableLocation, ...] = pickle.load(commands)  # noqa: S301 - from the parent
        worker = Worker(watched)
        threading.Thread(target=_listen, args=(commands, worker), daemon=True).start()
        worker.run()
    except (Stop, EOFError):
        pass
    finally:
        _give_up_later()


def _listen(commands: BinaryIO, worker: Worker) -> None:
    try:
        while True:
            worker.notify(pickle.load(commands))  # noqa: S301 - the same
    except (EOFError, pickle.UnpicklingError):
        _give_up_later()
        os.kill(os.getpid(), signal.SIGTERM)


def _give_up_later() -> None:
    """Exit in `PATIENCE_S`, even in the middle of a step: an unfinished step does no harm."""
    timer = threading.Timer(PATIENCE_S, os._exit, [GIVEN_UP])
    timer.daemon = True
    timer.start()


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stop


class _Relay(logging.Handler):
    """Writes the log as one JSON document per line."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        document = {
            "logger": record.name,
            "level": record.levelno,
            "text": record.getMessage(),
            "fuse": getattr(record, "fuse", None),
        }
        try:
            self._out.write(orjson.dumps(document, default=str).decode() + "\n")
            self._out.flush()
        except OSError:
            os._exit(GIVEN_UP)  # the process that started this one has ended


if __name__ == "__main__":
    main()
