"""What a version's spelling means, and which names a branch or tag may have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import TAGS_PREFIX, tag_ref_key
from fuse_stream.format.names import (
    Spelling,
    check_name,
    check_new_name,
    check_new_tag_name,
    listed_name,
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
        ("2026-11-22", Spelling(tag="2026-11-22")),
        ("20261122", Spelling(tag="20261122", number=20261122)),
        ("00000012", Spelling(tag="00000012", number=12)),
        (20261122, Spelling(number=20261122)),
        ("1" * 21, Spelling(tag="1" * 21, id_prefix="1" * 21)),
        ("1" * 33, Spelling(tag="1" * 33)),
        ("main@20261122", Spelling(branch="main", number=20261122)),
        ("HEAD", Spelling()),
        ("fix@HEAD", Spelling(branch="fix")),
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


@pytest.mark.parametrize("name", ["20261122", "20261122093000", "2026-11-22", "0" * 100])
def test_a_tag_may_be_a_date(name: str) -> None:
    assert check_new_tag_name(name) == name
    assert parse_version(name).tag == name
    assert listed_name(tag_ref_key(name), TAGS_PREFIX) == name


def test_a_branch_is_no_date_of_digits_alone() -> None:
    with pytest.raises(InvalidInputError, match="only digits of ids"):
        check_new_name("20261122")


@pytest.mark.parametrize("name", ["2026112", "deadbeef", "2026112a", "1" * 101, "", "a b"])
def test_what_could_be_an_id_or_a_short_number_is_no_tag(name: str) -> None:
    with pytest.raises(InvalidInputError):
        check_new_tag_name(name)


@pytest.mark.parametrize("check", [check_new_name, check_new_tag_name])
def test_head_is_reserved(check: Callable[[str], str]) -> None:
    with pytest.raises(InvalidInputError, match="HEAD names the newest snapshot"):
        check("HEAD")


def test_no_new_tag_takes_the_key_of_a_date() -> None:
    with pytest.raises(InvalidInputError, match="without the dot"):
        check_new_tag_name("20261122.")


@given(st.text("0123456789.", min_size=1, max_size=12))
def test_no_two_tags_have_one_key(name: str) -> None:
    try:
        check_new_tag_name(name)
    except InvalidInputError:
        return

    assert listed_name(tag_ref_key(name), TAGS_PREFIX) == name


def test_main_is_taken() -> None:
    assert check_name("main") == "main"
    with pytest.raises(InvalidInputError, match="every table has"):
        check_new_name("main")


@pytest.mark.parametrize(
    ("version", "pinned"),
    [
        *((None, "7"), (7, "7"), ("3f9c2ab", "7"), ("good-run", "good-run")),
        *(("fix@", "fix@7"), ("fix@3f9c2ab", "fix@7"), ("HEAD", "7"), ("20261122", "20261122")),
    ],
)
def test_a_pinned_version_means_the_same_for_ever(version: int | str | None, pinned: str) -> None:
    assert pin(version, 7, branch="main") == pinned


@pytest.mark.parametrize("version", [None, "HEAD", 20261122, "20261122", "main@20261122"])
def test_a_pinned_number_is_never_taken_for_a_tag(version: int | str | None) -> None:
    pinned = pin(version, 20261122, branch="main")

    assert parse_version(pinned) == Spelling(branch="main", number=20261122)
