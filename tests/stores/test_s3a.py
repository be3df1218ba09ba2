"""Spark's own file system for S3: its reader, its writer, its checkpoints, on a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.fetch_s3a import is_complete
from tests.kit.programs import told_by
from tests.kit.servers import Place, lack
from tests.spark.streams import ROWS
from tests.stores.s3a_program import FILES

pytestmark = pytest.mark.long

PATIENCE_S = 600


@pytest.fixture(scope="module")
def told(places: dict[str, Place], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the steps of `s3a_program` found: a session of its own, which has the jars."""
    place = places["s3"]
    if not is_complete():
        lack("no s3a for Spark: make test-all fetches it, or says why it cannot")
    folder: Path = tmp_path_factory.mktemp("s3a")
    given = {
        "url": f"{place.url}/s3a",
        "options": dict(place.options),
        "folder": str(folder),
    }
    return told_by(
        "tests.stores.s3a_program",
        given=given,
        patience_s=PATIENCE_S,
        SPARK_LOCAL_DIRS=str(folder / "local"),
    )


def ids(files: range) -> list[int]:
    return [number for file in files for number in range(file * ROWS, (file + 1) * ROWS)]


def test_a_rewind_forks_a_checkpoint_on_the_store(told: dict[str, Any]) -> None:
    wrong = [number + 1000 for number in ids(range(FILES))]
    assert told["ids of the wrong query"] == wrong
    assert told["forks"] == 1
    assert told["ids after the rewind"] == wrong[: 2 * ROWS]
    assert "retired" in told["the old query"]


def test_the_corrected_query_continues_from_the_fork_with_its_state(told: dict[str, Any]) -> None:
    kept = [number + 1000 for number in ids(range(2))]
    assert told["the new query"] == ""
    assert told["ids of the new query"] == [*ids(range(2, FILES)), *kept]
    # Ids that come again bring no row: the fork has the state of the batches before it.
    assert told["ids at last"] == [*ids(range(2, FILES + 1)), *kept]


def test_a_snapshot_is_read_by_sparks_own_reader(told: dict[str, Any]) -> None:
    assert "FileScan parquet" in told["plan of a read"]
    assert told["rows of a read"] == [23, 33, 43, 53, 1003, 1013]
    assert told["rows without the hidden one"] == [33, 43, 53, 1003, 1013]


def test_a_stream_is_read_by_sparks_own_reader(told: dict[str, Any]) -> None:
    assert told["source of a stream"] == "StreamingExecutionRelation"
    assert told["rows of a follower are the table's"]


def test_a_catalog_reads_and_writes(told: dict[str, Any]) -> None:
    assert told["rows of a MERGE"] == [[400, "inserted"], [500, "new"], [1001, "merged"]]
    assert "FileScan parquet" in told["plan of a SELECT"]


def test_a_statement_that_rewrites_blocks_leaves_no_staged_file(told: dict[str, Any]) -> None:
    assert told["rows of an UPDATE by files"] == [500]
    assert told["staged files that are left"] == []


def test_settings_of_hadoop_that_are_wrong_are_an_error_that_says_so(told: dict[str, Any]) -> None:
    assert "give Spark the store's file system" in told["wrong settings"]
    assert "AccessDenied" in told["wrong settings"]  # Hadoop's reason
