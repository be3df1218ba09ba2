"""Lists and parts of indexes that were changed by hand, with their hashes mended.

A list is refused, or its answers are right. A forged part may say anything of its blocks, as who
can write it can change rows, too; but it raises typed errors only, and makes nobody wait.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.errors import FuseError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.index_codec import unpacked_index_list
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import aggregates_key, index_list_key
from fuse_stream.format.records import Operation
from fuse_stream.indexes.define import commit_indexes
from fuse_stream.objects.indexes import load_index_list
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from fuse_stream.testing.tables import open_table_in
from tests.kit.indexes import answer, by_city, covered_table
from tests.kit.strides import seeds

EVIL: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63 - 1, 1.5, "", "x", "/etc/passwd", "count", "sum", "f" * 32,
    "0" * 64, [], {}, ["f" * 32], "string", "long", "\x1b[2J",
)  # fmt: skip


def places(item: Any) -> list[tuple[Any, Any]]:
    """Return every container and key of a JSON value."""
    pairs = item.items() if isinstance(item, dict) else enumerate(item)
    found: list[tuple[Any, Any]] = []
    for key, value in pairs:
        found.append((item, key))
        if isinstance(value, dict | list):
            found += places(value)
    return found


def put_list(table: Table, fields: Any) -> None:
    data: bytes = pa.Codec("zstd").compress(dump_canonical(fields), asbytes=True)
    ref = IndexListRef(id=table.metadata.clock.new_id(), sha256=sha256_hex(data))
    table.metadata.store.put(index_list_key(ref.id), data)
    table.committer.commit(
        Intent(operation=Operation.INDEX),
        lambda on, _: Staged(schema=on.snapshot.schema, index_list=ref, is_for_one_head=True),
    )


def fields_of(table: Table) -> Any:
    ref = table.head().index_list
    assert ref is not None
    data = table.metadata.store.get(index_list_key(ref.id))
    return orjson.loads(unpacked_index_list(data, ref.sha256))


@seeds(25, 300)
def test_a_forged_list_is_refused_or_gives_right_answers(seed: int) -> None:
    random, store = Random(seed), MemoryStore()
    table = covered_table(store, blocks=2)
    fields = fields_of(table)
    container, key = random.choice(places(fields))
    if isinstance(container, dict) and random.random() < 0.2:
        del container[key]
    else:
        container[key] = random.choice(EVIL)
    is_of_column = key in {"function", "column", "stored", "name"}
    put_list(table, fields)
    opened = open_table_in(store)

    right = by_city(opened.to_arrow())
    for act in (opened.indexes, opened.refresh_indexes, opened.vacuum, opened.fsck):
        with suppress(FuseError):
            act()
    with suppress(FuseError):
        found = opened.aggregate("by_city")
        if not is_of_column:  # another column of the definition is another question
            assert sorted(found.to_pylist(), key=lambda row: row["city"]) == right
    opened.drop_index()
    assert opened.to_arrow().num_rows == 40


@seeds(25, 300)
def test_a_forged_part_raises_typed_errors_only(seed: int) -> None:
    random, store = Random(seed), MemoryStore()
    table = covered_table(store, blocks=2)
    indexes = load_index_list(table.metadata, table.head().index_list)
    [part] = indexes.parts
    data = bytearray(store.objects[aggregates_key(part.id)].data)
    for _ in range(random.choice([1, 1, 4])):
        data[random.randrange(len(data))] ^= random.choice([1, 127, 128, 255])
    if random.random() < 0.2:
        data = data[: random.randrange(1, len(data))]
    store.objects[aggregates_key(part.id)] = MemoryObject(data=bytes(data), modified_us=0)
    forged = dataclasses.replace(part, sha256=sha256_hex(bytes(data)), byte_size=len(data))
    listed = dataclasses.replace(indexes, parts=(forged,))
    commit_indexes(table.committer, lambda _head, _before: listed, "forged")

    with suppress(FuseError):
        assert table.aggregate("by_city").num_columns == 4
    with suppress(FuseError):
        table.refresh_indexes()


def test_a_part_that_unpacks_to_much_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fuse_stream.indexes.parts.MAX_UNPACKED_BYTES", 10)
    table = covered_table(blocks=2)

    assert answer(table) == by_city(table.to_arrow())
