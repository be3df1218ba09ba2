"""What users' own tests import from `fuse_stream.testing`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream import testing

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
SCHEMA = pa.schema([("id", pa.int64())])


def test_importing_the_package_does_not_load_the_testing_kit() -> None:
    program = "import sys, fuse_stream; print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert "fuse_stream.table.handle" in done.stdout.split()
    assert "fuse_stream.testing" not in done.stdout.split()


def test_all_public_names_exist_and_are_sorted() -> None:
    assert testing.__all__ == sorted(testing.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_a_temporary_table_is_a_table_in_memory() -> None:
    table = testing.temporary_table(SCHEMA, cluster_by=["id"], properties={"team": "a"})
    table.append(pa.table({"id": [1, 2]}))

    assert isinstance(table, fuse.Table)
    assert table.properties["team"] == "a"
    assert testing.rows_of(table.to_arrow()) == {(1,): 1, (2,): 1}


def test_a_temporary_table_can_be_opened_again_from_its_store() -> None:
    clock = testing.ManualClock()
    store = testing.MemoryStore(clock=clock)
    table = testing.temporary_table(SCHEMA, store=store, clock=clock)
    table.append(pa.table({"id": [1]}))
    table.create_branch("fix")
    again = testing.open_table_in(store, branch="fix", clock=clock)

    assert again.head() == table.head()
    testing.assert_sound(store, table)
    with pytest.raises(fuse.AlreadyExistsError):
        testing.temporary_table(SCHEMA, store=store, clock=clock)


def test_a_crash_at_any_call_of_an_append_loses_and_doubles_nothing() -> None:
    counting = testing.FaultyStore(testing.MemoryStore())
    table = testing.temporary_table(SCHEMA, store=counting)
    before = len(counting.calls)
    table.append(pa.table({"id": [1]}), app_id="loader", batch_id=0)
    calls = len(counting.calls) - before

    for at_call in range(1, calls + 1):
        store = testing.MemoryStore()
        testing.temporary_table(SCHEMA, store=store)
        faulty = testing.FaultyStore(store, at_call=at_call, fault=testing.Fault.CRASH_AFTER)
        with pytest.raises(testing.Crash):
            testing.open_table_in(faulty).append(pa.table({"id": [1]}), app_id="loader", batch_id=0)
        table = testing.open_table_in(store)
        table.append(pa.table({"id": [1]}), app_id="loader", batch_id=0)

        assert testing.rows_of(table.to_arrow()) == {(1,): 1}
        testing.assert_sound(store, table)


def test_the_guides_example_runs() -> None:
    chapter = GUIDE.read_text().partition("\n## Testing your own code\n")[2]
    code = re.search(r"```python\n(.*?)```", chapter, re.DOTALL)
    assert code
    names: dict[str, object] = {}
    exec(code[1], names)

    for name, test in names.items():
        if name.startswith("test_") and callable(test):
            test()
    assert any(name.startswith("test_") for name in names)
