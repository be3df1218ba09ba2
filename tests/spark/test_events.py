"""Events with sequences by Spark: in any order, and again after a rewind."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.table.handle import Table
from tests.dml.event_model import (
    COLUMNS,
    Event,
    batches_of,
    history_of,
    log_of,
    state_of,
    table_of,
)
from tests.spark.streams import deliver_table, read_stream, run

SCHEMA = "k long, a long, b long, c long, _op string, _seq long"
ENVELOPE = f"{SCHEMA}, _unset array<string>, _error string, _raw string, _source string"
RULES: dict[str, Any] = {
    "mode": "upsert",
    "keys": ["k"],
    "sequence_by": "_seq",
    "apply_as_deletes": "_op = 'd'",
    "apply_as_truncates": "_op = 't'",
    "except_column_list": ["_op", "_seq"],
}


def state(path: Path) -> dict[int, tuple[int | None, ...]]:
    rows = Table.open(path).to_arrow(columns=["k", *COLUMNS]).to_pylist()
    return {row["k"]: tuple(row[name] for name in COLUMNS) for row in rows}


def test_a_stream_of_events_taken_back_ends_as_one_that_went_through(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(7)
    log = log_of(chance, 60, keys=6, seqs=20, partial=True, truncates=True)
    batches = list(batches_of(chance, log))[:6]
    first, rest = batches[:4], batches[4:]
    path, sent = tmp_path / "table", [event for batch in batches for event in batch]
    for number, batch in enumerate(first):
        deliver_table(tmp_path, number, table_of(batch, partial=True))

    def deliver(checkpoint: Path) -> fuse.FuseSink:
        sink = fuse.fuse_sink(str(path), mode="upsert", keys=["k"], optimize="off")
        run(read_stream(spark, tmp_path, ENVELOPE), sink, checkpoint)
        return sink

    sink = deliver(tmp_path / "checkpoint")
    assert state(path) == state_of(event for batch in first for event in batch)
    assert sink.last_commit is not None
    assert sink.last_commit.counts is not None
    assert sink.last_commit.counts.events == len(first[-1])

    old, new = str(tmp_path / "checkpoint"), str(tmp_path / "again")
    fuse.rewind(str(path), after_batch=1, checkpoints={old: new})
    assert state(path) == state_of(event for batch in first[:2] for event in batch)

    for number, batch in enumerate(rest, len(first)):
        deliver_table(tmp_path, number, table_of(batch, partial=True))
    deliver(Path(new))

    assert state(path) == state_of(sent)


def test_a_history_is_written_by_sink_and_by_write(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(random.Random(3), 30, keys=4, seqs=30, partial=False, truncates=True)
    path = tmp_path / "table"
    deliver_table(tmp_path, 0, table_of(log[:20], partial=False))
    sink = fuse.fuse_sink(str(path), stored_as_scd_type=2, optimize="off", **RULES)
    run(read_stream(spark, tmp_path, SCHEMA), sink, tmp_path / "checkpoint")
    late = spark.createDataFrame(table_of(log[20:], partial=False))
    fuse.write(late, str(path), stored_as_scd_type=2, **RULES)

    found: dict[int, list[Any]] = {}
    rows = fuse.read(spark, str(path)).orderBy("__START_AT").collect()
    for row in rows:
        values = tuple(row[name] for name in COLUMNS)
        found.setdefault(row["k"], []).append((row["__START_AT"], row["__END_AT"], values))
    assert found == history_of(log)


def test_bad_events_are_kept_with_the_batch_that_brought_them_and_warned_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "table"
    whole = (("a", 1), ("b", 1), ("c", 1))
    events = [Event(1, 5, "u", whole), Event(None, 6, "u", whole)]
    deliver_table(tmp_path, 0, table_of(events, partial=False))
    sink = fuse.fuse_sink(str(path), optimize="off", **RULES)
    run(read_stream(spark, tmp_path, SCHEMA), sink, tmp_path / "checkpoint")

    (kept,) = Table.open(path).to_arrow(side="quarantine").to_pylist()
    assert (kept["reason"], kept["batch_id"], kept["sequence"]) == ("no key", 0, 6)
    assert kept["event"] == {"k": None, "a": 1, "b": 1, "c": 1}
    assert state(path) == {1: (1, 1, 1)}

    fuse.write(spark.createDataFrame(table_of(events[1:], partial=False)), str(path), **RULES)
    warned = [text for text in caplog.messages if "quarantine" in text]
    assert [text.partition(" events")[0] for text in warned] == ["1 of 2", "1 of 1"]


def test_events_that_are_stored_as_plain_rows_are_one_warning_of_a_sink_and_of_a_write(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = table_of([Event(1, 5, "u", (("a", 1),))], partial=True)
    for number in range(2):
        deliver_table(tmp_path, number, rows)
    sink = fuse.fuse_sink(str(tmp_path / "bronze"), optimize="off")
    run(read_stream(spark, tmp_path, ENVELOPE), sink, tmp_path / "checkpoint")
    stored = fuse.read(spark, str(tmp_path / "bronze"))
    plain, events = spark.range(1), spark.createDataFrame(stored.collect(), ENVELOPE)
    fuse.write(plain, str(tmp_path / "plain"))
    fuse.write(events, str(tmp_path / "latest"), mode="overwrite")
    fuse.write(events, str(tmp_path / "silver"), mode="upsert", keys=["k"])

    warned = [text for text in caplog.messages if 'mode="upsert"' in text]
    assert [Path(text.partition("path=")[2]).name for text in warned] == ["bronze", "latest"]
    assert stored.count() == 2


def test_a_sink_of_events_adopts_the_place_of_a_query_that_was_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    deliver_table(tmp_path, 0, table_of([Event(1, 5, "u", (("a", 1),))], partial=False))
    sink = fuse.fuse_sink(path, optimize="off", **RULES)
    run(read_stream(spark, tmp_path, SCHEMA), sink, tmp_path / "lost")
    (entry,) = Table.open(path).ledger().values()
    shutil.copytree(tmp_path / "lost", tmp_path / "new")
    shutil.rmtree(tmp_path / "new" / "commits")
    for name in (".metadata.crc", "metadata"):
        (tmp_path / "new" / name).unlink()
    (tmp_path / "new" / "metadata").write_text('{"id": "4f0e6f6e-6d0a-4c7f-8f0d-2f0f7f1f2b10"}')
    adopting = fuse.fuse_sink(path, optimize="off", adopt=entry.query_id, **RULES)
    run(read_stream(spark, tmp_path, SCHEMA), adopting, tmp_path / "new")

    assert adopting.last_commit is not None
    assert (adopting.last_commit.outcome, adopting.last_commit.counts) == ("committed", None)


def test_events_that_may_not_be_kept_stop_the_write(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame(table_of([Event(None, 6, "d")], partial=False))

    with pytest.raises(InvalidInputError, match="no key"):
        fuse.write(events, str(tmp_path / "t"), on_bad="error", **RULES)
    assert Table.open(tmp_path / "t").head().version == 0


def test_arguments_about_events_need_a_sequence_and_an_upsert(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = spark.createDataFrame(table_of([Event(1, 6, "d")], partial=False))

    with pytest.raises(InvalidInputError, match="sequence_by"):
        fuse.write(events, str(tmp_path / "t"), mode="upsert", keys=["k"], tombstones="3d")
    with pytest.raises(InvalidInputError, match="upsert"):
        fuse.fuse_sink(str(tmp_path / "t"), sequence_by="_seq")
    with pytest.raises(InvalidInputError, match="no such column"):
        fuse.write(events, str(tmp_path / "t"), mode="upsert", keys=["k"], sequence_by="nix")
    assert not (tmp_path / "t").exists()


def test_rows_of_events_keep_their_keys_and_those_of_a_history_all_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = (("a", 1), ("b", 1), ("c", 1))
    events = spark.createDataFrame(table_of([Event(1, 5, "u", whole)], partial=False))
    latest, history = str(tmp_path / "latest"), str(tmp_path / "history")
    fuse.write(events, latest, **RULES)
    fuse.write(events, history, stored_as_scd_type=2, **RULES)

    with pytest.raises(InvalidInputError, match="key"):
        fuse.update(spark, latest, "k = 1", {"k": "k + 3"})
    with pytest.raises(SchemaMismatchError, match="history"):
        fuse.sql(spark, f"DELETE FROM fuse.`{history}` WHERE k = 1")
    assert fuse.update(spark, latest, "k = 1", {"a": "a + 1"}).updated == 1


def test_rows_of_events_do_not_exchange_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    whole = (("a", 1), ("b", 1), ("c", 1))
    log = [Event(1, 5, "u", whole), Event(2, 9, "u", whole), Event(2, 10, "u", (("b", 2),))]
    for event in log:
        events = spark.createDataFrame(table_of([event], partial=True).to_pylist(), ENVELOPE)
        fuse.write(events, str(path), mode="upsert", keys=["k"], sequence_by="_seq")

    with pytest.raises(InvalidInputError, match="key"):
        fuse.update(spark, str(path), "k < 3", {"k": "3 - k"})
    assert fuse.update(spark, str(path), "k < 3", {"a": "a + 1"}).updated == 2
    assert state(path) == {1: (2, 1, 1), 2: (2, 2, 1)}
