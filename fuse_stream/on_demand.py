"""Functions whose modules are loaded at their first call.

For what is slow to load or seldom needed, such as sqlglot, fsspec and the verbs of going back:
Spark starts a Python process for every stream and for every worker, and each pays for all that is
loaded at its start.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def on_demand(module: str, name: str) -> Callable[..., Any]:
    """Return a function that calls `name` of `module`, which is imported when it is called."""

    def call(*args: object, **kwargs: object) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call
