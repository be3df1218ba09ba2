"""Modules that are imported at their first use.

For modules that are slow to import or seldom needed, such as sqlglot, fsspec and the recovery
verbs. Spark starts a Python process for every stream and every worker, and each process waits for
its imports. Type checkers see the real import, so they check every use:

    if TYPE_CHECKING:
        from fuse_stream.feed import consumers
    else:
        consumers = OnDemand("fuse_stream.feed.consumers")
"""

from __future__ import annotations

import importlib
from typing import Any


class OnDemand:
    """A module that is imported when one of its names is first used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
