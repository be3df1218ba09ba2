"""What every test shares. Imports no Spark: most tests need no JVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import PurePath

import pyarrow as pa
import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64())])

Create = Callable[..., Table]

OWN_JVM = {
    "test_connect": "connect",
    "test_demo": "demos",
    "test_recovery_demos": "demos",
    "test_cdc_demo": "demos",
    "test_soak": "demos",
}
"""Modules of `tests/spark` without the session, by group: the demos share files in `.cache`."""

HALFWAY = "test_merge"
"""The modules before it share one session of Spark, the others another, each in a worker."""

SHARED_FIXTURE = {"test_documents", "test_lost_slots", "test_real_interleavings", "test_reprs"}
"""Other modules that stay in one worker: a fixture takes seconds, or its tests are a sequence."""

# A first example may import half of pyarrow; whether a law holds matters here, not how fast.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
PROFILE = "ci" if os.environ.get("CI") else "local"
settings.register_profile("few", settings.get_profile(PROFILE), max_examples=25)
settings.register_profile("some", settings.get_profile(PROFILE), max_examples=50)
settings.load_profile(PROFILE)

EXAMPLES = {"not long": "few", "not night": "some"}
"""How many examples of a law are tried, by the tests that are left out; else 100."""


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples where the tests that take long are left out."""
    if (profile := EXAMPLES.get(config.option.markexpr)) is not None:
        settings.load_profile(profile)


def pytest_report_header() -> str:
    return f"spark: {version('pyspark')}, pyarrow: {version('pyarrow')}"


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no hints
    """Groups of tests for one worker: those that share a session, a fixture or files.

    xdist's own `--dist=loadgroup` does nothing under pytest 9.2 (pytest-xdist #1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        module = PurePath(nodeid.partition("::")[0])
        if module.parent.name == "stores":
            return "stores"  # a server each is enough
        if module.parent.name != "spark":
            return module.stem if module.stem in SHARED_FIXTURE else nodeid
        half = "first half" if module.stem < HALFWAY else "second half"
        return OWN_JVM.get(module.stem, half)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes longest first: tests with the Spark session, torture; `long` ones last."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.path.stem == "test_ci_share":
        return 0
    if item.get_closest_marker("long"):
        return 2
    return 0 if item.path.parent.name == "spark" and item.path.stem not in OWN_JVM else 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def create(store: MemoryStore, clock: ManualClock) -> Create:
    """Return a function that creates a small table on a store in memory."""

    def create(schema: pa.Schema = SCHEMA, *, at: Store = store, **options: object) -> Table:
        return create_table(
            at,
            first_schema(columns_of_arrow(schema)),
            clock=clock,
            probe_store=False,
            **options,  # type: ignore[arg-type]
        )

    return create


@pytest.fixture
def table(create: Create) -> Table:
    """Five commits, key n at version n."""
    table = create()
    for key in range(1, 6):
        table.append(pa.table({"k": pa.array([key], pa.int64())}))
    return table
