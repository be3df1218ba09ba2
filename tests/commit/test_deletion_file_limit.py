"""No deletion file is larger than a reader accepts: what would be is several files."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fuse_stream.commit import stage
from fuse_stream.objects import deletions
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, rows

LIMIT = 2_000
_RANDOM = random.Random(1)
KEYS = [_RANDOM.randrange(1_000) for _ in range(20_000)]


@pytest.fixture
def table(create: Callable[..., Table], monkeypatch: pytest.MonkeyPatch) -> Table:
    """Ten blocks."""
    for module in (stage, deletions):
        monkeypatch.setattr(module, "MAX_DELETION_FILE_BYTES", LIMIT)
    monkeypatch.setattr(stage, "VECTOR_RECORD_BYTES", 300)
    table = create(properties={"fuse.block.rows": "2000"})
    table.append(rows(*KEYS))
    return table


def assert_small(table: Table) -> None:
    files = table.head().deletion_files
    assert len(files) > 1
    assert max(ref.byte_size for ref in files) <= LIMIT


def test_a_delete_of_many_rows_is_several_files_within_the_limit(
    table: Table, store: MemoryStore
) -> None:
    table.delete("k < 250")

    assert_small(table)
    assert keys(opened(store).to_arrow()) == sorted(key for key in KEYS if key >= 250)


def test_a_revert_that_hides_many_rows_writes_files_within_the_limit(
    table: Table, store: MemoryStore
) -> None:
    table.delete("k < 250")
    table.revert(2)
    table.revert(3)

    assert_small(table)
    assert keys(opened(store).to_arrow()) == sorted(key for key in KEYS if key >= 250)
