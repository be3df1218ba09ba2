"""What `import fuse_stream` does where a package is missing."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

import fuse_stream

FOREIGN = {"DataFrame", "Iterator", "Mapping", "None", "RecordBatchReader", "Schema"}
INNER = {"LedgerKey", "Outcome"}
"""A pair of texts; and the result of `Table.commit_rows`, which the Spark layer calls."""
REPORTS = ["PipelineBranch", "PipelineRewind", "Publication", "Rewind"]


def returned_names() -> Iterator[str]:
    """Yield the names of the classes that the public functions and the methods of Table return."""
    found = [getattr(fuse_stream, name) for name in fuse_stream.__all__]
    found += [value for name, value in inspect.getmembers(fuse_stream.Table) if name[0] != "_"]
    for one in found:
        function = one.fget if isinstance(one, property) else one
        if inspect.isfunction(function) or inspect.ismethod(function):
            returned = str(inspect.signature(function).return_annotation)
            yield from re.findall(r"\b[A-Z]\w+", returned)


def test_a_missing_package_is_named_with_the_python_that_lacks_it() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import fuse_stream"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: pyarrow is missing in {sys.executable}")
    assert "PYSPARK_PYTHON" in last


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    assert dir(fuse_stream) == sorted(fuse_stream.__all__)
    assert all(getattr(fuse_stream, name) is not None for name in dir(fuse_stream))


def test_what_a_public_function_returns_is_public() -> None:
    returned = {*returned_names()} - FOREIGN - INNER

    assert {"Rewind", "PipelineRewind", "Snapshot", "Scan", "Publication"} <= returned
    assert returned - {*fuse_stream.__all__} == set()


@pytest.mark.parametrize("name", REPORTS)
def test_the_help_on_a_report_explains_each_field(name: str) -> None:
    report = getattr(fuse_stream, name)
    explained = re.findall(r"^ {8}(\w+): ", report.__doc__, re.MULTILINE)

    assert explained == [field.name for field in dataclasses.fields(report)]


def test_the_version_is_that_of_the_package() -> None:
    assert fuse_stream.__version__ == version("fuse-stream")
