"""JSON with all digits of its numbers.

Rules:
- A text that is not one value of JSON, or has a name twice in one object, is refused.
- A number is its text, a `Number`: what it means is said by the column that takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any


class Number(str):
    """The text of a number."""

    __slots__ = ()


Json = dict[str, Any] | list[Any] | str | bool | None
"""Numbers are `Number`, which is a str."""

MAX_DEPTH = 100
"""Levels of nested objects and lists, as in MongoDB."""

_TOO_DEEP = "the value is nested too deep"
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def _object(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_refuse
)


def parse(text: str) -> Json:
    """Return the value of a text.

    Raises:
        ValueError: it is not one value of JSON, has a name twice in one object, or more than
            `MAX_DEPTH` levels.
    """
    try:
        found: Json = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if text.count("{") + text.count("[") > MAX_DEPTH and _is_deeper(found, MAX_DEPTH):
        raise ValueError(_TOO_DEEP)
    if _HALF_OF_A_PAIR.search(text):
        to_text(found).encode()  # half of a surrogate pair is no text
    return found


def _is_deeper(value: Json, levels: int) -> bool:
    match value:
        case dict() | list():
            parts = value.values() if isinstance(value, dict) else value
            return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)
    return False


def parse_nested(value: Json) -> Json:
    """Return what JSON within a text of JSON says; other values are as they are.

    Raises:
        ValueError: the text is no JSON.
    """
    return parse(value) if type(value) is str else value


def to_text(value: Json) -> str:
    """Return a value as text: a text as it is, others as JSON."""
    return value if isinstance(value, str) else _to_json(value)


def _to_json(value: Json) -> str:
    match value:
        case dict():
            fields = (f"{_quoted(name)}:{_to_json(part)}" for name, part in value.items())
            return "{" + ",".join(fields) + "}"
        case list():
            return "[" + ",".join(map(_to_json, value)) + "]"
        case Number():
            return value
        case str():
            return _quoted(value)
        case _:
            return {True: "true", False: "false", None: "null"}[value]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def fields_of(value: Json) -> dict[str, Any] | None:
    """Return the fields of an object; None for any other value."""
    return value if isinstance(value, dict) else None


def text_of(fields: dict[str, Any] | None, name: str) -> str | None:
    """Return a field as text; None if it is missing or null."""
    found = None if fields is None else fields.get(name)
    return None if found is None else to_text(found)
