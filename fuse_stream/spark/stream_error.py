"""The error of fuse_stream that ended a streaming query.

Spark passes on the text of an error, not the error: whether it was raised by a source or a sink, in
this process or in another one. The text ends with the class and the message: as Python prints them,
or as those of the exception that Java's side of a catalog raises.
"""

from __future__ import annotations

import ast
import re

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from fuse_stream import errors
from fuse_stream.errors import FuseError

_RAISED = re.compile(
    r"(?:\A|^fuse_stream\.errors\.|IllegalArgumentException: |terminated with exception: )"
    r"(?P<name>\w+): (?P<text>.*?)(?: SQLSTATE: \w+)*$",
    re.MULTILINE,
)
_CONTEXT = re.compile(r"(?P<message>.*) \[(?P<context>\w+=.*)\]")
_DETAILS = "=== Streaming Query ==="
"""What follows in Spark's text is the query's state and a trace of the JVM."""


def stream_error(query: StreamingQuery | StreamingQueryException) -> FuseError | None:
    """Return the error with which a query ended, as an object of its class.

    Args:
        query: the query, or the exception that it raised.

    Returns:
        The error with its message and context. None if the query has not failed, or not by an error
        of this package.
    """
    failure = query if isinstance(query, Exception) else query.exception()
    if failure is None:
        return None
    raised = list(_RAISED.finditer(str(failure).partition(_DETAILS)[0]))
    if not raised:
        return None
    name, text = raised[-1]["name"], raised[-1]["text"]  # what came before is its cause
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, FuseError)):
        return None
    found = _CONTEXT.fullmatch(text)
    context = None if found is None else _context_in(found["context"])
    return kind(text) if found is None or context is None else kind(found["message"], **context)


def _context_in(text: str) -> dict[str, object] | None:
    """Return the values in the text of a context; None if one of them is not a plain value."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError):
        return None
