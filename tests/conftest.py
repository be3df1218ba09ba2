"""What every test shares. Imports no Spark: most tests need no JVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version

import pyarrow as pa
import pytest
from hypothesis import settings

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.storage.base import Store
from fuse_stream.table import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64())])

Create = Callable[..., Table]

# A first example may import half of pyarrow; whether a law holds matters here, not how fast.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_report_header() -> str:
    return f"spark: {version('pyspark')}, pyarrow: {version('pyarrow')}"


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what uses the one Spark session in one worker; begin with what answers soon."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("long") is not None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def create(store: MemoryStore, clock: ManualClock) -> Create:
    """Return what makes a small table over a store in memory."""

    def create(schema: pa.Schema = SCHEMA, *, at: Store = store, **options: object) -> Table:
        return create_table(
            at,
            first_schema(columns_of_arrow(schema)),
            clock=clock,
            probe_store=False,
            **options,  # type: ignore[arg-type]
        )

    return create
