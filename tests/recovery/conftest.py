"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.table import Table
from tests.recovery.histories import rows


@pytest.fixture
def table(create: Callable[..., Table]) -> Table:
    """Five commits, key n at version n."""
    table = create()
    for key in range(1, 6):
        table.append(rows(key))
    return table
