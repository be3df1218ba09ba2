"""`stats`: the printed figures of a branch, and the keys of `--json`."""

from __future__ import annotations

from fuse_stream.cli.stats import work_grid
from fuse_stream.table.handle import Table
from fuse_stream.table.stats import OperationTotals
from tests.cli.conftest import Run, RunJson, rows


def test_stats_shows_the_figures_and_the_optimizations(run: Run, table: Table, path: str) -> None:
    for number in range(3):
        table.append(rows(number))
    table.compact()
    lines = [line.split() for line in run("stats", path).stdout.splitlines()]

    assert ["rows", "5"] in lines
    assert ["blocks", "1", "in", "1", "segment,", "0", "perfect,", "1", "small"] in lines
    assert ["fuse.optimize.blocks", "25"] in lines
    (compaction,) = (line for line in lines if line[:1] == ["compact"])
    assert compaction[1:3] == ["1", "3"]
    (headings,) = (line for line in lines if line[:1] == ["operation"])
    assert " ".join(headings) == (
        "operation commits blocks saved bytes rewritten bytes saved last version last time (UTC)"
    )
    assert ["vacuum", *"-----", "never", "by", "an", "optimizer"] in lines


def test_stats_fits_into_80_columns_whole(run: Run, table: Table, path: str) -> None:
    for number in range(3):
        table.append(rows(number))
    table.compact()
    wide = run("stats", path, width=120).stdout.split()
    lines = run("stats", path, width=80).stdout.splitlines()

    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert sorted(" ".join(lines).split()) == sorted(wide)


def test_stats_of_a_large_table_leaves_out_the_last_version_in_80_columns() -> None:
    work = OperationTotals(
        commit_count=1_000,
        blocks_saved=1_234_567,
        bytes_rewritten=1023 * 1024**3,
        bytes_saved=-1023 * 1024**3,
        last_version=12_345_678,
        last_us=1_700_000_000_000_000,
    )
    grid = work_grid({"compact": work}, None, 80)

    assert grid.narrowest_width() <= 80
    assert [heading.text.replace("\n", " ") for heading in grid.headings] == [
        *("operation", "commits", "blocks saved"),
        *("bytes rewritten", "bytes saved", "last time (UTC)"),
    ]


def test_stats_json_has_the_documented_keys(run_json: RunJson, path: str) -> None:
    document = run_json("stats", path)

    assert sorted(document) == sorted(
        "path branch version row_count block_count perfect_block_count imperfect_block_count "
        "hidden_row_count deletion_file_count sides "
        "segment_count compressed_byte_size uncompressed_byte_size metadata history upkeep "
        "policy garbage".split()
    )
    assert sorted(document["metadata"]) == sorted(
        "snapshot_byte_size segment_byte_size deletion_file_byte_size byte_size "
        "bytes_per_block".split()
    )
    assert sorted(document["history"]) == sorted("retained_count floor epoch".split())
    assert sorted(document["upkeep"]) == sorted(
        "searched_count compact recluster expire vacuum".split()
    )
    assert sorted(document["upkeep"]["compact"]) == sorted(
        "commit_count blocks_saved bytes_rewritten bytes_saved last_version last_timestamp".split()
    )
    assert document["policy"]["fuse.optimize.blocks"] == "25"
