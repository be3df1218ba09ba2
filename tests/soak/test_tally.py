"""Two tallies are equal exactly if their multisets of rows are, in any order and any batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from soak.tally import Tally, changes_of, load_batches, store_batch, tally_of, total

ROWS = pa.table({"number": [1, 2, 3, 4], "text": ["a", None, "b", "b"]})
SCHEMA = first_schema(columns_of_arrow(ROWS.schema))


def feed(rows: pa.Table, kind: str = "insert", version: int = 1) -> pa.Table:
    count = len(rows)
    return rows.append_column("_change_type", pa.array([kind] * count)).append_column(
        "_commit_version", pa.array([version] * count)
    )


def test_order_and_batch_boundaries_do_not_change_a_tally() -> None:
    parts = [ROWS.slice(2), ROWS.slice(0, 2)]

    assert total(tally_of(part, SCHEMA) for part in parts) == tally_of(ROWS, SCHEMA)


def test_a_row_in_place_of_another_changes_the_tally() -> None:
    other = ROWS.take([0, 1, 2, 2])

    assert tally_of(other, SCHEMA).rows == tally_of(ROWS, SCHEMA).rows
    assert tally_of(other, SCHEMA) != tally_of(ROWS, SCHEMA)


def test_a_delete_cancels_an_insert() -> None:
    changes = pa.concat_tables([feed(ROWS), feed(ROWS.slice(1), "delete", 2)])
    found = changes_of(changes, SCHEMA)

    assert found[1] == tally_of(ROWS, SCHEMA)
    assert total(found.values()) == tally_of(ROWS.slice(0, 1), SCHEMA)


def test_a_repeated_batch_counts_once(tmp_path: Path) -> None:
    for batch_id, part in ((0, ROWS.slice(0, 2)), (1, ROWS.slice(2)), (1, ROWS.slice(2))):
        store_batch(tmp_path, batch_id, changes_of(feed(part), SCHEMA))

    assert load_batches(tmp_path) == tally_of(ROWS, SCHEMA)


def test_a_half_written_file_does_not_count(tmp_path: Path) -> None:
    store_batch(tmp_path, 0, changes_of(feed(ROWS), SCHEMA))
    (tmp_path / ".1.json-77").write_text("[")

    assert load_batches(tmp_path) == tally_of(ROWS, SCHEMA)
    assert load_batches(tmp_path / "empty") == Tally()
