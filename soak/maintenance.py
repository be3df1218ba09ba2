"""Clean up: `python -m soak.maintenance <folder> <name>`, the optimiser, or expire and vacuum."""

from __future__ import annotations

import datetime as dt
import logging
import sys
import time
from pathlib import Path

import fuse_stream as fuse
from fuse_stream.optimizer.optimizer import Optimizer
from soak.places import OPTIMIZER, Places

_log = logging.getLogger("soak")


def main() -> None:
    """Run until the supervisor says that all is over."""
    places, name = Places(Path(sys.argv[1])), sys.argv[2]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if name == OPTIMIZER:
        _optimize(places)
    else:
        _forget(places)


def _optimize(places: Places) -> None:
    with Optimizer([places.table]) as optimizer:
        while not places.over.exists():
            if not optimizer.is_running:
                raise RuntimeError("the optimizer ended by itself")
            time.sleep(0.5)


def _forget(places: Places) -> None:
    settings = places.load_settings()
    table = fuse.Table.open(places.table)
    started = time.monotonic()
    runs = 0
    while not places.over.exists():
        if time.monotonic() < started + runs * settings.maintenance_s:
            time.sleep(0.2)
            continue
        runs += 1
        expiry = table.expire(older_than=dt.timedelta(seconds=settings.grace_s))
        report = table.vacuum()
        _log.info(
            "floor %d, expired %d, deleted %d objects with %d bytes, raised %s",
            expiry.floor,
            expiry.expired_count,
            report.object_count,
            report.byte_size,
            list(report.raised),
        )


if __name__ == "__main__":
    main()
