"""No loop of the package runs for ever: damage and hostile stores cannot keep it busy.

A loop that asks the store runs over a range whose length has a name, or over what was listed. Every
other one stands here, with what ends it. Whoever writes a new one comes by this page: may it be a
`for` over a bounded range, with an error behind it that says what to do?
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
    {"commit", "maintenance", "objects", "reading", "recovery", "service", "storage"}
)
"""Rooms whose functions may reach a store; in the others a recursion is over a value."""

HALVES = "what is left is halved each time"
HASHES = "each snapshot is found by its hash in the one before: such a chain has no circle"
SHRINKS = "a collection in memory gets shorter each time"
FORWARD = "it moves on over bytes or rows in memory"

LOOPS = {
    "cli/check_table.py _check_folder": "it goes up to a folder that is there; the root is",
    "cli/findings.py _release": SHRINKS,
    "cli/graph.py _choose_lanes": SHRINKS,
    "cli/graph_history.py load_graph": "at most `limit` lines",
    "format/block_text.py _pieces": FORWARD,
    "format/codec.py _read_bounded": "at most `most` bytes",
    "format/coercion.py _first": HALVES,
    "format/sql_literals.py _check_depth": "it goes down a tree that was parsed",
    "format/where.py _column": "it goes down a tree that was parsed",
    "format/where.py _flat": "it goes down a tree that was parsed",
    "maintenance/claim.py _renew_until": "until the work is done; it waits in between",
    "maintenance/fence.py find_raise": HALVES,
    "maintenance/fingerprint.py _hashes": "it goes down the type of a column",
    "maintenance/fingerprint.py _sequence_hashes": FORWARD,
    "maintenance/fingerprint.py _text_hashes": "once, with other strings",
    "maintenance/overlap.py depths_of": SHRINKS,
    "maintenance/rewrite.py pieces": FORWARD,
    "objects/metadata.py _keep": SHRINKS,
    "reading/cancel.py _comparable": "it goes down the type of a column",
    "reading/cancel.py _plain": "it goes down the type of a column",
    "reading/history.py _check_named_by_next": "`MOST_WITNESSES` versions",
    "reading/history.py first_at_or_after": HALVES,
    "reading/scan.py _top_columns": "it goes down the type of a column",
    "reading/sight.py _shape": "it goes down the type of a column",
    "reading/sight.py schema_difference": "it goes down the type of a column",
    "reading/tasks.py plan_tasks": "`count` gets less",
    "reading/way.py find_way": HASHES,
    "reading/way.py iter_line": HASHES,
    "recovery/audit.py _line_of": "the set of queries grows, up to those of the ledger",
    "recovery/audit.py _load_history": HASHES,
    "recovery/bisect.py bisect": HALVES,
    "recovery/blame.py run": HASHES,
    "recovery/branch.py delete_branch": "no recursion: the function of that name",
    "recovery/branch.py delete_tag": "no recursion: the function of that name",
    "recovery/departed.py find_undone": HASHES,
    "recovery/ledgers.py _family": "the set of queries grows, up to those of the ledger",
    "recovery/ledgers.py _goes_on": "the set of queries grows, up to those of the ledger",
    "recovery/slots.py walk": "what was listed, and `MOST_MISSED` versions before each gap",
    "service/child.py _listen": "until its input ends; it waits in between",
    "service/process.py _relay_log": "until the child's output ends; it waits in between",
    "service/rounds.py _wait": "until nothing more was told",
    "service/rounds.py go": "until it is stopped; it rests `LEAST_PAUSE_US` for each table",
    "spark/checkpoint.py find_offsets": SHRINKS,
    "spark/condition.py read_condition": "it counts what is asked of one text",
    "spark/expression.py _uncast": "it goes down a tree that was parsed",
    "spark/reader.py partitions": "the end that is read up to was fixed before",
    "storage/adapters.py _walk": "it goes down a folder",
    "storage/adapters.py causes": "each error once",
    "storage/disk.py make_folder": "it goes up to a folder that is there; the root is",
    "storage/disk.py write_through": SHRINKS,
    "storage/local.py _scan": "it goes down a folder",
    "storage/local.py list": "no recursion: another object's method",
    "storage/redact.py _secrets": "it goes down a value",
    "testing/interleave.py run_interleaved": "until the actors are done, which are a test's",
}

BOUNDS = [
    ("commit.publish", "ATTEMPTS"),
    ("commit.publish", "SLOT_ATTEMPTS"),
    ("maintenance.recluster", "MOST_ROUNDS"),
    ("maintenance.vacuum", "MOST_ROUNDS"),
    ("maintenance.vacuum", "_ATTEMPTS"),
    ("objects.leases", "_ATTEMPTS"),
    ("objects.search", "MOST_GAPS"),
    ("objects.search", "MOST_STEPS"),
    ("recovery.naming", "ATTEMPTS"),
    ("service.care", "MOST_STEPS"),
]
"""How often something is asked of a store again."""

LOADED = "each version is loaded, and the first that is lost ends it"

RANGES = {
    "maintenance/mark.py _places": "`MOST_UNLISTED` versions more than were listed",
    "reading/consumers.py _rows": LOADED,
    "reading/deliver.py iter_block_rows": "over the rows of a block",
    "reading/feed.py iter_changes": LOADED,
    "reading/history.py iter_log": LOADED,
    "reading/offsets.py versions_ahead": LOADED,
    "reading/sight.py _newest": LOADED,
    "recovery/publish.py _check": LOADED,
    "recovery/publish.py _lost": LOADED,
    "recovery/revert.py _in_the_way": LOADED,
    "recovery/cut_version.py _find_newest": LOADED,
    "recovery/source_log.py plan_log_cut": "over a checkpoint's batches that were listed",
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


def test_every_range_over_versions_is_known_with_what_bounds_it() -> None:
    assert _ranges() == RANGES.keys()


def test_every_loop_without_a_named_bound_is_known_with_what_ends_it() -> None:
    assert _found() - LOOPS.keys() == set()


def test_no_loop_is_listed_that_is_gone() -> None:
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
