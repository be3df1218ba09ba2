"""Records survive their bytes, the bytes are pinned, and hostile ones give a typed error."""

from __future__ import annotations

import dataclasses
import string
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuse_stream.errors import (
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.format import codec
from fuse_stream.format.bloom_filter import BloomFilter
from fuse_stream.format.codec import (
    decode_ref,
    decode_segment,
    decode_snapshot,
    decode_table_file,
    encode_ref,
    encode_segment,
    encode_snapshot,
    encode_table_file,
    sha256_hex,
)
from fuse_stream.format.columns import value_from_json, value_to_json
from fuse_stream.format.features import DELETION_FILES, OWN_HASH, SIDES, SOURCES, used_features
from fuse_stream.format.jsonio import MAX_WIDE_BYTES, dump_canonical, load_canonical, to_json
from fuse_stream.format.line import LineStart
from fuse_stream.format.records import (
    Block,
    ClusterStats,
    ColumnMeta,
    ColumnStats,
    DeletionFileRef,
    KeyRange,
    Ledger,
    LedgerEntry,
    Operation,
    Parent,
    Retirement,
    Segment,
    SegmentRef,
    Side,
    Snapshot,
    SourceOffsets,
    Summary,
    TableFile,
    Value,
)
from fuse_stream.format.refs import REF_FORMAT_VERSION, BranchRef, CloneRef, TagRef
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.sides import SideName
from fuse_stream.format.source_offset import Offset, SourcePosition

GOLDEN = Path(__file__).parent.parent / "golden"
replace: Any = dataclasses.replace

TYPES = (
    *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz", "decimal(12,3)"),
)
SCHEMA = Schema(
    id=3,
    last_column_id=40,
    columns=tuple(
        Column(id=number, name=name, type=name) for number, name in enumerate(TYPES, start=1)
    ),
)
LEAVES = SCHEMA.leaf_types

ids = st.text("0123456789abcdef", min_size=32, max_size=32)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
texts = st.text(max_size=20)
counts = st.integers(0, 2**62)
times = st.integers(-(2**55), 2**57)
"""In the years that a calendar has."""
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": texts,
    "binary": st.binary(max_size=40),
    "date": st.integers(-(2**31), 2**31 - 1),
    "timestamp": st.integers(-(2**63), 2**63 - 1),
    "timestamp_ntz": st.integers(-(2**63), 2**63 - 1),
    "decimal(12,3)": st.decimals(-(10**9) + 1, 10**9 - 1, places=3),
}


@st.composite
def stats(draw: st.DrawFn, type_name: str) -> ColumnStats:
    return ColumnStats(
        min=draw(st.none() | VALUES[type_name]),
        max=draw(st.none() | VALUES[type_name]),
        null_count=draw(counts),
        nan_count=draw(counts),
        in_memory_size=draw(counts),
        distinct_of_values=draw(st.none() | counts),
    )


col_stats = st.fixed_dictionaries(
    {}, optional={number: stats(name) for number, name in LEAVES.items()}
)


@st.composite
def key_ranges(draw: st.DrawFn) -> KeyRange:
    columns = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=3, unique=True))

    def bounds() -> tuple[Value | None, ...]:
        return tuple(draw(st.none() | VALUES[LEAVES[column]]) for column in columns)

    return KeyRange(columns=tuple(columns), min=bounds(), max=bounds())


summaries = st.builds(
    Summary,
    row_count=counts,
    block_count=counts,
    perfect_block_count=counts,
    uncompressed_byte_size=counts,
    compressed_byte_size=counts,
    index_size=counts,
    col_stats=col_stats,
)
parents = st.builds(Parent, branch_id=st.just("main"), version=counts, sha256=hashes)
offsets = st.builds(
    SourceOffsets,
    batch_id=counts,
    sha256=hashes,
    text=st.none() | texts,
    id=st.none() | ids,
)
positions = st.builds(
    SourcePosition,
    offset=st.builds(
        Offset,
        table_id=ids,
        branch_id=st.just("main") | ids,
        version=counts,
        snapshot_id=ids,
        index=st.integers(min_value=-(2**62), max_value=2**62),
    ),
    path=st.none() | texts,
)
ledgers = st.builds(
    Ledger,
    entries=st.dictionaries(
        st.tuples(texts, texts),
        st.builds(
            LedgerEntry,
            query_id=st.none() | texts,
            batch_id=counts,
            offsets=st.lists(offsets, max_size=2).map(tuple),
            sources=st.none() | st.lists(positions, max_size=2).map(tuple),
            rows=counts,
            fingerprint=st.none() | hashes,
            version=counts,
            timestamp_us=times,
        ),
        max_size=3,
    ),
    retired=st.dictionaries(
        texts,
        st.builds(Retirement, application=texts, version=counts, fork=st.none() | texts),
        max_size=2,
    ),
)
deletion_files = st.lists(
    st.builds(
        DeletionFileRef,
        id=ids,
        sha256=hashes,
        level=counts,
        row_count=st.integers(1, 2**62),
        block_count=st.integers(1, 2**62),
        byte_size=st.integers(1, 2**62),
        since_us=counts,
    ),
    max_size=3,
    unique_by=lambda ref: ref.id,
).map(tuple)
plain_snapshots = st.builds(
    Snapshot,
    table_id=ids,
    branch_id=st.just("main"),
    version=counts,
    snapshot_id=ids,
    timestamp_us=times,
    clock_us=times,
    prev_snapshot_id=st.none() | ids,
    parent=st.none() | parents,
    operation=st.sampled_from(Operation),
    data_change=st.booleans(),
    author=texts,
    message=texts,
    schema=st.just(SCHEMA),
    cluster_key=st.just((1, 7)),
    properties=st.dictionaries(texts, texts, max_size=3),
    summary=summaries,
    segments=st.lists(
        st.builds(
            SegmentRef,
            id=ids,
            sha256=hashes,
            level=counts,
            row_count=counts,
            block_count=counts,
            byte_size=counts,
            key_range=st.none() | key_ranges(),
        ),
        max_size=2,
    ).map(tuple),
    added=st.lists(ids, max_size=2).map(tuple),
    target=st.none() | parents,
    floor=counts,
    epoch=counts,
    ledger=ledgers,
)


@st.composite
def snapshots_with_deletion_files(draw: st.DrawFn) -> Snapshot:
    snapshot, files = draw(plain_snapshots), draw(deletion_files)
    chosen = draw(st.lists(st.sampled_from(files), unique=True)) if files else []
    return dataclasses.replace(
        snapshot,
        deletion_files=files,
        deletion_files_added=tuple(ref.id for ref in chosen),
    )


SIDE_SCHEMA = Schema(
    id=1,
    last_column_id=9,
    columns=(
        Column(id=1, name="key", type="long", nullable=False),
        Column(id=9, name="at", type="decimal(12,3)"),
    ),
)
"""Its ids are those of other types in the table's schema."""
side_stats = st.fixed_dictionaries(
    {}, optional={number: stats(name) for number, name in SIDE_SCHEMA.leaf_types.items()}
)


@st.composite
def snapshots_with_sides(draw: st.DrawFn) -> Snapshot:
    ref = st.builds(
        SegmentRef,
        id=ids,
        sha256=hashes,
        level=counts,
        row_count=counts,
        block_count=counts,
        byte_size=counts,
    )
    side = st.builds(
        Side,
        schema=st.just(SIDE_SCHEMA),
        segments=st.lists(ref, min_size=1, max_size=2).map(tuple),
        deletion_files=deletion_files,
        summary=st.builds(Summary, row_count=counts, block_count=counts, col_stats=side_stats),
    )
    sides = draw(st.dictionaries(st.sampled_from([str(name) for name in SideName]), side))
    snapshot = draw(snapshots_with_deletion_files())
    return dataclasses.replace(snapshot, sides=sides)


def naming_features(snapshot: Snapshot) -> Snapshot:
    if snapshot.parent is not None:
        before = dataclasses.replace(snapshot.parent, version=snapshot.version - 1)
        snapshot = dataclasses.replace(snapshot, parent=before if snapshot.version else None)
    own = {OWN_HASH} if snapshot.version % 2 else set()
    return dataclasses.replace(
        snapshot,
        floor=min(snapshot.floor, snapshot.version),
        required_features=tuple(sorted(used_features(snapshot) | own)),
    )


snapshots = (plain_snapshots | snapshots_with_deletion_files() | snapshots_with_sides()).map(
    naming_features
)


blocks = st.builds(
    Block,
    id=ids,
    row_count=st.integers(1, 2**31 - 1),
    block_size=counts,
    file_size=counts,
    sha256=hashes,
    schema_id=counts,
    col_stats=col_stats,
    col_metas=st.dictionaries(
        st.sampled_from(sorted(LEAVES)),
        st.builds(
            ColumnMeta,
            offset=counts,
            len=counts,
            num_values=counts,
            bloom=st.none()
            | st.builds(
                BloomFilter,
                offset=st.integers(1, 2**40),
                len=st.integers(1, 2**20).map(lambda count: 32 * count),
                type=st.sampled_from(["integer", "long", "string", "decimal(12,3)"]),
            ),
        ),
    ),
    cluster_stats=st.none() | st.builds(ClusterStats, range=key_ranges(), level=counts),
    compression=st.just("zstd"),
    origin=st.none() | ids,
    hidden=st.none(),
)
segments = st.builds(Segment, blocks=st.lists(blocks, max_size=3).map(tuple), summary=summaries)


# ---- the law


@given(snapshot=snapshots)
def test_a_snapshot_survives_its_bytes(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)

    assert decode_snapshot(data) == snapshot
    assert encode_snapshot(decode_snapshot(data)) == data


@given(segment=segments)
def test_a_segment_survives_its_bytes(segment: Segment) -> None:
    stored, sha256 = encode_segment(segment, LEAVES)

    assert decode_segment(stored, sha256, LEAVES) == segment
    assert sha256 == sha256_hex(stored)


@pytest.mark.parametrize("grace_us", [0, 1, 3_600_000_001, 7_200_000_000])
def test_a_table_file_whose_grace_was_changed_is_corrupt(grace_us: int) -> None:
    table = replace(example_table_file(), grace_us=grace_us)

    with pytest.raises(CorruptObjectError, match="grace"):
        decode_table_file(encode_table_file(table))


@given(
    table=st.builds(
        TableFile,
        table_id=ids,
        created_us=counts,
        snapshot_id=ids,
        schema=st.just(SCHEMA),
        cluster_key=st.just((2,)),
        properties=st.dictionaries(texts, texts, max_size=3),
        grace_us=st.just(3_600_000_000),  # that of a table without the property
        origins=st.lists(st.tuples(ids, texts), max_size=2).map(tuple),
    )
)
def test_a_table_file_survives_its_bytes(table: TableFile) -> None:
    assert decode_table_file(encode_table_file(table)) == table


@given(data=st.data(), type_name=st.sampled_from(TYPES))
def test_a_bound_survives_json_with_its_type(data: st.DataObject, type_name: str) -> None:
    value = data.draw(VALUES[type_name])
    through = value_from_json(
        orjson.loads(orjson.dumps(value_to_json(value, type_name))), type_name
    )

    assert through == value
    assert type(through) is type(value)


def test_bounds_of_64_bits_and_decimals_are_texts_and_infinities_have_names() -> None:
    assert value_to_json(2**63 - 1, "long") == "9223372036854775807"
    assert value_to_json(Decimal("-0.10"), "decimal(3,2)") == "-0.10"
    assert value_to_json(float("-inf"), "double") == "-inf"
    assert value_to_json(b"\x00\xff", "binary") == "00ff"


@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        ("integer", "long", -(2**31)),
        ("float", "double", 0.10000000149011612),
        ("decimal(3,1)", "decimal(9,4)", Decimal("-99.9")),
    ],
)
def test_bounds_of_a_column_before_it_was_widened_are_read_as_the_wider_type(
    narrow: str, wide: str, value: Value
) -> None:
    assert value_from_json(value_to_json(value, narrow), wide) == value


# ---- golden bytes


def example_snapshot() -> Snapshot:
    entry = LedgerEntry(
        query_id="0f8fad5b-d9cb-469f-a165-70867728950e",
        batch_id=7,
        offsets=(SourceOffsets(batch_id=7, sha256="5" * 64, text='v1\n{"at":7}'),),
        rows=3,
        version=8,
        timestamp_us=1_700_000_000_000_001,
    )
    key_range = KeyRange(columns=(5, 7), min=("-5", None), max=("9", float("inf")))
    return Snapshot(
        table_id="1" * 32,
        branch_id="main",
        version=8,
        snapshot_id="2" * 32,
        timestamp_us=1_700_000_000_000_001,
        clock_us=1_700_000_000_000_000,
        prev_snapshot_id="3" * 32,
        parent=Parent(branch_id="main", version=7, sha256="4" * 64),
        operation=Operation.APPEND,
        data_change=True,
        author="Ada",
        message="grüße",
        schema=replace(
            SCHEMA,
            columns=(
                *SCHEMA.columns,
                Column(
                    id=40,
                    name="nested",
                    type="array",
                    children=(Column(id=39, name="element", type="string", nullable=False),),
                ),
            ),
        ),
        cluster_key=(5, 7),
        properties={"owner": "me", "fuse.block.rows": "10"},
        summary=Summary(row_count=3, block_count=1, col_stats=example_stats()),
        segments=(
            SegmentRef(
                id="6" * 32,
                sha256="7" * 64,
                level=1,
                row_count=3,
                block_count=1,
                byte_size=99,
                key_range=replace(key_range, min=(-5, None), max=(9, float("inf"))),
            ),
        ),
        added=("6" * 32,),
        floor=2,
        epoch=1,
        ledger=Ledger(
            entries={("app", "w"): entry},
            retired={"old": Retirement(application="app", version=5, fork="new")},
        ),
    )


def snapshot_of_a_line() -> Snapshot:
    line = LineStart(since=5, base=2)
    made: Snapshot = replace(example_snapshot(), line=line, required_features=("line",))
    return made


def with_fingerprint() -> Snapshot:
    snapshot = example_snapshot()
    entry = LedgerEntry(
        batch_id=3,
        rows=3,
        fingerprint="8" * 64,
        version=8,
        timestamp_us=1_700_000_000_000_001,
    )
    ledger = replace(snapshot.ledger, entries={("loader", ""): entry})
    features = ("fingerprints",)
    return dataclasses.replace(snapshot, ledger=ledger, required_features=features)


def example_snapshot_with_sources() -> Snapshot:
    """A snapshot whose batch read two tables: one with a path, one on a branch without."""
    snapshot = example_snapshot()
    (key, entry), *_ = snapshot.ledger.entries.items()
    offset = Offset(table_id="b" * 32, branch_id="main", version=26, snapshot_id="c" * 32, index=0)
    sources = (
        SourcePosition(offset=offset, path="s3://lake/bronze"),
        SourcePosition(offset=replace(offset, branch_id="d" * 32, index=-3)),
    )
    ledger = replace(snapshot.ledger, entries={key: replace(entry, sources=sources)})
    found: Snapshot = replace(snapshot, ledger=ledger, required_features=(SOURCES,))
    return found


def example_snapshot_with_deletion_files() -> Snapshot:
    """A snapshot of a delete: it added the second file; the first one is a roll-up."""
    files = tuple(
        DeletionFileRef(
            id=str(number) * 32,
            sha256=str(number + 1) * 64,
            level=level,
            row_count=1,
            block_count=1,
            byte_size=291,
            since_us=1_700_000_000_000_000 + number,
        )
        for number, level in ((6, 1), (7, 0))
    )
    snapshot = example_snapshot()
    found: Snapshot = replace(
        snapshot,
        operation=Operation.DELETE,
        added=(),
        deletion_files=files,
        deletion_files_added=(files[1].id,),
        summary=replace(snapshot.summary, row_count=1),
        required_features=(DELETION_FILES,),
    )
    return found


def example_snapshot_with_sides() -> Snapshot:
    """The same one, with a side that hides a row and one that hides none."""
    snapshot = example_snapshot_with_deletion_files()
    stats = {1: ColumnStats(min=-5, max=2**40, null_count=0, in_memory_size=24)}
    tombstones = Side(
        schema=SIDE_SCHEMA,
        segments=(
            SegmentRef(
                id="a" * 32, sha256="b" * 64, level=0, row_count=3, block_count=1, byte_size=99
            ),
        ),
        deletion_files=(replace(snapshot.deletion_files[0], id="c" * 32, sha256="d" * 64),),
        summary=Summary(row_count=2, block_count=1, col_stats=stats),
    )
    ref = replace(tombstones.segments[0], id="e" * 32, sha256="f" * 64)
    quarantine = replace(
        tombstones,
        segments=(ref,),
        deletion_files=(),
        summary=replace(tombstones.summary, row_count=3),
    )
    found: Snapshot = replace(
        snapshot,
        sides={"quarantine": quarantine, "tombstones": tombstones},
        required_features=(DELETION_FILES, SIDES),
    )
    return found


def example_stats() -> dict[int, ColumnStats]:
    bounds: dict[str, tuple[Value | None, Value | None]] = {
        "boolean": (False, True),
        "byte": (-1, 1),
        "short": (-300, 300),
        "integer": (-(2**31), 2**31 - 1),
        "long": (-(2**63), 2**63 - 1),
        "float": (-0.0, 0.10000000149011612),
        "double": (float("-inf"), 1e300),
        "string": ("a", "z\U0001f600"),
        "binary": (b"\x00", b"\xff\x01"),
        "date": (-719162, 2932896),
        "timestamp": (-1, 1_700_000_000_000_000),
        "timestamp_ntz": (None, 5),
        "decimal(12,3)": (Decimal("-1.500"), Decimal("999999999.999")),
    }
    return {
        number: ColumnStats(
            min=bounds[name][0],
            max=bounds[name][1],
            null_count=1,
            nan_count=int(name == "double"),
            in_memory_size=24,
            distinct_of_values=2,
        )
        for number, name in LEAVES.items()
    }


def example_segment() -> Segment:
    return Segment(
        blocks=(
            Block(
                id="8" * 32,
                row_count=3,
                block_size=240,
                file_size=180,
                sha256="9" * 64,
                schema_id=3,
                col_stats=example_stats(),
                col_metas={5: ColumnMeta(offset=4, len=60, num_values=3)},
                cluster_stats=ClusterStats(
                    range=KeyRange(columns=(5,), min=(-5,), max=(9,)), level=2
                ),
                compression="zstd",
                origin="a" * 32,
            ),
        ),
        summary=Summary(row_count=3, block_count=1, col_stats=example_stats()),
    )


def example_table_file() -> TableFile:
    return TableFile(
        table_id="1" * 32,
        created_us=1_700_000_000_000_000,
        snapshot_id="2" * 32,
        schema=SCHEMA,
        cluster_key=(5,),
        properties={"fuse.grace": "1h"},
        grace_us=3_600_000_000,
        origins=(("b" * 32, "s3://bucket/table"),),
    )


FORKS = (
    Parent(branch_id="main", version=3, sha256="4" * 64),
    Parent(branch_id="c" * 32, version=5, sha256="5" * 64),
)


def example_refs() -> dict[str, BranchRef | TagRef | CloneRef]:
    return {
        "branch_ref.json": BranchRef(
            name="fix-1",
            branch_id="d" * 32,
            created_us=1_700_000_000_000_000,
            floor=2,
            epoch=1,
            forks=FORKS,
        ),
        "tag_ref.json": TagRef(
            name="good.run",
            created_us=1_700_000_000_000_000,
            forks=FORKS,
            snapshot_id="2" * 32,
            expires_us=1_800_000_000_000_000,
        ),
        "clone_ref.json": CloneRef(
            table_id="e" * 32,
            created_us=1_700_000_000_000_000,
            forks=FORKS,
            snapshot_id="2" * 32,
            location="s3://bucket/clone",
        ),
    }


def canonical() -> dict[str, bytes]:
    return {
        **{name: encode_ref(ref) for name, ref in example_refs().items()},
        "snapshot.json": encode_snapshot(example_snapshot()),
        "snapshot_deletion_files.json": encode_snapshot(example_snapshot_with_deletion_files()),
        "snapshot_line.json": encode_snapshot(snapshot_of_a_line()),
        "snapshot_sides.json": encode_snapshot(example_snapshot_with_sides()),
        "snapshot_sources.json": encode_snapshot(example_snapshot_with_sources()),
        "segment.json": dump_canonical(to_json(example_segment(), LEAVES)),
        "table_file.json": encode_table_file(example_table_file()),
    }


@pytest.mark.parametrize("name", sorted(canonical()))
def test_the_canonical_bytes_are_pinned(name: str) -> None:
    assert canonical()[name] == (GOLDEN / name).read_bytes()


def test_a_reader_that_lacks_a_feature_says_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (GOLDEN / "snapshot_line.json").read_bytes()
    assert decode_snapshot(data) == snapshot_of_a_line()
    monkeypatch.setattr(codec, "KNOWN_FEATURES", frozenset())

    with pytest.raises(UnsupportedFormatError, match=r"upgrade fuse-stream.*features=\['line'\]"):
        decode_snapshot(data)
    fields = {**orjson.loads(data), "time_machine": {"until": 1955}}
    with pytest.raises(UnsupportedFormatError, match="upgrade fuse-stream"):
        decode_snapshot(dump_canonical(fields))


@pytest.mark.parametrize(
    ("line", "features"),
    [
        (LineStart(since=9), ("line",)),
        (LineStart(since=-1), ("line",)),
        (LineStart(since=0, base=0), ("line",)),
        (LineStart(since=5, base=5), ("line",)),
        (LineStart(since=5, base=-2), ("line",)),
        (LineStart(since=5, base=2), ()),
    ],
)
def test_a_line_start_that_cannot_be_is_damage(line: LineStart, features: tuple[str, ...]) -> None:
    snapshot = replace(snapshot_of_a_line(), line=line, required_features=features)

    with pytest.raises(CorruptObjectError, match="line"):
        decode_snapshot(encode_snapshot(snapshot))


def test_a_snapshot_with_a_fingerprint_is_read_and_a_reader_that_lacks_the_feature_says_upgrade(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned = (GOLDEN / "snapshot_fingerprints.json").read_bytes()
    snapshot = with_fingerprint()

    assert encode_snapshot(snapshot) == pinned
    assert decode_snapshot(pinned) == snapshot
    monkeypatch.setattr(codec, "KNOWN_FEATURES", frozenset())
    with pytest.raises(UnsupportedFormatError, match="upgrade fuse-stream") as caught:
        decode_snapshot(pinned)
    assert caught.value.context == {"features": ["fingerprints"]}


def test_an_unknown_field_of_an_unknown_feature_is_no_damage() -> None:
    fields = orjson.loads(encode_snapshot(example_snapshot()))
    later = {**fields, "required_features": ["later"], "later": {"field": 1}}

    with pytest.raises(UnsupportedFormatError, match="upgrade fuse-stream"):
        decode_snapshot(dump_canonical(later))
    with pytest.raises(CorruptObjectError):
        decode_snapshot(dump_canonical({**later, "required_features": []}))


def test_the_outcome_of_a_write_is_not_stored() -> None:
    replayed = replace(example_snapshot(), replayed=True)

    assert encode_snapshot(replayed) == encode_snapshot(example_snapshot())


def test_pinned_bytes_are_read() -> None:
    segment = (GOLDEN / "segment.json").read_bytes()
    stored = pa.Codec("zstd").compress(segment, asbytes=True)

    assert decode_snapshot((GOLDEN / "snapshot.json").read_bytes()) == example_snapshot()
    with_sources = (GOLDEN / "snapshot_sources.json").read_bytes()
    assert decode_snapshot(with_sources) == example_snapshot_with_sources()
    with_deletion_files = (GOLDEN / "snapshot_deletion_files.json").read_bytes()
    assert decode_snapshot(with_deletion_files) == example_snapshot_with_deletion_files()
    with_sides = (GOLDEN / "snapshot_sides.json").read_bytes()
    assert decode_snapshot(with_sides) == example_snapshot_with_sides()
    assert decode_segment(stored, sha256_hex(stored), LEAVES) == example_segment()
    assert decode_table_file((GOLDEN / "table_file.json").read_bytes()) == example_table_file()
    for name, ref in example_refs().items():
        kind: Any = type(ref)
        assert decode_ref(kind, (GOLDEN / name).read_bytes()) == ref


@pytest.mark.parametrize("name", sorted(example_refs()))
def test_a_ref_of_format_version_1_is_read_as_one_of_today(name: str) -> None:
    ref = example_refs()[name]
    kind: Any = type(ref)
    old = (GOLDEN / name.replace(".json", "_v1.json")).read_bytes()

    assert decode_ref(kind, old) == ref
    assert b"sha256" in encode_ref(ref)
    assert encode_ref(decode_ref(kind, old)) == encode_ref(ref)


@pytest.mark.parametrize("name", sorted(example_refs()))
def test_the_hash_of_a_ref_is_that_of_its_encoding_without_it(name: str) -> None:
    fields = orjson.loads((GOLDEN / name).read_bytes())
    sha256 = fields.pop("sha256")

    assert fields["format_version"] == 2
    assert sha256_hex(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)) == sha256


@pytest.mark.parametrize("name", sorted(example_refs()))
def test_every_changed_byte_of_a_ref_is_noticed(name: str) -> None:
    ref = example_refs()[name]
    kind: Any = type(ref)
    data = encode_ref(ref)

    for at in range(len(data)):
        for bit in (1, 2, 16):
            changed = bytearray(data)
            changed[at] ^= bit
            with pytest.raises((CorruptObjectError, UnsupportedFormatError)):
                decode_ref(kind, bytes(changed))


@pytest.mark.parametrize("name", sorted(example_refs()))
def test_a_ref_of_a_newer_release_is_refused_by_name(name: str) -> None:
    ref = example_refs()[name]
    kind: Any = type(ref)

    with pytest.raises(UnsupportedFormatError, match="newer release"):
        decode_ref(kind, encode_ref(replace(ref, format_version=3)))


DATE_TAG = replace(example_refs()["tag_ref.json"], name="20261122")


def test_a_tag_of_digits_alone_has_its_golden_bytes() -> None:
    data = (GOLDEN / "date_tag_ref.json").read_bytes()

    assert encode_ref(DATE_TAG) == data
    assert decode_ref(TagRef, data) == DATE_TAG


def test_a_reader_without_tags_of_digits_alone_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "DATE_TAG_FORMAT_VERSION", REF_FORMAT_VERSION)

    with pytest.raises(UnsupportedFormatError, match="newer release"):
        decode_ref(TagRef, (GOLDEN / "date_tag_ref.json").read_bytes())


OUT_OF_RANGE: list[tuple[str, dict[str, Any]]] = [
    ("branch_ref.json", {"branch_id": "main"}),
    ("branch_ref.json", {"branch_id": "g" * 32}),
    ("branch_ref.json", {"branch_id": "c" * 32}),
    ("branch_ref.json", {"floor": -1}),
    ("branch_ref.json", {"floor": 6}),
    ("branch_ref.json", {"epoch": -1}),
    ("branch_ref.json", {"forks": (replace(FORKS[0], sha256="4" * 63),)}),
    ("branch_ref.json", {"forks": (replace(FORKS[0], branch_id="../" + "4" * 29),)}),
    ("tag_ref.json", {"forks": (replace(FORKS[0], version=-1),)}),
    ("tag_ref.json", {"snapshot_id": "2" * 31}),
    ("clone_ref.json", {"snapshot_id": "x" * 32}),
    ("clone_ref.json", {"table_id": "../" + "e" * 29}),
]


@pytest.mark.parametrize(("name", "changes"), OUT_OF_RANGE)
@pytest.mark.parametrize("is_old", [False, True])
def test_a_ref_with_invalid_values_is_corrupt(
    name: str, changes: dict[str, Any], *, is_old: bool
) -> None:
    ref = replace(example_refs()[name], **changes)
    kind: Any = type(ref)
    data = encode_ref(ref)
    if is_old:  # without a hash, which would tell all by itself
        fields = {**orjson.loads(data), "format_version": 1}
        del fields["sha256"]
        data = dump_canonical(fields)

    with pytest.raises(CorruptObjectError):
        decode_ref(kind, data)


@pytest.mark.parametrize("forks", [(), FORKS[::-1], (FORKS[0], FORKS[0])])
@pytest.mark.parametrize("name", sorted(example_refs()))
def test_a_ref_with_invalid_fork_points_is_corrupt(name: str, forks: tuple[Parent, ...]) -> None:
    ref = replace(example_refs()[name], forks=forks)

    with pytest.raises(CorruptObjectError, match="fork points"):
        decode_ref(type(ref), encode_ref(ref))


# ---- hostile bytes

SNAPSHOT = orjson.loads(encode_snapshot(example_snapshot()))
PATHS: list[tuple[Any, ...]] = [
    ("version",),
    ("snapshot_id",),
    ("operation",),
    ("data_change",),
    ("parent",),
    ("parent", "sha256"),
    ("schema",),
    ("schema", "columns"),
    ("schema", "columns", 0, "type"),
    ("schema", "columns", 13, "children"),
    ("schema", "last_column_id"),
    ("cluster_key",),
    ("properties",),
    ("properties", "owner"),
    ("summary",),
    ("summary", "row_count"),
    ("summary", "col_stats"),
    ("summary", "col_stats", "5"),
    ("summary", "col_stats", "5", "min"),
    ("summary", "col_stats", "13", "max"),
    ("segments",),
    ("segments", 0, "id"),
    ("segments", 0, "key_range"),
    ("segments", 0, "key_range", "min"),
    ("ledger",),
    ("ledger", "entries"),
    ("ledger", "entries", 0, "application"),
    ("ledger", "entries", 0, "offsets"),
    ("ledger", "retired"),
]
JUNK: list[object] = [
    None,
    True,
    -1.5,
    2**64 - 1,
    "",
    "../x",
    "1E999999999",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": {}},
    [None, "x", {}],
]


def read_whole(data: bytes) -> Snapshot:
    """Decode a snapshot and look at its statistics, which are read when they are asked for."""
    snapshot = decode_snapshot(data)
    for summary in (snapshot.summary, *(side.summary for side in snapshot.sides.values())):
        dict(summary.col_stats)
    return snapshot


def changed(path: tuple[Any, ...], value: object) -> bytes:
    item = orjson.loads(orjson.dumps(SNAPSHOT))
    at = item
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return dump_canonical(item)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_field_of_another_kind_is_typed_or_harmless(path: tuple[Any, ...]) -> None:
    for junk in JUNK:
        data = changed(path, junk)
        try:
            snapshot = read_whole(data)
        except (CorruptObjectError, UnsupportedFormatError):
            continue

        # A bound may stand in the form of a narrower type, which the column had once.
        assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
        assert path[:2] == ("summary", "col_stats") or encode_snapshot(snapshot) == data


HASHED = (GOLDEN / "snapshot_own_hash.json").read_bytes()


@given(place=st.integers(0, len(HASHED) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_of_a_snapshot_that_has_its_own_hash_is_noticed(
    place: int, byte: int
) -> None:
    data = bytearray(HASHED)
    data[place] = byte
    if bytes(data) == HASHED:
        return

    with pytest.raises((CorruptObjectError, UnsupportedFormatError)):
        decode_snapshot(bytes(data))


@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_typed_error(data: bytes) -> None:
    for decode in (decode_snapshot, decode_table_file):
        with pytest.raises(CorruptObjectError):
            decode(data)
    with pytest.raises(CorruptObjectError):
        decode_segment(data, sha256_hex(data), LEAVES)


@example(place=encode_snapshot(example_snapshot()).index(b'13,"name"'), byte=ord("2"))
@given(place=st.integers(0, len(encode_snapshot(example_snapshot())) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_is_canonical(place: int, byte: int) -> None:
    data = bytearray(encode_snapshot(example_snapshot()))
    data[place] = byte
    try:
        snapshot = read_whole(bytes(data))
    except FuseError:
        return

    # Statistics of a column whose id is another now are passed over.
    item = orjson.loads(data)
    stats = item["summary"]["col_stats"]
    unknown = [name for name in stats if int(name) not in snapshot.schema.leaf_types]
    for name in unknown:
        del stats[name]
    assert encode_snapshot(snapshot) == (dump_canonical(item) if unknown else bytes(data))


def text_of(snapshot: bytes, old: bytes, new: bytes) -> bytes:
    assert old in snapshot
    return snapshot.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":8', b'"version":8,"version":8'),
        (b'"version":8', b'"version":8,"unheard_of":1'),
        (b'"version":8', b'"version":18446744073709551616'),
        (b'"version":8', b'"version":NaN'),
        (b'"version":8', b'"version":8.0'),
        (b'"version":8', b'"version": 8'),
        (b'"version":8,', b""),
        (b'"operation":"append"', b'"operation":"merge_into"'),
        (b'"type":"long"', b'"type":"variant"'),
        (b'"type":"decimal(12,3)"', b'"type":"decimal(99,3)"'),
        (b'"type":"decimal(12,3)"', b'"type":"decimal(3,12)"'),
        (b'"type":"array"', b'"type":"map"'),
        (b'"type":"array"', b'"type":"string"'),
        (b'"last_column_id":40', b'"last_column_id":39'),
        (b'"id":2,', b'"id":1,'),
        (b'"cluster_key":[5,7]', b'"cluster_key":[5,38]'),
        (b'"max":"999999999.999"', b'"max":"1E99999999"'),
        (b'"max":"999999999.999"', b'"max":"NaN"'),
        (b'"min":"-9223372036854775808"', b'"min":"-9_2"'),
    ],
)
def test_what_is_not_the_one_encoding_is_corrupt(old: bytes, new: bytes) -> None:
    with pytest.raises(CorruptObjectError):
        read_whole(text_of(encode_snapshot(example_snapshot()), old, new))


@pytest.mark.parametrize(
    ("decode", "version"),
    [
        (decode_snapshot, b"2"),
        (decode_snapshot, b"99"),
        (decode_table_file, b"3"),  # 2 is for columns with names in files
        (decode_table_file, b"99"),
    ],
)
def test_a_newer_format_says_upgrade(decode: Callable[[bytes], object], version: bytes) -> None:
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        decode(b'{"format_version":' + version + b',"what":"ever"}')


@pytest.mark.parametrize("version", [b"0", b"-1", b"true", b'"1"', b"null", b"1.0"])
def test_a_format_version_is_a_number_from_1(version: bytes) -> None:
    with pytest.raises(CorruptObjectError):
        decode_table_file(
            encode_table_file(example_table_file()).replace(
                b'"format_version":1', b'"format_version":' + version
            )
        )


def test_an_unknown_required_feature_says_upgrade() -> None:
    snapshot = replace(example_snapshot(), required_features=("time_machine",))

    with pytest.raises(UnsupportedFormatError, match="time_machine"):
        decode_snapshot(encode_snapshot(snapshot))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"required_features":["deletion_files"]', b'"required_features":[]'),
        (b'"id":"' + b"7" * 32, b'"id":"' + b"6" * 32),
        (b'"id":"' + b"7" * 32, b'"id":"../' + b"7" * 29),
        (b'"deletion_files_added":["' + b"7" * 32, b'"deletion_files_added":["' + b"9" * 32),
        (b'"deletion_files_added":["' + b"7" * 32 + b'"]', b'"deletion_files_added":[]'),
        (b'"byte_size":291', b'"byte_size":0'),
        (b'"byte_size":291', b'"byte_size":-1'),
        (b'"byte_size":291,', b""),
        (b'"sha256":"' + b"8" * 64, b'"sha256":"' + b"8" * 63),
        (b'"since_us":1700000000000007', b'"since_us":"now"'),
    ],
)
def test_deletion_files_without_their_feature_or_with_broken_records_are_corrupt(
    old: bytes, new: bytes
) -> None:
    data = encode_snapshot(example_snapshot_with_deletion_files())

    with pytest.raises(CorruptObjectError):
        decode_snapshot(text_of(data, old, new))


def test_an_empty_list_of_deletion_files_is_not_canonical() -> None:
    fields = orjson.loads(encode_snapshot(example_snapshot()))

    assert "deletion_files" not in fields
    for name in ("deletion_files", "deletion_files_added"):
        with pytest.raises(CorruptObjectError):
            decode_snapshot(dump_canonical({**fields, name: []}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"required_features":["deletion_files","sides"]', b'"required_features":["sides"]'),
        (
            b'"required_features":["deletion_files","sides"]',
            b'"required_features":["deletion_files"]',
        ),
        (b'{"quarantine":{', b'{"keepsakes":{'),
        (b'"id":"' + b"c" * 32, b'"id":"../' + b"c" * 29),
        (b'"sha256":"' + b"d" * 64, b'"sha256":"' + b"d" * 63),
        (b'"max":"1099511627776"', b'"max":1.5'),
        (b'"last_column_id":9', b'"last_column_id":8'),
        (b'"name":"at"', b'"name":"key"'),
    ],
)
def test_sides_without_their_feature_or_with_broken_records_are_corrupt(
    old: bytes, new: bytes
) -> None:
    data = encode_snapshot(example_snapshot_with_sides())

    with pytest.raises(CorruptObjectError):
        read_whole(text_of(data, old, new))


@pytest.mark.parametrize("field", ["segments", "deletion_files", "schema", "summary"])
def test_a_side_has_segments_and_no_empty_or_missing_field(field: str) -> None:
    fields = orjson.loads(encode_snapshot(example_snapshot_with_sides()))
    side = fields["sides"]["tombstones"]

    if field != "deletion_files":
        without = {name: value for name, value in side.items() if name != field}
        with pytest.raises(CorruptObjectError):
            decode_snapshot(dump_canonical({**fields, "sides": {"tombstones": without}}))
    with pytest.raises(CorruptObjectError):
        decode_snapshot(dump_canonical({**fields, "sides": {"tombstones": {**side, field: []}}}))


def test_an_empty_map_of_sides_is_not_canonical() -> None:
    fields = orjson.loads(encode_snapshot(example_snapshot()))

    assert "sides" not in fields
    with pytest.raises(CorruptObjectError):
        decode_snapshot(dump_canonical({**fields, "sides": {}}))


def test_the_view_of_a_side_shows_its_rows_alone() -> None:
    snapshot = example_snapshot_with_sides()
    side = snapshot.sides["tombstones"]

    view = snapshot.side("tombstones")

    assert (view.schema, view.segments, view.summary) == (side.schema, side.segments, side.summary)
    assert (view.deletion_files, view.version) == (side.deletion_files, snapshot.version)
    assert (view.sides, view.key, view.cluster_key, view.added) == ({}, (), (), ())
    assert view.stored_rows - view.hidden_rows == view.summary.row_count


@pytest.mark.parametrize("name", ["coalesced", "keepsakes", ""])
def test_a_side_that_is_not_there_is_an_error_that_names_those_that_are(name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        example_snapshot_with_sides().side(name)

    assert caught.value.context == {"side": name, "sides": ["quarantine", "tombstones"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"required_features":["sources"]', b'"required_features":[]'),
        (b'"table_id":"' + b"b" * 32, b'"table_id":"../' + b"b" * 29),
        (b'"branch_id":"' + b"d" * 32, b'"branch_id":"Fix'),
        (b'"snapshot_id":"' + b"c" * 32, b'"snapshot_id":"'),
        (b'"version":26', b'"version":-1'),
        (b'"index":0,', b'"index":0.5,'),
    ],
)
def test_sources_without_their_feature_or_with_broken_positions_are_corrupt(
    old: bytes, new: bytes
) -> None:
    data = encode_snapshot(example_snapshot_with_sources())

    with pytest.raises(CorruptObjectError):
        decode_snapshot(text_of(data, old, new))


@pytest.mark.parametrize("depth", [40, 100, 200, 240, 400, 600, 5000, 100_000])
def test_deep_nesting_is_corrupt(depth: int) -> None:
    column = (
        b'{"children":[' * depth
        + b'{"children":[],"id":1,"name":"x","nullable":true,"type":"long"}'
        + b'],"id":1,"name":"x","nullable":true,"type":"struct"}' * depth
    )
    schema = b'{"columns":[' + column + b'],"id":0,"last_column_id":1}'

    with pytest.raises(CorruptObjectError):
        decode_table_file(b'{"format_version":1,"schema":' + schema + b"}")
    with pytest.raises(CorruptObjectError):
        decode_snapshot(b'{"format_version":1,"schema":' + schema + b"}")


def test_a_bomb_is_refused_in_bounded_memory() -> None:
    bomb = pa.Codec("zstd").compress(b" " * 2**26, asbytes=True) * 1000
    tracemalloc.start()
    try:
        with pytest.raises(CorruptObjectError):
            decode_segment(bomb, sha256_hex(bomb), LEAVES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(bomb) < 10**7
    assert peak < 600 * 2**20


@pytest.mark.parametrize("kept", [0, 1, 4, 20, -1])
def test_truncated_zstd_is_corrupt(kept: int) -> None:
    stored, _ = encode_segment(example_segment(), LEAVES)
    part = stored[:kept]

    with pytest.raises(CorruptObjectError):
        decode_segment(part, sha256_hex(part), LEAVES)


def test_a_segment_that_its_snapshot_does_not_name_is_corrupt() -> None:
    stored, _ = encode_segment(example_segment(), LEAVES)

    with pytest.raises(CorruptObjectError, match="differs from the hash"):
        decode_segment(stored, "0" * 64, LEAVES)


def test_unknown_keys_live_in_properties_alone() -> None:
    properties = {letter * 3: letter for letter in string.ascii_letters}
    snapshot = replace(example_snapshot(), properties=properties)

    assert decode_snapshot(encode_snapshot(snapshot)).properties == properties


def test_a_long_record_is_ascii() -> None:
    plain = dump_canonical({"message": "m" * MAX_WIDE_BYTES})
    wide = plain.replace(b"mmmm", "\U0001f600".encode(), 1)
    snapshot = dataclasses.replace(example_snapshot(), message="\U0001f600" * (MAX_WIDE_BYTES // 3))

    assert load_canonical(plain) == {"message": "m" * MAX_WIDE_BYTES}
    with pytest.raises(CorruptObjectError, match="has to be ASCII"):
        load_canonical(wide)
    with pytest.raises(InvalidInputError, match="larger than a reader accepts"):
        encode_snapshot(snapshot)
