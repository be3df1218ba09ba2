"""The options of `format("fuse")`, without a session."""

from __future__ import annotations

import pickle

import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.options import (
    ReadOptions,
    WriteOptions,
    parse_read_options,
    parse_write_options,
)
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.location import TableLocation

PATH = {"path": "/lake/t"}
CHANGES = {**PATH, "feed": "changes"}


def read_error(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(InvalidInputError) as caught:
        parse_read_options(options, streaming=streaming)
    return str(caught.value)


def write_error(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(InvalidInputError) as caught:
        parse_write_options(options, streaming=streaming)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "wait_us"),
    [("60s", 60_000_000), (" 5M ", 300_000_000), ("0s", 0), ("1d", 86400 * 10**6)],
)
@pytest.mark.parametrize("streaming", [None, False, True])
def test_the_time_to_wait_for_a_table_is_a_duration(
    text: str, wait_us: int, *, streaming: bool | None
) -> None:
    read = parse_read_options({**PATH, "waitfortable": text}, streaming=streaming)

    assert read.wait_for_table_us == wait_us


@pytest.mark.parametrize("text", ["60", "true", "", "-1s", "1.5s", "9999999999s"])
def test_a_time_to_wait_that_is_no_duration_is_refused(text: str) -> None:
    message = read_error({**PATH, "waitForTable": text}, streaming=True)

    assert 'waitForTable must be a number and s, m, h or d, such as "60s"' in message


def test_a_write_does_not_wait_for_its_table() -> None:
    assert "no meaning for a stream write" in write_error(
        {**PATH, "waitForTable": "60s"}, streaming=True
    )


@pytest.mark.parametrize("text", ["HEAD", "good", "2026-11-22", "20261122", "main@3", "3f9c2ab"])
@pytest.mark.parametrize("streaming", [None, False, True])
def test_the_bounds_of_a_feed_are_versions_as_elsewhere(
    text: str, *, streaming: bool | None
) -> None:
    bounds = {"startingversion": text, "endingversion": f" {text} "}

    read = parse_read_options({**CHANGES, **bounds}, streaming=streaming)

    as_of = parse_read_options({**PATH, "versionasof": text}, streaming=False)
    assert read.starting_version == read.ending_version == as_of.version_as_of == text


def test_every_option_of_a_stream_is_read() -> None:
    options = {
        "path": "/lake/t",
        "feed": "append",
        "startingversion": "3",
        "endingversion": "9",
        "branch": "dev",
        "columns": "a, b",
        "where": "a > 1",
        "maxrowspertrigger": "10",
        "maxbytespertrigger": "100m",
        "maxcommitspertrigger": "2",
        "skipchangecommits": "true",
        "storageoptions": '{"key": "k"}',
        "timezone": "Europe/Berlin",
    }

    assert parse_read_options(options, streaming=True) == ReadOptions(
        location=TableLocation(
            path="/lake/t", branch="dev", storage_options=StorageOptions({"key": "k"})
        ),
        feed="append",
        starting_version=3,
        ending_version=9,
        columns=("a", "b"),
        where="a > 1",
        max_rows_per_trigger=10,
        max_bytes_per_trigger=100 * 1024 * 1024,
        max_commits_per_trigger=2,
        skip_change_commits=True,
        time_zone="Europe/Berlin",
    )


def test_every_option_of_a_writer_is_read() -> None:
    options = {
        "path": "/lake/t",
        "branch": "dev",
        "appid": "app",
        "writer": "w",
        "clusterby": '["a,b", "c"]',
        "mergeschema": "TRUE",
        "adopt": "old",
        "checkpointlocation": "/ckpt",
        "commitempty": "false",
        "message": "",
        "author": "me",
        "storageoptions": "{}",
        "unsafesinglewriter": "true",
        "queryname": "what Spark adds",
    }

    assert parse_write_options(options, streaming=True) == WriteOptions(
        location=TableLocation(path="/lake/t", branch="dev", unsafe_single_writer=True),
        app_id="app",
        writer="w",
        cluster_by=("a,b", "c"),
        merge_schema=True,
        adopt="old",
        checkpoint_location="/ckpt",
        author="me",
    )
    assert parse_write_options({**PATH, "batchId": "7"}, streaming=False).batch_id == 7


def test_names_of_options_are_read_in_any_case() -> None:
    assert parse_read_options({"PATH": "p", "VersionAsOf": "4"}, streaming=False) == ReadOptions(
        location=TableLocation(path="p"), version_as_of=4
    )


def test_the_name_of_a_version_is_kept_as_text() -> None:
    options = {**PATH, "versionasof": "dev@12"}

    assert parse_read_options(options, streaming=False).version_as_of == "dev@12"


def test_a_stream_may_start_at_the_latest_version() -> None:
    options = {**PATH, "startingversion": "LATEST"}

    assert parse_read_options(options, streaming=True).starting_version == "latest"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("2k", 2048), ("100M", 100 << 20), ("1gb", 1 << 30), ("1t", 1 << 40)],
)
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    options = {**PATH, "maxbytespertrigger": text}

    assert parse_read_options(options, streaming=True).max_bytes_per_trigger == size


def test_options_pickle_with_their_storage_options() -> None:
    options = parse_read_options(
        {**PATH, "storageoptions": '{"secret": "hunter2"}'}, streaming=False
    )

    assert pickle.loads(pickle.dumps(options)) == options
    assert pickle.loads(pickle.dumps(options)).location.storage_options["secret"] == "hunter2"


@pytest.mark.parametrize("text", ['{"secret": "hunter2"}', '{"secret": "hunter2"', '["hunter2"]'])
def test_a_repr_and_an_error_show_no_secret(text: str) -> None:
    options = {**PATH, "storageoptions": text}
    try:
        shown = repr(parse_read_options(options, streaming=False))
        shown += repr(parse_write_options(options, streaming=False))
    except InvalidInputError as error:
        shown = f"{error} {error!r} {error.__cause__} {error.__context__!r} {pickle.dumps(error)!r}"

    assert "hunter2" not in shown


def test_the_error_for_an_invalid_value_lists_the_valid_ones() -> None:
    assert 'feed must be "changes", "append", "upserts" or "blocks"' in read_error(
        {**PATH, "feed": "x"}
    )


@pytest.mark.parametrize("name", ["mode", "keys", "sequenceBy"])
def test_the_error_for_an_option_of_upserts_names_what_upserts(name: str) -> None:
    batch = write_error({**PATH, name: "upsert"})
    stream = write_error({**PATH, name: "upsert"}, streaming=True)

    assert "use fuse.write, which" in batch
    assert "use fuse.fuse_sink in foreachBatch" in stream
    assert "fuse_sink" not in read_error({**PATH, name: "upsert"})


def test_the_error_for_an_unknown_option_suggests_the_nearest() -> None:
    assert "nearest='startingVersion'" in read_error({**PATH, "stratingversion": "1"})
    assert "nearest='mergeSchema'" in write_error({**PATH, "mergeshema": "true"})


def test_the_error_for_an_option_unlike_any_other_lists_all() -> None:
    assert "'versionAsOf'" in read_error({**PATH, "zzz": "1"})


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("readChangeFeed", 'feed = "changes"'),
        ("readChangeData", 'feed = "changes"'),
        ("ignoreChanges", "skipChangeCommits"),
        ("ignoreDeletes", "skipChangeCommits"),
        ("maxFilesPerTrigger", "maxBytesPerTrigger"),
        ("snapshot-id", "versionAsOf"),
        ("as-of-timestamp", "timestampAsOf"),
        ("start-snapshot-id", "startingVersion"),
        ("end-snapshot-id", "endingVersion"),
        ("stream-from-timestamp", "startingTimestamp"),
        ("streaming-max-files-per-micro-batch", "maxBytesPerTrigger"),
        ("streaming-max-rows-per-micro-batch", "maxRowsPerTrigger"),
        ("streaming-skip-overwrite-snapshots", "skipChangeCommits"),
    ],
)
def test_a_readers_option_of_delta_or_iceberg_is_translated(name: str, ours: str) -> None:
    for streaming in (False, True):
        assert ours in read_error({**PATH, name: "1"}, streaming=streaming)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("txnAppId", "appId"),
        ("txnVersion", "batchId"),
        ("userMetadata", "message"),
        ("overwriteSchema", "mergeSchema"),
        ("replaceWhere", "overwrite the table"),
        ("partitionOverwriteMode", "overwrite the table"),
        ("merge-schema", "mergeSchema"),
        ("write-format", "Parquet"),
        ("snapshot-property.team", "message"),
        ("partitionBy", "clusterBy"),
    ],
)
def test_a_writers_option_of_delta_or_iceberg_is_translated(name: str, ours: str) -> None:
    for streaming in (False, True):
        assert ours in write_error({**PATH, name: "1"}, streaming=streaming)


def test_an_option_of_a_writer_is_refused_for_a_reader() -> None:
    assert "option='mergeSchema'" in read_error({**PATH, "mergeschema": "true"})
    assert "option='versionAsOf'" in write_error({**PATH, "versionasof": "1"})


def test_the_error_for_a_missing_path_says_what_to_do() -> None:
    assert "CREATE TEMPORARY VIEW" in read_error({})
    assert "CREATE TEMPORARY VIEW" in write_error({})


def test_the_error_for_a_catalog_table_says_what_to_do() -> None:
    created = {"path": "file:/p", "location": "file:/p", "owner": "root", "provider": "fuse"}

    assert "CREATE TEMPORARY VIEW" in read_error(created)


def test_several_paths_are_refused() -> None:
    assert "union" in read_error({"paths": '["/a", "/b"]'})


def test_a_version_together_with_a_time_is_refused_for_one_bound() -> None:
    time = "2026-11-21T09:00:00Z"

    assert "startingVersion and startingTimestamp" in read_error(
        {**CHANGES, "startingversion": "1", "startingtimestamp": time}, streaming=True
    )
    assert "endingVersion and endingTimestamp" in read_error(
        {**CHANGES, "startingversion": "1", "endingversion": "1", "endingtimestamp": time}
    )
    assert "versionAsOf and timestampAsOf" in read_error(
        {**PATH, "versionasof": "1", "timestampasof": time}
    )


def test_a_feed_that_ends_before_it_starts_is_refused() -> None:
    options = {**CHANGES, "startingversion": "5", "endingversion": "4"}

    assert "before it starts" in read_error(options)


@pytest.mark.parametrize(
    "name", ["maxRowsPerTrigger", "maxBytesPerTrigger", "maxCommitsPerTrigger"]
)
def test_a_batch_read_refuses_trigger_options(name: str) -> None:
    assert "no triggers" in read_error({**PATH, name: "1"})


def test_a_stream_takes_a_start_and_no_version() -> None:
    time = "2026-11-21T09:00:00Z"

    assert "startingVersion" in read_error({**PATH, "versionasof": "1"}, streaming=True)
    assert "startingTimestamp" in read_error({**PATH, "timestampasof": time}, streaming=True)
    assert "a stream reads a feed" in read_error({**PATH, "feed": "table"}, streaming=True)


def test_a_batch_read_of_the_table_refuses_bounds() -> None:
    assert 'feed = "changes"' in read_error({**PATH, "startingversion": "1"})
    assert 'feed = "changes"' in read_error({**PATH, "endingversion": "1"})


def test_a_batch_read_of_a_feed_needs_a_start() -> None:
    assert "needs its start" in read_error(CHANGES)
    assert "startingVersion" in read_error({**CHANGES, "versionasof": "1"})
    assert "for readStream" in read_error({**CHANGES, "startingversion": "latest"})


def test_an_option_without_effect_is_refused() -> None:
    assert 'feed = "append"' in read_error({**CHANGES, "skipchangecommits": "true"}, streaming=True)
    assert "filter" in read_error({**PATH, "feed": "blocks", "where": "a > 1"}, streaming=True)
    assert "select" in read_error({**PATH, "feed": "blocks", "columns": "a"}, streaming=True)


def test_a_batch_write_refuses_options_of_a_query() -> None:
    assert "no query" in write_error({**PATH, "checkpointlocation": "/c"})
    assert "no query" in write_error({**PATH, "adopt": "x"})
    assert "no query" in write_error({**PATH, "commitempty": "true"})


def test_a_stream_write_refuses_a_batch_id() -> None:
    assert "itself" in write_error({**PATH, "batchid": "1"}, streaming=True)


def test_a_stream_may_set_a_consumer_name_and_its_action_after_a_lost_lease() -> None:
    options = {**PATH, "consumer": "nightly", "onexpired": "Resync"}
    read = parse_read_options(options, streaming=True)

    assert (read.consumer, read.on_expired) == ("nightly", "resync")


def test_a_consumer_name_follows_the_rules_of_branch_names() -> None:
    assert "a name of" in read_error({**PATH, "consumer": "../x"}, streaming=True)


def test_the_action_after_a_lost_lease_must_be_known_and_needs_a_consumer_of_changes() -> None:
    named = {**PATH, "consumer": "nightly"}

    assert '"resync"' in read_error({**named, "onexpired": "ignore"}, streaming=True)
    assert "name the consumer" in read_error({**PATH, "onexpired": "fail"}, streaming=True)
    resync = {**named, "onexpired": "resync"}
    assert "net difference" in read_error({**resync, "feed": "append"}, streaming=True)


@pytest.mark.parametrize("name", ["consumer", "onExpired"])
def test_a_batch_read_refuses_a_consumer_name(name: str) -> None:
    assert "yet to read" in read_error({**PATH, name: "nightly"}, streaming=False)


def test_origins_are_a_json_list() -> None:
    origins = '["/lake/a", "s3://bucket/b"]'
    wanted = ("/lake/a", "s3://bucket/b")

    read = parse_read_options({**PATH, "origins": origins}, streaming=False)
    written = parse_write_options({**PATH, "origins": origins}, streaming=True)
    assert read.location.origins == wanted
    assert written.location.origins == wanted
    assert "a JSON list" in read_error({**PATH, "origins": "/lake/a"}, streaming=False)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("path", " ", "some text"),
        ("feed", "rows", '"changes"'),
        ("startingVersion", "-1", '"latest"'),
        ("endingVersion", "-x", "from 0"),
        ("startingTimestamp", "yesterday", "ISO"),
        ("endingTimestamp", "2026-11-21T09:00:00", "offset"),
        ("columns", "a,,b", "commas"),
        ("columns", '["a", 1]', "JSON list"),
        ("skipChangeCommits", "yes", "true or false"),
        ("maxRowsPerTrigger", "0", "from 1"),
        ("maxRowsPerTrigger", "many", "from 1"),
        ("maxCommitsPerTrigger", "1.5", "from 1"),
        ("maxBytesPerTrigger", "100 miles", "100m"),
        ("maxBytesPerTrigger", "0", "100m"),
        ("storageOptions", "key=k", "JSON object"),
    ],
)
def test_the_error_for_a_malformed_value_says_what_to_write(
    name: str, value: str, wanted: str
) -> None:
    assert wanted in read_error({**PATH, name: value}, streaming=True)


def test_options_of_batches_and_streams_are_accepted_while_the_kind_is_unknown() -> None:
    for options in ({**PATH, "versionasof": "1"}, {**PATH, "maxrowspertrigger": "1"}, CHANGES):
        assert parse_read_options(options, streaming=None).location.path == "/lake/t"
