"""Names of branches and tags, and the notation of versions. Pure.

| notation | meaning |
| --- | --- |
| `12`, `"12"` | a version of the current branch, by number |
| `"HEAD"` | the newest snapshot |
| `"good-run"`, `"2026-11-22"` | the snapshot that a tag names |
| `"20261122"` | the snapshot of the tag of this name; if there is none, a version by number |
| `"3f9c2ab"` | a snapshot, by the first digits of its id: 7 hex digits or more |
| `"fix@12"`, `"fix@3f9c2ab"` | a version of another branch |
| `"fix@"`, `"fix@HEAD"` | the head of another branch |

A name is never all hex digits, except that of a tag of eight or more decimal digits, such as a
date. Only such a text can mean two things: a reader looks whether there is a tag of this name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import (
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    DATE_END,
    MAIN,
    TAGS_PREFIX,
    is_id,
    ref_name,
)

Version = int | str
"""In the notation above."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HEAD = "HEAD"
_DATE = re.compile(r"[0-9]{8,}")
"""A name that only a tag may have."""
_HEX = re.compile(r"[0-9a-fA-F]+")
_ID_PREFIX = re.compile(r"[0-9a-f]{7,32}")
_VERSION_DIGITS = 20

_WANTED = (
    "a version is a number from 0, a tag, HEAD, or the first 7 hex digits or more of a snapshot's "
    'id; for another branch put "branch@" before it, or give "branch@" alone for its head'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """A parsed version; a head if `number`, `tag` and `id_prefix` are all None.

    With a `tag` and one of the others, it is the tag if there is one of this name.
    """

    branch: str | None = None
    """None: the current branch."""
    number: int | None = None
    tag: str | None = None
    id_prefix: str | None = None

    @property
    def is_surely_tag(self) -> bool:
        """True if the version can be nothing but a tag."""
        return self.tag is not None and self.number is None and self.id_prefix is None


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


def check_tag_name(name: str) -> str:
    """Return `name` if it is a valid name of a tag: that of a branch, or 8 or more digits.

    Raises:
        InvalidInputError: it is not.
    """
    if _is_date(name):
        return name
    if has_only_digits(name) and name.isdigit():
        raise InvalidInputError(
            "a tag of digits alone has 8 to 100 of them, as a date has; fewer are a version number",
            name=name[:100],
        )
    return check_name(name)


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another one, for an error; None if none is."""
    names = [*known]
    same = [other for other in names if other.casefold() == name.casefold()]
    return next(iter(same or difflib.get_close_matches(name, names, n=1)), None)


def is_like_head(name: str) -> bool:
    """True for `HEAD` in any letter case: no new name, though only `HEAD` names the head."""
    return name.upper() == HEAD


def head_in(argument: str, value: object) -> int | None:
    """Return the head's number that a caller gave as `argument`; InvalidInputError if it is none.

    A name is refused: it would always be that of the head, whatever was committed.
    """
    if value is None or (type(value) is int and value >= 0):
        return value
    raise InvalidInputError(
        f"{argument} is the number of the head that you have seen, such as 12; not a name",
        **{argument: value},
    )


def flag_in(argument: str, value: object) -> bool:
    """Return the flag that a caller gave as `argument`; InvalidInputError if it is no bool."""
    if isinstance(value, bool):
        return value
    raise InvalidInputError(f"{argument} is True or False", **{argument: value})


def check_new_name(name: str) -> str:
    """Return `name` if a new branch may have it; errors of `check_name`."""
    if check_name(name) == MAIN:
        raise InvalidInputError("every table has the branch main; use another name", name=name)
    if is_like_head(name):
        raise InvalidInputError(
            "HEAD names the newest snapshot; use a name that is not head in any letter case",
            name=name,
        )
    return name


def check_new_tag_name(name: str) -> str:
    """Return `name` if a new tag may have it; errors of `check_tag_name`."""
    if _is_date(check_tag_name(name)):
        return name
    if _is_date(name.removesuffix(DATE_END)):
        raise InvalidInputError(
            "this name is reserved for the tag without the dot at its end; use that", name=name
        )
    return check_new_name(name)


def listed_name(key: str, prefix: str) -> str | None:
    """Return the name in a key that was listed under a prefix of refs or leases.

    None for a foreign object, such as another program's copy of a ref.
    """
    name = ref_name(key, prefix)
    if name is None or (prefix == BRANCHES_PREFIX and name == MAIN):
        return None
    if prefix == CLONES_PREFIX:
        return name if is_id(name) else None
    if prefix == TAGS_PREFIX and name.endswith(DATE_END) and _is_date(name[: -len(DATE_END)]):
        return name[: -len(DATE_END)]
    return name if _is_name(name) else None


def _is_date(text: object) -> bool:
    return isinstance(text, str) and bool(_NAME.fullmatch(text) and _DATE.fullmatch(text))


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
    if text == HEAD or (at and not text):
        return Spelling(branch=branch)
    tag = text if not at and (_is_date(text) or _is_name(text)) else None
    if text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS:
        return Spelling(branch=branch, tag=tag, number=int(text))
    if _ID_PREFIX.fullmatch(text.lower()):
        return Spelling(branch=branch, tag=tag, id_prefix=text.lower())
    if tag is None:
        raise InvalidInputError(_WANTED, version=version)
    return Spelling(tag=tag)


def pin(version: Version | None, number: int, *, branch: str) -> str:
    """Return a notation that will always mean the snapshot that `version` means now.

    Args:
        version: as the user gave it; None means the head.
        number: the version number of the snapshot that it means.
        branch: the name of the branch of the table's handle.
    """
    spelling = Spelling() if version is None else parse_version(version)
    if spelling.is_surely_tag or (spelling.tag is not None and spelling.number != number):
        assert spelling.tag is not None
        return spelling.tag
    if spelling.branch is not None:
        return f"{spelling.branch}@{number}"
    return f"{branch}@{number}" if _is_date(str(number)) else str(number)
