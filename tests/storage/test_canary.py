"""A secret in the storage options is in nothing that a table writes, logs, shows or raises."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.check.fsck import check_table
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import FuseError
from fuse_stream.storage.open import open_store
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation
from fuse_stream.table.pipelines import branch, publish, rewind
from fuse_stream.table.verbs import audit, clone, lineage, rebuild_checkpoint
from fuse_stream.testing.memory import MemoryObject
from tests.kit.memory_fs import MemoryFileSystem

CANARY = "c4n4ryWJalrXUtnFEMIbPxRfiCY"
OPTIONS: dict[str, Any] = {
    "key": CANARY,
    "secret": f"{CANARY}/x",
    "client_kwargs": {"token": CANARY, "headers": [CANARY]},
    "endpoint_url": "http://store",
}
URL = "fusetest://bucket/table"
ROWS = pa.table({"k": pa.array([1, 2, 3], pa.int64())})


class RefusedError(Exception):
    """A client's error, which shows what the client was given."""


FAILURES: dict[str, Callable[[], Exception]] = {
    "denied": lambda: PermissionError(f"403 for key {CANARY}"),
    "signed URL": lambda: OSError(f"GET https://store/a?sig={CANARY}&x=1 failed"),
    "user in URL": lambda: ConnectionError(f"https://{CANARY}@store refused"),
    "a client's own": lambda: RefusedError({"headers": {"Authorization": CANARY}}),
    "a cause": lambda: caused_by(OSError("it failed"), RefusedError(CANARY)),
    "a context": lambda: in_context(OSError("it failed"), RefusedError(CANARY)),
    "timeout": lambda: TimeoutError(CANARY),
    "not found": lambda: FileNotFoundError(f"NoSuchBucket {CANARY}"),
    "plain": lambda: OSError("the disk is on fire"),
}


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def in_context(error: Exception, context: Exception) -> Exception:
    error.__context__ = context
    return error


def location() -> TableLocation:
    return TableLocation.of(URL, storage_options=OPTIONS)


VERBS: dict[str, Callable[[], object]] = {
    "create": lambda: Table.create("fusetest://bucket/new", ROWS.schema, storage_options=OPTIONS),
    "open": lambda: Table.open(URL, storage_options=OPTIONS),
    "open a branch": lambda: Table.open(URL, branch="none", storage_options=OPTIONS),
    "clone": lambda: clone(URL, "fusetest://bucket/clone", storage_options=OPTIONS),
    "rewind": lambda: rewind(URL, version=1, storage_options=OPTIONS),
    "branch": lambda: branch([URL], "fix", checkpoints={}, storage_options=OPTIONS),
    "publish": lambda: publish([URL], "fix", storage_options=OPTIONS),
    "audit": lambda: audit(
        URL, "fusetest://bucket/ckpt", storage_options=OPTIONS, checkpoint_options=OPTIONS
    ),
    "lineage": lambda: lineage(URL, storage_options=OPTIONS),
    "rebuild": lambda: rebuild_checkpoint(
        URL, "fusetest://bucket/ckpt", storage_options=OPTIONS, checkpoint_options=OPTIONS
    ),
    "fsck": lambda: check_table(location().store(), SYSTEM_CLOCK),
    "no such store": lambda: Table.open("nostore://bucket/t", storage_options=OPTIONS),
    "no predicate": lambda: open_at(location()).to_arrow(where="k ="),
    "no version": lambda: open_at(location()).to_arrow(version=99),
    "wrong rows": lambda: open_at(location()).append(pa.table({"x": [1]})),
    "pickled": lambda: pickle.loads(pickle.dumps(location())).store().get("nothing"),
}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryObject]:
    objects: dict[str, MemoryObject] = {}
    monkeypatch.setattr(MemoryFileSystem, "buckets", {"bucket": objects})
    table = Table.create(URL, ROWS.schema, storage_options=OPTIONS)
    table.append(ROWS, app_id="app", batch_id=0, message="m", author="a")
    table.create_tag("good")
    table.delete("k = 1")
    return objects


def shown(error: BaseException) -> str:
    """Return all that a program may show of an error: its chain, and the variables of functions.

    Those of the tests are left out: they hold the secret.
    """
    chain: list[BaseException] = []
    todo = [error]
    while todo:
        step = todo.pop()
        if step not in chain:
            chain.append(step)
            other = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
            todo += [] if other is None else [other]
    texts = []
    for step in chain:
        texts += [str(step), repr(step), repr(getattr(step, "context", ""))]
        for frame in traceback.extract_tb(step.__traceback__):
            texts.append(str(frame))
        trace = step.__traceback__
        while trace is not None:
            if "/tests/" not in trace.tb_frame.f_code.co_filename:
                texts += [
                    f"{name}={value!s} {value!r}" for name, value in trace.tb_frame.f_locals.items()
                ]
            trace = trace.tb_next
    return "\n".join(texts)


def forms() -> list[str]:
    """Return the secret, and forms in which it could be hidden."""
    return [
        CANARY,
        CANARY[:12],
        base64.b64encode(CANARY.encode()).decode()[:20],
        CANARY.encode().hex(),
    ]


def assert_no_secret(text: str) -> None:
    found = [form for form in forms() if form in text]
    assert not found, next(line for line in text.splitlines() if found[0] in line)[:300]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("failure", [None, *FAILURES])
def test_no_error_or_log_line_holds_the_secret(
    bucket: dict[str, MemoryObject],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    verb: str,
    failure: str | None,
) -> None:
    caplog.set_level(logging.DEBUG)
    if failure is not None:
        monkeypatch.setattr(MemoryFileSystem, "failure", FAILURES[failure]())
    try:
        result = VERBS[verb]()
    except FuseError as error:
        assert_no_secret(shown(error))
        assert_no_secret(str(pickle.loads(pickle.dumps(error))))
    else:
        assert_no_secret(f"{result} {result!r}")

    assert_no_secret(caplog.text)


@pytest.mark.usefixtures("bucket")
def test_a_file_system_that_cannot_be_made_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: object, **_options: object) -> None:
        raise RefusedError("no connection")

    monkeypatch.setattr(MemoryFileSystem, "__init__", fail)
    with pytest.raises(FuseError) as caught:
        Table.open(URL, storage_options=OPTIONS)
    assert_no_secret(shown(caught.value))


def test_no_stored_byte_holds_the_secret(bucket: dict[str, MemoryObject]) -> None:
    table = Table.open(URL, storage_options=OPTIONS)
    table.compact()
    table.vacuum()
    clone(URL, "fusetest://bucket/clone", storage_options=OPTIONS)

    assert len(bucket) > 10
    for key, item in bucket.items():
        assert_no_secret(key)
        assert_no_secret(item.data.decode("latin-1"))


@pytest.mark.usefixtures("bucket")
def test_no_repr_holds_the_secret() -> None:
    table = Table.open(URL, storage_options=OPTIONS)
    store = open_store(URL, storage_options=OPTIONS)
    things = [
        table,
        table.location,
        table.metadata.store,
        store,
        location(),
        table.head(),
        table.stats(),
    ]
    for thing in [*things, table.location.storage_options, {"store": store}, [table.location]]:
        assert_no_secret(f"{thing} {thing!r}")


def test_the_search_finds_the_secret() -> None:
    try:
        key = CANARY
        json.loads(key)
    except json.JSONDecodeError as error:
        with pytest.raises(AssertionError):
            assert_no_secret(shown(error))
