"""Storage options, which hold credentials, and the removal of secrets from texts. Pure.

Secrets are: every string in the storage options whose name is not listed as public, a URL's query
(a signature), and the text before a URL's `@`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fuse_stream.errors import InvalidInputError

_PUBLIC_OPTIONS = frozenset(
    {
        "account_name",
        "addressing_style",
        "endpoint_url",
        "fuse_timeout_s",
        "project",
        "region",
        "region_name",
    }
)
_MASK = "***"
_SHORTEST_SECRET = 4
"""Shorter strings are not masked: they could be parts of words."""

_URL_QUERY = re.compile(r"(\w://[^\s?'\"]*)\?[^\s'\"]*")
_URL_USER = re.compile(r"(\w://)[^\s'\"]+@")  # an unescaped secret may hold a slash

_NAME_BEFORE_AT = frozenset({"abfs", "abfss", "github"})
"""Schemes in which the text before `@` is a container or a repository, not a user."""


class StorageOptions(Mapping[str, object]):
    """An immutable mapping whose `repr` does not show its values.

    Pickles contain the values: executors need them.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        if not isinstance(values, Mapping | None):
            raise InvalidInputError(
                "storage_options is a mapping of names to values", type=type(values).__name__
            )
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        count = len(self)
        return f"StorageOptions({count} option{'' if count == 1 else 's'})"

    def __reduce__(self) -> tuple[object, ...]:
        return StorageOptions, (self._values,)


def check_holds_no_secret(url: str) -> None:
    """Raise if a URL has more than a location: URLs appear in logs, errors and snapshots.

    Raises:
        InvalidInputError: it has; the error does not show it.
    """
    scheme, _, rest = url.partition("://")
    authority = rest.partition("/")[0]
    user, at, host = authority.rpartition("@")
    # A slash in an unescaped secret may hide the `@`; but no bucket has a colon in its name.
    hidden = ":" in host and not host.rpartition(":")[2].isdigit()
    named = scheme in _NAME_BEFORE_AT and (scheme == "github" or ":" not in user)
    if (at and not named) or hidden or "?" in rest:
        raise InvalidInputError(
            "a URL is logged and must not hold credentials or a query; pass them in "
            "storage_options",
            scheme=scheme,
        )


def redact(text: str, options: Mapping[str, object]) -> str:
    """Return `text` with the secrets of `options` and of URLs masked."""
    # The longest first: one secret may be part of another.
    for secret in sorted(set(_secrets(options)), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return _URL_USER.sub(rf"\1{_MASK}@", _URL_QUERY.sub(rf"\1?{_MASK}", text))


def safe_cause(error: BaseException, options: Mapping[str, object]) -> BaseException | None:
    """Return `error`, to chain as a cause; None if its text would show a secret.

    It and its causes lose their tracebacks: the functions of a client hold the options in
    variables, which some programs show with a traceback.
    """
    chain = causes(error)
    for step in chain:
        step.__traceback__ = None
    texts = [f"{step} {step!r}" for step in chain]
    return error if all(redact(text, options) == text for text in texts) else None


def causes(error: BaseException) -> list[BaseException]:
    """Return `error` and the errors in its chain of causes."""
    found: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in found:
        found.append(step)
        step = step.__cause__ or step.__context__
    return found


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
