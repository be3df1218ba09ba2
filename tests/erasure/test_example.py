"""The example of `docs/operations.md`: after it a value is in no byte of the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.format import block as block_format
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.table.handle import Table, create_table
from tests.erasure.contents import bytes_of, holding, slots_holding
from tests.protocol.worlds import AGE_S, CHUNK, GRACE_S, PROPERTIES, World, small_chunks

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
ADA = "ada@example.org"
SCHEMA = pa.schema([("email", pa.string()), ("note", pa.string())])


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


def rows(*emails: str, note: str = "-") -> pa.Table:
    return pa.table({"email": emails, "note": [note] * len(emails)}, schema=SCHEMA)


def made(properties: dict[str, str]) -> tuple[World, Table]:
    """Return a table with the person's rows in a tag, on a branch, deleted, and in the head."""
    world = World()
    world.store.objects.clear()
    table = create_table(
        world.store,
        first_schema(columns_of_arrow(SCHEMA)),
        properties={**PROPERTIES, **properties},
        clock=world.clock,
        probe_store=False,
    )
    table.append(rows(ADA, "charles@example.org", note="the first"))
    table.append(rows("mary@example.org", ADA))
    table.create_tag("before-cleanup")
    table.update(f"email = '{ADA}' AND note = 'the first'", {"note": "changed"})
    table.delete("note = 'changed'")
    table.append(rows(ADA))
    return world, table


def run_example(wait: Callable[[float], None], table: Table) -> Callable[[], None]:
    """Run the example of the page up to its last two lines; return what runs these."""
    pattern = r"\n### Erasing a person\n.*?```python\n(.*?)```"
    (code,) = re.findall(pattern, OPERATIONS.read_text(), re.DOTALL)
    before, verification = code.split("\nverification = ")
    names = {"t": table, "wait": wait, "grace": GRACE_S + 1, "age": AGE_S + 1}
    exec(before, names)
    return lambda: exec(f"verification = {verification}", names)


COMPRESSIONS = ["zstd", "snappy", "none"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_after_an_erasure_no_byte_of_a_private_value_is_in_the_folder(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_format, "COMPRESSION", compression)
    world, table = made({"fuse.private": "email"})
    held = holding(bytes_of(world.store), ADA.encode())
    assert {key.split("/")[0] for key in held} == {"_b"}
    run_example(world.pass_time, table)()

    assert holding(bytes_of(world.store), ADA.encode()) == []
    assert table.to_arrow()["email"].to_pylist() == ["charles@example.org", "mary@example.org"]


def test_after_an_erasure_only_slots_below_the_floor_show_a_value_until_their_chunk_is_gone() -> (
    None
):
    world, table = made({})
    verify = run_example(world.pass_time, table)
    with pytest.raises(AssertionError):
        verify()
    left = slots_holding(world.store, ADA.encode())
    assert left
    assert max(left) < table.head().floor
    for _ in range(CHUNK):  # the rest is deleted with its chunk
        table.append(rows("mary@example.org"))
    world.pass_time(GRACE_S + 1)
    table.expire(keep_last=1)
    table.vacuum()
    verify()

    assert holding(bytes_of(world.store), ADA.encode()) == []


def test_the_example_runs_on_a_local_folder_too(tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = {"fuse.grace": "1s", "fuse.vacuum.age": "1s", "fuse.private": "email"}
    table = Table.create(path, SCHEMA, properties=properties)
    table.append(rows(ADA, "charles@example.org"))
    table.create_tag("before-cleanup")
    run_example(lambda _seconds: table.metadata.clock.sleep(1.1), table)()

    files = {str(each.relative_to(path)): each for each in path.rglob("*") if each.is_file()}
    assert holding({key: each.read_bytes() for key, each in files.items()}, ADA.encode()) == []
    for key, each in files.items():
        if key.startswith("_b/"):
            assert ADA not in repr(pq.read_table(each).to_pydict())
