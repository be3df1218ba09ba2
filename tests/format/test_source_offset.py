"""The positions of sources, as people read them."""

from __future__ import annotations

import pytest

from fuse_stream.format.source_offset import FIRST_READ, FROM_NOW, RESYNC, Offset, SourcePosition

TABLE, BRANCH, SNAPSHOT = "ab12cd34" * 4, "0f3c12ab" * 4, "5" * 32


@pytest.mark.parametrize(
    ("path", "branch_id", "version", "index", "shown"),
    [
        ("s3://lake/bronze", "main", 26, 0, "bronze@26"),
        ("/lake/bronze/", "main", 26, 0, "bronze@26"),
        ("bronze", BRANCH, 26, 0, "bronze/0f3c12ab@26"),
        (None, "main", 26, 0, "ab12cd34@26"),
        ("..", "main", 26, 0, "ab12cd34@26"),
        ("/lake/bronze", "main", 26, 3, "bronze@25+3"),
        ("/lake/bronze", "main", 26, -3, "bronze@26-3"),
        ("/lake/bronze", "main", 26, RESYNC, "bronze@26"),
        ("/lake/bronze", "main", 0, FIRST_READ, "bronze@start"),
        ("/lake/bronze", "main", 0, FROM_NOW, "bronze@start"),
    ],
)
def test_a_position_is_shown_as_the_table_and_what_was_read(
    path: str | None, branch_id: str, version: int, index: int, shown: str
) -> None:
    offset = Offset(
        table_id=TABLE, branch_id=branch_id, version=version, snapshot_id=SNAPSHOT, index=index
    )

    assert SourcePosition(offset=offset, path=path).name == shown
