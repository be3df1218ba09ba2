"""No loop of the package is endless, whatever damage or a hostile store returns.

A loop that asks the store runs over a range whose length has a name, or over what was listed. Every
other one is listed here, with what ends it. A new loop fails this test first: prefer a `for`
over a bounded range, with an error after it that says what to do.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "fuse_stream"
ASKING = frozenset(
    {
        "check",
        "checkpoint",
        "commit",
        "dml",
        "expiry",
        "feed",
        "indexes",
        "objects",
        "optimize",
        "optimizer",
        "reading",
        "recovery",
        "refs",
        "storage",
        "table",
        "trace",
        "transfer",
    }
)
"""Rooms whose functions may reach a store; in the others a recursion is over a value."""

HALVES = "what is left is halved each time"
HASHES = "each snapshot is found by its hash in the one before: such a chain has no circle"
SHRINKS = "a collection in memory gets shorter each time"
FORWARD = "it moves on over bytes or rows in memory"

LOOPS = {
    "format/names_in_files.py name_in_files": "there are fewer names than rounds",
    "reading/line.py load_line": "each round looks at an earlier version",
    "reading/line.py find_base": "each round looks at an earlier version",
    "check/fsck.py check_table": "a branch, tag or clone was deleted since the last check began",
    "commit/missing_batches.py _iter_ledgers": "each round looks at an earlier version",
    "cli/doctor.py _check_folder": "it goes up to a folder that is there; the root is",
    "cli/doctor_python.py _release": SHRINKS,
    "spark/jvm/snapshot_views.py _keep": SHRINKS,
    "spark/jvm/packing.py limit": HALVES,
    "spark/jvm/file_scan.py _number": "each round leaves seven bits less",
    "cli/graph.py _choose_lanes": SHRINKS,
    "table/metadata_tables.py iter_batches": "the rows are made of what was listed",
    "cli/report.py report": "until SIGTERM or Ctrl-C; it waits",
    "cli/graph.py load_graph": "at most `limit` lines",
    "cli/lineage.py _lines": "each table is walked once",
    "trace/lineage.py trace_sources": "each table is opened once, and has a list of sources",
    "spark/wait_for_table.py wait_for_table": "until the time that the caller gave; it waits",
    "format/lazy_blocks.py _pieces": FORWARD,
    "format/one_line.py line_of": SHRINKS,
    "format/codec.py _read_bounded": "at most `limit` bytes",
    "indexes/sql.py _listed": FORWARD,
    "predicate/casts.py _first": HALVES,
    "predicate/parse.py _check_tree_depth": "it goes down a tree that was parsed",
    "predicate/parse.py _column": "it goes down a tree that was parsed",
    "predicate/parse.py _flat": "it goes down a tree that was parsed",
    "optimize/claim.py _renew_until": "until the work is done; it waits in between",
    "optimize/fingerprint.py _hashes": "it goes down the type of a column",
    "optimize/fingerprint.py _sequence_hashes": FORWARD,
    "optimize/fingerprint.py _text_hashes": "once, with other strings",
    "optimize/overlap.py depths_of": SHRINKS,
    "storage/parallel.py each": SHRINKS,
    "storage/local.py get_up_to": "until the size that the file has, or its end",
    "optimize/rewrite.py pieces": FORWARD,
    "objects/object_cache.py keep": SHRINKS,
    "objects/block_columns.py _keep": SHRINKS,
    "check/deletion_files.py _keep": SHRINKS,
    "dml/events.py _check_orderable": "it goes down the type of a column",
    "dml/fitted_events.py _lacks": "it goes down the type of a column",
    "dml/update.py _is_kept": "it goes down a value",
    "spark/types.py unused_name": "a name becomes longer than those of the table's columns",
    "reading/history.py _check_named_by_next": "`MOST_SUCCESSORS` versions",
    "reading/history.py get_first_from": HALVES,
    "reading/history.py _iter_loaded": SHRINKS,
    "storage/parallel.py _settle_until": SHRINKS,
    "reading/scan.py _top_columns": "it goes down the type of a column",
    "feed/views.py _exchanged": "it goes down the type of a column",
    "feed/views.py _shape": "it goes down the type of a column",
    "feed/views.py _unlike_files": "it goes down the type of a column",
    "feed/views.py schema_difference": "it goes down the type of a column",
    "reading/tasks.py split_work": "`count` gets less",
    "feed/diff.py find_commit_path": HASHES,
    "reading/history.py iter_sources": HASHES,
    "check/audit.py _ids_of": "the set of queries grows, up to those of the ledger",
    "trace/bisect.py bisect": HALVES,
    "trace/blame.py run": HASHES,
    "table/history.py delete_branch": "no recursion: the function of that name",
    "table/history.py delete_tag": "no recursion: the function of that name",
    "recovery/losses.py get_undone": HASHES,
    "recovery/cuts.py _iter_places": "each table is seen once; up to those of the clone",
    "recovery/ledgers.py _family": "the set of queries grows, up to those of the ledger",
    "recovery/ledgers.py _is_continued": "the set of queries grows, up to those of the ledger",
    "reading/line.py was_published": "each step is to an earlier version",
    "recovery/pipeline.py upstream": "each table is looked at once",
    "recovery/closure.py close": "a cut or a target goes back, and has finitely many before it",
    "expiry/fence.py _find_epoch": HALVES,
    "check/slots.py walk": "what was listed, and `MOST_MISSED` versions before each gap",
    "optimizer/main.py _listen": "until its input ends; it waits in between",
    "optimizer/process.py _relay_log": "until the child's output ends; it waits in between",
    "optimizer/worker.py _wait": "until nothing more was told",
    "optimizer/worker.py run": "until it is stopped; it waits `MIN_PAUSE_US` for each table",
    "spark/identity.py find_offsets": SHRINKS,
    "spark/where.py read_condition": "it counts what is asked of one text",
    "spark/expression_tree.py _uncast": "it goes down a tree that was parsed",
    "spark/format_read.py partitions": "the end that is read up to was fixed before",
    "storage/adapters.py _walk": "it goes down a folder",
    "storage/secrets.py causes": "each error once",
    "format/page_headers.py has_checksums": FORWARD,
    "format/page_headers.py struct": FORWARD,
    "objects/adopted.py _leaves": "it goes down the type of a column",
    "transfer/delta.py _column": "it goes down the type of a column",
    "storage/local.py make_folder": "it goes up to a folder that is there; the root is",
    "storage/local.py write_through": SHRINKS,
    "storage/local.py _scan": "it goes down a folder",
    "storage/local.py list": "no recursion: another object's method",
    "storage/secrets.py _secrets": "it goes down a value",
}

BOUNDS = [
    ("commit.committer", "ATTEMPTS"),
    ("commit.slot_put", "SLOT_ATTEMPTS"),
    ("optimize.recluster", "MOST_ROUNDS"),
    ("expiry.vacuum", "MOST_ROUNDS"),
    ("expiry.vacuum", "_ATTEMPTS"),
    ("objects.leases", "_ATTEMPTS"),
    ("objects.head_search", "MOST_ROUNDS"),
    ("refs.create", "ATTEMPTS"),
    ("optimizer.worker", "MOST_STEPS"),
    ("transfer.copy_history", "ATTEMPTS"),
    ("transfer.copy_snapshot", "ATTEMPTS"),
]
"""Limits on repeated requests to a store."""

LOADED = "each version is loaded, and the first that is lost ends it"

RANGES = {
    "check/slots.py walk": "`AHEAD` versions",
    "objects/slots.py _search": "`HINT_EVERY` versions, and one step more",
    "objects/head_search.py _between": "as many versions as are asked for in one round",
    "expiry/mark.py _places": "`MOST_UNLISTED` versions more than were listed",
    "feed/consumers.py _rows": LOADED,
    "feed/tasks.py iter_block_rows": "over the rows of a block",
    "feed/tasks.py plan_block_tasks": "over the blocks of a unit",
    "commit/missing_batches.py _iter_ledgers": LOADED,
    "commit/missing_batches.py _last_seen": LOADED,
    "reading/history.py iter_back": LOADED,
    "reading/history.py iter_between": LOADED,
    "reading/line.py iter_steps": LOADED,
    "reading/line.py iter_back": LOADED,
    "reading/line.py _find_start": LOADED,
    "checkpoint/source_log.py plan_log_cut": "over a checkpoint's batches that were listed",
}
"""Ranges over versions: a number that damage or a stray object made may be any."""

_ENDS = re.compile(r"version|\b(start|end|first|last|oldest)\b")


def _loops(node: ast.AST, scope: str, *, is_asking: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                inner = name
            case ast.While():
                yield scope
            case ast.Call(func=ast.Name(id="iter"), args=[_, _]):
                yield scope
            case ast.Attribute(value=ast.Name(id="itertools"), attr="count" | "cycle" | "repeat"):
                yield scope
            case ast.ImportFrom(module="itertools", names=names):
                if {alias.name for alias in names} & {"count", "cycle", "repeat"}:
                    yield scope
            case (
                ast.Call(func=ast.Name(id=name))
                | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))
            ):
                if is_asking and name == scope:
                    yield scope
        yield from _loops(child, inner, is_asking=is_asking)


def _found() -> set[str]:
    found = set()
    for path in ROOT.rglob("*.py"):
        below = path.relative_to(ROOT)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        loops = _loops(tree, "the module", is_asking=below.parts[0] in ASKING)
        found |= {f"{below.as_posix()} {scope}" for scope in loops}
    return found


def _ranges() -> set[str]:
    found = set()
    for path in ROOT.rglob("*.py"):
        below = path.relative_to(ROOT)
        if below.parts[0] not in ASKING:
            continue
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                text = ast.unparse(node) if isinstance(node, ast.Call) else ""
                if text.startswith("range(") and _ENDS.search(text):
                    found.add(f"{below.as_posix()} {function.name}")
    return found


def test_every_range_over_versions_is_listed_with_its_bound() -> None:
    assert _ranges() == RANGES.keys()


def test_every_loop_without_a_named_bound_is_listed_with_what_ends_it() -> None:
    assert _found() - LOOPS.keys() == set()


def test_every_listed_loop_exists() -> None:
    assert LOOPS.keys() - _found() == set()


@pytest.mark.parametrize(("module", "name"), BOUNDS)
def test_a_bound_is_a_number_and_is_used(module: str, name: str) -> None:
    loaded = importlib.import_module(f"fuse_stream.{module}")
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ranges = [
        ast.unparse(node.iter)
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("range(")
    ]

    assert 0 < getattr(loaded, name) <= 10_000
    assert any(name in text for text in ranges)
