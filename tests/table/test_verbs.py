"""The arguments that every function that opens a table takes, and its use of a clone's origins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError
from fuse_stream.storage.local import LocalStore
from tests.recovery.checkpoints import log_files, put
from tests.recovery.streams import Fanout

OLD = "11111111-2222-3333-4444-555555555555"

READING = (fuse.Table.open, fuse.audit, fuse.read)
WRITING = (
    fuse.Optimizer,
    fuse.clone,
    fuse.compact,
    fuse.fuse_sink,
    fuse.rebuild_checkpoint,
    fuse.rewind,
    fuse.write,
)


@pytest.mark.parametrize("entry", [*READING, *WRITING], ids=lambda entry: entry.__qualname__)
def test_every_function_that_opens_a_table_takes_storage_options_and_origins(
    entry: Callable[..., object],
) -> None:
    taken = inspect.signature(entry).parameters

    assert {"storage_options", "origins"} <= taken.keys()
    assert entry not in WRITING or "unsafe_single_writer" in taken


@pytest.fixture
def places(tmp_path: Path) -> Mapping[str, str]:
    """A table, two clones of it that one query writes, and the checkpoint of the query."""
    places = {
        name: str(tmp_path / name) for name in ("origin", "one", "two", "old", "new", "rebuilt")
    }
    fuse.Table.create(places["origin"], pa.schema([("k", pa.int64())])).append(
        pa.table({"k": [100]})
    )
    for name in ("one", "two"):
        fuse.clone(places["origin"], places[name])
    checkpoint = LocalStore(tmp_path / "old")
    clones = tuple(fuse.Table.open(places[name]) for name in ("one", "two"))
    Fanout(clones, checkpoint).begin(OLD).run(3)
    put(checkpoint, {f"sources/0/{name}": text for name, text in log_files(3).items()})
    return places


def test_a_query_into_clones_can_be_audited_rebuilt_and_rewound(places: Mapping[str, str]) -> None:
    clones, allowed = [places["one"], places["two"]], [places["origin"]]
    report = fuse.audit(places["one"], places["old"], origins=allowed)
    rebuilt = fuse.rebuild_checkpoint(
        clones, places["rebuilt"], survivors=places["old"], origins=allowed
    )
    done = fuse.rewind(
        clones, after_batch=0, checkpoints={places["old"]: places["new"]}, origins=allowed
    )

    assert report.agrees
    assert (rebuilt.query_id, rebuilt.batch_id) == (OLD, 2)
    assert [one.snapshot.version for one in done.tables if one.snapshot] == [5, 5]
    for path in clones:
        keys = fuse.Table.open(path, origins=allowed).to_arrow()["k"].to_pylist()
        assert sorted(keys) == [0, 100]


@pytest.mark.parametrize("verb", ["audit", "rebuild_checkpoint", "rewind"])
def test_origins_other_than_a_list_are_refused(verb: str, places: Mapping[str, str]) -> None:
    arguments = (places["one"],) if verb == "rewind" else (places["one"], places["new"])
    act = getattr(fuse, verb)

    with pytest.raises(InvalidInputError, match="a list of locations"):
        act(*arguments, origins=places["origin"])
