"""Modules that are loaded when something of them is first used.

For what is slow to load or seldom needed, such as sqlglot, fsspec and the verbs of going back:
Spark starts a Python process for every stream and for every worker, and each pays for all that is
loaded at its start. Type checkers read the import, so they check every use:

    if TYPE_CHECKING:
        from fuse_stream.feed import consumers
    else:
        consumers = OnDemand("fuse_stream.feed.consumers")
"""

from __future__ import annotations

import importlib
from typing import Any


class OnDemand:
    """The module of this name; it is imported when one of its names is asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
