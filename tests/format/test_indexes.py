"""The list of indexes survives its bytes, and a list that no writer makes is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest

from fuse_stream.errors import (
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.index_codec import (
    decode_index_list,
    encode_index_list,
    unpacked_index_list,
)
from fuse_stream.format.indexes import (
    AGGREGATE,
    MAX_INDEXES,
    MAX_LISTED_BLOCKS,
    MAX_PART_BLOCKS,
    IndexColumn,
    IndexDefinition,
    IndexList,
    IndexPart,
)
from fuse_stream.format.jsonio import dump_canonical
from tests.format.test_codec import GOLDEN

ID = "%032x"


def example() -> IndexList:
    definition = IndexDefinition(
        id="1" * 32,
        name="by_carrier",
        kind=AGGREGATE,
        sql="SELECT carrier, count(*) AS flüge FROM t GROUP BY carrier",
        columns=(
            IndexColumn(name="carrier", column=5, stored="airline"),
            IndexColumn(name="flüge", function="count"),
        ),
        created_us=1_700_000_000_000_000,
    )
    part = IndexPart(
        id="2" * 32,
        index="1" * 32,
        sha256="3" * 64,
        byte_size=1234,
        types=("string",),
        blocks=("4" * 32, "5" * 32),
        skipped=("6" * 32,),
        origin="7" * 32,
    )
    plain = dataclasses.replace(part, id="8" * 32, blocks=("9" * 32,), skipped=(), origin=None)
    return IndexList(definitions=(definition,), parts=(part, plain))


def stored(fields: Any) -> tuple[bytes, str]:
    data: bytes = pa.Codec("zstd").compress(dump_canonical(fields), asbytes=True)
    return data, sha256_hex(data)


def test_a_list_of_indexes_has_its_golden_bytes() -> None:
    golden = (GOLDEN / "index_list.json").read_bytes()
    data, sha256 = encode_index_list(example())

    assert unpacked_index_list(data, sha256) == golden
    assert decode_index_list(*stored(orjson.loads(golden))) == example()


def test_another_hash_is_damage() -> None:
    data, _ = encode_index_list(example())

    with pytest.raises(CorruptObjectError, match="a list of indexes differs from the hash"):
        decode_index_list(data, "0" * 64)


def _of_definition(**changes: Any) -> Callable[[Any], None]:
    return lambda fields: fields["definitions"][0].update(changes)


def _of_part(**changes: Any) -> Callable[[Any], None]:
    return lambda fields: fields["parts"][0].update(changes)


FORGED: dict[str, Callable[[Any], None]] = {
    "an id that is a path": _of_part(id="../../x"),
    "a block that is a path": _of_part(blocks=["/etc/passwd"]),
    "a skipped block that is a path": _of_part(skipped=["/etc/passwd"]),
    "an origin that is a path": _of_part(origin="../" * 10),
    "a hash that is none": _of_part(sha256="x"),
    "a definition with a path": _of_definition(id="../x"),
    "a name that is a path": _of_definition(name="../x"),
    "a name of control characters": _of_definition(name="\x1b[2J"),
    "a name that is null": _of_definition(name=None),
    "no column": _of_definition(columns=[]),
    "two columns of a name": _of_definition(
        columns=[
            {"column": 1, "name": "a", "stored": "a"},
            {"column": 2, "name": "a", "stored": "b"},
        ]
    ),
    "a group without a column": _of_definition(columns=[{"name": "a"}]),
    "a column below zero": _of_definition(columns=[{"column": -1, "name": "a", "stored": "a"}]),
    "a column without its stored name": _of_definition(columns=[{"column": 1, "name": "a"}]),
    "a part of no index": _of_part(index="f" * 32),
    "a size of nothing": _of_part(byte_size=0),
    "a size of a petabyte": _of_part(byte_size=10**15),
    "a block twice": _of_part(blocks=["4" * 32] * 2),
    "a block that is covered and skipped": _of_part(skipped=["4" * 32]),
    "many blocks": _of_part(blocks=[ID % number for number in range(MAX_PART_BLOCKS + 1)]),
    "more blocks than a list has": _of_part(
        skipped=[ID % number for number in range(16, MAX_LISTED_BLOCKS + 16)]
    ),
    "two parts of an id": lambda fields: fields["parts"].append(fields["parts"][0]),
    "two definitions of an id": lambda fields: fields["definitions"].append(
        {**fields["definitions"][0], "name": "z"}
    ),
    "two definitions of a name": lambda fields: fields["definitions"].append(
        {**fields["definitions"][0], "id": "f" * 32}
    ),
    "names out of order": lambda fields: fields["definitions"].append(
        {**fields["definitions"][0], "id": "f" * 32, "name": "a"}
    ),
    "more definitions than a table has": lambda fields: fields["definitions"].extend(
        {**fields["definitions"][0], "id": ID % number, "name": f"z{number:03}"}
        for number in range(MAX_INDEXES)
    ),
    "an unknown field": lambda fields: fields.update(more=1),
    "no version": lambda fields: fields.pop("format_version"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_list_is_refused(name: str) -> None:
    fields = orjson.loads((GOLDEN / "index_list.json").read_bytes())
    FORGED[name](fields)

    with pytest.raises(CorruptObjectError):
        decode_index_list(*stored(fields))


def test_a_list_of_a_newer_release_or_with_another_kind_asks_for_an_upgrade() -> None:
    fields = orjson.loads((GOLDEN / "index_list.json").read_bytes())
    newer = {**fields, "format_version": 2, "more": []}
    other = {**fields, "definitions": [{**fields["definitions"][0], "kind": "text"}]}

    for changed in (newer, other):
        with pytest.raises(UnsupportedFormatError, match="upgrade fuse-stream"):
            decode_index_list(*stored(changed))


def test_a_small_object_that_unpacks_to_much_is_refused() -> None:
    data: bytes = pa.Codec("zstd").compress(b" " * 80_000_000, asbytes=True)

    with pytest.raises(CorruptObjectError, match="larger than any that a writer makes"):
        decode_index_list(data, sha256_hex(data))


def test_bytes_that_are_no_list_are_damage() -> None:
    for data in (b"", b"junk", pa.Codec("zstd").compress(b"[]", asbytes=True)):
        with pytest.raises(FuseError):
            decode_index_list(data, sha256_hex(data))


def test_a_writer_makes_no_list_that_a_reader_refuses() -> None:
    part = example().parts[1]
    skipped = tuple(ID % number for number in range(MAX_LISTED_BLOCKS + 1))
    large = dataclasses.replace(part, blocks=(), skipped=skipped)

    with pytest.raises(InvalidInputError, match="more indexes than a reader accepts"):
        encode_index_list(dataclasses.replace(example(), parts=(large,)))
