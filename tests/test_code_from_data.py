"""No byte of a table becomes code: every place that could make code of bytes is listed here.

A call that unpickles, evaluates, imports by a name that is no constant, or starts a process fails
this test first. It is added below with where its input comes from, which is never a table.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TASK = "Spark sends it from this driver to its own workers"
PIPE = "a pipe between this process and a child that it started"

ALLOWED = {
    "fuse_stream/__init__.py __getattr__ importlib.import_module": "a name listed there",
    "fuse_stream/on_demand.py __getattr__ importlib.import_module": "a constant",
    "fuse_stream/optimizer/main.py": PIPE,
    "fuse_stream/optimizer/process.py": PIPE,
    "fuse_stream/cli/doctor_python.py": "the user's own interpreter, named by the environment",
    "fuse_stream/spark/jvm/stream.py": TASK,
    "fuse_stream/spark/compact.py": TASK,
    "fuse_stream/spark/task_source.py": TASK,
    "fuse_stream/spark/stream_error.py": "the text of an error of this package, as a literal",
}

MAKES_CODE = re.compile(
    r"(eval|exec|compile|__import__|breakpoint|execfile|input)"
    r"|(pickle|_pickle|cPickle|dill|cloudpickle|marshal|shelve|jsonpickle|joblib)\.\w+"
    r"|.*\b(import_module|exec_module|find_spec|spec_from_file_location|run_path|run_module)"
    r"|yaml\.\w+"
    r"|(subprocess|pty|commands)\.\w+|os\.(system|popen|exec\w*|spawn\w*|posix_spawn\w*)"
    r"|ast\.literal_eval"
    r"|(np|numpy)\.(load|loadtxt|genfromtxt)|(pd|pandas)\.read_pickle"
)
"""Names of calls, whole, that can run code of their input."""
IMPORTS = re.compile(
    r"(dill|cloudpickle|marshal|shelve|yaml|joblib|jsonpickle|code|codeop|runpy|imp)"
)
"""Modules that nothing may import."""


def modules() -> list[Path]:
    return sorted([*ROOT.glob("fuse_stream/**/*.py"), *ROOT.glob("pyspark_fuse/**/*.py")])


def found_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield (function, call) for every call in a module's text that can make code of its input."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    yield from _found_below(tree, "", aliases)


def _found_below(
    node: ast.AST, function: str, aliases: dict[str, str]
) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = child.name
        # Not only calls: a function may be handed on. `self.eval` is a method of something else.
        if isinstance(child, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(child).split(".")
            name = ".".join([aliases.get(first, first), *rest])
            if MAKES_CODE.fullmatch(name):
                yield inner, name
                continue
        yield from _found_below(child, inner, aliases)


def test_every_place_that_could_make_code_of_bytes_is_listed_with_its_input() -> None:
    found = {
        f"{path.relative_to(ROOT)} {function} {name}"
        for path in modules()
        for function, name in found_in(path.read_text())
    }
    unlisted = {
        place for place in found if place not in ALLOWED and place.partition(" ")[0] not in ALLOWED
    }
    used = set(found) | {place.partition(" ")[0] for place in found}

    assert sorted(unlisted) == []
    assert sorted(ALLOWED.keys() - used) == [], "a listed place is gone: take it out of the list"


def test_no_module_that_runs_code_of_its_input_is_imported() -> None:
    imported = {
        f"{path.relative_to(ROOT)} {name}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if IMPORTS.fullmatch(name.partition(".")[0])
    }

    assert imported == set()


def test_no_process_is_started_through_a_shell() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                assert ast.unparse(node.value) == "False", path


def test_the_layers_that_read_tables_make_code_of_nothing() -> None:
    layers = ("format", "objects", "reading", "feed", "check", "expiry", "checkpoint", "storage")

    assert [place for place in ALLOWED if place.split("/")[1] in layers] == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle as p\ndef f(x): return p.loads(x)",
        "from pickle import loads\ndef f(x): return loads(x)",
        "def f(x): return eval(x)",
        "def f(x): return list(map(exec, x))",
        "import importlib\ndef f(x): return importlib.import_module(x)",
        "import subprocess\ndef f(x): subprocess.run(x, shell=True)",
        "import os\ndef f(x): os.system(x)",
        "import numpy as np\ndef f(x): np.load(x, allow_pickle=True)",
    ],
)
def test_a_call_that_makes_code_is_found_under_any_name(text: str) -> None:
    assert [function for function, _ in found_in(text)] == ["f"]


def test_a_method_of_the_same_name_is_not_meant() -> None:
    assert list(found_in("import re\ndef f(x): return re.compile(x), x.eval(1), x.exec()")) == []


def test_contributing_says_what_each_dependency_is_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    needed = {re.split(r"[\[<>=~ ]", each)[0] for group in groups for each in group}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([\w-]+)` \| \S.+ \|$", section, re.MULTILINE)

    assert sorted(listed) == sorted(needed - {project["name"]})
