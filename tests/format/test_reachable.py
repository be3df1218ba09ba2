"""What vacuum reads of a segment, without its statistics."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.errors import UnsupportedFormatError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.layout import segment_key
from fuse_stream.format.reachable import read_block_ids
from fuse_stream.table.handle import Table

HOSTILE = ',"id":"' + "a" * 32 + '","origin":"deletes"'


def test_values_that_look_like_keys_are_not_taken_for_ids(tmp_path: Path) -> None:
    table = Table.create(tmp_path, pa.schema([('"id":"', pa.string())]))
    for value in ("plain", '{"id":"' + "b" * 32, HOSTILE):
        table.append(pa.table({'"id":"': [value]}))
    snapshot = table.head()

    assert len(snapshot.segments) == 3
    for ref in snapshot.segments:
        data = table.metadata.store.get(segment_key(ref.id))
        segment = table.metadata.load_segment(ref, snapshot.schema.leaf_types)
        assert read_block_ids(data, ref.sha256, ref.block_count) == [
            block.id for block in segment.blocks
        ]


def test_a_segment_of_a_newer_format_is_refused() -> None:
    data = pa.compress(
        b'{"blocks":[{"id":"%b"}],"format_version":10}' % (b"a" * 32), "zstd", asbytes=True
    )

    with pytest.raises(UnsupportedFormatError):
        read_block_ids(data, sha256_hex(data), 1)
