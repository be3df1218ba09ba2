"""Private columns: no object but a block holds their values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import BLOCKS_PREFIX
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("who", pa.struct([("name", pa.string()), ("age", pa.int32())])),
    ]
)
PRIVATE = {"fuse.private": "email, who"}


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "email": [f"ada{each}@example.org" for each in ids],
            "who": [{"name": f"Ada {each}", "age": each} for each in ids],
        },
        schema=SCHEMA,
    )


def unpacked(key: str, data: bytes) -> bytes:
    if key.endswith(".zst"):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    return data


def assert_only_rows_hold_the_values(store: MemoryStore) -> None:
    for key, item in store.objects.items():
        data = unpacked(key, item.data)
        if key.startswith(BLOCKS_PREFIX):
            footer = pq.read_metadata(pa.BufferReader(data)).row_group(0)
            known = [footer.column(at).statistics for at in range(footer.num_columns)]
            assert known[0] is not None
            assert known[1:] == [None, None, None]
        else:
            assert b"example.org" not in data, key
            assert b"Ada " not in data, key


def test_no_record_and_no_footer_has_a_bound_of_a_private_column() -> None:
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store, cluster_by=["id"], properties=PRIVATE)
    for each in range(20):
        table.append(rows(each, each + 100))
    table.delete("id = 3")
    table.compact()

    assert_only_rows_hold_the_values(store)
    assert table.to_arrow(where="email = 'ada5@example.org'")["id"].to_pylist() == [5]
    assert table.to_arrow(where="who.age > 117")["id"].to_pylist() == [118, 119]
    assert len(table.to_arrow(where="email is null")) == 0
    assert table.fsck(deep=True).is_sound


def test_counts_of_a_private_column_stay() -> None:
    table = temporary_table(SCHEMA, properties=PRIVATE)
    table.append(rows(1, 2))

    (block,) = table.blocks()
    email = block.col_stats[2]
    assert (email.min, email.max, email.null_count, email.distinct_of_values) == (None, None, 0, 2)
    assert block.col_stats[1].max == 2


def test_records_that_are_written_after_the_property_show_nothing_of_older_blocks() -> None:
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store, cluster_by=["email"])
    table.append(rows(1))
    table.append(rows(2))
    table.cluster_by(["id"])
    table.set_properties(PRIVATE)
    before = set(store.objects)
    table.append(rows(3))
    table.compact()

    for key in store.objects.keys() - before:
        if not key.startswith(BLOCKS_PREFIX):
            assert b"example.org" not in unpacked(key, store.objects[key].data), key
    assert table.fsck(deep=True).is_sound
    assert sorted(table.to_arrow(where="email like 'ada%'")["id"].to_pylist()) == [1, 2, 3]


def test_a_rolled_up_segment_shows_nothing_of_older_blocks() -> None:
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store, cluster_by=["email"])
    for each in range(14):
        table.append(rows(each))
    table.cluster_by([])
    table.set_properties(PRIVATE)
    before = set(store.objects)
    for each in range(14, 20):
        table.append(rows(each))

    assert any(ref.level for ref in table.head().segments)
    for key in store.objects.keys() - before:
        if not key.startswith(BLOCKS_PREFIX):
            assert b"example.org" not in unpacked(key, store.objects[key].data), key
    assert table.fsck(deep=True).is_sound


def test_a_table_with_private_columns_needs_a_feature() -> None:
    table = temporary_table(SCHEMA, properties=PRIVATE)

    assert table.head().required_features == ("private_columns",)
    assert "private_columns" in table.append(rows(1)).required_features
    table.set_properties({"fuse.private": ""})
    assert "private_columns" not in table.head().required_features


def _of_an_unknown_column() -> None:
    temporary_table(SCHEMA, properties={"fuse.private": "id,emial"})


def _of_the_cluster_key() -> None:
    temporary_table(SCHEMA, cluster_by=["email"], properties=PRIVATE)


def _of_the_cluster_key_later() -> None:
    temporary_table(SCHEMA, cluster_by=["email"]).set_properties(PRIVATE)


def _made_the_cluster_key() -> None:
    temporary_table(SCHEMA, properties=PRIVATE).cluster_by(["email"])


@pytest.mark.parametrize(
    "act",
    [_of_an_unknown_column, _of_the_cluster_key, _of_the_cluster_key_later, _made_the_cluster_key],
)
def test_a_private_column_exists_and_is_not_in_the_cluster_key(act: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        act()  # type: ignore[operator]

    assert caught.value.context["column"] in {"email", "emial"}


def test_a_rewind_to_before_a_private_column_keeps_the_property() -> None:
    store = MemoryStore()
    table = temporary_table(pa.schema([("id", pa.int64())]), store=store)
    table.append(pa.table({"id": [1]}))
    wide = pa.table({"id": [2], "email": ["quinn@example.org"]})
    table.append(wide, merge_schema=True)
    table.set_properties({"fuse.private": "email"})
    again: Table = open_table_in(store)
    again.overwrite(wide)

    assert (
        b"quinn"
        not in max(
            (key, item.data) for key, item in store.objects.items() if key.startswith("_ss/")
        )[1]
    )
