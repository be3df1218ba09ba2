"""Every key of a table; stored bytes cannot make one that lies outside of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format import layout

ID = "0123456789abcdef" * 2
BY_ID: list[Callable[[str], str]] = [
    layout.segment_key,
    layout.block_key,
    layout.offsets_key,
    layout.probe_key,
    layout.clone_ref_key,
    lambda origin: layout.block_key(ID, origin),
]
BY_BRANCH: list[Callable[[str], str]] = [
    layout.hint_key,
    lambda branch: layout.slot_key(branch, 1),
    lambda branch: layout.floor_key(branch, 1),
]


def test_keys_are_pinned() -> None:
    assert layout.TABLE_KEY == "_fuse.json"
    assert layout.slot_key("main", 12) == "_ss/main/00000000000000000012_v1.json"
    assert layout.segment_key(ID) == f"_sg/{ID}_v1.json.zst"
    assert layout.block_key(ID) == f"_b/{ID}_v1.parquet"
    assert layout.offsets_key(ID) == f"_of/{ID}.txt"
    assert layout.clone_ref_key(ID) == f"_refs/clones/{ID}.json"
    assert layout.hint_key(ID) == f"_hint/{ID}"
    assert [layout.floor_key("main", version) for version in (0, 999, 1000)] == [
        "_floor/main/0",
        "_floor/main/0",
        "_floor/main/1",
    ]


def test_a_block_of_another_table_has_the_key_that_it_has_there() -> None:
    origin = ID[::-1]

    assert layout.split_origin(layout.block_key(ID, origin)) == (origin, layout.block_key(ID))
    assert layout.split_origin(layout.block_key(ID)) is None


def test_slots_sort_by_version() -> None:
    versions = [0, 9, 10, 999, 10**9, layout.LAST_VERSION]
    keys = [layout.slot_key("main", version) for version in versions]

    assert keys == sorted(keys)
    assert len({len(key) for key in keys}) == 1


@pytest.mark.parametrize("key_of", [*BY_ID, *BY_BRANCH])
@pytest.mark.parametrize(
    "value",
    [
        "",
        "../x",
        "..",
        "/etc/passwd",
        "a/b",
        ID[:-1],
        ID + "0",
        ID.upper(),
        ID[:-1] + "\n",
        "main2",
    ],
)
def test_what_is_no_id_makes_no_key(key_of: Callable[[str], str], value: str) -> None:
    with pytest.raises(CorruptObjectError):
        key_of(value)


@pytest.mark.parametrize("key_of", [*BY_ID, *BY_BRANCH])
def test_keys_hold_what_every_store_allows(key_of: Callable[[str], str]) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._/-]+", key_of(ID))
