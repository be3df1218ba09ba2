"""Commands on a store that cannot create an object exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.cli.main import main
from fuse_stream.storage.open import open_store
from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from tests.cli.conftest import SCHEMA, Run, events, rows, take
from tests.cli.leases import put_lease
from tests.recovery.checkpoints import log_files, put
from tests.recovery.streams import Query

OPTION = "--unsafe-single-writer"
OLD = "11111111-2222-3333-4444-555555555555"
PLACE = "memory://unsafe"  # fsspec's own, which has several winners

WRITING = [
    ("branch", "{t}", "other"),
    ("clone", "{t}", "{new}"),
    ("compact", "{t}"),
    ("copy", "{t}", "{new}"),
    ("consumers", "{t}", "--release", "nightly", "--force"),
    ("delete", "{t}", "k = 5"),
    ("erase", "{t}", "k = 5"),
    ("expire", "{t}", "--keep-last", "1"),
    ("import", "{file}", "{new}"),
    ("indexes", "{t}", "--create", "n", "SELECT count(*) FROM t"),
    ("optimize", "{t}"),
    ("publish", "{t}", "fix"),
    ("rebuild-checkpoint", "{t}", "{new}", "--survivors", "{old}"),
    ("recluster", "{t}"),
    ("restore-table-file", "{lost}"),
    ("retry", "{kept}"),
    ("revert", "{t}", "2"),
    ("rewind", "{t}", "--after-batch", "1", "--checkpoint", "{old}", "{new}"),
    ("schema", "{t}", "--add", "x", "long"),
    ("tag", "{t}", "good"),
    ("unpin", "{t}", "{clone}"),
    ("update", "{t}", "k = 5", "--set", "k=6"),
    ("upsert", "{keyed}", "{file}"),
    ("vacuum", "{t}"),
]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A clustered table with six batches, a branch, a lease and a clone; its checkpoint."""
    shelf = fsspec.filesystem("memory")
    places = {name: f"{PLACE}/{name}" for name in ("t", "old", "new")}
    schema = pa.schema([("k", pa.int64())])
    table = Table.create(
        places["t"],
        schema,
        cluster_by=["k"],
        properties={"fuse.cluster.depth": "1", "fuse.block.rows": "4", "fuse.grace": "0s"},
        unsafe_single_writer=True,
    )
    checkpoint = open_store(places["old"], unsafe_single_writer=True)
    Query(table, checkpoint).begin(OLD).run(6)
    for low in range(4):  # blocks that overlap
        table.append(pa.table({"k": [low, 4, 5, 9 - low]}))
    put(checkpoint, {f"sources/0/{name}": text for name, text in log_files(6).items()})
    put_lease(table, "nightly", 1)
    table.create_branch("fix")
    Table.open(places["t"], branch="fix", unsafe_single_writer=True).append(pa.table({"k": [7]}))
    places["clone"] = clone(places["t"], f"{PLACE}/clone", unsafe_single_writer=True).table_id
    places["lost"] = f"{PLACE}/lost"
    Table.create(places["lost"], schema, unsafe_single_writer=True)
    shelf.rm("/unsafe/lost/_fuse.json")
    for name in ("kept", "keyed"):
        places[name] = f"{PLACE}/{name}"
    kept = Table.create(places["kept"], SCHEMA, unsafe_single_writer=True)
    take(kept, events(None))
    keyed = Table.create(places["keyed"], SCHEMA, unsafe_single_writer=True)
    keyed.upsert(rows(1), keys=["id"])
    places["file"] = str(tmp_path / "rows.parquet")
    pq.write_table(rows(2), places["file"])
    yield places
    shelf.rm("/unsafe", recursive=True)


def test_exactly_the_writing_commands_offer_unsafe_single_writer() -> None:
    offered = {
        name
        for name, command in main.commands.items()
        if any(OPTION in option.opts for option in command.params)
    }

    assert offered == {name for name, *_ in WRITING} | {"sql-server"}


@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_a_command_writes_to_an_unsafe_store_only_with_the_option(
    command: tuple[str, ...], places: dict[str, str], run: Run
) -> None:
    arguments = [item.format(**places) for item in command]
    refused = run(*arguments)
    done = run(*arguments, OPTION)

    assert (refused.exit_code, done.exit_code) == (1, 0), refused.output + done.output
    assert "UnsupportedStorageError" in refused.stderr
    assert OPTION in refused.stderr
