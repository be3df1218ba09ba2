"""The service beside a stream: one process for all sinks of this one, started at the first need.

Rules:
- A sink's call pays for a look at the head that it holds, and for one short write to a pipe.
- Nothing that goes wrong here reaches the stream.
- It ends when nothing was committed for a minute, and when this process ends, however it ends.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, field

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.format.records import Snapshot
from fuse_stream.optimize.policy import Failures, should_start_optimizer
from fuse_stream.optimizer.process import OptimizerProcess
from fuse_stream.storage.secrets import redact
from fuse_stream.table.location import TableLocation

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Beside:
    pid: int
    """Whose process it is: after a fork it is the parent's."""
    process: OptimizerProcess | None = None
    failures: Failures = field(default_factory=Failures)
    asked_us: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a process was last started for a branch."""


_lock = threading.Lock()
_beside = _Beside(os.getpid())


def committed(location: TableLocation, head: Snapshot) -> None:
    """Let the service know of a commit that left `head`; start it if it is needed and not there."""
    with _lock:
        try:
            _notify(location, head)
        except Exception as error:  # noqa: BLE001 - the batch is committed, whatever this is
            _fail(location, error)


def process_id() -> int | None:
    """Return the id of the process, if one lives."""
    process = _beside.process if _beside.pid == os.getpid() else None
    return process.pid if process is not None and process.exit_code is None else None


def stop(patience_s: float = 10.0) -> None:
    """End the process; the next commit that needs one starts another."""
    global _beside  # noqa: PLW0603 - one a process
    with _lock:
        if _beside.pid == os.getpid() and _beside.process is not None:
            _beside.process.stop(patience_s)
        _beside = _Beside(os.getpid())


def _notify(location: TableLocation, head: Snapshot) -> None:
    global _beside  # noqa: PLW0603 - one a process
    if _beside.pid != os.getpid():
        _beside = _Beside(os.getpid())
    now_us = SYSTEM_CLOCK.now_us()
    if _beside.failures.retry_at_us(now_us) > now_us:
        return
    if _is_alive() and _beside.process is not None:
        _beside.process.notify(location)
        return
    if should_start_optimizer(head, _beside.asked_us.get(location.name), now_us):
        _beside.asked_us[location.name] = now_us
        _beside.process = OptimizerProcess()
        _beside.process.notify(location)


def _is_alive() -> bool:
    process = _beside.process
    if process is None:
        return False
    if process.exit_code is None:
        return True
    process.stop(0)  # it is dead: this lets go of its pipes
    _beside.process = None
    if process.exit_code:
        raise ChildProcessError(f"it died, exit code {process.exit_code}")
    _beside.failures = Failures()
    return False


def _fail(location: TableLocation, error: Exception) -> None:
    count = _beside.failures.count + 1
    _beside.failures = Failures(count=count, last_us=SYSTEM_CLOCK.now_us())
    text = redact(str(error), location.storage_options)
    _log.warning("the service beside this stream failed, the stream goes on: %s", text)
