"""Text of the command line: JSON, lines, ids; `format/text` has what others show too. Pure.

Text from a table (messages, names, rows) never reaches a terminal unchanged: `printable` shows
control characters as escapes, and `output` prints nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from fuse_stream.format import text as shown

printable = shown.printable
iso, duration, timestamp = shown.iso, shown.duration, shown.timestamp
count, plural = shown.count, shown.plural
bound, cell, first_line = shown.bound, shown.cell, shown.first_line
NULL, UNKNOWN = shown.NULL, shown.UNKNOWN


def signed(number: int) -> str:
    """Return a difference with its sign; an empty text for 0."""
    return f"{number:+,}" if number else ""


def hidden_text(rows: int, files: int) -> str:
    """Return how many deleted rows are still in blocks; an empty text for none."""
    return f"{count(rows)} in {plural(files, 'deletion file')}" if files else ""


def short_id(text: str) -> str:
    """Return the first 8 characters of an id."""
    return printable(text[:8])


def printable_lines(text: str) -> str:
    """Return `text` with each of its lines made `printable`."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def json_text(
    document: object, *, indented: bool = True, default: Callable[[Any], object] | None = None
) -> str:
    r"""Return `document` as JSON text, with characters that are not printable as `\uXXXX`.

    It is on several lines if `indented`. `default` returns a JSON value for a value that is none.
    """
    option = orjson.OPT_INDENT_2 if indented else None
    try:
        text = orjson.dumps(document, default=default, option=option).decode()
    except orjson.JSONEncodeError:  # half of a surrogate pair: a path that is not UTF-8
        text = json.dumps(document, default=default, indent=2 if indented else None)
    return "\n".join(
        line if line.isprintable() else "".join(map(_json_char, line)) for line in text.split("\n")
    )


def _json_char(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]
