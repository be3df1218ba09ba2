"""The tables upstream of a table, also if moved, replaced, undone or read in a ring."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import NotFoundError
from fuse_stream.format.records import Operation
from fuse_stream.format.source_offset import FIRST_READ, Offset, SourcePosition
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from fuse_stream.trace import lineage
from tests.recovery.histories import rows


def make(path: Path, commits: int = 0) -> Table:
    table = Table.create(path, rows().schema)
    for key in range(commits):
        table.append(rows(key))
    return table


def at(table: Table, version: int | None = None, *, index: int = 0) -> SourcePosition:
    """Return the position at a version of a table, by default its newest."""
    snapshot = table.snapshot(version)
    offset = Offset(
        table_id=snapshot.table_id,
        branch_id=table.committer.branch_id,
        version=snapshot.version,
        snapshot_id=snapshot.snapshot_id,
        index=index,
    )
    return SourcePosition(offset=offset, path=table.location.path)


def read_into(
    table: Table,
    *sources: SourcePosition,
    app: str = "etl",
    batch: int = 0,
    data: pa.Table | None = None,
) -> None:
    """Commit a batch of the query `app` that has read these sources."""
    arrived = Batch(application=app, query_id=app, batch_id=batch, sources=sources)
    intent = Intent(operation=Operation.APPEND, batch=arrived)
    table.commit_rows(intent, rows(batch) if data is None else data)


def facts(found: fuse.Lineage) -> list[tuple[str, list[tuple[str, int | None, str | None]]]]:
    return [
        (
            table.name,
            [(one.position.name, one.versions_behind, one.problem) for one in table.sources],
        )
        for table in found.tables
    ]


def test_the_chain_upstream_has_positions_heads_and_lags(tmp_path: Path) -> None:
    bronze, orders = make(tmp_path / "bronze", 5), make(tmp_path / "orders", 2)
    silver, gold = make(tmp_path / "silver"), make(tmp_path / "gold")
    read_into(silver, at(bronze, 3), at(orders), at(bronze, 4, index=1))
    read_into(gold, at(silver), app="b", batch=7)
    read_into(gold, at(orders, 1), app="a")
    found = fuse.lineage(tmp_path / "gold")

    assert facts(found) == [
        ("gold@2", [("orders@1", 1, None), ("silver@1", 0, None)]),
        ("orders@2", []),
        ("silver@1", [("bronze@3", 2, None), ("orders@2", 0, None), ("bronze@3+1", 2, None)]),
        ("bronze@5", []),
    ]
    source = found.tables[0].sources[1]
    assert (source.application, source.batch_id, source.query_id) == ("b", 7, "b")
    assert (source.head, source.branch) == (1, "main")
    assert found.find(source.key) is found.tables[2]


def test_the_repr_names_what_the_table_reads(tmp_path: Path) -> None:
    bronze, silver = make(tmp_path / "bronze", 5), make(tmp_path / "silver")
    empty = fuse.lineage(tmp_path / "bronze")
    read_into(silver, at(bronze, 3))

    assert repr(empty) == "Lineage(bronze@5 <- no table)"
    assert repr(fuse.lineage(silver.location.path)) == ("Lineage(silver@1 <- bronze@3 (2 behind))")


def test_a_branch_is_read_by_its_name_of_today(tmp_path: Path) -> None:
    bronze = make(tmp_path / "bronze", 2)
    branch = bronze.create_branch("fix")
    fix = Table.open(tmp_path / "bronze", branch="fix")
    fix.append(rows(9))
    silver = make(tmp_path / "silver")
    read_into(silver, at(fix))
    found = fuse.lineage(tmp_path / "silver")
    here = found.tables[0].sources[0]
    upstream = fuse.lineage(tmp_path / "bronze", branch="fix")
    bronze.delete_branch("fix")
    gone = fuse.lineage(tmp_path / "silver").tables[0].sources[0]

    assert here.position.name == gone.name == f"bronze/{branch.branch_id[:8]}@3"
    assert here.name == "bronze/fix@3"
    assert repr(found) == "Lineage(silver@1 <- bronze/fix@3 (0 behind))"
    assert (here.branch, here.head, here.problem) == ("fix", 3, None)
    assert upstream.tables[0].name == "bronze/fix@3"
    assert (gone.branch, gone.head, gone.problem) == (None, None, "the branch was deleted")


def test_a_branch_without_a_commit_of_its_own_has_a_lineage(tmp_path: Path) -> None:
    bronze, silver = make(tmp_path / "bronze", 2), make(tmp_path / "silver")
    read_into(silver, at(bronze))
    silver.create_branch("try")

    assert facts(fuse.lineage(tmp_path / "silver", branch="try"))[0] == (
        "silver/try@1",
        [("bronze@2", 0, None)],
    )


def test_a_table_that_cannot_be_opened_is_shown_with_the_reason(tmp_path: Path) -> None:
    tables = [make(tmp_path / name, 1) for name in ("moved", "replaced", "damaged", "plain")]
    silver = make(tmp_path / "silver")
    pathless = dataclasses.replace(at(tables[3]), path=None)
    foreign = dataclasses.replace(at(tables[3]), path="nosuch://lake/bronze")
    read_into(silver, *map(at, tables[:3]), pathless, foreign)
    shutil.move(tmp_path / "moved", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "replaced")
    make(tmp_path / "replaced", 1)
    (tmp_path / "damaged" / "_fuse.json").write_bytes(b"{")
    found = fuse.lineage(tmp_path / "silver")
    problems = [source.problem for source in found.tables[0].sources]

    assert len(found.tables) == 1
    assert problems[:2] == ["there is no fuse_stream table here", "another table is there now"]
    assert problems[3] == "its path was not recorded"
    assert all(problems)
    assert [source.versions_behind for source in found.tables[0].sources] == [None] * 5


def test_a_table_without_a_recorded_path_is_found_if_another_reader_knew_it(
    tmp_path: Path,
) -> None:
    bronze, silver = make(tmp_path / "bronze", 3), make(tmp_path / "silver")
    read_into(silver, at(bronze, 1), dataclasses.replace(at(bronze, 2), path=None))

    assert [one.versions_behind for one in fuse.lineage(tmp_path / "silver").tables[0].sources] == [
        2,
        1,
    ]


def test_a_version_that_was_undone_or_replaced_is_told(tmp_path: Path) -> None:
    bronze, silver = make(tmp_path / "bronze", 5), make(tmp_path / "silver")
    shutil.copytree(tmp_path / "bronze", tmp_path / "backup")
    bronze.append(rows(6))
    lost, undone = at(bronze), at(bronze, 4)
    fuse.rewind(tmp_path / "bronze", version=2)
    bronze.append(rows(7))
    read_into(silver, at(bronze, 1), at(bronze), undone, lost)
    after_rewind = fuse.lineage(tmp_path / "silver")
    shutil.rmtree(tmp_path / "bronze")
    shutil.copytree(tmp_path / "backup", tmp_path / "bronze")
    restored = fuse.lineage(tmp_path / "silver")
    Table.open(tmp_path / "bronze").append(rows(8))
    rewritten = fuse.lineage(tmp_path / "silver")

    assert [(one[1], one[2]) for one in facts(after_rewind)[0][1]] == [
        (7, None),
        (0, None),
        (4, "this version is undone now"),
        (2, "this version is undone now"),
    ]
    assert [(one[1], one[2]) for one in facts(restored)[0][1]] == [
        (4, None),
        (None, "it ends before this version"),
        (1, None),
        (None, "it ends before this version"),
    ]
    assert facts(rewritten)[0][1][3][1:] == (0, "this version is another commit now")


def test_commits_behind_counts_those_that_change_rows(tmp_path: Path) -> None:
    bronze, silver = make(tmp_path / "bronze", 5), make(tmp_path / "silver")
    fuse.rewind(tmp_path / "bronze", version=2)  # version 6
    bronze.compact()
    bronze.set_properties({"team": "a"})
    read_into(silver, at(bronze, 1), at(bronze, 2), at(bronze, 3), at(bronze, 6), at(bronze))

    def behind() -> list[int | None]:
        return [one.commits_behind for one in fuse.lineage(silver.location.path).tables[0].sources]

    assert behind() == [1, 0, 1, 0, 0]
    bronze.append(rows(9))
    assert behind() == [2, 1, 2, 1, 1]


def test_commits_behind_is_not_counted_where_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze, silver = make(tmp_path / "bronze", 4), make(tmp_path / "silver")
    read_into(silver, at(bronze, 1), at(bronze, 2))
    monkeypatch.setattr(lineage, "_MOST_COUNTED", 2)
    sources = fuse.lineage(silver.location.path).tables[0].sources

    assert [(one.commits_behind, one.versions_behind) for one in sources] == [(None, 3), (2, 2)]


def test_an_expired_version_is_no_problem_of_its_own(tmp_path: Path) -> None:
    bronze = Table.create(tmp_path / "bronze", rows().schema, properties={"fuse.grace": "0s"})
    for key in range(4):
        bronze.append(rows(key))
    silver = make(tmp_path / "silver")
    read_into(silver, at(bronze, 1), dataclasses.replace(at(bronze, 0, index=FIRST_READ)))
    bronze.expire(keep_last=1)
    (source, start) = fuse.lineage(tmp_path / "silver").tables[0].sources

    assert (source.problem, source.versions_behind, source.commits_behind) == (None, 4, None)
    assert (start.position.name, start.problem, start.versions_behind) == ("bronze@start", None, 6)


def test_tables_that_read_each_other_are_a_cycle(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", 1), make(tmp_path / "b")
    read_into(b, at(a))
    read_into(a, at(b), at(a))
    found = fuse.lineage(tmp_path / "b")

    assert [table.name for table in found.tables] == ["b@1", "a@2"]
    assert [[one.is_cycle for one in table.sources] for table in found.tables] == [
        [False],
        [True, True],
    ]


def test_tables_that_share_their_sources_are_opened_once(tmp_path: Path) -> None:
    below = make(tmp_path / "t0", 1)
    for level in range(1, 40):
        table = make(tmp_path / f"t{level}")
        read_into(table, at(below), at(below))
        below = table
    found = fuse.lineage(tmp_path / "t39")

    assert len(found.tables) == 40
    assert not any(source.is_cycle for table in found.tables for source in table.sources)


def test_the_table_itself_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        fuse.lineage(tmp_path)


@pytest.mark.parametrize(
    ("path", "source", "has_options"),
    [
        ("s3://lake/silver", "s3://other/bronze", True),
        ("s3://lake/silver", "gs://lake/bronze", False),
        ("s3://lake/silver", "/lake/bronze", False),
        ("/lake/silver", "s3://lake/bronze", False),
        ("https://a.example/silver", "https://a.example/bronze", True),
        ("https://a.example/silver", "https://b.example/bronze", False),
        ("abfss://c@a.example/silver", "abfss://d@a.example/bronze", True),
        ("abfss://c@a.example/silver", "abfss://c@b.example/bronze", False),
    ],
)
def test_the_options_go_to_no_other_server_than_the_tables(
    path: str, source: str, *, has_options: bool
) -> None:
    location = TableLocation.of(path, storage_options={"secret": "hush hush"}).of_source(source)

    assert dict(location.storage_options) == ({"secret": "hush hush"} if has_options else {})


@pytest.mark.parametrize(
    "source",
    [
        "http://127.0.0.1:9/t",
        "https://example.invalid/t",
        "ftp://host/t",
        "zip://t::file:///etc/hosts",
        "simplecache::http://127.0.0.1:9/t",
        "github://owner:repo@/t",
        "data://text",
    ],
)
def test_a_recorded_path_of_a_kind_that_holds_no_tables_is_not_opened(source: str) -> None:
    location = TableLocation.of("/lake/silver", storage_options={"secret": "hush hush"})

    with pytest.raises(NotFoundError, match="holds no tables"):
        location.of_source(source)
