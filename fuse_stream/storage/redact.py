"""Foreign text without secrets: what other libraries say, cleaned of what must not be printed.

Pure. Every string in the storage options is a secret unless its name is listed as public; so is a
URL's query (a signature) and what stands before its `@`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fuse_stream.storage.adapters import causes

_PUBLIC_OPTIONS = frozenset(
    {"account_name", "endpoint_url", "project", "region", "region_name", "addressing_style"}
)
_MASK = "***"
_SHORTEST_SECRET = 4
"""Shorter strings would blank out parts of words."""

_URL_QUERY = re.compile(r"(\w://[^\s?'\"]*)\?[^\s'\"]*")
_URL_USER = re.compile(r"(\w://)[^\s'\"]+@")  # an unescaped secret may hold a slash


def redact(text: str, options: Mapping[str, object]) -> str:
    """Return `text` with the secrets of `options` and of URLs masked."""
    # The longest first: one secret may be a part of another.
    for secret in sorted(set(_secrets(options)), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return _URL_USER.sub(rf"\1{_MASK}@", _URL_QUERY.sub(rf"\1?{_MASK}", text))


def presentable(error: BaseException, options: Mapping[str, object]) -> BaseException | None:
    """Return `error` to chain as a cause, or None if a traceback of it would print a secret."""
    texts = [f"{step} {step!r}" for step in causes(error)]
    return error if all(redact(text, options) == text for text in texts) else None


def _secrets(value: object, name: str = "") -> Iterator[str]:
    match value:
        case str():
            if name not in _PUBLIC_OPTIONS and len(value) >= _SHORTEST_SECRET:
                yield value
        case Mapping():
            for key, inner in value.items():
                yield from _secrets(inner, str(key))
        case list() | tuple():
            for inner in value:
                yield from _secrets(inner, name)
