"""What a child process imports: the driver's packages, and nothing from folders of the moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fuse_stream
from fuse_stream.optimizer.process import trusted
from tests.optimizer.test_process import BLOCKS, is_compact, small_blocks

SOURCES = Path(fuse_stream.__file__).parents[1]
TRAPS = ("orjson", "queue", "pickle", "pyarrow", "fsspec", "numexpr", "sitecustomize", "socket")

# Imports what it needs itself, sets traps in the folder that it is told, and starts the child.
DRIVER = f"""
import os, sys
from pathlib import Path
from fuse_stream import Optimizer, Table

folder, table = Path(sys.argv[1]), Table.open(sys.argv[2])
folder.mkdir(exist_ok=True)
for name in {TRAPS}:
    caught = folder / f"caught-{{name}}"
    (folder / f"{{name}}.py").write_text(f"open({{str(caught)!r}}, 'w'); raise ImportError('trap')")
os.chdir(sys.argv[3])
with Optimizer([sys.argv[2]]) as optimizer:
    for _ in range(600):
        if table.head().operation == "compact" or not optimizer.is_running:
            break
        __import__("time").sleep(0.05)
"""

# Prints what a child would see.
ASK = """
import json, subprocess, sys
sys.path[1:1] = sys.argv[2:]
from fuse_stream.optimizer.process import isolated_python
command, environ = isolated_python(sys.argv[1])
print(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)
"""
SEE = (
    "import fuse_stream, json, os, sys; "
    "print(json.dumps([sys.path, fuse_stream.__file__, sys.flags.safe_path]))"
)


def python_path(*entries: object) -> dict[str, str]:
    path = os.pathsep.join(map(str, entries))
    # PWD is the shell's: a process that is started elsewhere inherits it all the same.
    return {**os.environ, "PYTHONPATH": path, "PWD": "/"}


def ask(
    script: Path, program: str, *added: object, cwd: Path, environ: dict[str, str], option: str = ""
) -> Any:
    """Run a driver that starts `program` isolated; return the JSON that this prints."""
    script.write_text(ASK)
    command = [sys.executable, *([option] if option else []), str(script), program]
    done = subprocess.run(
        [*command, *map(str, added)],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "of-others"
    folder.mkdir()
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job" / "driver.py"


@pytest.mark.long
@pytest.mark.parametrize(
    "way", ["cwd", "empty entry", "relative entry", "script", "-c", "package", "left"]
)
def test_traps_of_these_folders_do_not_spring_and_the_service_works(
    tmp_path: Path, folder: Path, script: Path, way: str
) -> None:
    table = small_blocks(tmp_path / "table")
    script.write_text(DRIVER)
    arguments = [str(script)] if way != "-c" else ["-c", DRIVER]
    entries: list[object] = [SOURCES]
    traps, started_in = folder, folder
    match way:
        case "empty entry":
            entries.insert(0, "")
            started_in = tmp_path
        case "relative entry":
            entries.insert(0, "lib")
            started_in, traps = tmp_path, folder / "lib"
        case "script":
            traps = script.parent
        case "left":
            entries.insert(0, "")
            started_in = traps = tmp_path / "start"
            traps.mkdir()
        case "package":
            (folder / "fuse_stream").symlink_to(SOURCES / "fuse_stream")
            entries = [folder]
    done = subprocess.run(
        [sys.executable, *arguments, str(traps), str(tmp_path / "table"), str(folder)],
        cwd=started_in,
        env={**python_path(*entries), "PWD": str(started_in)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in traps.glob("caught-*")) == []
    assert is_compact(table), done.stderr
    assert table.head().summary.row_count == BLOCKS


def test_the_path_holds_absolute_entries_and_not_the_working_directory(
    folder: Path, script: Path
) -> None:
    path, _, is_safe = ask(
        script,
        SEE,
        "",
        ".",
        "lib",
        folder,
        cwd=folder,
        environ=python_path("", ".", "lib", SOURCES),
    )

    assert is_safe
    assert all(Path(entry).is_absolute() for entry in path)
    assert not {str(folder), str(script.parent)} & set(path)


def test_the_package_is_found_in_a_zip_as_spark_submit_ships_it(
    tmp_path: Path, folder: Path, script: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "shipped.zip", "w") as file:
        for path in sorted((SOURCES / "fuse_stream").rglob("*.py")):
            file.write(path, path.relative_to(SOURCES))
    _, found, _ = ask(script, SEE, cwd=folder, environ=python_path(tmp_path / "shipped.zip"))

    assert found == str(tmp_path / "shipped.zip" / "fuse_stream" / "__init__.py")


def test_what_the_driver_added_to_its_path_is_found(
    tmp_path: Path, folder: Path, script: Path
) -> None:
    added = tmp_path / "py:files"  # a name that PYTHONPATH cannot hold
    added.mkdir()
    (added / "shipped.py").write_text("at = __file__")
    program = "import json, shipped; print(json.dumps(shipped.at))"

    found = ask(script, program, added, cwd=folder, environ=python_path(SOURCES))

    assert found == str(added / "shipped.py")


def test_a_driver_that_ignores_the_environment_has_a_child_that_does(
    tmp_path: Path, folder: Path, script: Path
) -> None:
    (tmp_path / "odd").mkdir()
    environ = python_path(tmp_path / "odd")
    path, _, _ = ask(script, SEE, SOURCES, cwd=folder, environ=environ, option="-I")

    assert str(tmp_path / "odd") not in path


def test_a_working_directory_that_pythonpath_names_is_asked_last(
    folder: Path, script: Path
) -> None:
    path, _, _ = ask(script, SEE, cwd=folder, environ=python_path(folder, SOURCES))

    assert path.index(str(folder)) == len(path) - 1


@pytest.mark.parametrize(
    ("module", "file"),
    [("job", "job.py"), ("pkg.job", "pkg/job.py"), ("pkg", "pkg/__main__.py")],
)
def test_a_module_that_leaves_its_working_directory_leaves_it_untrusted(
    folder: Path, module: str, file: str
) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / file).write_text(f"import os\nos.chdir('/')\n{ASK}")
    done = subprocess.run(
        [sys.executable, "-m", module, SEE],
        cwd=folder,
        env=python_path(SOURCES),  # with another process's PWD
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    path, _, _ = json.loads(done.stdout)
    assert str(folder) not in path


def test_a_driver_whose_working_directory_is_gone_starts_it(tmp_path: Path, script: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script.write_text(ASK)
    program = "import os, runpy, sys; os.rmdir(os.getcwd()); runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program.replace("sys.argv[1]", repr(str(script))), SEE],
        cwd=gone,
        env=python_path(SOURCES),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_entries_are_trusted_by_what_they_are_not_by_how_they_are_spelt(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    entries = ["", ".", "lib", str(tmp_path / "link"), f"{tmp_path}/x/../here/", "/opt/lib"]

    assert trusted(entries, {os.path.realpath(tmp_path / "here")}) == ["/opt/lib"]
