"""`doctor`: each check on a machine with and without the problem."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.cli.doctor import check_place, judge_offset
from fuse_stream.cli.doctor_python import (
    check_java,
    check_plugins,
    check_spark_home,
    check_workers,
    compare,
    java_major,
    ranges,
    satisfies,
)
from fuse_stream.cli.findings import (
    Finding,
    Status,
    ok,
    problem,
)
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.format.layout import BRANCHES_PREFIX, TAGS_PREFIX
from fuse_stream.storage import remote
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from tests.cli.conftest import Run
from tests.kit.memory_fs import MemoryFileSystem


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def java(home: Path, *, version: str, modules: str = "jdk.incubator.vector@17") -> dict[str, str]:
    said = f"echo ' java.specification.version = {version}' >&2"
    listing = f'case "$1" in --list-modules) echo "{modules}";; *) {said};; esac'
    script(home / "bin" / "java", listing)
    return {"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"}


def place(path: Path, *, write: bool = True) -> dict[str, Finding]:
    found = check_place(TableLocation(path=str(path)), SYSTEM_CLOCK, write=write)
    return {finding.check: finding for finding in found}


# ---- Java


def test_a_java_that_spark_can_use_is_ok(tmp_path: Path) -> None:
    assert check_java(java(tmp_path, version="21")).status is Status.OK


def test_java_8_is_too_old(tmp_path: Path) -> None:
    finding = check_java(java(tmp_path, version="1.8"))

    assert finding.status is Status.PROBLEM
    assert "Java 8" in finding.found


def test_a_trimmed_java_lacks_the_vector_module(tmp_path: Path) -> None:
    finding = check_java(java(tmp_path, version="17", modules="java.base@17"))

    assert finding.status is Status.PROBLEM
    assert "jdk.incubator.vector" in finding.found


def test_java_home_is_used_before_the_path_even_if_it_is_wrong(tmp_path: Path) -> None:
    finding = check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})

    assert finding.status is Status.PROBLEM
    assert "bin/java" in finding.found


def test_a_missing_java_is_a_problem(tmp_path: Path) -> None:
    assert check_java({"PATH": str(tmp_path)}).status is Status.PROBLEM


def test_a_java_that_does_not_start_is_a_problem(tmp_path: Path) -> None:
    script(tmp_path / "java", "exit 1")

    assert "does not start" in check_java({"PATH": str(tmp_path)}).found
    assert java_major("") is None


# ---- packages


@pytest.mark.parametrize(
    ("version", "specifier", "expected"),
    [
        ("4.3.0", ">=4.2,<4.4", True),
        ("4.2.0", "<4.4,>=4.2", True),
        ("4.4.0", ">=4.2,<4.4", False),
        ("4.1.1", ">=4.2,<4.4", False),
        ("4.4.0.dev1", ">=4.2,<4.4", False),
        ("3.0", ">=2.2,<3", False),
        ("2.10.1", ">=2.2,<3", True),
        ("9", "", True),
    ],
)
def test_versions_are_compared_by_number(version: str, specifier: str, *, expected: bool) -> None:
    assert satisfies(version, specifier) is expected


def test_ranges_are_read_from_the_package_without_its_extras() -> None:
    found = ranges(["pandas<3,>=2.2", "s3fs>=2026.9; extra == 's3'", "pyspark[connect]>=4.2"])

    assert found == {"pandas": "<3,>=2.2"}


def test_a_version_outside_the_range_names_the_install_command() -> None:
    finding = compare("pandas", "3.0.1", ">=2.2,<3")

    assert finding.status is Status.PROBLEM
    assert finding.remedy == "pip install 'pandas>=2.2,<3'"


def test_a_missing_package_is_a_problem() -> None:
    assert compare("orjson", None, "").status is Status.PROBLEM


def test_a_spark_home_of_another_version_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    (finding,) = check_spark_home({"SPARK_HOME": str(tmp_path)}, "4.3.0")

    assert finding.status is Status.PROBLEM
    assert "3.5.1" in finding.found
    assert list(check_spark_home({}, "4.3.0")) == []


# ---- the workers' Python


def test_the_driver_python_is_accepted_for_the_workers() -> None:
    (finding,) = check_workers({"PYSPARK_PYTHON": sys.executable, "PATH": os.environ["PATH"]})

    assert (finding.status, finding.remedy) == (Status.OK, "")


def test_a_worker_python_without_pyarrow_is_a_problem(tmp_path: Path) -> None:
    bare = script(tmp_path / "python3", f'exec {sys.executable} -S -E "$@"')
    (finding,) = check_workers({"PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert finding.status is Status.PROBLEM
    assert str(bare) in finding.found
    assert "pyarrow" in finding.found
    assert finding.remedy == f"export PYSPARK_PYTHON={sys.executable}"


def test_a_missing_worker_python_is_a_problem() -> None:
    (finding,) = check_workers({"PYSPARK_PYTHON": "/nowhere/python", "PATH": "/usr/bin"})

    assert "not there" in finding.found


# ---- the lookup of formats


def plugins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return list(check_plugins({"PYSPARK_PYTHON": sys.executable, "PATH": os.environ["PATH"]}))


def source(name: str) -> str:
    return (
        "from pyspark.sql.datasource import DataSource\n"
        "class DefaultSource(DataSource):\n"
        "    @classmethod\n"
        f"    def name(cls): return {name!r}\n"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import no_such_module", "no_such_module"),
        ("raise SystemExit(0)", "left with code 0"),
        ("DefaultSource = 3", "issubclass"),
    ],
)
def test_a_broken_module_of_another_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    (tmp_path / "pyspark_other.py").write_text(body)
    found = [item for item in plugins(tmp_path, monkeypatch) if "pyspark_other" in item.found]

    assert [item.status for item in found] == [Status.PROBLEM]
    assert reason in found[0].found
    assert str(tmp_path / "pyspark_other.py") in found[0].remedy


def test_the_package_that_installed_a_broken_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark_other.py").write_text("1 / 0")
    info = tmp_path / "other_source-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-source\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("pyspark_other\n")
    found = [item for item in plugins(tmp_path, monkeypatch) if "pyspark_other" in item.found]

    assert "pip uninstall other-source" in found[0].remedy


def test_two_plugins_of_the_fuse_format_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark_one.py").write_text(source("fuse"))
    (tmp_path / "pyspark_two.py").write_text(source("fuse"))
    found = [item for item in plugins(tmp_path, monkeypatch) if "several" in item.found]

    assert [item.status for item in found] == [Status.PROBLEM]


def test_nothing_is_imported_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "pkgutil", "orjson", "pyarrow", "pyspark_here"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w'); 1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":.:{os.environ.get('PYTHONPATH', '')}")
    environ = {"PYSPARK_PYTHON": sys.executable, "PATH": os.environ["PATH"]}
    (workers,) = check_workers(environ)
    found = [item for item in check_plugins(environ) if "pyspark_here" in item.found]

    assert sorted(path.name for path in tmp_path.iterdir() if not path.suffix) == []
    assert workers.status is Status.OK
    assert [item.status for item in found] == [Status.WARNING]


def test_a_driver_python_that_is_a_notebook_is_a_problem(tmp_path: Path) -> None:
    jupyter = script(tmp_path / "jupyter", "exit 2")
    (finding,) = check_plugins({"PYSPARK_DRIVER_PYTHON": str(jupyter), "PATH": "/usr/bin:/bin"})

    assert finding.status is Status.PROBLEM
    assert finding.remedy.startswith("unset PYSPARK_DRIVER_PYTHON")


# ---- the table's folder


def test_doctor_opens_a_table_and_probes_its_store(table: Table, path: str) -> None:
    found = place(Path(path))

    assert [finding.status for finding in found.values()] == [Status.OK] * 3
    assert "version 3" in found["table"].found
    assert list(Path(path, "_probe").iterdir()) == []


def test_with_no_write_doctor_writes_nothing(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", pa.schema([("a", pa.int32())]))
    before = sorted(tmp_path.rglob("*"))
    times = [file.stat().st_mtime_ns for file in before]
    found = place(tmp_path / "t", write=False)

    assert found["store"].status is Status.WARNING
    assert [file.stat().st_mtime_ns for file in before] == times


def test_doctor_writes_nothing_into_a_folder_without_a_table(tmp_path: Path) -> None:
    found = place(tmp_path / "new" / "table")

    assert found["table"].status is Status.WARNING
    assert found["store"].status is Status.OK
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_table_is_a_problem(path: str) -> None:
    newest = max(Path(path, "_ss", "main").iterdir())
    newest.write_text("{")

    assert place(Path(path))["table"].status is Status.PROBLEM


def test_a_missing_block_is_a_problem(path: str) -> None:
    for block in Path(path, "_b").iterdir():
        block.unlink()

    assert place(Path(path))["table"].status is Status.PROBLEM


def test_storage_options_are_not_passed_to_an_origin_on_another_kind_of_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, dict[str, object]] = {}

    class SeenStore(FsspecStore):
        def __init__(self, url: str, options: StorageOptions) -> None:
            seen[url] = dict(options)
            super().__init__(url, options)

    monkeypatch.setattr(remote, "FsspecStore", SeenStore)
    monkeypatch.setattr(MemoryFileSystem, "buckets", {"b": {}})
    places = ("fusetest://b/clone", "fusetest://b/origin", "memory://origin")

    location = TableLocation.of(places[0], storage_options={"a": 1}, origins=places[1:])
    list(check_place(location, SYSTEM_CLOCK, write=False))

    assert seen == {places[0]: {"a": 1}, places[1]: {"a": 1}, places[2]: {}}


@pytest.mark.parametrize("key", [f"{TAGS_PREFIX}good.json", f"{BRANCHES_PREFIX}fix.json"])
def test_the_problem_of_a_damaged_name_says_to_run_fsck(table: Table, path: str, key: str) -> None:
    table.create_tag("good")
    table.create_branch("fix")
    assert next(check_place(TableLocation.of(path), SYSTEM_CLOCK, write=False)).status is Status.OK
    table.metadata.store.replace(key, b"{")
    found = next(check_place(TableLocation.of(path), SYSTEM_CLOCK, write=False))

    assert (found.check, found.status) == ("table", Status.PROBLEM)
    assert f"fuse-stream fsck {path}" in found.remedy


def test_origins_without_a_path_are_wrong_usage(run: Run) -> None:
    result = run("doctor", "--origin", "/lake/flights")

    assert result.exit_code == 2
    assert "PATH" in result.stderr


def test_a_store_that_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    (finding,) = check_place(TableLocation(path="nosuch://x"), SYSTEM_CLOCK, write=True)

    assert finding.status is Status.PROBLEM


@pytest.mark.parametrize(
    ("offset_s", "status"),
    [
        (0, Status.OK),
        (9, Status.OK),
        (-60, Status.WARNING),
        (-301, Status.PROBLEM),
        (301, Status.WARNING),
    ],
)
def test_a_clock_far_ahead_of_the_store_is_a_problem(offset_s: int, status: Status) -> None:
    assert judge_offset(offset_s * 1_000_000).status is status


# ---- the command


@pytest.mark.parametrize(
    ("findings", "code"), [([ok("a", "b")], 0), ([ok("a", "b"), problem("c", "d", "do e")], 1)]
)
def test_a_problem_exits_with_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, findings: list[Finding], code: int
) -> None:
    monkeypatch.setattr(sys.modules["fuse_stream.cli.doctor"], "examine", lambda *_, **__: findings)
    shown, as_json = run("doctor"), run("doctor", "--json")

    assert (shown.exit_code, as_json.exit_code) == (code, code)
    assert json.loads(as_json.stdout)["ok"] is (code == 0)
    assert ("-> do e" in shown.stdout) is (code == 1)


def test_doctor_examines_this_machine_and_a_table(run: Run, path: str) -> None:
    checks = json.loads(run("doctor", path, "--json").stdout)["checks"]

    assert {"Java", "pyspark", "worker Python", "format lookup", "table", "store", "clock"} <= {
        item["check"] for item in checks
    }
    assert all(item["remedy"] for item in checks if item["status"] != "ok")
