"""What the tests of reading share: small tables over a store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.storage.base import Store
from fuse_stream.table import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64())])

Create = Callable[..., Table]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def create(store: MemoryStore, clock: ManualClock) -> Create:
    def create(schema: pa.Schema = SCHEMA, *, at: Store = store, **options: object) -> Table:
        return create_table(
            at,
            first_schema(columns_of_arrow(schema)),
            clock=clock,
            probe_store=False,
            **options,  # type: ignore[arg-type]
        )

    return create
