"""Every example of the documentation in Python and SQL, run in order as its page has it.

A page's examples share one session, one namespace, and one folder that has `/lake`, `/ckpt` and
`/tmp/start`. A table that is shown below an example in SQL is the result of its last statement.
A comment `<!-- not run: why -->` above an example leaves it out, `<!-- needs: module -->` where the
module is not installed.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from tests.kit.pages import ROOT, Example, examples_of, refused_on, statements_of
from tests.spark.lakes import FAILURES
from tests.spark.streams import deliver_table, run

PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]
START, START_SQL = "docs/getting-started.md", "docs/getting-started-sql.md"
RECOVERY = "docs/recovery.md"
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*Z?")
SIZE = re.compile(r"[\d.]+ [KM]iB")
ID = re.compile(r"\b[0-9a-f]{7,}(?:-[0-9a-f]+)*\b")
LINE = re.compile(r"-{2,}")
FLIGHTS = "carrier string, tailnum string, day int, dep_delay double"
MANY_ROWS = 100
BATCHES = 4
"""The batches that the query `flights` delivered to both tables; the first has no long delay."""


def deliver(source: Path) -> None:
    """Put one more file of flights into the folder of the stream `events`."""
    number = len(list(source.glob("*.parquet")))
    rows = pa.table(
        {
            "carrier": ["UA", "AA", "UA"],
            "tailnum": ["N14228", "N619AA", f"N{number:05}"],
            "day": pa.array([number] * 3, pa.int32()),
            "dep_delay": [2.0, 61.0, 1500.0] if number else [2.0, 1.0, 0.0],
        }
    )
    deliver_table(source.parent, number, rows)


def runs(page: str) -> bool:
    return any(example.language in {"python", "sql"} for example in examples_of(page))


def is_installed(module: str) -> bool:
    return not module or importlib.util.find_spec(module) is not None


class Lake:
    """The folder in which the examples of one page run, and the names that they share."""

    def __init__(self, session: SparkSession, source: Path, folder: Path) -> None:
        self.session, self.source, self.folder = session, source, folder
        self.catalogs: list[fuse.Catalog] = []
        self.names: dict[str, Any] = {
            "spark": session,
            "fuse": fuse,
            "events": session.readStream.schema(FLIGHTS).parquet(str(source)),
            "df": session.createDataFrame([("UA", "N14228", 1, 70.0)], FLIGHTS),
        }

    def place(self, text: str) -> str:
        """Return the text of an example with its places in this folder."""
        return re.sub(r"(?<![\w.])/(lake|ckpt|tmp/start)\b", rf"{self.folder}/\1", text)

    def run_python(self, example: Example) -> str:
        """Run an example and read the frames that it defines; return its output."""
        if "events" in example.code:
            deliver(self.source)
        before = dict(self.names)
        shown = io.StringIO()
        code = "\n" * (example.line - 1) + self.place(example.code)
        with contextlib.redirect_stdout(shown):
            for statement in ast.parse(code).body:
                if isinstance(statement, ast.Expr):
                    source = compile(ast.Expression(statement.value), example.page, "eval")
                    self.use(eval(source, self.names))
                else:
                    source = compile(ast.Module([statement], []), example.page, "exec")
                    exec(source, self.names)
        self.settle()
        for name, value in self.names.items():
            if name not in before or before[name] is not value:
                self.use(value)
        return shown.getvalue()

    def run_sql(self, example: Example) -> str:
        """Run the statements of an example; return the rows of the last one that has columns."""
        shown = io.StringIO()
        for statement in statements_of(example.code):
            rows = self.session.sql(self.place(statement))
            if rows.columns:
                shown = io.StringIO()
                with contextlib.redirect_stdout(shown):
                    rows.show(MANY_ROWS, truncate=False)
        return shown.getvalue()

    def use(self, value: object) -> None:
        """Read the frames that an example defines and does not read; note its catalogs."""
        if isinstance(value, DataFrame) and not value.isStreaming:
            value.collect()
        if isinstance(value, fuse.Catalog):
            self.catalogs.append(value)

    def settle(self) -> None:
        """Let the queries process the available data, and stop them."""
        for query in self.session.streams.active:
            query.processAllAvailable()
            query.stop()

    def run_shell(self, example: Example) -> str:
        """Run an example as a shell does; return its output."""
        done = subprocess.run(
            ["bash", "-euc", self.place(example.code)],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "COLUMNS": "120",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{example.page}:{example.line}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tables that the query `flights` has written, its checkpoint and source."""
    folder = tmp_path_factory.mktemp("filled")
    for _ in range(BATCHES):
        deliver(folder / "source")
    flights = fuse.fuse_sink(folder / "lake" / "flights", app_id="flights")
    delays = fuse.fuse_sink(folder / "lake" / "delays", app_id="flights", commit_empty=True)

    def both(batch: DataFrame, batch_id: int) -> None:
        flights(batch, batch_id)
        delays(batch.where("dep_delay > 60"), batch_id)

    reader = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", 1)
    run(reader.parquet(str(folder / "source")), both, folder / "ckpt" / "flights")
    return folder


@pytest.fixture
def lake(spark: SparkSession, filled: Path, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(spark.newSession(), filled / "source", tmp_path)
    yield made
    made.settle()
    made.session.catalog.setCurrentCatalog("spark_catalog")
    for catalog in made.catalogs:
        catalog.detach()


@pytest.fixture
def no_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if an example makes the package log a warning."""
    caplog.set_level(logging.WARNING, logger="fuse_stream")
    yield
    assert [r.getMessage() for r in caplog.records if r.name.startswith("fuse_stream")] == []


def prepare(lake: Lake, filled: Path, example: Example) -> None:
    """Make the tables that a page, or a chapter of the recovery page, uses."""
    for name in ("lake", "ckpt"):
        shutil.rmtree(lake.folder / name, ignore_errors=True)
    if example.page == "README.md":
        return
    shutil.copytree(filled / "lake", lake.folder / "lake")
    if example.page != RECOVERY:
        append_as(lake, "loader", 10)
        return
    shutil.copytree(filled / "ckpt", lake.folder / "ckpt")
    if example.chapter == "After a bad deploy":
        append_as(lake, "nightly", 1)


def append_as(lake: Lake, application: str, batches: int) -> None:
    table = fuse.Table.open(lake.folder / "lake" / "flights")
    rows = table.to_arrow(version=1)
    for batch_id in range(batches):
        table.append(rows, app_id=application, batch_id=batch_id)


def marked(page: str) -> Any:
    """Return a page as a parameter: in minutes run the first ones that a newcomer reads."""
    return page if page in {"README.md", START} else pytest.param(page, marks=pytest.mark.long)


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize(
    "page", [marked(page) for page in PAGES if page not in {START, START_SQL} and runs(page)]
)
def test_the_examples_of_a_page_run(page: str, lake: Lake, filled: Path) -> None:
    prepared = shown = ""
    for example in examples_of(page):
        if not example.language and shown and example.code.startswith("+-"):
            assert masked(shown) == masked(lake.place(example.code)), example.line
        shown = ""
        is_shell = page == RECOVERY and example.language == "bash"
        is_run = is_shell or example.language in {"python", "sql"}
        if not is_run or example.not_run or not is_installed(example.needs):
            continue
        part = example.chapter if page == RECOVERY else page
        if part != prepared:
            prepare(lake, filled, example)
            prepared = part
        match example.language:
            case "bash":
                lake.run_shell(example)
            case "sql":
                shown = lake.run_sql(example)
            case _:
                lake.run_python(example)


@pytest.mark.parametrize("page", [page for page in PAGES if refused_on(page)])
def test_what_a_page_calls_refused_is_refused_and_changes_nothing(
    page: str, lake: Lake, filled: Path
) -> None:
    shutil.copytree(filled / "lake", lake.folder / "lake")
    lake.use(fuse.attach(lake.session, "lake", lake.folder / "lake"))
    before = fuse.Table.open(lake.folder / "lake" / "flights").head()
    for statement, error in refused_on(page):
        with pytest.raises(FAILURES) as refused:
            lake.session.sql(lake.place(statement)).collect()
        assert error in str(refused.value), statement

    assert fuse.Table.open(lake.folder / "lake" / "flights").head() == before
    assert sorted(path.name for path in (lake.folder / "lake").iterdir()) == ["delays", "flights"]


def test_with_commit_empty_a_table_has_a_first_batch_without_rows(filled: Path) -> None:
    delays = fuse.Table.open(filled / "lake" / "delays")

    assert [commit.summary.row_count for commit in delays.log()] == [6, 4, 2, 0, 0]
    assert delays.snapshot(1).ledger.entries["flights", ""].batch_id == 0


def masked(text: str) -> str:
    """Return a text without what differs from run to run, and without its layout."""
    for pattern, name in ((TIME, "TIME"), (SIZE, "SIZE"), (ID, "ID"), (LINE, "-")):
        text = pattern.sub(name, text)
    lines = (" ".join(line.split()) for line in text.strip().splitlines())
    return "\n".join(re.sub(r" ?\| ?", "|", line) for line in lines)


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("page", [marked(page) for page in (START, START_SQL)])
def test_getting_started_runs_and_prints_the_shown_output(page: str, lake: Lake) -> None:
    shown = ""
    for example in examples_of(page):
        if example.not_run:
            continue
        match example.language:
            case "python":
                shown = lake.run_python(example)
            case "bash":
                shown = lake.run_shell(example)
            case "sql":
                shown = lake.run_sql(example)
            case _:
                assert masked(shown) == masked(lake.place(example.code)), example.line


def test_few_examples_are_left_out() -> None:
    left_out = [example for page in PAGES for example in examples_of(page) if example.not_run]

    assert [(example.page, example.not_run) for example in left_out] == [
        ("README.md", "it needs a topic; docs/cdc.md has one"),
        ("docs/coming-and-going.md", "it needs Iceberg's JAR"),
        (START, "it installs the package that the test runs with"),
        (
            "docs/operations.md",
            "tests/erasure/test_example.py runs it, where hours pass at once",
        ),
        ("docs/sql.md", "tests/spark/test_sql_server.py runs such a client beside a server"),
    ]
