"""The blocks of a snapshot, with the rows that it hides."""

from __future__ import annotations

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.positions import Positions
from fuse_stream.objects.snapshot_blocks import with_hidden
from fuse_stream.table.handle import Table


def test_the_last_row_of_a_block_can_be_hidden(table: Table) -> None:
    blocks = table.blocks()
    (first, *others) = with_hidden(blocks, {blocks[0].id: Positions([0])})

    assert first.live_rows == 0
    assert tuple(others) == blocks[1:]


@pytest.mark.parametrize("row", [1, 2**40])
def test_a_hidden_row_past_the_end_of_its_block_is_corruption(table: Table, row: int) -> None:
    blocks = table.blocks()

    with pytest.raises(CorruptObjectError, match="past the end of a block") as caught:
        with_hidden(blocks, {blocks[0].id: Positions([0, row])})
    assert caught.value.context["row"] == row
