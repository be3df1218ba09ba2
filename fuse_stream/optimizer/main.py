"""The service as a process: what it is told comes over its standard input, its log goes out.

It is started by `fuse_stream.optimizer.process` and nobody else.
The end of its input is the end of the process that started it, or of the work there: it stops.
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
"""How long the step at hand may take to come to an end, once it is to stop."""

LOGGER = "fuse_stream"
_GIVEN_UP = 1


def main() -> None:
    """Look after the tables that the standard input names, until it ends or nothing comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
    signal.signal(signal.SIGTERM, _stop)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(_Relay(sys.stdout))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        commands = sys.stdin.buffer
        watched: tuple[TableLocation, ...] = pickle.load(commands)  # noqa: S301 - from who started this
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
    """Let the step at hand a moment to come to its end; what is cut off does no harm."""
    timer = threading.Timer(PATIENCE_S, os._exit, [_GIVEN_UP])
    timer.daemon = True
    timer.start()


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stop


class _Relay(logging.Handler):
    """Hands the log over, one JSON document a line."""

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
            os._exit(_GIVEN_UP)  # nobody is there to read it, or to work for


if __name__ == "__main__":
    main()
