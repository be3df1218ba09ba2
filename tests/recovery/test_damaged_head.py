"""A branch whose head has lost an object is rewound; to a version that has lost one it is not."""

from __future__ import annotations

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import deletions_key, segment_key
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, rewind, rows


@pytest.mark.parametrize("lost", ["segment", "deletion file"])
def test_a_head_that_has_lost_an_object_can_be_rewound(
    table: Table, store: MemoryStore, lost: str
) -> None:
    if lost == "segment":
        version = table.append(rows(99)).version
        key = segment_key(table.head().added[0])
    else:
        deleted = table.delete("k = 1").snapshot
        assert deleted is not None
        version = deleted.version
        key = deletions_key(deleted.deletion_files_added[0])
    held = keys(table.to_arrow(version=version - 1))
    store.delete(key)
    again = opened(store)
    done = rewind(again.committer, Goal(version=version - 1))

    assert (done.deleted_rows, done.inserted_rows) == (None, None)
    assert keys(opened(store).to_arrow()) == held


@pytest.mark.parametrize("lost", ["segment", "deletion file"])
def test_a_rewind_to_a_version_that_has_lost_an_object_is_refused(
    table: Table, store: MemoryStore, lost: str
) -> None:
    table.append(rows(99))
    deleted = table.delete("k = 1").snapshot
    assert deleted is not None
    table.overwrite(rows(100))
    key = (
        segment_key(deleted.segments[-1].id)
        if lost == "segment"
        else deletions_key(deleted.deletion_files[0].id)
    )
    store.delete(key)
    again = opened(store)

    with pytest.raises(CorruptObjectError, match=f"a {lost} is missing"):
        rewind(again.committer, Goal(version=deleted.version))
    assert again.head().operation == "overwrite"
