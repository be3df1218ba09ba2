"""A sink reads the offsets of its own query, whatever the name of the checkpoint's folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.identity import query_id_of, read_offsets
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.storage.open import expand_home, open_store
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from tests.spark.streams import PATIENCE_S, deliver, read_stream

# The name, and the name that decoding or cutting it like a URL would give.
NAMES = {"a%20b": "a b", "50%2525": "50%25", "x#y": "x", "x?y": "x", "a b": "a", "ü%C3": "ü"}
SPELLINGS = {
    "plain": "{}",
    "a URI": "file:{}",
    "a URI with slashes": "file://{}",
    "a URI with a host": "file://localhost{}",
}


def checkpoint_of(folder: Path, query_id: str) -> None:
    """Make the files that are read of a checkpoint."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(f'{{"id":"{query_id}"}}')
    (folder / "offsets" / "0").write_text(query_id)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_is_read_under_its_exact_name(
    tmp_path: Path, name: str, spelling: str
) -> None:
    checkpoint_of(tmp_path / NAMES[name], "another")
    checkpoint = SPELLINGS[spelling].format(tmp_path / name)

    with pytest.raises(InvalidInputError, match="no Spark checkpoint"):
        query_id_of(checkpoint)
    checkpoint_of(tmp_path / name, "own")
    assert query_id_of(checkpoint) == "own"
    assert read_offsets(None, checkpoint, 0) == "own"


def test_a_path_with_a_colon_and_slashes_inside_is_not_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint_of(tmp_path / "a:" / "b", "own")
    checkpoint_of(tmp_path / "~", "tilde")
    monkeypatch.chdir(tmp_path)

    assert query_id_of(f"{tmp_path}/a://b") == "own"
    assert query_id_of("~") == "tilde"  # Spark does not expand it


@pytest.mark.parametrize("door", ["fuse_sink", "fuse_sink with its checkpoint", "format"])
@pytest.mark.parametrize(
    ("name", "spelling"), [("a%20b", "plain"), ("a%20b", "a URI with slashes"), ("x#y?", "a URI")]
)
def test_a_query_commits_its_own_offsets(
    spark: SparkSession, tmp_path: Path, door: str, name: str, spelling: str
) -> None:
    checkpoint_of(tmp_path / "a b", "another")
    checkpoint_of(tmp_path / "x", "another")
    folder = tmp_path / name
    checkpoint = SPELLINGS[spelling].format(folder)
    deliver(tmp_path, range(1))
    writer = read_stream(spark, tmp_path).writeStream.option("checkpointLocation", checkpoint)
    if door == "format":
        writer = writer.format("fuse").option("path", str(tmp_path / "table"))
    else:
        known = checkpoint if door == "fuse_sink with its checkpoint" else None
        writer = writer.foreachBatch(fuse_sink(str(tmp_path / "table"), checkpoint=known))

    query = writer.trigger(availableNow=True).start()

    assert query.awaitTermination(PATIENCE_S)
    (entry,) = Table.open(tmp_path / "table").ledger().values()
    assert [item.text for item in entry.offsets] == [(folder / "offsets" / "0").read_text()]


def test_a_home_directory_is_expanded_in_every_path_argument() -> None:
    home = str(Path("~").expanduser())

    location = TableLocation(path="~/t")
    assert location.store().url == open_store("~/t").url == expand_home("~/t") == f"{home}/t"
    assert TableLocation(path="memory://bucket/~x").store().url == expand_home("memory://bucket/~x")
    for refused in (
        lambda: TableLocation(path="~nosuchuser/t").store(),
        lambda: fuse_sink("/data/t", checkpoint="~nosuchuser/checkpoint"),
    ):
        with pytest.raises(InvalidInputError, match=r"begin with \./"):
            refused()
