"""The files of a query's state: the version of each, and the versions that Spark can load. Pure.

Batch b makes version b + 1 of every state store. A state store is a folder of

- whole versions: `<v>.snapshot` (HDFS-backed), `<v>.zip` (RocksDB; its tables are in `SSTs/`),
- differences to the version before: `<v>.delta`, `<v>.changelog`.

In state format 2 the number is followed by `_<unique id>`: a version may have several files, and
`commits/<b>` names the valid one. The metadata of an operator, written when a run starts, has the
number of the run's first batch. All other files belong to no version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_VERSION_FILE = re.compile(
    r"state/(?P<store>.+)/(?P<version>\d+)(?:_[^/]*)?\.(?P<kind>delta|snapshot|zip|changelog)"
)
_BATCH_FILE = re.compile(
    r"state/\d+/(?:_metadata/v\d+/(?P<noted>\d+)|_stateSchema/.+/(?P<described>\d+)_[^/]+)"
)
_WHOLE = frozenset({"snapshot", "zip"})


def batch_of(key: str) -> int | None:
    """Return the batch that made a file below `state/`; None if it belongs to no batch."""
    if found := _VERSION_FILE.fullmatch(key):
        return int(found["version"]) - 1
    if found := _BATCH_FILE.fullmatch(key):
        return int(found["noted"] or found["described"])
    return None


@dataclass(slots=True)
class _Versions:
    whole: set[int] = field(default_factory=lambda: {0})  # every store starts empty
    steps: set[int] = field(default_factory=set)


def loadable_after(keys: Iterable[str], batches: Iterable[int]) -> frozenset[int]:
    """Return those of `batches` after which every state store can still be loaded.

    Empty if `keys`, the paths of all files, have no version of a state store.
    """
    stores: dict[str, _Versions] = {}
    for key in keys:
        if found := _VERSION_FILE.fullmatch(key):
            store = stores.setdefault(found["store"], _Versions())
            kind = store.whole if found["kind"] in _WHOLE else store.steps
            kind.add(int(found["version"]))
    reachable = [_reachable(store) for store in stores.values()]
    return frozenset(
        batch
        for batch in batches
        if reachable and all(batch + 1 in versions for versions in reachable)
    )


def _reachable(store: _Versions) -> set[int]:
    reachable = set(store.whole)
    for version in sorted(store.steps):
        if version - 1 in reachable:
            reachable.add(version)
    return reachable
