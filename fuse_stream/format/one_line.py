"""The `repr` of records that are too large to show whole: the facts that a person looks for. Pure.

A record names the facts that its line shows:

    __repr__ = one_line("version rows=summary.row_count timestamp_us")
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from enum import Enum

LONGEST = 120
"""Facts that would make a line longer are left out; the first one never is."""
_LONGEST_TEXT, _LONGEST_LIST = 60, 40
_MORE = "…"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def one_line(facts: str) -> Callable[[object], str]:
    """Return a `__repr__` that shows some attributes of a record.

    Args:
        facts: attributes with blanks between, first the most important one; `name=attribute` where
            the line shows another name, `name=a.b` for the attribute of an attribute. If `a` is
            None, there is no such fact.
    """
    parts = [fact.partition("=") for fact in facts.split()]
    paths = {name: (path or name).split(".") for name, _, path in parts}

    def represent(record: object) -> str:
        facts = {name: _at(record, path) for name, path in paths.items()}
        return line_of(type(record).__name__, facts)

    return represent


def line_of(record: str, facts: Mapping[str, object]) -> str:
    """Return the name of a record's class and facts about it, as many as fit into a line.

    Facts that are None or empty are left out. A fact named `x_us` is shown as the time `x`. A
    collection is shown as the number of its items, unless these are few names or numbers.
    """
    texts = [
        f"{name.removesuffix('_us')}={_text(name, value)}"
        for name, value in facts.items()
        if value is not None and not (isinstance(value, Collection) and not value)
    ]
    line = f"{record}({', '.join(texts)})"
    while len(line) > LONGEST and len(texts) > 1:
        texts.pop()
        line = f"{record}({', '.join(texts)}, {_MORE})"
    return line


def _at(value: object, path: list[str]) -> object:
    for name in path:
        value = None if value is None else getattr(value, name)
    return value


def _text(name: str, value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if name.endswith("_us") and isinstance(value, int):
        return _time(value)
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + _MORE)
    if isinstance(value, Collection):
        is_plain = isinstance(value, tuple) and all(isinstance(item, str | int) for item in value)
        text = repr(value)[1:-1].rstrip(",") if is_plain else ""
        return f"[{text}]" if is_plain and len(text) <= _LONGEST_LIST else str(len(value))
    return repr(value)


def _time(time_us: int) -> str:
    try:
        time = _EPOCH + dt.timedelta(microseconds=time_us)
    except OverflowError:
        return str(time_us)
    return time.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
