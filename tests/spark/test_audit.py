"""Audits of a real query: undisturbed, and after people changed its folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.check.audit import AuditKind
from tests.spark.streams import deliver, drop_log, read_stream, replace_folder, run

FILES = 4


def run_query(spark: SparkSession, folder: Path) -> None:
    sink = fuse.fuse_sink(str(folder / "table"))
    run(read_stream(spark, folder), sink, folder / "checkpoint")


@pytest.fixture(scope="module")
def scenario(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches; beside the table a copy of it that was made after the first two."""
    folder = tmp_path_factory.mktemp("audit")
    deliver(folder, range(2))
    run_query(spark, folder)
    shutil.copytree(folder / "table", folder / "older")
    deliver(folder, range(2, FILES))
    run_query(spark, folder)
    return folder


@pytest.fixture
def folder(scenario: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scenario, tmp_path / "copy"))


def audited(folder: Path) -> fuse.AuditReport:
    return fuse.audit(folder / "table", folder / "checkpoint")


def test_an_undisturbed_query_agrees(folder: Path) -> None:
    report = audited(folder)

    assert report.agrees
    assert report.writers[0].batch_count == FILES
    assert report.writers[0].last_batch == FILES - 1
    assert report.writers[0].row_count == FILES * 10


def test_a_lost_commit_entry_is_no_difference(folder: Path) -> None:
    drop_log(folder / "checkpoint", "commits", FILES - 1)

    assert audited(folder).agrees
    assert audited(folder).planned == (FILES - 1,)


def test_a_truncated_checkpoint_is_behind(folder: Path) -> None:
    for log in ("offsets", "commits"):
        drop_log(folder / "checkpoint", log, 2)
    (finding,) = audited(folder).findings

    assert (finding.kind, finding.batches, finding.versions) == (AuditKind.BEHIND, (2, 3), (3, 4))


def test_a_table_restored_from_an_older_copy_misses_batches(folder: Path) -> None:
    replace_folder(folder / "table", folder / "older")
    (finding,) = audited(folder).findings

    assert (finding.kind, finding.batches) == (AuditKind.MISSING, (2, 3))
