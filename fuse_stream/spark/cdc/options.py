"""The arguments of the readers of events."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fuse_stream.cdc.times import MICROS, MILLIS, NANOS
from fuse_stream.cdc.values import ADAPTIVE, PRECISE
from fuse_stream.errors import InvalidInputError

TIME_PRECISIONS = (ADAPTIVE, MILLIS, MICROS, NANOS)
DECIMALS = (ADAPTIVE, PRECISE, "string")
BINARY_FORMATS = {"base64": "base64", "base64-url-safe": "base64", "hex": "hex"}
"""Debezium's names, and those of Spark."""
MISSING = ("unset", "null")


def check_choice(name: str, value: str, choices: Collection[str]) -> str:
    """Return `value`; raise `InvalidInputError` unless it is one of `choices`."""
    if value not in choices:
        raise InvalidInputError(f"{name} is not one of its values", given=value, values=[*choices])
    return value


def names_of(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; raise `InvalidInputError` for a single text."""
    if isinstance(names, str):
        raise InvalidInputError(f"{option} is a list of names", given=names)
    return tuple(names)
