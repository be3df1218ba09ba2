"""Text that others wrote into a table never controls the terminal, whichever command shows it.

Each command of the group has its cases here; they run on a table whose every text is hostile, and
on the same with damaged names. A command that is added needs cases: a test asks for them.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from fuse_stream.cli.main import main
from fuse_stream.cli.output import Output
from fuse_stream.errors import FuseError
from fuse_stream.format.layout import TABLE_KEY, tag_ref_key
from fuse_stream.optimizer.optimizer import Optimizer
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from tests.cli.leases import put_lease
from tests.recovery.checkpoints import log_files, put
from tests.recovery.streams import Query

MARK = "owned"
EVIL = (
    f"[red]\x1b]0;{MARK}\x07\x1b[2J[/red][/]:skull:\x7f\x85\x9b31m\u202eabc\u2066\u200b\u2028x\u2029"
    "\t\r\nSPOOF\x00\ufeff\U000e0041\r"
    "\x1b]8;;http://x.invalid\x1b\\link\x1b]8;;\x1b\\\x90q\x9c\u061c\u2028\u2069"
    "<b onload>&amp;</b>[a](http://x.invalid)**b**`c`|d|"
)
COLUMN = EVIL.replace("\x00", "")
"""A name: one with a null character is refused."""
FOLDER = EVIL.replace("/", "").replace("\x00", "")
FROM_RICH = re.compile(r"\x1b\[([0-9;]*m|\?25[lh]|1A|2K)")
"""Codes of colours and of redrawing a progress bar."""

Arguments = list[object]


@dataclass(frozen=True)
class World:
    """Paths of the tables and checkpoints."""

    root: Path

    @property
    def table(self) -> Path:
        return self.root / "table"

    @property
    def streamed(self) -> Path:
        """A table of a query with a checkpoint."""
        return self.root / "streamed"

    @property
    def kept(self) -> Path:
        """A table with events in its quarantine."""
        return self.root / "kept"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def new(self) -> Path:
        return self.root / "new"

    @property
    def where(self) -> str:
        """A predicate that is true for every row."""
        return f"`{COLUMN.replace('`', '``')}` IS NOT NULL"


Cases = Callable[[World], list[Arguments]]


def without_file(table: Path) -> Path:
    (table / TABLE_KEY).unlink(missing_ok=True)
    return table


CASES: dict[str, Cases] = {
    "audit": lambda at: [
        [at.streamed, at.checkpoint],
        [at.streamed, at.checkpoint, "--app-id", EVIL],
    ],
    "bisect": lambda at: [
        [at.table, at.where],
        [at.table, f"{EVIL} ="],
        [at.table, f"`x{EVIL}` = 1"],
    ],
    "blame": lambda at: [[at.table, at.where], [at.table, f"'{EVIL}"], [at.streamed, "k > 0"]],
    "blocks": lambda at: [
        [at.table],
        [at.table, "--stats", COLUMN],
        [at.table, "--stats", f"x{EVIL}"],
    ],
    "branch": lambda at: [
        [at.table],
        [at.table, EVIL],
        [at.table, "new"],
        [at.table, EVIL, "--delete"],
    ],
    "changes": lambda at: [
        [at.table, 0],
        [at.table, 0, "--rows"],
        [at.table, 0, "--blocks"],
        [at.table, 0, "--rows", "--columns", COLUMN],
        [at.table, 0, "--rows", "--columns", f"x{EVIL}"],
        [at.table, 0, "--rows", "--where", at.where],
    ],
    "clone": lambda at: [[at.table, at.new], [at.table, at.streamed]],
    "copy": lambda at: [[at.table, at.new], [at.table, at.streamed]],
    "clustering": lambda at: [[at.table], [at.table, "--branch", EVIL]],
    "compact": lambda at: [[at.table], [at.streamed]],
    "consumers": lambda at: [
        [at.table],
        [at.table, "--release", EVIL],
        [at.table, "--release", "fast"],
    ],
    "delete": lambda at: [
        [at.table, at.where, "-m", EVIL, "--author", EVIL],
        [at.table, f"'{EVIL}"],
        [at.table, at.where, "--dry-run", "--branch", EVIL],
    ],
    "diff": lambda at: [[at.table, 0, 2], [at.table, 0, 2, "--rows"], [at.table, EVIL, 1]],
    "doctor": lambda at: [[at.table]],
    "erase": lambda at: [
        [at.table, at.where, "--dry-run"],
        [at.table, f"'{EVIL}"],
        [at.table, at.where, "-m", EVIL, "--author", EVIL],
        [at.table, at.where, "--verify"],
    ],
    "expire": lambda at: [
        [at.table, "--keep-last", 1, "--dry-run"],
        [at.table, "--older-than", EVIL],
        [at.table, "--keep-last", 1],
    ],
    "fsck": lambda at: [[at.table], [at.table, "--deep"], [at.streamed]],
    "import": lambda at: [[at.table, at.new], [at.root / EVIL, at.new]],
    "indexes": lambda at: [
        [at.table, "--create", EVIL, "SELECT count(*) FROM t"],
        [at.table, "--create", "one", f"SELECT count(*) AS `{EVIL}` FROM t"],
        [at.table, "--create", "two", f"SELECT {EVIL}"],
        [at.table, "--create", "two", f"SELECT count(`{EVIL}`) FROM t"],
        [at.table, "--refresh"],
        [at.table, "--drop", EVIL],
        [at.table, "--drop", "one"],
    ],
    "ledger": lambda at: [[at.table], [at.streamed]],
    "lineage": lambda at: [[at.table], [at.streamed]],
    "log": lambda at: [
        [at.table],
        [at.table, "--graph"],
        [at.streamed],
        [at.table, "--branch", "fix"],
    ],
    "optimize": lambda at: [[at.table], [at.table, "--limit", EVIL]],
    "publish": lambda at: [
        [at.table, "fix", "-m", EVIL, "--author", EVIL],
        [at.table, EVIL],
        [at.table, "fix", "--expected-head", 4, "--retire", EVIL],
    ],
    "quarantine": lambda at: [[at.table], [at.kept], [at.kept, "--where", EVIL]],
    "rebuild-checkpoint": lambda at: [
        [at.streamed, at.new],
        [at.streamed, at.new, "--app-id", EVIL],
        [at.streamed, at.new, "--app-id", EVIL, "--survivors", at.checkpoint],
    ],
    "recluster": lambda at: [[at.table], [at.streamed]],
    "report": lambda at: [
        [at.table, "-o", at.root / "page.html"],
        [at.table, "-o", at.root / "nowhere" / FOLDER],
        [at.table, "-o", at.root / "page.html", "--every", EVIL],
    ],
    "restore-table-file": lambda at: [
        [at.table],
        [without_file(at.streamed)],
        [without_file(at.root / "clone")],
        [at.root / "clone", "--origin", at.table],
    ],
    "retry": lambda at: [
        [at.table],
        [at.kept, "--dry-run"],
        [at.kept, "--where", EVIL],
        [at.kept, "-m", EVIL, "--author", EVIL],
    ],
    "revert": lambda at: [[at.table, 2, "-m", EVIL, "--author", EVIL], [at.table, EVIL]],
    "rewind": lambda at: [
        [at.streamed, "--version", 2, "--dry-run"],
        [at.streamed, "--after-batch", 2, "--app-id", EVIL, "--checkpoint", at.checkpoint, at.new],
        [at.table, "--timestamp", EVIL],
        [at.streamed, "--version", 2, "--retire", EVIL, "-m", EVIL],
    ],
    "schema": lambda at: [
        [at.table],
        [at.table, "--rename", "k", EVIL, "-m", EVIL, "--author", EVIL],
        [at.table, "--add", EVIL, "string", "--comment", EVIL, EVIL],
        [at.table, "--drop", EVIL],
        [at.table, "--add", "n", EVIL],
    ],
    "show": lambda at: [[at.table], [at.table, 2], [at.streamed], [at.table, EVIL]],
    "stats": lambda at: [[at.table], [at.streamed], [at.table, "--garbage"]],
    "tag": lambda at: [
        [at.table],
        [at.table, EVIL],
        [at.table, "new"],
        [at.table, "n", "--retain", EVIL],
    ],
    "unpin": lambda at: [[at.table], [at.table, EVIL]],
    "update": lambda at: [
        [at.table, at.where, "--set", f"{COLUMN}='{EVIL}'", "-m", EVIL],
        [at.table, at.where, "--set", f"x{EVIL}=1"],
        [at.table, at.where, "--set", EVIL],
        [at.table, "true", "--set", f"{COLUMN}={EVIL}"],
    ],
    "upsert": lambda at: [
        [at.table, at.table / TABLE_KEY, "--key", EVIL],
        [at.table, at.root / FOLDER],
        [at.kept, at.table / TABLE_KEY, "--sequence-by", EVIL, "--deletes", EVIL],
    ],
    "vacuum": lambda at: [[at.table, "--dry-run"], [at.table]],
}


def made(root: Path) -> World:
    """Make a world whose every text is hostile."""
    at = World(root)
    part = pa.struct([(COLUMN, pa.string())])
    schema = pa.schema([("k", pa.int64()), (COLUMN, pa.string()), ("part", part)])
    table = Table.create(at.table, schema, cluster_by=[COLUMN], properties={EVIL: EVIL})

    def row(number: int) -> pa.Table:
        return pa.table([[number], [f"{EVIL}{number}"], [{COLUMN: EVIL}]], schema=schema)

    for number in range(3):
        table.append(
            row(number),
            app_id=EVIL,
            batch_id=number,
            writer=EVIL,
            author=EVIL,
            message=f"{EVIL}\n{EVIL}",
        )
    table.create_tag("good")
    table.create_branch("fix")
    Table.open(at.table, branch="fix").append(row(9), message=EVIL, author=EVIL)
    put_lease(table, "slow", 1)
    put_lease(table, "fast", 2, lease_us=1)
    clone(at.table, at.root / "clone")
    bad = pa.table({"k": pa.array([1, None]), COLUMN: [EVIL, EVIL], "seq": [1, 2]})
    kept = Table.create(at.kept, bad.schema)
    kept.upsert(bad, keys=["k"], sequence_by="seq", app_id=EVIL, batch_id=0, writer=EVIL)
    streamed = Table.create(at.streamed, pa.schema([("k", pa.int64())]))
    checkpoint = LocalStore(at.checkpoint)
    query = Query(streamed, checkpoint, application=EVIL, writers=(EVIL,)).begin(EVIL)
    put(checkpoint, {f"sources/0/{name}": text for name, text in log_files(4).items()})
    query.run(4)
    return at


def damage(at: World) -> None:
    """Put hostile names in places that normally hold checked names."""
    for folder in ("_refs/branches", "_refs/tags", "_leases", "_b", "_ss/main"):
        (at.table / folder / f"{FOLDER}.json").write_text(EVIL)
    key = at.table / tag_ref_key("good")
    key.write_bytes(key.read_bytes().replace(b'"good"', json.dumps(EVIL).encode()))
    for batch in ("offsets/9", "commits/9"):
        (at.checkpoint / batch).write_text(EVIL)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("hostile") / FOLDER
    made(root)
    return root


@pytest.fixture
def world(template: Path, tmp_path: Path) -> World:
    return World(Path(shutil.copytree(template, tmp_path / FOLDER)))


@pytest.fixture(autouse=True)
def hostile_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "JAVA_HOME"):
        monkeypatch.setenv(name, FOLDER)


def all_commands(group: click.Group, *above: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, *above, name)
        else:
            yield " ".join([*above, name])


def invoke(*arguments: object) -> Result:
    # As in a pipe: a worker of pytest has a width, which would wrap a text.
    unlimited = CliRunner(env={"COLUMNS": None})
    return unlimited.invoke(main, [str(argument) for argument in arguments])


def every_case(name: str, world: World) -> list[Arguments]:
    """Return the cases of a command, and two of every command: a missing table, and wrong usage."""
    return [*CASES[name](world), [world.root / "nothing"], [world.table, *[EVIL] * 4]]


def assert_harmless(shown: str, *, allowed: str = "\n") -> None:
    raw = {char for char in FROM_RICH.sub("", shown) if not char.isprintable()}
    assert raw <= set(allowed), shown


def texts(value: object) -> Iterator[str]:
    """Yield every text in a JSON document, names included."""
    match value:
        case str():
            yield value
        case dict():
            for name, item in value.items():
                yield name
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)


def documents(result: Result) -> list[Any]:
    """Return the documents that a run printed; check that the other text on stderr is harmless."""
    shown = [result.stdout, result.stderr] if result.stderr.startswith("{") else [result.stdout]
    assert_harmless(result.stdout + result.stderr)
    return [json.loads(text) for text in shown if text]


def test_every_command_has_its_cases() -> None:
    shown = set(all_commands(main)) - {"sql-server"}  # which shows nothing of a table

    assert sorted(CASES) == sorted(shown)


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_each_hostile_text_is_shown_on_one_line_without_control_characters(
    world: World, name: str, *, damaged: bool
) -> None:
    if damaged:
        damage(world)
    results = [invoke(name, *arguments) for arguments in every_case(name, world)]
    shown = "".join(result.stdout + result.stderr for result in results)

    assert "Traceback" not in shown
    assert MARK in shown
    assert_harmless(shown)
    assert not re.search(r"^SPOOF", shown, re.MULTILINE), shown
    assert not re.search(rf"(?<!\[red\]\\x1b)\]0;{MARK}", shown), shown  # markup is shown as text


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_terminal_gets_no_codes_but_those_of_colours_and_progress(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in {"TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": "70"}.items():
        monkeypatch.setenv(variable, value)
    results = [invoke(name, *arguments) for arguments in every_case(name, world)]
    shown = "".join(result.stdout + result.stderr for result in results)

    assert "\x1b[" in shown
    assert_harmless(shown, allowed="\n\r")  # a progress bar returns to its line's start


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_json_holds_the_exact_text_and_no_control_character(
    world: World, name: str, *, damaged: bool
) -> None:
    if damaged:
        damage(world)
    found: list[str] = []
    for arguments in every_case(name, world):
        for document in documents(invoke(name, *arguments, "--json")):
            found += texts(document)

    assert any(EVIL in text or FOLDER in text for text in found)


# ---- output outside the views


def fail(error: Exception) -> None:
    raise error


def make_progress() -> None:
    with Output().progress(EVIL) as meter:
        meter.say(EVIL, 1, 2)


SHOUTS: dict[str, Callable[[], object]] = {
    "click": lambda: click.echo(EVIL),
    "click on stderr": lambda: click.echo(EVIL, err=True),
    "stdout": lambda: sys.stdout.write(EVIL),
    "stderr": lambda: sys.stderr.writelines([EVIL, EVIL]),
    # The handler of a log without handlers; pytest adds one to the root.
    "log": lambda: logging._StderrHandler().handle(logging.makeLogRecord({"msg": EVIL})),  # type: ignore[attr-defined]  # noqa: SLF001
    "text": lambda: Output().show(EVIL, f"[bold]{EVIL}"),
    "note": lambda: Output().note(EVIL),
    "progress": make_progress,
    "error": lambda: fail(FuseError(EVIL, **{EVIL: EVIL})),
    "any error": lambda: fail(LookupError(EVIL)),
    "usage": lambda: fail(click.BadParameter(EVIL)),
    "repr": lambda: click.echo(repr(Optimizer([EVIL]))),
}


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("way", SHOUTS)
def test_all_output_goes_through_the_streams_or_the_console(
    monkeypatch: pytest.MonkeyPatch, way: str, *, is_terminal: bool
) -> None:
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setitem(main.commands, "shout", click.Command("shout", callback=SHOUTS[way]))
    result = invoke("shout")
    shown = result.stdout + result.stderr

    assert MARK in shown or (way == "progress" and not is_terminal)
    assert_harmless(shown, allowed="\n\r" if is_terminal else "\n")
    assert shown.count(f"]0;{MARK}") == len(re.findall(rf"\[red\]\\+x1b\]0;{MARK}", shown))


def test_the_streams_are_restored_after_a_run() -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(SystemExit):
        main(["--version"])

    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_the_optimizer_reports_its_work_without_control_characters(
    world: World, option: list[str]
) -> None:
    table = Table.open(world.table)
    for number in range(26):
        table.append(table.to_arrow(version=1).slice(0, 1), app_id=EVIL, batch_id=3 + number)
    command = [sys.executable, "-m", "fuse_stream.cli.main", "optimize", "--watch", *option]
    paths = [str(world.table), str(world.root / "nothing")]
    process = subprocess.Popen(
        [*command, *paths], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        left, complaints = process.communicate(timeout=60)

    assert_harmless(line + left + complaints)
    assert MARK in line
    if option:
        assert json.loads(line)["path"] in paths


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_path_that_is_not_valid_text_is_shown(tmp_path: Path, option: list[str]) -> None:
    path = tmp_path / "\udcff"
    Table.create(path, pa.schema([("k", pa.int64())]))
    found, missing = invoke("ledger", path, *option), invoke("log", path / "x", *option)

    assert (found.exit_code, missing.exit_code) == (0, 1)
    assert r"\udcff" in missing.stderr
    if option:
        assert json.loads(found.stdout)["path"] == str(path)
