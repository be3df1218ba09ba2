"""The shape of the package, read from its source: its imports, names and module sizes.

A test lists every place that breaks its rule, as `path:line: what`, and expects no line.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "fuse_stream"
PLUGIN = "pyspark_fuse"

# From the bottom up. A module sees its own room and the floors below, never its neighbours.
FLOORS = (
    ("errors", "clock", "on_demand"),
    ("format", "storage"),
    ("predicate", "checkpoint", "objects"),
    ("commit", "reading"),
    ("optimize", "expiry", "refs", "dml", "feed", "cdc", "indexes"),
    ("recovery", "trace", "check", "erasure", "transfer"),
    ("table",),
    ("optimizer",),
    ("spark", "testing", "report"),
    ("cli",),
    ("__main__",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ENDS = frozenset({"testing", "cli"})
"""Rooms that no other room imports; `__main__` is the start of the command line."""

SPARK_MODULES = frozenset({"pyspark", "py4j"})
CLOCK_MODULES = frozenset({"time", "random", "uuid", "secrets"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today", "urandom"})
SEEDED = "random"
"""Allowed in testing/, where a seed makes it repeatable."""

SQL_TEXT = frozenset({"expr", "selectExpr", "sql", "parseExpression", "colRegex"})
"""Functions that parse SQL text. There `${a}` is replaced by a setting and a quoted name may be a
pattern, so a column's name may mean another column."""

USERS_TEXT = frozenset(
    {("change_rows.py", "expr"), ("frame_events.py", "expr"), ("stream.py", "expr")}
)
"""Where SQL text is what a user gave."""

MOST_LINES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name, and the line of its import."""

    line: int
    name: str
    """Dotted and absolute: `from a.b import c` is `a.b.c`, for c may be a module."""
    relative: bool
    scope: tuple[str, ...]
    """The classes and functions around it."""
    in_function: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One source file."""

    path: Path
    room: str
    """The first name below the package; empty for the package's own `__init__`."""
    text: str
    tree: ast.Module

    @property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self.tree.body, (), in_function=False))

    def at(self, line: int, problem: str) -> str:
        return f"{self.path}:{line}: {problem}"


def _imports(
    body: list[ast.stmt], scope: tuple[str, ...], *, in_function: bool
) -> Iterator[Import]:
    for node in body:
        match node:
            case ast.Import(names=names):
                relative, found = False, [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                relative, found = level > 0, [f"{module or ''}.{alias.name}" for alias in names]
            case ast.ClassDef(name=name, body=inner):
                yield from _imports(inner, (*scope, name), in_function=in_function)
                continue
            case (
                ast.FunctionDef(name=name, body=inner) | ast.AsyncFunctionDef(name=name, body=inner)
            ):
                yield from _imports(inner, (*scope, name), in_function=True)
                continue
            case _:
                for inner in _blocks(node):
                    yield from _imports(inner, scope, in_function=in_function)
                continue
        for name in found:
            yield Import(
                line=node.lineno,
                name=name,
                relative=relative,
                scope=scope,
                in_function=in_function,
            )


def _on_demand(tree: ast.Module) -> Iterator[tuple[str, str, bool]]:
    """Yield each module that is loaded on demand, its name here, and if type checkers see it so.

    They do where `if TYPE_CHECKING` imports that module by that name, and `else` is this one.
    """
    checked = set[tuple[str, str]]()
    for node in ast.walk(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                for found in _imports(body, (), in_function=False):
                    checked.add((found.name, found.name.rpartition(".")[2]))
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Name(id="OnDemand"), args=[ast.Constant(value=str(module))]
                ),
            ):
                yield module, name, (module, name) in checked


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the statement lists of `if`, `try`, `with`, `match` and loops."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list):
            for part in value:
                if isinstance(part, ast.ExceptHandler | ast.match_case):
                    yield part.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """A class, with the private members that it defines and those that it takes from `self`."""

    module: Module
    line: int
    bases: tuple[str, ...]
    """Dotted and absolute, as far as an import or the module says what they are."""
    defines: frozenset[str]
    uses: Mapping[str, int]
    """By name, the line."""


def _classes(modules: Iterable[Module]) -> dict[str, Class]:
    """Return the classes at the top of modules, by dotted name."""
    found = {}
    for module in modules:
        dotted = ".".join(module.path.with_suffix("").parts)
        names = dict(_bound_names(module.tree))
        tops = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
        names |= {node.name: f"{dotted}.{node.name}" for node in tops}
        for node in tops:
            found[f"{dotted}.{node.name}"] = Class(
                module=module,
                line=node.lineno,
                bases=tuple(
                    names.get(ast.unparse(base).partition("[")[0], "") for base in node.bases
                ),
                defines=frozenset(filter(_is_private, _defined(node))),
                uses={name: line for name, line in _taken_from_self(node) if _is_private(name)},
            )
    return found


def _bound_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _defined(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of methods and fields, also of those that a method assigns to `self`."""
    for part in node.body:
        match part:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def _taken_from_self(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for part in ast.walk(node):
        match part:
            case ast.Attribute(
                value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")),
                attr=name,
                lineno=line,
            ):
                yield name, line


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _ancestors(name: str, classes: Mapping[str, Class]) -> Iterator[Class]:
    for base in classes[name].bases:
        if base in classes:
            yield classes[base]
            yield from _ancestors(base, classes)


def _modules(package: str) -> tuple[Module, ...]:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        below = path.relative_to(ROOT / package)
        text = path.read_text(encoding="utf-8")
        found.append(
            Module(
                path=path.relative_to(ROOT),
                room="" if below == Path("__init__.py") else below.with_suffix("").parts[0],
                text=text,
                tree=ast.parse(text),
            )
        )
    return tuple(found)


OURS = _modules(PACKAGE)
PLUGINS = _modules(PLUGIN)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _room(name: str) -> str:
    """Return the room of a name of the package: `fuse_stream.format.layout` is in `format`."""
    return [*name.split("."), ""][1]


def test_every_room_has_a_floor() -> None:
    rooms = {module.room for module in OURS} - {""}

    assert rooms - FLOOR_OF.keys() == set()


def test_imports_point_down() -> None:
    wrong = [
        module.at(found.line, f"{module.room} must not import {found.name}")
        for module in OURS
        if module.room
        for found in module.imports
        if _top(found.name) == PACKAGE
        and _room(found.name) != module.room
        and FLOOR_OF.get(_room(found.name), len(FLOORS)) >= FLOOR_OF[module.room]
    ]

    assert wrong == []


def test_no_other_room_imports_the_command_line_or_the_testing_kit() -> None:
    wrong = [
        module.at(found.line, f"{found.name} is an end, not a part")
        for module in OURS + PLUGINS
        for found in module.imports
        if _top(found.name) == PACKAGE
        and _room(found.name) in ENDS - {module.room}
        and (module.room, _room(found.name)) != ("__main__", "cli")
    ]

    assert wrong == []


def test_imports_are_absolute() -> None:
    wrong = [
        module.at(found.line, "relative import")
        for module in OURS + PLUGINS
        for found in module.imports
        if found.relative
    ]

    assert wrong == []


def test_no_function_imports() -> None:
    wrong = [
        module.at(found.line, f"{'.'.join(found.scope)} imports {found.name}")
        for module in OURS
        for found in module.imports
        if found.in_function
    ]

    assert wrong == []


def test_modules_loaded_on_demand_exist_and_type_checkers_see_them() -> None:
    found = [load for module in OURS for load in _on_demand(module.tree)]
    calls = sum(module.text.count(" = OnDemand(") for module in OURS)

    assert found
    assert len(found) == calls - 1  # without the one in the docstring of `on_demand`
    assert [name for _, name, is_checked in found if not is_checked] == []
    for module, _, _ in found:
        assert importlib.import_module(module).__name__ == module


def test_a_spark_worker_loads_no_module_that_it_may_not_need() -> None:
    program = f"import sys, {PACKAGE}.spark.format; print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    loaded = set(done.stdout.split())
    assert f"{PACKAGE}.reading.scan" in loaded
    heavy = {"sqlglot", "fsspec", "pybloom_live", "click", "jinja2", "rich", "pandas"}
    assert loaded & heavy == set()
    verbs = "check dml erasure expiry indexes optimize recovery refs trace".split()
    rooms = tuple(f"{PACKAGE}.{room}." for room in verbs)
    assert {name for name in loaded if name.startswith(rooms)} == set()


def test_the_plugin_loads_only_pyspark_until_it_is_used() -> None:
    # Every Python worker that looks a format up imports the plugin.
    wrong = [
        module.at(found.line, f"imports {found.name}")
        for module in PLUGINS
        for found in module.imports
        if _top(found.name) not in {"__future__", "pyspark"}
        and not (found.in_function and found.scope[0] == "DefaultSource")
    ]

    assert wrong == []


def test_the_plugin_reaches_only_the_spark_room() -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}")
        for module in PLUGINS
        for found in module.imports
        if _top(found.name) == PACKAGE and _room(found.name) != "spark"
    ]

    assert wrong == []


def test_only_the_spark_room_imports_spark() -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}")
        for module in OURS
        if module.room != "spark"
        for found in module.imports
        if _top(found.name) in SPARK_MODULES
    ]

    assert wrong == []


def test_time_ids_and_random_numbers_come_from_the_clock() -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}: take a Clock")
        for module in OURS + PLUGINS
        if module.room != "clock"
        for found in module.imports
        if _top(found.name) in CLOCK_MODULES
        and not (module.room == "testing" and _top(found.name) == SEEDED)
    ]
    wrong += [
        module.at(node.lineno, f"calls {node.func.attr}(): take a Clock")
        for module in OURS + PLUGINS
        if module.room != "clock"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCK_CALLS
    ]

    assert wrong == []


def test_no_column_is_named_in_sql_text() -> None:
    wrong = [
        module.at(node.lineno, f"calls {name}(): name columns with col")
        for module in OURS + PLUGINS
        if module.room in {"spark", *(plugin.room for plugin in PLUGINS)}
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        for name in [getattr(node.func, "attr", getattr(node.func, "id", ""))]
        if name in SQL_TEXT and (module.path.name, name) not in USERS_TEXT
    ]

    assert wrong == []


def test_no_class_takes_private_members_of_another_modules_class() -> None:
    classes = _classes(OURS)
    wrong = [
        found.module.at(
            found.uses.get(member, found.line), f"{name} takes {member} of {base.module.path}"
        )
        for name, found in classes.items()
        for base in _ancestors(name, classes)
        if base.module is not found.module
        for member in sorted(base.defines & (found.uses.keys() | found.defines))
    ]

    assert wrong == []


def test_the_init_of_a_room_is_a_docstring() -> None:
    # The one of the testing kit exports the public names.
    wrong = [
        module.at(1, "holds more or less than a docstring")
        for module in OURS
        if module.room not in {"", "testing"}
        and module.path.name == "__init__.py"
        and not (len(module.tree.body) == 1 and ast.get_docstring(module.tree))
    ]

    assert wrong == []


def test_every_folder_is_a_package() -> None:
    folders = {module.path.parent for module in OURS + PLUGINS}
    packages = {module.path.parent for module in OURS if module.path.name == "__init__.py"}
    packages |= {module.path.parent for module in PLUGINS if module.path.name == "__init__.py"}

    assert folders - packages == set()


def test_a_module_has_a_docstring() -> None:
    assert [str(m.path) for m in OURS + PLUGINS if not ast.get_docstring(m.tree)] == []


def test_a_module_is_within_the_line_limit() -> None:
    lengths = {str(m.path): len(m.text.splitlines()) for m in OURS + PLUGINS}

    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}
