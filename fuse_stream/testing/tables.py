"""Tables in a store that a test chooses; in memory by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.memory import MemoryStore


def temporary_table(
    schema: pa.Schema,
    *,
    store: Store | None = None,
    clock: Clock = SYSTEM_CLOCK,
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Create a table in a store, by default in memory, and return its handle.

    Args:
        schema: the columns; their nullability is kept.
        store: the table's store; a new `MemoryStore` if not given. It is not probed, so that a
            `FaultyStore` counts only the calls of the table.
        clock: the source of the table's times and ids.
        cluster_by: as for `Table.create`.
        properties: as for `Table.create`.

    Raises:
        AlreadyExistsError: there is a table in `store`.
    """
    return create_table(
        MemoryStore(clock=clock) if store is None else store,
        first_schema(columns_of_arrow(schema)),
        cluster_by=cluster_by,
        properties=properties,
        clock=clock,
        probe_store=False,
    )


def open_table_in(store: Store, *, branch: str = MAIN, clock: Clock = SYSTEM_CLOCK) -> Table:
    """Return a new handle of the table in `store`, as another process would; without a probe.

    Raises:
        NotFoundError: there is no table, or no such branch.
    """
    return open_table(store, branch=branch, clock=clock, probe_store=False)
