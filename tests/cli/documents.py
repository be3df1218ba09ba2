"""The output of every command with `--json`, on small real tables; `documents.json` holds it.

`python -m tests.cli.documents` writes that file anew. Values that differ from run to run are
replaced: ids, times, sizes in bytes, folders.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from fuse_stream.cli import doctor
from fuse_stream.cli.findings import Finding
from fuse_stream.cli.main import main
from fuse_stream.format.layout import block_key
from fuse_stream.optimizer.worker import Stop, Worker
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from tests.cli.conftest import SCHEMA, rows
from tests.cli.leases import put_lease
from tests.kit.sides import commit_sides, side_rows
from tests.recovery.checkpoints import log_files, put
from tests.recovery.streams import Query
from tests.trace.test_lineage import at, read_into

FILE = Path(__file__).with_name("documents.json")

Documents = dict[str, Any]
"""By usage, such as "tag PATH NAME"."""

FAST = {"fuse.cluster.depth": "1", "fuse.grace": "0s", "fuse.ledger.retain": "0s"}
"""Properties without waiting times and limits."""

_NOISE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{8,}"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "<time>"),
    (re.compile(r"\d+(\.\d+)? s (behind|ahead of)"), "<seconds>"),
)
_SIZE = re.compile(r"byte|_size$|bytes_|seconds|distinct")


def collect(folder: Path) -> Documents:
    """Run every command with `--json` on tables in an empty folder; return their documents."""
    return {usage: _plain(text, "", folder) for usage, text in _runs(folder)}


def run(*arguments: object) -> Any:
    """Run a command line with `--json`, and return the document, an error's too."""
    texts = [str(argument) for argument in arguments]
    result = CliRunner().invoke(main, [*texts, "--json"])
    assert result.exit_code in {0, 1}, result.output
    return json.loads(result.stdout or result.stderr)


def _runs(folder: Path) -> Iterator[tuple[str, Any]]:
    yield from _looking(folder / "flights", folder / "plain")
    yield from _columns(folder / "columns")
    yield from _naming(folder / "flights", folder / "clone")
    yield from _coming_and_going(folder)
    yield from _going_back(folder)
    yield from _changing(folder / "changed")
    yield from _indexes(folder / "indexed")
    yield from _events(folder / "events")
    yield from _checking(folder)
    yield from _maintaining(folder)


def _looking(path: Path, plain: Path) -> Iterator[tuple[str, Any]]:
    table = Table.create(path, SCHEMA, cluster_by=["id"], properties={"team": "a"})
    table.append(rows(1, 2, 3), batch_id=0)
    table.append(rows(4, 5), app_id="night", batch_id=1, writer="w", message="late", author="anna")
    table.overwrite(rows(1, 9), message="again\nsecond line")
    table.create_tag("good", 2, "90d")
    table.create_branch("fix", 1)
    Table.open(path, branch="fix").append(rows(7))
    Table.create(plain, pa.schema([("p", pa.struct([("d", pa.date32())])), ("x", pa.float64())]))
    Table.open(plain).append(
        pa.Table.from_pylist(
            [{"p": {"d": None}, "x": float("inf")}], schema=Table.open(plain).to_arrow().schema
        )
    )
    put_lease(table, "nightly", 1)
    silver = Table.create(path.with_name("silver"), SCHEMA)
    read_into(silver, at(table, 2), data=rows(1))
    yield "log PATH", run("log", path)
    yield "log PATH --limit N", run("log", path, "--limit", 1)
    yield "log PATH --graph", run("log", path, "--graph")
    yield "show PATH VERSION", run("show", path, 2)
    yield "show PATH", run("show", plain)
    yield "blocks PATH", run("blocks", path)
    yield "blocks PATH --stats COLUMN", run("blocks", plain, "--stats", "p.d")
    yield "ledger PATH", run("ledger", path)
    yield "ledger PATH of a table that reads others", run("ledger", silver.location.path)
    yield "lineage PATH", run("lineage", silver.location.path)
    yield "stats PATH", run("stats", path)
    yield "stats PATH --garbage", run("stats", path, "--garbage")
    report = run("report", path, "-o", path.with_name("page.html"))
    for check in report["checks"]:
        check["text"] = "<text>"  # it has ages
    yield "report PATH -o FILE", report
    yield "changes PATH START", run("changes", path, 1)
    yield "changes PATH START --blocks", run("changes", path, 2, "--blocks")
    yield "changes PATH START --rows", run("changes", path, 3, "--rows")
    yield "diff PATH A B", run("diff", path, 1, 3)
    yield "diff PATH A B --rows", run("diff", path, 1, 3, "--rows")
    yield "blame PATH WHERE", run("blame", path, "id IN (1, 9)")
    yield "bisect PATH WHERE", run("bisect", path, "id = 9")
    yield "consumers PATH", run("consumers", path)


def _columns(path: Path) -> Iterator[tuple[str, Any]]:
    Table.create(path, SCHEMA).append(rows(1))
    yield "schema PATH", run("schema", path)
    options = ("--rename", "name", "label", "--comment", "id", "of the row", "--add", "n", "long")
    yield "schema PATH --rename COLUMN NAME", run("schema", path, *options)


def _naming(path: Path, clone: Path) -> Iterator[tuple[str, Any]]:
    yield "tag PATH", run("tag", path)
    yield "tag PATH NAME", run("tag", path, "now")
    yield "tag PATH --delete NAME", run("tag", path, "--delete", "now")
    yield "branch PATH", run("branch", path)
    yield "branch PATH NAME", run("branch", path, "other")
    yield "branch PATH --delete NAME", run("branch", path, "--delete", "other")
    yield "clone PATH NEW_PATH", run("clone", path, clone)
    yield "unpin PATH", run("unpin", path)
    (clone / "_fuse.json").unlink()
    yield "restore-table-file PATH", run("restore-table-file", clone, "--origin", path)
    yield "unpin PATH CLONE_ID", run("unpin", path, Table.open(path).clones()[0].table_id)
    options = ("--expected-head", 3, "--retire", "night")
    yield "publish PATH SOURCE", run("publish", path, "fix", *options)


def _coming_and_going(folder: Path) -> Iterator[tuple[str, Any]]:
    file = folder / "files.parquet"
    pq.write_table(rows(1, 2), file)
    yield "import PATH NEW_PATH", run("import", file, folder / "imported")
    yield "copy PATH NEW_PATH", run("copy", folder / "imported", folder / "copied")


def _going_back(folder: Path) -> Iterator[tuple[str, Any]]:
    streamed, quiet, old = folder / "streamed", folder / "quiet", folder / "old"
    table = Table.create(streamed, pa.schema([("k", pa.int64())]))
    Table.create(quiet, table.to_arrow().schema)
    Query(table, LocalStore(old)).begin("11111111-2222-3333-4444-555555555555").run(6)
    shutil.copytree(streamed, folder / "copy")
    yield "blame PATH WHERE, a batch", run("blame", streamed, "k = 1")
    put_lease(table, "nightly", 6)
    put(LocalStore(old), {"commits/6": "v1\n{}"})
    yield "audit PATH CHECKPOINT", run("audit", streamed, old)
    (old / "commits" / "6").unlink()
    forked = ("--after-batch", 2, "--checkpoint", old)
    yield "rewind PATH PATH", run("rewind", streamed, quiet, *forked, folder / "a", "--dry-run")
    yield "rewind PATH --dry-run", run("rewind", streamed, "--version", 2, "--dry-run")
    yield "rewind PATH", run("rewind", streamed, *forked, folder / "b")
    yield "ledger PATH after a rewind", run("ledger", streamed)
    left = folder / "left"
    put(LocalStore(left), {f"sources/0/{name}": text for name, text in log_files(6).items()})
    again = ("rebuild-checkpoint", folder / "copy", folder / "new")
    yield "rebuild-checkpoint PATH NEW_CHECKPOINT", run(*again, "--survivors", left)
    release = ("--release", "nightly", "--force")
    yield "consumers PATH --release NAME", run("consumers", streamed, *release)


def _changing(path: Path) -> Iterator[tuple[str, Any]]:
    table = Table.create(path, SCHEMA, cluster_by=["id"])
    table.append(rows(1, 2, 3, 4))
    table.append(rows(5, 6))
    yield "delete PATH WHERE --dry-run", run("delete", path, "id > 3", "--dry-run")
    yield "delete PATH WHERE", run("delete", path, "id IN (2, 5)", "-m", "why")
    values = ("--set", "name='new'", "--set", "delay=NULL")
    yield "update PATH WHERE --set COLUMN=VALUE", run("update", path, "id = 3", *values)
    yield "update PATH WHERE --set COLUMN=VALUE, no row", run("update", path, "id = 3", *values)
    yield "show PATH, deleted rows", run("show", path)
    yield "blocks PATH, deleted rows", run("blocks", path)
    yield "stats PATH, deleted rows", run("stats", path)
    yield "fsck PATH, deleted rows", run("fsck", path)
    commit_sides(table, {"tombstones": side_rows("a", "b")})
    commit_sides(table, {}, hides={"tombstones": {"a"}})
    yield "show PATH, sides", run("show", path)
    yield "stats PATH, sides", run("stats", path)
    yield "erase PATH WHERE --dry-run", run("erase", path, "id = 2", "--dry-run")
    yield "erase PATH WHERE", run("erase", path, "id IN (2, 6)")
    one = path.with_name("erased")
    Table.create(one, SCHEMA).append(rows(1, 2))
    yield "erase PATH WHERE --verify", run("erase", one, "name = 'n2'", "--verify")


def _indexes(path: Path) -> Iterator[tuple[str, Any]]:
    Table.create(path, SCHEMA, properties={"fuse.block.rows": "2"}).append(rows(1, 2, 3, 4))
    sql = "SELECT count(*) AS n, max(delay) AS most FROM t"
    yield "indexes PATH --create NAME SQL", run("indexes", path, "--create", "late", sql)
    yield "indexes PATH --refresh", run("indexes", path, "--refresh")
    yield "indexes PATH --drop NAME", run("indexes", path, "--drop", "late")


def _events(path: Path) -> Iterator[tuple[str, Any]]:
    table = Table.create(path, SCHEMA)
    file = path.with_name("events.parquet")
    events = rows(1, 2, 3).append_column("seq", pa.array([1, 1, None], pa.int64()))
    pq.write_table(events, file)
    options = ("--key", "id", "--sequence-by", "seq", "--except", "seq")
    yield "upsert PATH FILE", run("upsert", path, file, *options)
    yield "quarantine PATH", run("quarantine", path)
    yield "retry PATH --dry-run", run("retry", path, "--dry-run")
    yield "retry PATH", run("retry", path)
    yield "erase PATH WHERE of events", run("erase", table.location.path, "name = 'n3'")


def _checking(folder: Path) -> Iterator[tuple[str, Any]]:
    yield "fsck PATH", run("fsck", folder / "plain")
    shutil.copytree(folder / "copy", broken := folder / "broken")
    (broken / block_key(Table.open(broken).blocks()[0].id)).unlink()
    yield "fsck PATH, damaged", run("fsck", broken, "--deep")
    with ExitStack() as stack:
        java = Finding(check="Java", found="17")
        stack.enter_context(patch.object(doctor, "check_java", lambda _: java))
        for name in ("check_packages", "check_spark_home", "check_workers", "check_plugins"):
            stack.enter_context(patch.object(doctor, name, lambda *_: ()))
        yield "doctor PATH", run("doctor", folder / "plain", "--no-write")
    yield "an error", run("show", folder / "plain", 99)


def _maintaining(folder: Path) -> Iterator[tuple[str, Any]]:
    path = folder / "heap"
    table = Table.create(path, SCHEMA, cluster_by=["id"], properties=FAST)
    for number in range(3):
        table.append(rows(number, 9), batch_id=number)
    yield "revert PATH VERSION", run("revert", path, 3)
    table.append(rows(2, 9), batch_id=3)
    yield "clustering PATH", run("clustering", path)
    yield "recluster PATH", run("recluster", path)
    for number in range(3):
        table.append(rows(number))
    yield "compact PATH", run("compact", path)
    yield "optimize PATH", run("optimize", path)
    for number in range(26):
        table.append(rows(number))
    with patch.object(Worker, "_wait", side_effect=Stop):
        yield "optimize PATH --watch", run("optimize", path, "--watch")
    yield "expire PATH --dry-run", run("expire", path, "--keep-last", 2, "--dry-run")
    yield "expire PATH", run("expire", path, "--keep-last", 2)
    yield "vacuum PATH", run("vacuum", path)


def _plain(value: object, key: str, folder: Path) -> Any:
    """Return a document in which the values that differ from run to run are replaced."""
    match value:
        case dict():
            return {_text(k, folder): _plain(item, k, folder) for k, item in value.items()}
        case list():
            return [_plain(item, key, folder) for item in value]
        case str():
            return _text(value, folder)
        case bool() | None:
            return value
        case int() | float() if _SIZE.search(key):
            return type(value)("seconds" in key or bool(value))
    return value


def _text(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "")
    for pattern, name in _NOISE:
        text = pattern.sub(name, text)
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        found = collect(Path(name).resolve())
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{len(found)} documents are in {FILE}\n")
