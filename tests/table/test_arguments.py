"""Arguments of a wrong kind: an error that names the argument, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.storage.local import LocalStore
from tests.recovery.checkpoints import put

SCHEMA = pa.schema([("k", pa.int64())])
ROWS = pa.table({"k": [1]})

Call = Callable[[fuse.Table, Any], object]


@pytest.fixture
def table(tmp_path: Path) -> fuse.Table:
    """Version 1 is by no application, version 2 by `a`; the branch `fix` has one commit more.

    Beside it is the checkpoint `old` of a query that has not run.
    """
    put(
        LocalStore(tmp_path / "old"), {"metadata": '{"id": "11111111-2222-3333-4444-555555555555"}'}
    )
    table = fuse.Table.create(tmp_path / "table", SCHEMA)
    table.append(ROWS)
    table.append(ROWS, app_id="a", batch_id=1)
    table.create_branch("fix")
    fuse.Table.open(tmp_path / "table", branch="fix").append(ROWS)
    return table


def files_of(table: fuse.Table) -> list[str]:
    """Return the names of all files beside the table and in it."""
    top = Path(table.location.path).parent
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def beside(table: fuse.Table, name: str) -> str:
    return str(Path(table.location.path).with_name(name))


READS: dict[str, Call] = {
    "scan": lambda table, value: table.to_arrow(**value),
    "changes": lambda table, value: table.changes(1, **value).read_all(),
}
COLUMNS = {"diff": lambda table, value: table.diff(1, 2, **value).read_all(), **READS}
SEARCHES: dict[str, Call] = {
    "bisect": lambda table, value: table.bisect("k = 1", **value),
    "blame": lambda table, value: table.blame("k = 1", **value),
}


def check_refused(table: fuse.Table, call: Call, value: Any, match: str) -> None:
    """Check that a call with this argument is refused, and writes nothing."""
    before = files_of(table)

    with pytest.raises(InvalidInputError, match=match):
        call(table, value)
    assert files_of(table) == before


@pytest.mark.parametrize("columns", [5, "k", b"k", [5], [None], range(1)], ids=repr)
@pytest.mark.parametrize("read", COLUMNS)
def test_columns_are_names(table: fuse.Table, read: str, columns: Any) -> None:
    with pytest.raises(InvalidInputError, match="columns is a list of names"):
        COLUMNS[read](table, {"columns": columns})


@pytest.mark.parametrize("read", COLUMNS)
def test_columns_may_be_named_one_after_the_other(table: fuse.Table, read: str) -> None:
    found = COLUMNS[read](table, {"columns": iter(["k"])})

    assert isinstance(found, pa.Table)
    assert found.column_names[0] == "k"


@pytest.mark.parametrize("zone", [None, 5, b"UTC", [], ZoneInfo("UTC")], ids=repr)
@pytest.mark.parametrize("read", [*READS, *SEARCHES])
def test_a_time_zone_is_a_name(table: fuse.Table, read: str, zone: Any) -> None:
    where = {"where": "k = 1"} if read in READS else {}

    with pytest.raises(InvalidInputError, match="time_zone"):
        (READS | SEARCHES)[read](table, {**where, "time_zone": zone})


@pytest.mark.parametrize("names", [None, 5, "k", [5], [[]]], ids=repr)
def test_a_cluster_key_is_a_list_of_names(tmp_path: Path, table: fuse.Table, names: Any) -> None:
    before = files_of(table)

    with pytest.raises(InvalidInputError, match="cluster_by is a list of names"):
        table.cluster_by(names)
    with pytest.raises(InvalidInputError, match="cluster_by is a list of names"):
        fuse.Table.create(tmp_path / "new", SCHEMA, cluster_by=names)
    assert files_of(table) == before


@pytest.mark.parametrize("retire", [None, 5, "a", [None], ["a", None], [[]]], ids=repr)
def test_retire_is_a_list_of_names(table: fuse.Table, retire: Any) -> None:
    before = files_of(table)

    with pytest.raises(InvalidInputError, match="retire is a list of names"):
        fuse.rewind(table.location.path, version=1, retire=retire)
    with pytest.raises(InvalidInputError, match="retire is a list of names"):
        table.publish("fix", retire=retire)
    assert files_of(table) == before


CONFLICTS: dict[str, Call] = {
    "set_properties": lambda table, value: table.set_properties({"a": "b"}, on_conflict=value),
    "publish": lambda table, value: table.publish("fix", on_conflict=value),
    "revert": lambda table, value: table.revert(2, on_conflict=value),
    "rewind": lambda table, value: fuse.rewind(
        table.location.path, version=1, retire=["a"], on_conflict=value
    ),
}


@pytest.mark.parametrize("on_conflict", [None, [], {}, "no"], ids=repr)
@pytest.mark.parametrize("verb", CONFLICTS)
def test_on_conflict_is_one_of_two_words(table: fuse.Table, verb: str, on_conflict: Any) -> None:
    check_refused(table, CONFLICTS[verb], on_conflict, "on_conflict")


NAMES: dict[str, Call] = {
    "create_tag": lambda table, value: table.create_tag(value),
    "create_branch": lambda table, value: table.create_branch(value),
    "delete_tag": lambda table, value: table.delete_tag(value),
    "delete_branch": lambda table, value: table.delete_branch(value),
    "publish": lambda table, value: table.publish(value),
    "unpin": lambda table, value: table.unpin(value),
}


@pytest.mark.parametrize("name", [None, 5, b"fix", [], {}], ids=repr)
@pytest.mark.parametrize("verb", NAMES)
def test_a_name_is_text(table: fuse.Table, verb: str, name: Any) -> None:
    check_refused(table, NAMES[verb], name, r"name|clone_id")


@pytest.mark.parametrize("app_id", [None, 5, [], {}], ids=repr)
def test_nothing_is_forgotten_that_the_ledger_does_not_name(table: fuse.Table, app_id: Any) -> None:
    with pytest.raises(NotFoundError, match="no such application"):
        table.forget(app_id)


def test_a_log_may_have_any_limit(table: fuse.Table) -> None:
    assert len(list(table.log(10**30))) == 3


# ---- applications

APPLICATIONS: dict[str, Call] = {
    "append": lambda table, value: table.append(ROWS, app_id=value, batch_id=7),
    "overwrite": lambda table, value: table.overwrite(ROWS, app_id=value, batch_id=7),
    "rewind": lambda table, value: fuse.rewind(
        table.location.path, app_id=value, after_batch=0, retire=["a"]
    ),
    "rebuild_checkpoint": lambda table, value: fuse.rebuild_checkpoint(
        table.location.path, beside(table, "new"), app_id=value
    ),
    "audit": lambda table, value: fuse.audit(
        table.location.path, beside(table, "old"), app_id=value
    ),
}


@pytest.mark.parametrize("app_id", ["", "*", 5, False, [], {}], ids=repr)
@pytest.mark.parametrize("verb", APPLICATIONS)
def test_an_application_has_a_name(table: fuse.Table, verb: str, app_id: Any) -> None:
    check_refused(table, APPLICATIONS[verb], app_id, "app_id")


# ---- flags, texts and times

FLAGS: dict[str, Call] = {
    "merge_schema": lambda table, value: table.append(ROWS, merge_schema=value),
    "unsafe_single_writer": lambda table, value: fuse.Table.open(
        table.location.path, unsafe_single_writer=value
    ),
    "dry_run": lambda table, value: table.vacuum(dry_run=value),
    "dry_run of expire": lambda table, value: table.expire(keep_last=1, dry_run=value),
    "dry_run of rewind": lambda table, value: fuse.rewind(
        table.location.path, version=1, retire=["a"], dry_run=value
    ),
    "deep": lambda table, value: table.fsck(deep=value),
    "force": lambda table, value: table.release("reader", force=value),
}


@pytest.mark.parametrize("flag", [None, "false", 0, 1, []], ids=repr)
@pytest.mark.parametrize("verb", FLAGS)
def test_a_flag_is_true_or_false(table: fuse.Table, verb: str, flag: Any) -> None:
    check_refused(table, FLAGS[verb], flag, f"{verb.split(maxsplit=1)[0]} is True or False")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("merge_schema", "no"),
        ("commit_empty", "no"),
        ("writer", 1),
        ("message", 1),
        ("author", b"x"),
        ("adopt", 1),
        ("checkpoint", b"x"),
        ("checkpoint", 1),
    ],
)
def test_a_sink_refuses_an_argument_before_the_query_starts(argument: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"True or False|must be text|a path or a URL"):
        fuse.fuse_sink("table", **{argument: value})


@pytest.mark.parametrize("paths", [1, None, [], (), "table", b"table"], ids=repr)
def test_an_optimizer_has_a_list_of_paths(paths: Any) -> None:
    with pytest.raises(InvalidInputError, match="paths must be a list"):
        fuse.Optimizer(paths)


@pytest.mark.parametrize("timestamp", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_is_in_the_years_1_to_9999_in_utc(table: fuse.Table, timestamp: str) -> None:
    def rewind(table: fuse.Table, value: str) -> None:
        fuse.rewind(table.location.path, timestamp=value)

    check_refused(table, rewind, timestamp, "years 1 to 9999")


# ---- locations

LOCATIONS: dict[str, Call] = {
    "create": lambda table, value: fuse.Table.create(value, SCHEMA),
    "open": lambda table, value: fuse.Table.open(value),
    "origins": lambda table, value: fuse.Table.open(table.location.path, origins=[value]),
    "audit": lambda table, value: fuse.audit(table.location.path, value),
    "audited": lambda table, value: fuse.audit(value, beside(table, "old")),
    "clone": lambda table, value: fuse.clone(table.location.path, value),
    "cloned": lambda table, value: fuse.clone(value, beside(table, "new")),
    "rebuild_checkpoint": lambda table, value: fuse.rebuild_checkpoint(
        table.location.path, value, app_id="a"
    ),
    "rebuilt": lambda table, value: fuse.rebuild_checkpoint(value, beside(table, "new")),
    "survivors": lambda table, value: fuse.rebuild_checkpoint(
        table.location.path, beside(table, "new"), app_id="a", survivors=value
    ),
    "rewind": lambda table, value: fuse.rewind(value, version=1, retire=["a"]),
    "one of two": lambda table, value: fuse.rewind(
        [table.location.path, value], version=1, retire=["a"]
    ),
    "checkpoints": lambda table, value: fuse.rewind(
        table.location.path, version=1, checkpoints={beside(table, "old"): value}
    ),
}


@pytest.mark.parametrize(
    ("verb", "location"),
    [
        (verb, location)
        for verb in LOCATIONS
        for location in (None, 5, b"/x", "\ud800", "memory://\ud800")
        if (verb, location) != ("survivors", None)
    ],
    ids=repr,
)
def test_a_location_is_a_path_or_a_url(table: fuse.Table, verb: str, location: Any) -> None:
    check_refused(table, LOCATIONS[verb], location, r"a path or a URL|no path can have")


@pytest.mark.parametrize("checkpoints", [5, "old", [("old", "new")], {"old"}], ids=repr)
def test_checkpoints_are_a_mapping(table: fuse.Table, checkpoints: Any) -> None:
    with pytest.raises(InvalidInputError, match="checkpoints is a mapping"):
        fuse.rewind(table.location.path, version=1, checkpoints=checkpoints)


def test_a_folder_whose_name_is_not_utf8_holds_a_table(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"plane-\xff")
    fuse.Table.create(path, SCHEMA).append(ROWS)

    assert fuse.Table.open(path).to_arrow().num_rows == 1


@pytest.mark.parametrize("odd", ["table", "clone", "origin"])
def test_a_clone_between_folders_whose_names_are_not_utf8_is_refused_and_leaves_no_pin(
    tmp_path: Path, odd: str
) -> None:
    names = {"origin": "origin", "table": "table", "clone": "clone"}
    places = {name: tmp_path / plain for name, plain in names.items()}
    fuse.Table.create(places["origin"], SCHEMA).append(ROWS)
    fuse.clone(places["origin"], places["table"])
    if odd in {"origin", "table"}:
        moved = tmp_path / os.fsdecode(b"plane-\xff")
        places[odd] = places[odd].rename(moved)
    else:
        places["clone"] = tmp_path / os.fsdecode(b"plane-\xff")

    with pytest.raises(InvalidInputError, match="UTF-8") as raised:
        fuse.clone(places["table"], places["clone"], origins=[places["origin"]])

    assert raised.value.context["path"] == str(tmp_path / os.fsdecode(b"plane-\xff"))
    assert not places["clone"].exists()
    pins = {name: len(fuse.Table.open(places[name]).clones()) for name in ("origin", "table")}
    assert pins == {"origin": 1, "table": 0}


@pytest.mark.parametrize("link_to", ["table", "table/below"])
def test_the_fork_of_a_checkpoint_is_not_within_a_table_by_a_link(
    table: fuse.Table, tmp_path: Path, link_to: str
) -> None:
    (tmp_path / link_to).mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / link_to)
    before = files_of(table)

    with pytest.raises(InvalidInputError, match="outside the tables"):
        fuse.rewind(
            table.location.path,
            version=1,
            checkpoints={tmp_path / "old": tmp_path / "link" / "new"},
        )
    assert files_of(table) == before


@pytest.mark.parametrize("link_to", ["table", "table/below"])
def test_a_clone_is_not_within_its_origin_by_a_link(
    table: fuse.Table, tmp_path: Path, link_to: str
) -> None:
    (tmp_path / link_to).mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / link_to)
    before = files_of(table)

    with pytest.raises(InvalidInputError, match="a folder of its own"):
        fuse.clone(table.location.path, tmp_path / "link" / "new")
    assert files_of(table) == before
