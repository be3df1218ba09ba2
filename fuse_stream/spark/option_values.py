"""Parsers of option values. Each raises `ValueError` with a text that says what to write."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.names import Version, check_name, parse_version
from fuse_stream.format.properties import duration_us
from fuse_stream.format.times import timestamp_us
from fuse_stream.storage.secrets import StorageOptions

Feed = Literal["table", "changes", "append", "upserts", "blocks"]
FEEDS = ("table", "changes", "append", "upserts", "blocks")
LATEST = "latest"

_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def any_text(text: str) -> str:
    return text


def some_text(text: str) -> str:
    if not text.strip():
        raise ValueError("some text")
    return text


def whole(text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("a whole number from 0")
    return int(digits)


def count(text: str) -> int:
    try:
        number = whole(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError("a whole number from 1")
    return number


def size_bytes(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise ValueError('a number of bytes from 1, such as 104857600 or "100m"')
    return int(match[1]) << _SHIFTS[match[2]]


def flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"


def version(text: str) -> Version:
    name = some_text(text).strip()
    spelling = parse_version(name)
    if spelling.number is None or spelling.branch is not None or spelling.tag is not None:
        return name
    return spelling.number


def start(text: str) -> Version:
    if text.strip().lower() == LATEST:
        return LATEST
    try:
        return version(text)
    except InvalidInputError:
        raise ValueError(
            'a version: a number from 0, a tag, HEAD, or 7 hex digits or more of an id; or "latest"'
        ) from None


def time(text: str) -> str:
    timestamp_us(text)
    return text


def duration(text: str) -> int:
    """Return microseconds."""
    try:
        return duration_us(text)
    except InvalidInputError:
        raise ValueError('a number and s, m, h or d, such as "60s"') from None


def feed(text: str) -> str:
    word = text.strip().lower()
    if word not in FEEDS:
        raise ValueError('"changes", "append", "upserts" or "blocks"; a batch also has "table"')
    return word


def names(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        return strings(text)
    found = tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise ValueError('names separated by commas, or a JSON list, such as ["a", "b"]')
    return found


def strings(text: str) -> tuple[str, ...]:
    wanted = 'a JSON list of texts, such as ["a", "b"]'
    found = _json(text, list, wanted)
    if not all(isinstance(item, str) for item in found):
        raise ValueError(wanted)
    return tuple(found)


def storage(text: str) -> StorageOptions:
    return StorageOptions(_json(text, dict, 'a JSON object, such as {"anon": true}'))


def consumer(text: str) -> str:
    return check_name(text.strip())


def on_expired(text: str) -> str:
    word = text.strip().lower()
    if word not in {"fail", "resync"}:
        raise ValueError('"fail" or "resync"')
    return word


def _json(text: str, kind: type, wanted: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        found = None  # the error would quote the text, which may hold a secret
    if not isinstance(found, kind):
        raise ValueError(wanted)  # noqa: TRY004 - the text is wrong, not a Python type
    return found
