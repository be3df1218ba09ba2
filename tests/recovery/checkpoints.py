"""Make checkpoints by hand, with the file names of real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fuse_stream.storage.base import Store

QUERY_ID = "64cd1140-72c5-491a-873f-6ebd2dfe8ff9"
NEW_ID = "0b7c0f3e-2d55-4f06-9d9a-3c1f5f0a7b11"
UNIQUE = "c34bb3e4-4ca1-4521-98d0-cfda2367f85e"


def offsets_text(*sources: object, watermark_ms: int = 0) -> str:
    """Return an `offsets` entry; a source given as text is taken as it is."""
    note = {
        "batchWatermarkMs": watermark_ms,
        "batchTimestampMs": 1795287056140,
        "conf": {"spark.sql.shuffle.partitions": "2"},
    }
    lines = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    return "\n".join(["v1", json.dumps(note), *lines])


def log_text(entries: Iterable[int]) -> str:
    """Return a file of a file source's log, with two files in each entry."""
    lines = [
        json.dumps({"path": f"file:///source/{entry}-{n}", "timestamp": 17, "batchId": entry})
        for entry in entries
        for n in range(2)
    ]
    return "\n".join(["v1", *lines])


def put(store: Store, files: dict[str, str]) -> None:
    for key, text in files.items():
        store.replace(key, text.encode())


def log_files(entries: int, *, interval: int = 10, deleted_before: int = 0) -> dict[str, str]:
    """Return the log files of a file source after `entries` entries, by name."""
    files = {}
    for entry in range(deleted_before, entries):
        if (entry + 1) % interval == 0:
            files[f"{entry}.compact"] = log_text(range(entry + 1))
        else:
            files[str(entry)] = log_text([entry])
    return files


def batch_files(batches: Iterable[int]) -> dict[str, str]:
    """Return `offsets` and `commits` of batches that read entry b of a file source each."""
    files = {}
    for batch in batches:
        files[f"offsets/{batch}"] = offsets_text({"logOffset": batch})
        files[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    return files


def state_files(first: int, versions: int, *, provider: str) -> dict[str, str]:
    """Return the state of an aggregation with two partitions, versions `first` to `versions`."""
    files = {"state/0/_metadata/metadata": "v1\n{}"}
    for partition in range(2):
        folder = f"state/0/{partition}"
        files[f"{folder}/_metadata/schema"] = "v2\n{}"
        for version in range(first, versions + 1):
            match provider:
                case "hdfs":
                    files[f"{folder}/{version}.delta"] = f"delta {version}"
                case "rocksdb":
                    files[f"{folder}/{version}_{UNIQUE}.zip"] = f"zip {version}"
                    files[f"{folder}/SSTs/{version:06}-{UNIQUE}.sst"] = f"table {version}"
                case "changelog":
                    files[f"{folder}/{version}_{UNIQUE}.changelog"] = f"step {version}"
    return files


def fill(store: Store, batches: int, *, provider: str | None = None) -> None:
    """Make the checkpoint of a query that has run `batches` batches of one file source."""
    files = {"metadata": json.dumps({"id": QUERY_ID}), ".metadata.crc": "crc"}
    files |= batch_files(range(batches))
    files |= {f"sources/0/{name}": text for name, text in log_files(batches).items()}
    files |= {f"offsets/.{batch}.crc": "crc" for batch in range(batches)}
    if provider:
        files |= state_files(1, batches, provider=provider)
        files |= {f"state/0/0/{batches}.zip.crc": "crc", "state/0/0/.7.delta.crc.tmp": "crc"}
    put(store, files)
