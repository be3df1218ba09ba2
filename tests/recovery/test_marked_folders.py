"""Tables and checkpoints on a store whose folders are objects too, as consoles make them on S3."""

from __future__ import annotations

import pytest

from fuse_stream.checkpoint.write_fork import load_claim
from fuse_stream.commit.ledger import Verdict
from fuse_stream.recovery.rebuild_checkpoint import rebuild_checkpoint
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from fuse_stream.testing.memory import MemoryObject
from tests.conftest import SCHEMA
from tests.kit.memory_fs import MARKED_PROTOCOL, MarkedMemoryFileSystem
from tests.recovery.checkpoints import log_files, put
from tests.recovery.histories import keys, rewind
from tests.recovery.streams import Query

OLD = "11111111-2222-3333-4444-555555555555"
FOLDERS = (
    "_b",
    "_s",
    "_ss",
    "_ss/main",
    "_refs",
    "_refs/branches",
    "_refs/tags",
    "_leases",
    "_own",
)


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryObject]:
    objects: dict[str, MemoryObject] = {}
    monkeypatch.setattr(MarkedMemoryFileSystem, "buckets", {"bucket": objects})
    return objects


def marked(bucket: dict[str, MemoryObject], name: str, *folders: str) -> str:
    """Return the URL of a folder that has a marker, and folders with markers below it."""
    for folder in ("", *(f"/{below}" for below in folders)):
        MarkedMemoryFileSystem.mark(bucket, f"{name}{folder}")
    return f"{MARKED_PROTOCOL}://bucket/{name}"


@pytest.fixture
def query(bucket: dict[str, MemoryObject]) -> Query:
    """Six batches of one row; the table was made where a console had made every folder."""
    table = Table.create(marked(bucket, "table", *FOLDERS), SCHEMA)
    folders = ("offsets", "commits", "sources/0", "state/0/0")
    query = Query(table, FsspecStore(marked(bucket, "checkpoint", *folders))).begin(OLD)
    put(query.checkpoint, {f"sources/0/{name}": text for name, text in log_files(6).items()})
    query.run(6)
    return query


def test_a_query_continues_from_its_fork_in_a_folder_that_is_an_object(
    query: Query, bucket: dict[str, MemoryObject]
) -> None:
    new = FsspecStore(marked(bucket, "fork", "offsets"))
    rewind(query.table.committer, Goal(after_batch=2), checkpoints=[(query.checkpoint, new)])
    fork = Query(query.table, new, plus=100)
    fork.run(3)

    assert load_claim(new) is not None
    assert keys(query.table.to_arrow()) == [0, 1, 2, 103, 104, 105]


def test_a_checkpoint_is_rebuilt_in_a_folder_that_is_an_object(
    query: Query, bucket: dict[str, MemoryObject]
) -> None:
    new = FsspecStore(marked(bucket, "again", "commits"))
    rebuild_checkpoint(
        query.table.committer, new, application="default", survivors=query.checkpoint
    )
    again = Query(query.table, new)

    assert again.commit(5) is Verdict.REPLAY
    again.run(2)  # the last batch runs again
    assert keys(query.table.to_arrow()) == list(range(7))


def test_lists_of_names_and_fsck_ignore_folder_objects(query: Query) -> None:
    table = query.table
    table.create_branch("fix")
    table.create_tag("good")

    assert [ref.name for ref in table.branches()] == ["main", "fix"]
    assert [ref.name for ref in table.tags()] == ["good"]
    assert table.fsck(deep=True).findings == ()


def test_vacuum_leaves_a_sound_table_with_folder_objects(query: Query) -> None:
    table = query.table
    table.compact()
    table.set_properties({"fuse.vacuum.age": "1s"})
    table.expire(keep_last=1)
    for _ in range(3):
        table.vacuum()

    assert table.fsck(deep=True).is_sound
    assert keys(table.to_arrow()) == list(range(6))


def test_a_clone_is_made_in_a_folder_that_is_an_object(
    query: Query, bucket: dict[str, MemoryObject]
) -> None:
    url = marked(bucket, "clone", *FOLDERS)
    origins = [query.table.metadata.store.url]
    clone(origins[0], url)

    assert keys(Table.open(url, origins=origins).to_arrow()) == list(range(6))
