"""A verification reads every object of a table, and says what it holds of the erased rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.erasure.verify import Verification
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import BLOCKS_PREFIX
from fuse_stream.storage.local import STAGED_PREFIX
from fuse_stream.storage.wrappers import ReadOnlyStore
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table

SCHEMA = pa.schema([("id", pa.int64()), ("email", pa.string()), ("note", pa.string())])
ADA = "ada@example.org"
WHERE = f"email = '{ADA}'"


def rows(*ids: int, email: str = "b@example.org", note: str = "-") -> pa.Table:
    count = len(ids)
    return pa.table({"id": ids, "email": [email] * count, "note": [note] * count}, schema=SCHEMA)


def made() -> tuple[MemoryStore, Table]:
    """Return a table without Ada, whose slots show nothing of her emails."""
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store, properties={"fuse.private": "email"})
    table.append(rows(1, 2))
    return store, table


def verified(store: MemoryStore, where: str = WHERE) -> Verification:
    """Verify through a store that refuses writes."""
    found = open_table_in(ReadOnlyStore(store)).erase(where, verify=True).verification
    assert found is not None
    return found


def put(store: MemoryStore, key: str, data: bytes) -> None:
    store.objects[key] = MemoryObject(data=data, modified_us=0)


def found_in(verification: Verification) -> dict[str, str]:
    """Return what was found, by the kind of object."""
    return {item.kind: "; ".join(item.found) for item in verification.findings}


def test_every_object_is_read_and_a_clean_table_is_clean() -> None:
    store, table = made()
    table.create_tag("now")
    table.create_branch("fix")
    table.delete("id = 2")
    verification = verified(store)

    assert verification.is_clean
    assert {item.key for item in verification.objects} == set(store.objects)
    assert {item.kind for item in verification.objects} >= {
        "block", "branch", "deletion file", "segment", "snapshot", "table file", "tag"
    }  # fmt: skip
    assert verification.searched == (f"'{ADA}'",)
    assert sum(item.row_count for item in verification.objects) == 2


def test_rows_of_a_block_that_no_snapshot_names_are_found() -> None:
    store, table = made()
    before = set(store.objects)
    table.append(rows(3, email=ADA))
    for key in store.objects.keys() - before:
        if not key.startswith(BLOCKS_PREFIX):
            del store.objects[key]
    (item,) = verified(store).findings

    assert item.key.startswith(BLOCKS_PREFIX)
    assert "rows that match: 1" in item.found


def test_the_value_is_found_in_another_column_of_a_compressed_block() -> None:
    store, table = made()
    text = " ".join(["no news"] * 500) + f" write to {ADA}"
    table.append(rows(3, note=text))
    found = verified(store).findings

    (block,) = (item for item in found if item.kind == "block")
    assert f"a value of column note has '{ADA}'" in block.found


def test_a_dictionary_value_that_no_row_has_is_found() -> None:
    store, _ = made()
    key = next(key for key in store.objects if key.startswith(BLOCKS_PREFIX))
    plain = pq.read_table(pa.BufferReader(store.objects[key].data))
    texts = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int32()), [ADA, "b@example.org"])
    field = plain.schema.field("email").with_type(texts.type)
    sink = pa.BufferOutputStream()
    changed = plain.set_column(1, field, texts)
    pq.write_table(changed, sink, compression="zstd", store_schema=False, write_statistics=False)
    store.objects[key] = dataclasses.replace(store.objects[key], data=sink.getvalue().to_pybytes())
    (item,) = verified(store).findings

    assert f"a value of column email has '{ADA}'" in item.found


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_pages_of_every_compression_are_decoded(compression: str) -> None:
    store, _ = made()
    key = next(key for key in store.objects if key.startswith(BLOCKS_PREFIX))
    plain = pq.read_table(pa.BufferReader(store.objects[key].data))
    changed = plain.set_column(1, plain.schema.field("email"), pa.array([ADA, "b@example.org"]))
    sink = pa.BufferOutputStream()
    pq.write_table(changed, sink, compression=compression, store_schema=False)
    store.objects[key] = dataclasses.replace(store.objects[key], data=sink.getvalue().to_pybytes())
    (item,) = verified(store).findings

    assert {"rows that match: 1", "its footer has a bound of email"} <= set(item.found)


def test_texts_of_people_are_searched() -> None:
    store, table = made()
    table.append(rows(3), message=f"request of {ADA}")
    table.set_properties({"contact": ADA, ADA: "x"})
    found = verified(store)

    assert [item.kind for item in found.findings] == ["snapshot", "snapshot"]
    assert [item.found for item in found.findings] == [(f"a text in it is '{ADA}'",)] * 2


def test_a_value_counts_in_texts_only_as_a_word() -> None:
    store, table = made()
    table.append(rows(3), message="Adams, adaptable")
    table.append(rows(4), message="Ada, please")
    found = verified(store, "note = 'Ada'")

    assert [item.key for item in found.findings] == ["_ss/main/00000000000000000003_v1.json"]


def test_names_of_fields_are_no_values() -> None:
    store, _ = made()

    assert verified(store, "note = 'segments'").is_clean


def test_bounds_of_numbers_are_found_in_slots_and_segments() -> None:
    store, table = made()
    table.append(rows(77))
    found = verified(store, "id > 70")

    assert found_in(found) == {
        "snapshot": "its totals have a bound of id",
        "segment": found_in(found)["segment"],
        "block": "rows that match: 1; its footer has a bound of id",
    }
    assert "has a bound of id" in found_in(found)["segment"]
    assert found.searched == ()


def test_long_values_are_found_by_their_shortened_bounds() -> None:
    store = MemoryStore()
    table = temporary_table(SCHEMA, store=store)
    name = "a.very.long.name.indeed@mail.example.org"
    table.append(rows(1, email=name))
    found = verified(store, f"email = '{name}'")

    assert set(found_in(found)) == {"snapshot", "segment", "block"}


def test_a_value_that_other_rows_hold_proves_nothing() -> None:
    store, table = made()
    table.append(rows(3, email=ADA, note="other"))
    found = verified(store, f"email = '{ADA}' AND note = 'gone'")

    assert found.shared == (f"'{ADA}'",)
    assert found.is_clean


def test_what_cannot_be_read_is_reported() -> None:
    store, table = made()
    table.create_tag("now")
    table.overwrite(rows(3))
    for key in list(store.objects):
        if key.startswith(("_b/", "_sg/", "_refs/")) or key.endswith("0001_v1.json"):
            data = store.objects[key].data[:-7] + b"damaged"
            store.objects[key] = dataclasses.replace(store.objects[key], data=data)
    put(store, "_leases/x.json", b"\xff\xfe")
    put(store, "stray.bin", b"\xff" + ADA.encode())
    put(store, "notes.txt", b"nothing of interest")
    found = verified(store)

    problems = {item.kind for item in found.unreadable}
    assert problems == {"block", "lease", "object of nobody", "segment", "snapshot", "tag"}
    assert [item.key for item in found.findings] == ["stray.bin"]
    assert not found.is_clean


def test_a_file_that_a_dead_writer_left_is_read_and_vacuumed(tmp_path: Path) -> None:
    table = Table.create(
        tmp_path / "t", SCHEMA, properties={"fuse.grace": "1s", "fuse.vacuum.age": "1s"}
    )
    table.append(rows(1, email=ADA))
    (block,) = (tmp_path / "t" / "_b").iterdir()
    table.overwrite(rows(2))
    left = tmp_path / "t" / "_b" / f"{STAGED_PREFIX}0123"
    left.write_bytes(block.read_bytes())
    found = table.erase(WHERE, verify=True).verification
    assert found is not None
    (item,) = (item for item in found.findings if item.kind == "unfinished write")
    assert "rows that match: 1" in item.found
    for _ in range(3):
        table.metadata.clock.sleep(1.1)
        table.vacuum()

    assert not left.exists()


def test_verify_and_dry_run_exclude_each_other() -> None:
    _, table = made()
    with pytest.raises(InvalidInputError):
        table.erase(WHERE, verify=True, dry_run=True)
