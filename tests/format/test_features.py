"""A reader that lacks a feature refuses each table that needs it, and says what to do.

Each feature has an example in `tests/golden`, and a way to make a table that needs it. A new
feature without both fails here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import orjson
import pyarrow as pa
import pytest

from fuse_stream.commit.completed import completed
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.errors import CorruptObjectError, UnsupportedFormatError
from fuse_stream.format import codec, features, reachable
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import KNOWN_FEATURES, decode_snapshot, encode_snapshot
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import slot_key, slot_of
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.sequenced import Counts, Sequenced
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.format.test_codec import GOLDEN, example_snapshot
from tests.oracle.reader import Oracle, OracleError

FEATURES = sorted(value for name, value in vars(features).items() if name.isupper())


def examples() -> dict[str, Snapshot]:
    """Return examples of features; `test_codec` has those of the others."""
    snapshot = example_snapshot()
    counts = Counts(
        inserted=1, updated=2, deleted=3, applied=4, superseded=5, duplicate=6, quarantined=7
    )
    sequence = Sequenced(scd_type=2, keys=(5, 8), tracked=(10,))
    first, second, *others = snapshot.schema.columns
    named = (dataclasses.replace(first, name="renamed", stored=first.name), second, *others)
    told = (dataclasses.replace(first, comment="what it is"), second, *others)
    changed = {
        features.COMMENTS: dataclasses.replace(
            snapshot, schema=dataclasses.replace(snapshot.schema, columns=told)
        ),
        features.STORED_NAMES: dataclasses.replace(
            snapshot,
            schema=dataclasses.replace(snapshot.schema, columns=named, retired=("dropped",)),
        ),
        features.BLOOM: dataclasses.replace(
            snapshot,
            properties={"fuse.bloom.columns": "long,string"},
            summary=dataclasses.replace(snapshot.summary, index_size=96),
        ),
        features.COUNTS: dataclasses.replace(snapshot, counts=counts),
        features.ERASURE: dataclasses.replace(snapshot, operation=Operation.ERASE),
        features.INDEXES: dataclasses.replace(
            snapshot, index_list=IndexListRef(id="7" * 32, sha256="8" * 64)
        ),
        features.KEY: dataclasses.replace(snapshot, key=(5, 8)),
        features.OWN_HASH: dataclasses.replace(snapshot, required_features=(features.OWN_HASH,)),
        features.PRIVATE_COLUMNS: dataclasses.replace(
            snapshot, properties={"fuse.private": "long,string"}
        ),
        features.SEQUENCE: dataclasses.replace(snapshot, sequence=sequence),
    }
    return {name: completed(one) for name, one in changed.items()}


@pytest.mark.parametrize("feature", sorted(examples()))
def test_the_bytes_of_an_example_are_pinned(feature: str) -> None:
    pinned = golden(feature)

    assert encode_snapshot(examples()[feature]) == pinned
    assert decode_snapshot(pinned) == examples()[feature]
    assert examples()[feature].required_features == (feature,)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_snapshot_that_does_not_name_a_feature_that_it_uses_is_damage(feature: str) -> None:
    fields = orjson.loads(golden(feature))
    fields["required_features"].remove(feature)

    with pytest.raises(CorruptObjectError, match="does not name") as caught:
        decode_snapshot(dump_canonical(fields))
    assert feature in str(caught.value)


def golden(feature: str) -> bytes:
    return (GOLDEN / f"snapshot_{feature}.json").read_bytes()


def forget(feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a feature from those that this release knows."""
    for module in (codec, reachable):
        monkeypatch.setattr(module, "KNOWN_FEATURES", KNOWN_FEATURES - {feature})


def test_this_release_knows_the_features_that_it_names() -> None:
    assert set(FEATURES) == KNOWN_FEATURES


@pytest.mark.parametrize("feature", FEATURES)
def test_an_example_of_a_feature_is_refused_without_it(
    monkeypatch: pytest.MonkeyPatch, feature: str
) -> None:
    data = golden(feature)
    decode_snapshot(data)
    reachable.read_snapshot_names(data)
    forget(feature, monkeypatch)

    with pytest.raises(UnsupportedFormatError, match="upgrade fuse-stream") as raised:
        decode_snapshot(data)
    assert raised.value.context == {"features": [feature]}
    with pytest.raises(UnsupportedFormatError, match="upgrade fuse-stream"):
        reachable.read_snapshot_names(data)


# ---- tables that need a feature

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}, schema=SCHEMA)
EVENTS = ROWS.append_column("seq", pa.array([1, 2, 3])).append_column("op", pa.array(list("uud")))


def send(table: Table) -> None:
    table.upsert(
        EVENTS,
        keys=["k"],
        sequence_by="seq",
        apply_as_deletes="op = 'd'",
        except_column_list=["seq", "op"],
    )


def append_a_batch_of_a_table(table: Table) -> None:
    offset = Offset(table_id="b" * 32, branch_id="main", version=2, snapshot_id="c" * 32, index=0)
    batch = Batch(query_id="q", batch_id=0, sources=(SourcePosition(offset=offset),))
    table.committer.commit(
        Intent(operation=Operation.APPEND, batch=batch),
        lambda on, _: Staged(schema=on.snapshot.schema),
    )


NEEDS: dict[str, Callable[[Table], object]] = {
    features.BLOOM: lambda table: table.set_properties({"fuse.bloom.columns": "v"}),
    features.COMMENTS: lambda table: (
        table.update_schema().update_column("k", comment="the key").commit()
    ),
    features.COUNTS: send,
    features.DELETION_FILES: lambda table: table.delete("k = 1"),
    features.ERASURE: lambda table: table.erase("k = 1"),
    features.FINGERPRINTS: lambda table: table.append(ROWS, app_id="a", batch_id=0),
    features.INDEXES: lambda table: table.create_aggregate("n", "SELECT count(*) FROM t"),
    features.KEY: lambda table: table.set_key(["k"]),
    features.LINE: lambda table: table.append(ROWS),
    features.OWN_HASH: lambda table: table.append(ROWS),
    features.PRIVATE_COLUMNS: lambda table: table.set_properties({"fuse.private": "v"}),
    features.SEQUENCE: send,
    features.SIDES: send,
    features.SOURCES: append_a_batch_of_a_table,
    features.STORED_NAMES: lambda table: table.update_schema().rename_column("v", "w").commit(),
}
"""What makes a table need a feature."""


@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_that_needs_a_feature_is_refused_without_it(
    monkeypatch: pytest.MonkeyPatch, feature: str
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    schema = first_schema(columns_of_arrow(SCHEMA))
    table = create_table(store, schema, clock=clock, probe_store=False)
    behind = open_table(store, clock=clock, probe_store=False)
    if NEEDS[feature] is not send:
        table.append(ROWS)
    NEEDS[feature](table)
    assert feature in table.head().required_features
    before = dict(store.objects)
    forget(feature, monkeypatch)

    def opened() -> Table:
        return open_table(store, clock=clock, probe_store=False)

    acts: dict[str, Callable[[], object]] = {
        "read": lambda: opened().to_arrow(),
        "append": lambda: opened().append(ROWS),
        "expire": lambda: opened().expire(keep_last=1),
        "vacuum": lambda: opened().vacuum(),
        "read by a handle that is open since": behind.to_arrow,
        "append by it": lambda: behind.append(ROWS),
    }
    refused = {name: _refusal(act) for name, act in acts.items()}
    assert refused == dict.fromkeys(acts, True)
    assert before.items() <= store.objects.items()
    assert [key for key in store.objects.keys() - before.keys() if slot_of(key)] == []


def test_a_table_of_a_release_without_own_hashes_goes_on_without() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for key, data in Oracle.of_folder(GOLDEN / "table").objects.items():
        store.replace(key, data)
    table = open_table(store, clock=clock, probe_store=False)
    table.delete("k = 1")

    assert table.to_arrow().num_rows == 2
    assert features.OWN_HASH not in table.head().required_features


def test_a_changed_newest_snapshot_is_damage_from_version_1_on() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    schema = first_schema(columns_of_arrow(SCHEMA))
    table = create_table(store, schema, clock=clock, probe_store=False)
    table.append(ROWS, message="3 rows")
    key = slot_key("main", 1)
    store.replace(key, store.get(key).replace(b"3 rows", b"4 rows"))

    with pytest.raises(CorruptObjectError, match="hash that it holds"):
        open_table(store, clock=clock, probe_store=False).head()
    with pytest.raises(OracleError, match="version 1 has changed"):
        Oracle({name: item.data for name, item in store.objects.items()}).rows()


def _refusal(act: Callable[[], object]) -> bool:
    """Return whether an act says that a newer release is needed."""
    try:
        act()
    except UnsupportedFormatError as error:
        return "upgrade fuse-stream" in str(error)
    return False
