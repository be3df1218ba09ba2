"""The errors of a predicate's text: what is wrong, where, and what is supported.

Rules:
- The parser's own messages name its classes, so only their kind and position are used.
- `column` is that of the last character of the word at `line`, from 1. For a quote that is not
  closed it is the quote's own.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from fuse_stream.errors import InvalidInputError

SUPPORTED = (
    "a column and a literal with = == <> != < <= > >= <=>, IS [NOT] DISTINCT FROM, [NOT] IN, "
    "[NOT] BETWEEN or [NOT] LIKE; IS [NOT] NULL, TRUE or FALSE; boolean columns; AND, OR, NOT"
)
_AROUND = 30
"""Characters of the predicate that are shown on each side of the wrong word."""


def unsupported(node: exp.Expr) -> InvalidInputError:
    """Return the error for a part that this package does not support."""
    known = [item.meta for item in node.walk() if "start" in item.meta]
    first = min(known, key=lambda meta: meta["start"], default=None)
    place = {} if first is None else {"line": first["line"], "column": first["col"]}
    try:
        return unsupported_text(node.sql(dialect="spark"), **place)
    except (RecursionError, ValueError, SqlglotError):
        return unsupported_text(type(node).__name__, **place)


def unsupported_text(part: str, **place: int) -> InvalidInputError:
    """Return the error for an unsupported part that is known as text."""
    return InvalidInputError(
        "this part of the predicate is not supported; filter the rows in Spark instead",
        part=part[:200],
        **place,
        supported=SUPPORTED,
    )


def unexpected(error: ParseError) -> InvalidInputError:
    """Return the error for words in an order that is not SQL."""
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description"))
    if description.startswith("Required keyword"):
        reason = "a column, a literal or a condition is missing near this"
    elif sign := re.fullmatch(r"Expect(?:ing|ed) (\W)", description):
        reason = f"a {sign[1]} is missing near this"
    else:
        reason = "this is not expected here"
    around = [str(first.get(name) or "") for name in ("start_context", "highlight", "end_context")]
    return _malformed(
        reason, line=first.get("line"), column=first.get("col"), near=_marked(*around)
    )


def unreadable(error: SqlglotError, text: str) -> InvalidInputError:
    """Return the error for a text that cannot be split into words."""
    cause = str(error.__cause__)
    found = re.search(r"from \d+:(\d+)$", cause)
    if found is None:
        return _malformed("a quote or a comment is not closed", near=_marked(text, "", ""))
    start = int(found[1])
    before = text[:start]
    is_open = cause.startswith("Missing")
    return _malformed(
        "this quote is not closed" if is_open else "this is not a hexadecimal number",
        line=before.count("\n") + 1,
        column=start - before.rfind("\n"),
        near=_marked(before, text[start : start + 1], text[start + 1 :]),
    )


def _malformed(reason: str, **place: object) -> InvalidInputError:
    return InvalidInputError(
        "the predicate is not a SQL condition; correct it at the mark « » in `near`",
        reason=reason,
        **place,
        supported=SUPPORTED,
    )


def _marked(before: str, wrong: str, after: str) -> str:
    begin = before if len(before) <= _AROUND else f"…{before[-_AROUND:]}"
    end = after if len(after) <= _AROUND else f"{after[:_AROUND]}…"
    return f"{begin}«{wrong[:50]}»{end}"
