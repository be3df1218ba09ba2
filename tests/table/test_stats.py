"""Statistics of a branch: its contents, and what compaction saved."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.table import stats as numbers
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA, Create

BLOCKS = 5


def compacted(create: Create) -> Table:
    table = create(SCHEMA, properties={"fuse.block.rows": "5"})
    for number in range(BLOCKS):
        table.append(pa.table({"k": [number]}))
    table.compact()
    return table


def test_stats_count_the_contents_of_the_head(create: Create, store: MemoryStore) -> None:
    table = compacted(create)
    table.append(pa.table({"k": [9]}))
    found, head = table.stats(), table.head()

    assert (found.version, found.row_count) == (BLOCKS + 2, BLOCKS + 1)
    assert (found.block_count, found.perfect_block_count, found.imperfect_block_count) == (2, 1, 1)
    assert found.compressed_bytes == sum(block.file_size for block in table.blocks())
    assert found.snapshot_bytes == len(store.get(slot_key("main", head.version)))
    assert found.snapshot_bytes == len(encode_snapshot(head))
    assert found.metadata_bytes == found.snapshot_bytes + sum(
        ref.byte_size for ref in head.segments
    )
    assert (found.retained_count, found.floor, found.epoch) == (BLOCKS + 3, 0, 0)


def test_stats_count_the_blocks_that_compaction_saved(create: Create) -> None:
    table = compacted(create)
    before = sum(block.file_size for block in table.blocks(BLOCKS))
    (big,) = table.blocks()
    compaction = table.stats().compaction

    assert (compaction.commit_count, compaction.blocks_saved) == (1, BLOCKS - 1)
    assert compaction.bytes_rewritten == big.file_size
    assert compaction.bytes_saved == before - big.file_size
    assert compaction.last_version == BLOCKS + 1


def test_stats_count_optimizations_among_the_newest_snapshots(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "SEARCHED_SNAPSHOTS", 2)
    table = compacted(create)
    for number in range(2):
        table.append(pa.table({"k": [number]}))
    found = table.stats()

    assert found.searched_count == 2
    assert found.compaction.commit_count == 0


def test_a_table_without_commits_has_stats(create: Create) -> None:
    found = create().stats()

    assert (found.block_count, found.metadata_bytes_per_block) == (0, found.snapshot_bytes)
    assert found.policy["fuse.optimize.blocks"] == "25"
    assert found.policy["fuse.retain"] == ""


def test_the_policy_of_stats_is_the_properties_with_their_defaults(create: Create) -> None:
    table = create(properties={"fuse.optimize.blocks": "7", "team": "a"})
    policy = table.stats().policy

    assert policy["fuse.optimize.blocks"] == "7"
    assert "team" not in policy
