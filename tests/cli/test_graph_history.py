"""Which snapshots a graph shows, and the pictures of whole histories."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from rich.console import Console

from fuse_stream.cli.graph import Graph, load_graph
from fuse_stream.cli.history import Branch, load_names
from fuse_stream.cli.log import graph_documents, graph_view
from fuse_stream.cli.main import main
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import MAIN, slot_key
from fuse_stream.format.records import Operation, Parent, Snapshot
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.cli.conftest import Run, RunJson
from tests.cli.conftest import rows as cli_rows
from tests.recovery.histories import opened, raise_floor, rows

Create = Callable[..., Table]


class History:
    """A table whose commits are a minute apart."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.table = opened(store, clock=clock)

    def on(self, branch: str) -> Table:
        return opened(self.store, branch, self.clock)

    def commit(self, branch: str = MAIN, message: str = "") -> Snapshot:
        self.clock.advance(60)
        return self.on(branch).append(rows(1), message=message)

    def by_hand(self, operation: Operation, version: str, branch: str = MAIN) -> None:
        """Commit a snapshot that looks to the graph like a rewind, a publish or a revert."""
        self.clock.advance(60)
        table = self.on(branch)
        head, target = table.committer.head(), table.snapshot(version)
        stored = table.metadata.load_snapshot(target.branch_id, target.version)
        new = dataclasses.replace(
            target,
            branch_id=table.committer.branch_id,
            version=head.snapshot.version + 1,
            snapshot_id=self.clock.new_id(),
            timestamp_us=self.clock.now_us(),
            prev_snapshot_id=head.snapshot.snapshot_id,
            parent=_parent(head.snapshot, head.sha256),
            operation=operation,
            message="",
            target=_parent(target, stored.sha256),
        )
        self.store.put_if_absent(slot_key(new.branch_id, new.version), encode_snapshot(new))

    def load(self, *, limit: int = 20, only: str | None = None) -> Graph:
        table = self.on(only or MAIN)
        branch = Branch(ref=table.committer.branch, head=table.committer.head()) if only else None
        return load_graph(table.metadata, load_names(table), limit=limit, only=branch)

    def picture(self, *, limit: int = 20, only: str | None = None) -> str:
        """Return the graph as it is printed, the times as minutes since the first commit."""
        table = self.on(only or MAIN)
        console = Console(file=io.StringIO(), width=200)
        seen_from = table.committer.branch_id
        graph = self.load(limit=limit, only=only)
        console.print(graph_view(graph, load_names(table), seen_from=seen_from))
        _, *lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        return "\n".join(line.replace("2023-11-14T22:", "").replace(":20Z", "") for line in lines)


def _parent(snapshot: Snapshot, sha256: str) -> Parent:
    return Parent(branch_id=snapshot.branch_id, version=snapshot.version, sha256=sha256)


@pytest.fixture
def history(create: Create, store: MemoryStore, clock: ManualClock) -> History:
    """Two commits."""
    create()
    history = History(store, clock)
    for day in (1, 2):
        history.commit(message=f"day {day}")
    return history


def lines(text: str) -> str:
    """Return lines in the notation of the tests, without the margin."""
    return "\n".join(line[4:] for line in text.strip("\n").splitlines()).rstrip()


def test_a_straight_history_is_one_lane(history: History) -> None:
    assert history.picture() == lines("""
    ●  2        15  append         +1  (main) day 2
    ●  1        14  append         +1  day 1
    ●  0        13  create
    """)


def test_the_lane_of_a_branch_joins_at_its_fork_point(history: History) -> None:
    history.table.create_branch("fix", 1)
    history.commit("fix", message="try")
    history.commit()

    assert history.picture() == lines("""
    ●    3        17  append         +1  (main)
    │ ●  fix@2    16  append         +1  (fix) try
    ● │  2        15  append         +1  day 2
    ├─╯
    ●    1        14  append         +1  day 1
    ●    0        13  create
    """)
    assert history.picture(only="fix") == lines("""
    ●  2        16  append         +1  (fix) try
    ●  1        14  append         +1  day 1
    ●  0        13  create
    """)


def test_the_lane_of_a_branch_of_a_branch_joins_that_branch(history: History) -> None:
    history.table.create_branch("fix", 1)
    history.commit("fix")
    history.on("fix").create_branch("more")
    history.commit("more")
    history.commit("fix")
    history.commit()

    assert history.picture() == lines("""
    ●      3        19  append         +1  (main)
    │ ●    fix@3    18  append         +1  (fix)
    │ │ ●  more@3   17  append         +1  (more)
    │ ├─╯
    │ ●    fix@2    16  append         +1
    ● │    2        15  append         +1  day 2
    ├─╯
    ●      1        14  append         +1  day 1
    ●      0        13  create
    """)


def test_rewinds_and_reverts_show_their_targets(history: History) -> None:
    history.commit()
    history.by_hand(Operation.REWIND, "1")
    history.by_hand(Operation.REVERT, "2")
    history.commit(message="day 3")

    assert history.picture() == lines("""
    ●  6        19  append           +1  (main) day 3
    ●  5        18  revert of 2      +1
    ●  4        17  rewind to 1      -2
    ●  3        16  append           +1
    ●  2        15  append           +1  day 2
    ●  1        14  append           +1  day 1
    ●  0        13  create
    """)


@pytest.fixture
def published(history: History) -> str:
    """Main has published version 4 of `fix`; returns the id of that."""
    ref = history.table.create_branch("fix", 2)
    history.commit("fix")
    history.commit("fix")
    history.by_hand(Operation.PUBLISH, "fix@")
    history.commit()
    return ref.branch_id


def test_a_publish_is_connected_with_the_published_snapshot(
    history: History, published: str
) -> None:
    history.commit("fix")

    assert history.picture() == lines("""
      ●  fix@5    20  append             +1  (fix)
    ● │  4        19  append             +1  (main)
    ● │  3        18  publish fix@4      +2
    ├─┤
    │ ●  fix@4    17  append             +1
    │ ●  fix@3    16  append             +1
    ├─╯
    ●    2        15  append             +1  day 2
    ●    1        14  append             +1  day 1
    ●    0        13  create
    """)


def test_a_publish_is_connected_with_a_deleted_branch_until_vacuum(
    history: History, published: str
) -> None:
    history.table.delete_branch("fix")

    assert history.picture().replace(published[:8], "0123abcd") == lines("""
    ●    4           19  append                  +1  (main)
    ●    3           18  publish 0123abcd@4      +2
    ├─╮
    │ ●  0123abcd@4  17  append                  +1
    │ ●  0123abcd@3  16  append                  +1
    ├─╯
    ●    2           15  append                  +1  day 2
    ●    1           14  append                  +1  day 1
    ●    0           13  create
    """)
    for version in (3, 4):
        history.store.delete(slot_key(published, version))
    assert [line[:4].rstrip() for line in history.picture().splitlines()] == [
        "●  4",
        "●  3",
        "●  2",
        "●  1",
        "●  0",
    ]


def test_tags_and_heads_are_shown_beside_their_snapshots(history: History) -> None:
    for name, version in (("good", 1), ("best", 1), ("newest", 2)):
        history.table.create_tag(name, version)
    history.table.create_branch("fix")

    assert history.picture() == lines("""
    ●  2        15  append         +1  (main, fix, tag: newest) day 2
    ●  1        14  append         +1  (tag: best, tag: good) day 1
    ●  0        13  create
    """)


def test_a_limit_applies_to_every_lane(history: History) -> None:
    history.table.create_branch("fix", 1)
    for _ in range(2):
        history.commit()
        history.commit("fix")

    assert history.load(limit=3).more
    assert not history.load(limit=7).more
    assert history.picture(limit=3) == lines("""
      ●  fix@3    19  append         +1  (fix)
    ● │  4        18  append         +1  (main)
    │ ●  fix@2    17  append         +1
    ┊ ┊
    """)


def test_expired_versions_are_marked_and_tagged_ones_are_shown(history: History) -> None:
    history.table.create_tag("good", 1)
    history.commit()
    history.commit()
    history.clock.advance(60)
    raise_floor(history.table, 3)

    assert history.picture() == lines("""
    ●  5        17  expire             (main)
    ●  4        17  append         +1
    ●  3        16  append
    ┊  expired
    ●  1        14  append             (tag: good) day 1
    ┊  expired
    """)


def test_a_tagged_snapshot_of_a_deleted_branch_is_shown(history: History) -> None:
    history.table.create_branch("fix", 1)
    for _ in range(2):
        history.commit("fix")
    history.table.create_tag("tried", "fix@")
    history.table.delete_branch("fix")

    assert [node.id[1] for node in history.load().nodes] == [3, 2, 2, 1, 0]
    assert "(tag: tried)" in history.picture()


def test_versions_that_a_branch_keeps_below_the_floor_of_main_are_shown(history: History) -> None:
    history.table.create_branch("fix", 1)
    history.commit("fix")
    history.commit()
    raise_floor(history.table, 3)

    assert [node.id[1] for node in history.load().nodes] == [4, 3, 2, 1, 0]
    assert [node.parent_expired for node in history.load().nodes] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert len(history.load(only=MAIN).nodes) == 2


# ---- cost and errors


def test_a_graph_reads_each_snapshot_once(history: History) -> None:
    history.table.create_branch("fix", 1)
    for _ in range(30):
        history.commit()
        history.commit("fix")
    for version in range(5, 25):
        history.table.create_tag(f"v{version}", version)
    counted = FaultyStore(history.store)
    table = opened(counted)
    names = load_names(table)
    counted.calls.clear()

    graph = load_graph(table.metadata, names, limit=40)

    assert len(graph.nodes) == 40
    assert len(counted.calls) <= 42


def test_progress_is_reported(history: History) -> None:
    reached: list[int] = []
    table = history.table
    load_graph(table.metadata, load_names(table), limit=20, reach=reached.append)

    assert reached == [1, 2, 3]


def test_another_snapshot_in_a_slot_is_corrupt(history: History) -> None:
    forged = dataclasses.replace(history.table.snapshot(1), message="forged")
    history.store.replace(slot_key(MAIN, 1), encode_snapshot(forged))

    with pytest.raises(CorruptObjectError, match="not the one"):
        history.load()


# ---- on the command line


def test_log_draws_all_branches_or_one(run: Run, table: Table, path: str) -> None:
    run("branch", path, "fix", 1)
    Table.open(path, branch="fix").append(cli_rows(7))

    assert "├─╯" in run("log", path, "--graph").stdout
    for branch in ("fix", "main"):
        alone = run("log", path, "--graph", "--branch", branch).stdout
        assert "├─╯" not in alone
        assert f"({branch})" in alone


def test_graph_json_has_the_documented_keys(run: Run, run_json: RunJson, path: str) -> None:
    run("branch", path, "fix", 1)
    fix = Table.open(path, branch="fix").append(cli_rows(7))
    plain, document = run_json("log", path), run_json("log", path, "--graph")
    newest = document["snapshots"][0]

    assert document.keys() == plain.keys()
    assert document["branch"] is None
    assert newest.keys() - plain["snapshots"][0].keys() == {
        "branch",
        "branch_id",
        "parents",
        "lane",
    }
    assert newest["snapshot_id"] == fix.snapshot_id
    assert newest["parents"] == [{"version": 1, "branch": "main", "branch_id": "main"}]
    assert (newest["branch"], newest["lane"]) == ("fix", 1)
    assert run_json("log", path, "--graph", "--branch", "fix")["branch"] == "fix"


def test_a_publish_has_two_parents(history: History, published: str) -> None:
    table = history.table
    documents = graph_documents(history.load(), load_names(table))

    (publish,) = [one for one in documents if one["operation"] == "publish"]
    assert publish["parents"] == [
        {"version": 2, "branch": "main", "branch_id": "main"},
        {"version": 4, "branch": "fix", "branch_id": published},
    ]


def test_snapshots_beyond_the_limit_are_announced(run: Run, path: str) -> None:
    result = run("log", path, "--graph", "--limit", 2)

    assert result.stdout.splitlines()[-1] == "┊"
    assert "--limit N shows more" in result.stderr


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_of_a_graph_is_longer_than_the_terminal(
    run: Run, table: Table, path: str, width: int
) -> None:
    table.append(cli_rows(7), message="a long message that does not fit " * 9)
    lines = run("log", path, "--graph", width=width).stdout.splitlines()

    assert len(lines) == 6
    assert max(map(len, lines)) <= width


def test_a_stream_without_unicode_gets_ascii(table: Table, path: str) -> None:
    table.create_branch("fix", 1)
    Table.open(path, branch="fix").append(cli_rows(7))
    result = CliRunner(charset="ascii").invoke(main, ["log", path, "--graph"])

    assert result.stdout.isascii()
    assert "|/" in result.stdout
    assert result.stdout.count("*") == 5
