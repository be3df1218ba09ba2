"""The verbs of a table on a real server: what they leave is what they leave on a local disk."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import ConflictError
from tests.kit.servers import Place

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
AGE_S = 1.5
PROPERTIES = {"fuse.vacuum.age": "1s", "fuse.grace": "1s", "fuse.block.rows": "1000"}


def rows(*keys: int, value: str = "new") -> pa.Table:
    return pa.table([keys, [value] * len(keys)], schema=SCHEMA)


def content(table: fuse.Table) -> list[tuple[int, str]]:
    found = table.to_arrow()
    return sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def history(path: str, options: dict[str, object]) -> dict[str, object]:
    """Call one verb after the other; return what a reader sees after it."""
    seen: dict[str, object] = {}
    table = fuse.Table.create(
        path, SCHEMA, cluster_by=["k"], properties=PROPERTIES, storage_options=options
    )
    for key in range(6):
        table.append(rows(key), app_id="app", batch_id=key)
    replayed = fuse.Table.open(path, storage_options=options)
    replayed.append(rows(5), app_id="app", batch_id=5)
    seen["replayed"] = content(replayed)
    table.create_tag("good")
    table.delete("k = 1")
    table.update("k >= 4", {"v": "changed"})
    table.set_key(["k"])
    table.upsert(rows(2, 9, value="upserted"))
    seen["changed"] = content(table)
    table.create_branch("dev", "good")
    dev = fuse.Table.open(path, branch="dev", storage_options=options)
    dev.append(rows(70))
    seen["dev"] = content(dev)
    with pytest.raises(ConflictError):
        table.publish("dev")
    seen["feed"] = table.changes(6).read_all().num_rows
    seen["diff"] = table.diff("good", table.head().version).read_all().num_rows
    seen["compacted"] = table.compact().blocks_after
    table.recluster()
    seen["where"] = table.to_arrow(where="k > 3 and v = 'changed'").num_rows
    clone = fuse.clone(path, f"{path} clone", storage_options=options, new_storage_options=options)
    cloned = fuse.Table.open(clone.location, storage_options=options, origins=[path])
    cloned.upsert(rows(80))
    seen["clone"] = content(cloned)
    table.set_key([])
    table.overwrite(rows(100))
    fuse.rewind(path, version="good", storage_options=options)
    seen["rewound"] = content(table)
    table.append(rows(71))
    table.revert(table.head().version)
    seen["reverted"] = content(table)
    seen["fsck"] = [str(each) for each in table.fsck(deep=True).findings]
    return seen


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return history(str(tmp_path_factory.mktemp("local") / "table"), {})


def test_a_history_is_that_of_a_local_table(
    place: Place, url: str, expected: dict[str, object]
) -> None:
    assert history(url, dict(place.options)) == expected
    assert expected["reverted"] == [(key, "new") for key in range(6)]
    assert expected["fsck"] == []


def test_vacuum_deletes_what_nothing_needs(place: Place, url: str) -> None:
    options = dict(place.options)
    table = fuse.Table.create(url, SCHEMA, properties=PROPERTIES, storage_options=options)
    for key in range(4):
        table.append(rows(key))
    table.overwrite(rows(9))
    time.sleep(AGE_S)
    table.expire(keep_last=1, older_than="1s")
    deleted = 0
    for _ in range(4):
        time.sleep(AGE_S)
        deleted += table.vacuum().object_count
    assert deleted >= 4
    assert content(fuse.Table.open(url, storage_options=options)) == [(9, "new")]
    assert table.fsck(deep=True).findings == ()
