"""What a version's spelling means, and which names a branch or tag may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.names import (
    Spelling,
    check_name,
    check_new_name,
    parse_version,
    pin,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: not all(letter in "0123456789abcdefABCDEF" for letter in name)
)


@pytest.mark.parametrize(
    ("version", "spelling"),
    [
        (0, Spelling(number=0)),
        ("12", Spelling(number=12)),
        ("1234567", Spelling(number=1234567)),
        ("3F9c2ab", Spelling(id_prefix="3f9c2ab")),
        ("good-run", Spelling(tag="good-run")),
        ("1.0", Spelling(tag="1.0")),
        ("fix@", Spelling(branch="fix")),
        ("main@", Spelling(branch="main")),
        ("fix@12", Spelling(branch="fix", number=12)),
        ("fix@3f9c2ab", Spelling(branch="fix", id_prefix="3f9c2ab")),
    ],
)
def test_a_version_has_one_of_these_notations(version: int | str, spelling: Spelling) -> None:
    assert parse_version(version) == spelling


@pytest.mark.parametrize(
    "version",
    [
        *(-1, 1.5, True, None, b"1"),
        *("-1", "", "@", "@3", "abc", " 1", "\u0661", "9" * 5000, "abcdef", "a" * 33),
        *("fix@good-run", "a@b@1", "fix@-1", "../x", "a/b", "x" * 101),
    ],
)
def test_what_is_no_version_is_refused(version: object) -> None:
    with pytest.raises(InvalidInputError):
        parse_version(version)  # type: ignore[arg-type]


@given(NAMES)
def test_a_name_is_never_taken_for_a_number_or_an_id(name: str) -> None:
    assert check_name(name) == name
    assert parse_version(name) == Spelling(tag=name)
    assert parse_version(f"{name}@") == Spelling(branch=name)


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "a@b", "..", ".a", "-a", "12", "beef", "\u00e9", 5]
)
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidInputError, match="name of a branch"):
        check_name(name)  # type: ignore[arg-type]


def test_main_is_taken() -> None:
    assert check_name("main") == "main"
    with pytest.raises(InvalidInputError, match="every table has"):
        check_new_name("main")


@pytest.mark.parametrize(
    ("version", "pinned"),
    [
        *((None, "7"), (7, "7"), ("3f9c2ab", "7"), ("good-run", "good-run")),
        *(("fix@", "fix@7"), ("fix@3f9c2ab", "fix@7")),
    ],
)
def test_a_pinned_version_means_the_same_for_ever(version: int | str | None, pinned: str) -> None:
    assert pin(version, 7) == pinned
