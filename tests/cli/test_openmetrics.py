"""`stats --format openmetrics`: read by the parser of Prometheus' own client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fuse_stream.cli.openmetrics import Observed, openmetrics_text
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run
from tests.cli.leases import put_lease

parse: Callable[[str], Iterable[Any]] = text_string_to_metric_families
Samples = dict[tuple[str, str], float]


def samples(text: str, *labels: str) -> Samples:
    """Return the values by name and the values of labels."""
    return {
        (sample.name, "/".join(sample.labels[label] for label in labels)): sample.value
        for family in parse(text)
        for sample in family.samples
        if all(label in sample.labels for label in labels)
    }


def test_the_numbers_of_a_table_are_gauges(path: str, run: Run) -> None:
    shown = run("stats", path, "--format", "openmetrics")
    families = {one.name: one for one in parse(shown.stdout)}
    found = samples(shown.stdout)

    assert shown.exit_code == 0
    assert shown.stdout.endswith("# EOF\n")
    assert {one.type for name, one in families.items() if name != "fuse_table"} == {"gauge"}
    assert all(one.documentation for one in families.values())
    assert families["fuse_live_bytes"].unit == "bytes"
    assert families["fuse_head_age_seconds"].unit == "seconds"
    assert found["fuse_head_version", ""] == 3
    assert found["fuse_rows", ""] == 2
    assert found["fuse_blocks", ""] == found["fuse_small_blocks", ""] == 1
    assert found["fuse_live_bytes", ""] > 0
    assert 0 <= found["fuse_head_age_seconds", ""] < 600


def test_each_sample_names_its_table_and_branch(path: str, table: Table, run: Run) -> None:
    table.create_branch("fix", 1)
    shown = run("stats", path, "--branch", "fix", "--format", "openmetrics")

    assert samples(shown.stdout, "path", "branch")["fuse_head_version", f"{path}/fix"] == 1
    assert samples(shown.stdout, "table_id")["fuse_table_info", table.table_id] == 1


def test_the_ledger_and_the_consumers_are_told(path: str, table: Table, run: Run) -> None:
    put_lease(table, "nightly", 1)
    shown = run("stats", path, "--format", "openmetrics")
    batches = samples(shown.stdout, "application", "writer")
    lags = samples(shown.stdout, "consumer")

    assert batches["fuse_ledger_batch", "night/w"] == 1
    assert batches["fuse_ledger_batch", "default/"] == 0
    assert lags["fuse_consumer_lag_versions", "nightly"] == 2
    assert lags["fuse_consumer_lag_rows", "nightly"] > 0
    assert 0 < lags["fuse_consumer_lease_seconds", "nightly"] <= 1_000_000


def test_a_lease_that_has_ended_is_below_zero(path: str, table: Table) -> None:
    put_lease(table, "nightly", 1)
    observed = Observed(
        table_id=table.table_id,
        path=path,
        branch="main",
        now_us=table.metadata.clock.now_us() + 10**12,
        head=table.head(),
        stats=table.stats(),
        ledger=table.ledger(),
        consumers=table.consumers(),
    )

    assert (
        samples(openmetrics_text(observed), "consumer")["fuse_consumer_lease_seconds", "nightly"]
        < 0
    )


def test_garbage_is_told_if_it_is_asked_for(path: str, table: Table, run: Run) -> None:
    table.metadata.store.put(f"_b/{'0' * 32}_v1.parquet", b"left over")
    without = run("stats", path, "--format", "openmetrics")
    shown = run("stats", path, "--format", "openmetrics", "--garbage")
    found = samples(shown.stdout, "state", "kind")

    assert "fuse_garbage" not in without.stdout
    assert found["fuse_garbage_objects", "waiting/blocks"] == 1
    assert found["fuse_garbage_bytes", "waiting/blocks"] == 9


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "two\nlines", "a{b=c},d", "é☃", "\\n"])
def test_label_values_are_escaped(table: Table, path: str, run: Run, name: str) -> None:
    table.append(pa.table({"id": [1], "name": ["a"], "delay": [0.5]}), app_id=name, batch_id=7)
    shown = run("stats", path, "--format", "openmetrics")

    assert samples(shown.stdout, "application")["fuse_ledger_batch", name] == 7


def test_control_characters_do_not_reach_the_terminal(table: Table, path: str, run: Run) -> None:
    rows = pa.table({"id": [1], "name": ["a"], "delay": [0.5]})
    table.append(rows, app_id="red\x1b[31m\r\x07", batch_id=7)
    shown = run("stats", path, "--format", "openmetrics")

    assert not set(shown.stdout) & {"\x1b", "\r", "\x07"}
    assert 7 in samples(shown.stdout, "application").values()


@pytest.mark.parametrize("options", [("--format", "openmetrics", "--json"), ("--format", "xml")])
def test_options_that_do_not_go_together_are_refused(
    path: str, run: Run, options: tuple[str, ...]
) -> None:
    assert run("stats", path, *options).exit_code == 2
