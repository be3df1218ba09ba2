"""Names of branches and tags, and the notation of versions. Pure.

| notation | meaning |
| --- | --- |
| `12`, `"12"` | a version of the current branch, by number |
| `"good-run"` | the snapshot that a tag names |
| `"3f9c2ab"` | a snapshot, by the first digits of its id: 7 hex digits or more |
| `"fix@12"`, `"fix@3f9c2ab"` | a version of another branch |
| `"fix@"` | the head of another branch |

A name is never all hex digits, so the notations are unambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import BRANCHES_PREFIX, CLONES_PREFIX, MAIN, is_id, ref_name

Version = int | str
"""In the notation above."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_ID_PREFIX = re.compile(r"[0-9a-f]{7,32}")
_VERSION_DIGITS = 20

_WANTED = (
    "a version is a number from 0, a tag, or the first 7 hex digits or more of a snapshot's id; "
    'for another branch put "branch@" before it, or give "branch@" alone for its head'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """A parsed version; a head if `number`, `tag` and `id_prefix` are all None."""

    branch: str | None = None
    """None: the current branch."""
    number: int | None = None
    tag: str | None = None
    id_prefix: str | None = None


def check_name(name: str) -> str:
    """Return `name` if it is a valid name of a branch or tag.

    Raises:
        InvalidInputError: it is not.
    """
    if has_only_digits(name):
        raise InvalidInputError(
            f"this name of a branch or tag has only digits of ids (0-9, a-f); try {name[:50]}-run",
            name=name,
        )
    if not _is_name(name):
        raise InvalidInputError(
            "a name of a branch or tag has up to 100 letters, digits, dots, dashes and "
            "underscores, and begins with a letter or digit",
            name=name,
        )
    return name


def has_only_digits(name: object) -> bool:
    """Whether a text would be a name, if it were not all digits of versions and ids."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name) and _HEX.fullmatch(name))


def names_in(argument: str, names: object) -> tuple[str, ...]:
    """Return the names that a caller gave as `argument`; InvalidInputError if they are no list."""
    if isinstance(names, Iterable) and not isinstance(names, str):
        found = tuple(names)
        if all(isinstance(name, str) for name in found):
            return found
    raise InvalidInputError(f"{argument} is a list of names", **{argument: names})


def flag_in(argument: str, value: object) -> bool:
    """Return the flag that a caller gave as `argument`; InvalidInputError if it is no bool."""
    if isinstance(value, bool):
        return value
    raise InvalidInputError(f"{argument} is True or False", **{argument: value})


def check_new_name(name: str) -> str:
    """Return `name` if a new branch or tag may have it; errors of `check_name`."""
    if check_name(name) == MAIN:
        raise InvalidInputError("every table has the branch main; use another name", name=name)
    return name


def listed_name(key: str, prefix: str) -> str | None:
    """Return the name in a key that was listed under a prefix of refs or leases.

    None for a foreign object, such as another program's copy of a ref.
    """
    name = ref_name(key, prefix)
    if name is None or (prefix == BRANCHES_PREFIX and name == MAIN):
        return None
    return name if (is_id(name) if prefix == CLONES_PREFIX else _is_name(name)) else None


def _is_name(text: object) -> bool:
    return isinstance(text, str) and bool(_NAME.fullmatch(text) and not _HEX.fullmatch(text))


def parse_version(version: Version) -> Spelling:
    """Return the parts of a version's notation.

    Raises:
        InvalidInputError: it is none of the notations above.
    """
    if isinstance(version, int) and not isinstance(version, bool) and version >= 0:
        return Spelling(number=version)
    if not isinstance(version, str):
        raise InvalidInputError(_WANTED, version=version)
    before, at, rest = version.partition("@")
    branch = check_name(before) if at else None
    text = rest if at else version
    if at and not text:
        return Spelling(branch=branch)
    if text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS:
        return Spelling(branch=branch, number=int(text))
    if _ID_PREFIX.fullmatch(text.lower()):
        return Spelling(branch=branch, id_prefix=text.lower())
    if at or not _is_name(text):
        raise InvalidInputError(_WANTED, version=version)
    return Spelling(tag=text)


def pin(version: Version | None, number: int) -> str:
    """Return a notation that will always mean the snapshot that `version` means now.

    Args:
        version: as the user gave it; None means the head.
        number: the version number of the snapshot that it means.
    """
    spelling = Spelling() if version is None else parse_version(version)
    if spelling.tag is not None:
        return spelling.tag
    return str(number) if spelling.branch is None else f"{spelling.branch}@{number}"
