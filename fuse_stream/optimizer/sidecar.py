"""The optimizer beside a stream: one process for all sinks of this one, started when first needed.

Rules:
- A sink's call checks the head that it has in memory, and makes one short write to a pipe.
- No failure here reaches the stream.
- The process ends when no sink has committed for a minute, and when this process ends, in whatever
  manner.
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
class _Sidecar:
    pid: int
    """The process that started it: after a fork the record is the parent's."""
    process: OptimizerProcess | None = None
    failures: Failures = field(default_factory=Failures)
    asked_us: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a process was last started for each branch."""


_lock = threading.Lock()
_sidecar = _Sidecar(os.getpid())


def committed(location: TableLocation, head: Snapshot) -> None:
    """Notify the optimizer of the commit `head`; start one if it is needed and none runs."""
    with _lock:
        try:
            _notify(location, head)
        except Exception as error:  # noqa: BLE001 - the batch is committed in any case
            count = _sidecar.failures.count + 1
            _sidecar.failures = Failures(count=count, last_us=SYSTEM_CLOCK.now_us())
            text = redact(str(error), location.storage_options)
            _log.warning("the optimizer beside this stream failed, the stream continues: %s", text)


def process_id() -> int | None:
    """Return the id of the optimizer process; None if none runs."""
    process = _sidecar.process if _sidecar.pid == os.getpid() else None
    return process.pid if process is not None and process.exit_code is None else None


def stop(patience_s: float = 10.0) -> None:
    """Stop the process; the next commit that needs one starts another."""
    global _sidecar  # noqa: PLW0603 - one a process
    with _lock:
        if _sidecar.pid == os.getpid() and _sidecar.process is not None:
            _sidecar.process.stop(patience_s)
        _sidecar = _Sidecar(os.getpid())


def _notify(location: TableLocation, head: Snapshot) -> None:
    global _sidecar  # noqa: PLW0603 - one a process
    if _sidecar.pid != os.getpid():
        _sidecar = _Sidecar(os.getpid())
    now_us = SYSTEM_CLOCK.now_us()
    if _sidecar.failures.retry_at_us(now_us) > now_us:
        return
    if _is_alive() and _sidecar.process is not None:
        _sidecar.process.notify(location)
        return
    if should_start_optimizer(head, _sidecar.asked_us.get(location.name), now_us):
        _sidecar.asked_us[location.name] = now_us
        _sidecar.process = OptimizerProcess()
        _sidecar.process.notify(location)


def _is_alive() -> bool:
    process = _sidecar.process
    if process is None:
        return False
    if process.exit_code is None:
        return True
    process.stop(0)  # it has ended: this closes its pipes
    _sidecar.process = None
    if process.exit_code:
        raise ChildProcessError(f"its process died with exit code {process.exit_code}")
    _sidecar.failures = Failures()
    return False
