"""Statistics never prune a block with a matching row, and prune every block that they can."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import ColumnStats, Value
from fuse_stream.format.stats import column_stats, merge_stats
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.bound import Bound
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where
from fuse_stream.predicate.prune import StatsOf, may_match, must_match
from tests.kit.predicates import SCHEMA, random_table, random_where

OURS = first_schema(columns_of_arrow(SCHEMA))
COLUMNS = pa.schema(
    [("n", pa.int32()), ("x", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))]
)


def stats_of(blocks: list[pa.Table]) -> StatsOf:
    """Return the statistics over blocks, as a segment has them."""
    merged = merge_stats((column_stats(block, OURS), len(block)) for block in blocks)
    ids = {leaf.path: leaf.column.id for leaf in OURS.leaves()}
    return lambda path: merged.get(ids[path]) if path in ids else None


def random_bound(random: Random) -> Bound:
    while True:
        try:
            return bind(parse_where(random_where(random)), SCHEMA)
        except InvalidInputError:
            continue


@given(seed=st.integers(0, 1 << 32), block_count=st.integers(1, 3))
def test_pruning_never_drops_a_block_with_a_matching_row(seed: int, block_count: int) -> None:
    random = Random(seed)
    blocks = [random_table(random, random.randint(1, 6)) for _ in range(block_count)]
    table = pa.concat_tables(blocks)
    stats = stats_of(blocks)

    for _ in range(20):
        bound = random_bound(random)
        mask = filter_mask(bound, table)

        assert may_match(bound, stats, len(table)) or not pc.any(mask).as_py()
        assert not must_match(bound, stats, len(table)) or pc.all(mask).as_py()


def stats(
    low: Value | None, high: Value | None, *, null_count: int = 0, nan_count: int = 0
) -> StatsOf:
    """Return the statistics of ten rows, the same for every column."""
    found = ColumnStats(
        min=low, max=high, null_count=null_count, nan_count=nan_count, in_memory_size=80
    )
    return lambda path: found


def may(text: str, of: StatsOf) -> bool:
    return may_match(bind(parse_where(text), COLUMNS), of, 10)


def must(text: str, of: StatsOf) -> bool:
    return must_match(bind(parse_where(text), COLUMNS), of, 10)


@pytest.mark.parametrize(
    "text",
    [
        "n = 9", "n < 10", "n <= 9", "n > 20", "n >= 21", "n IN (1, 30)", "n BETWEEN 21 AND 30",
        "NOT n >= 10", "NOT (n > 5 OR n IS NULL)", "n = 15 AND n = 25", "n = 5 OR n = 25",
        "n IS NULL", "NOT n IS NOT NULL", "n = NULL", "NOT n = NULL", "NULL", "FALSE", "NOT TRUE",
        "n = 15.5", "n <=> NULL", "n <=> 5", "n > 99999999999", "NOT n < 99999999999",
        "n NOT IN (15, NULL)", "NOT n BETWEEN 10 AND 20",
    ],
)  # fmt: skip
def test_a_block_out_of_range_is_pruned(text: str) -> None:
    assert not may(text, stats(10, 20))


@pytest.mark.parametrize(
    "text",
    [
        "n = 10", "n = 20", "n < 11", "n <= 10", "n > 19", "n >= 20", "n IN (1, 15)", "n <> 15",
        "n IS NOT NULL", "n NOT IN (1, 15)", "n = 25 OR n = 15", "NOT n = 15", "l IS NOT NULL",
        "TRUE", "n <=> 15",
    ],
)  # fmt: skip
def test_a_block_in_range_is_kept(text: str) -> None:
    assert may(text, stats(10, 20))


@pytest.mark.parametrize("text", ["n >= 10", "n < 21", "NOT n = 9", "n IS NOT NULL", "n <> 21"])
def test_a_block_whose_whole_range_matches_must_match(text: str) -> None:
    assert must(text, stats(10, 20))
    assert not must(text, stats(10, 20, null_count=1)) or "NULL" in text


def test_nulls_match_no_comparison_and_so_not_all_rows() -> None:
    assert not must("n >= 10", stats(10, 20, null_count=1))
    assert not must("NOT n < 10", stats(10, 20, null_count=1))
    assert must("n >= 10 OR n IS NULL", stats(10, 20)) is True


def test_a_block_of_nulls_only_is_pruned_by_every_comparison() -> None:
    nulls = stats(None, None, null_count=10)

    assert not may("n = 1", nulls)
    assert not may("NOT n = 1", nulls)
    assert not may("n IS NOT NULL", nulls)
    assert must("n IS NULL", nulls)


@pytest.mark.parametrize("text", ["n = 1", "n > 1", "n < 1", "n IS NULL", "NOT n = 1", "n IN (1)"])
def test_without_statistics_nothing_is_pruned(text: str) -> None:
    assert may(text, lambda path: None)
    assert not must(text, lambda path: None)


def test_a_missing_bound_prunes_nothing_on_that_side() -> None:
    assert may("n > 1000", stats(10, None))
    assert not may("n < 10", stats(10, None))
    assert may("n < -1000", stats(None, 20))
    assert not may("n > 20", stats(None, 20))
    assert may("n = 1", stats(None, None))
    assert may("x < 1", stats(None, None, nan_count=1))


def test_a_column_with_nan_may_hold_values_above_its_upper_bound() -> None:
    with_nan = stats(1.0, 2.0, nan_count=1)

    assert may("x > 5", with_nan)
    assert may("x = CAST('NaN' AS DOUBLE)", with_nan)
    assert may("NOT x <= 5", with_nan)
    assert not may("x = 5", with_nan)
    assert not may("x < 1", with_nan)
    assert not may("x > 5", stats(1.0, 2.0))
    assert not may("x = CAST('NaN' AS DOUBLE)", stats(1.0, 2.0))
    assert not must("x <= 2", with_nan)


def test_a_block_of_nan_only_is_greater_than_every_number() -> None:
    nan = stats(None, None, nan_count=10)

    assert must("x > 5", nan)
    assert not may("x < 5", nan)
    assert must("x = CAST('NaN' AS DOUBLE)", nan)


def test_a_bound_of_zero_includes_both_signs() -> None:
    assert may("x = 0", stats(-0.0, -0.0))
    assert may("x = -0.0D", stats(0.0, 0.0))


def test_a_truncated_bound_is_not_taken_for_a_value() -> None:
    cut = stats("abc", "abd")

    assert may("s = 'abc'", cut)
    assert may("s <> 'abc'", cut)
    assert not must("s > 'abc'", cut)


def test_like_is_pruned_by_its_prefix() -> None:
    words = stats("bear", "cow")

    assert may("s LIKE 'be%'", words)
    assert may("s LIKE 'c%'", words)
    assert may("s LIKE 'bear_%'", words)
    assert may("s LIKE '%x'", words)
    assert not may("s LIKE 'a%'", words)
    assert not may("s LIKE 'cp%'", words)
    assert not may("s LIKE 'ba_'", words)
    assert may("s NOT LIKE 'a%'", words)


def test_a_block_without_rows_never_matches() -> None:
    assert not may_match(bind(parse_where("TRUE"), COLUMNS), stats(1, 2), 0)
