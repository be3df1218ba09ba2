"""New values written as SQL literals, in the type of their column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fuse_stream.dml.literals import read_values
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema

SCHEMA = first_schema(
    columns_of_arrow(pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64())]))
)


def test_a_time_without_a_zone_is_in_the_given_zone() -> None:
    found = read_values(SCHEMA, {"at": "'2026-01-31 09:00'"}, time_zone="+02:00")

    assert found["at"].as_py().isoformat() == "2026-01-31T07:00:00+00:00"


def test_values_keep_the_names_and_the_order_that_were_given() -> None:
    assert list(read_values(SCHEMA, {"K": "1", "at": "NULL"})) == ["K", "at"]


@pytest.mark.parametrize("text", ["", "k", "1, 2", "1; 2", "k = 1", "--", "((1)", "1" * 500])
def test_a_text_that_is_no_literal_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_values(SCHEMA, {"k": text})
    assert caught.value.context["column"] == "k"
    assert "NULL" in str(caught.value.context["literals"])
