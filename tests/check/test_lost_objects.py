"""Any single object is lost, or one byte of it changes: a call raises a typed error or is right.

The newest slot of a branch is left out: no object holds its hash, and no object shows that it
existed. This case has its own tests, at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pytest

from fuse_stream.check.findings import FindingKind, FsckReport
from fuse_stream.check.fsck import check_table
from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import (
    TABLE_KEY,
    block_key,
    branch_ref_key,
    segment_key,
    slot_key,
    tag_ref_key,
)
from fuse_stream.format.records import Operation
from fuse_stream.format.refs import owner_of
from fuse_stream.objects.source_offsets import store_offsets
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.hostile.tables import with_hash_in_place
from tests.recovery.histories import keys, opened

FORK, TAGGED, OVERWRITTEN, HEAD, FIX_HEAD = 17, 5, 19, 20, 19
OFFSETS_ID = "0f" * 16
BRANCHES = {"main": HEAD, "fix": FIX_HEAD}
FAILED = "failed"
READ = (0, TAGGED, FORK, 18, 19, 20)
"""The versions that each case reads; to read all of them would take minutes."""


def make() -> MemoryStore:
    """Two branches, a tag, a roll-up, an overwrite, and source offsets in an object."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    schema = first_schema(columns_of_arrow(pa.schema([("k", pa.int64()), ("s", pa.string())])))
    table = create_table(store, schema, cluster_by=("k",), clock=clock, probe_store=False)
    for number in range(1, HEAD + 1):
        if number == FORK + 1:
            table.create_branch("fix")
        data = pa.table({"k": [number, number + 100], "s": ["x", None]})
        if number == OVERWRITTEN:
            table.overwrite(data)
        elif number == 8:
            _append_batch(table, data)
        else:
            table.append(data)
    table.create_tag("good", TAGGED)
    fix = opened(store, "fix", clock)
    for number in (1001, 1002):
        fix.append(pa.table({"k": [number], "s": ["y"]}))
    return store


def _append_batch(table: Table, data: pa.Table) -> None:
    """Commit a batch as the sink does where the offsets are long."""
    offsets = offsets_of(0, "v1\n{}\n" + "7" * 5000)
    assert offsets is not None
    batch = Batch(
        query_id="q", batch_id=0, offsets=store_offsets(table.metadata.store, offsets, OFFSETS_ID)
    )
    table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), data)


@dataclass(frozen=True)
class Truth:
    """The results and the needed objects of the undamaged table."""

    rows: dict[tuple[str, int], list[int]]
    changes: dict[str, list[tuple[int, int, str]]]
    needs: dict[tuple[str, int], frozenset[str]]
    """The objects of each version, by branch and version."""


def changes_of(table: Table, start: int, end: int) -> list[tuple[int, int, str]]:
    found = table.changes(start, end).read_all()
    names = ("_commit_version", "k", "_change_type")
    return sorted(zip(*(found[name].to_pylist() for name in names), strict=True))


def look(store: MemoryStore) -> Truth:
    told: dict[tuple[str, int], list[int]] = {}
    changes: dict[str, list[tuple[int, int, str]]] = {}
    needs: dict[tuple[str, int], frozenset[str]] = {}
    for branch, head in BRANCHES.items():
        table = opened(store, branch)
        changes[branch] = changes_of(table, 1, head)
        forks = table.metadata.forks_of(table.committer.branch_id)
        for version in range(head + 1):
            told[branch, version] = keys(table.to_arrow(version=version))
            owner = owner_of(forks, table.committer.branch_id, version)
            needs[branch, version] = frozenset(
                [
                    slot_key(owner, version),
                    *(segment_key(ref.id) for ref in table.segments(version)),
                    *(block_key(block.id) for block in table.blocks(version)),
                ]
            )
    return Truth(rows=told, changes=changes, needs=needs)


WHOLE = make()
TRUTH = look(WHOLE)
FIX_ID = next(b.branch_id for b in opened(WHOLE).branches() if b.name == "fix")
HEADS = {"main": slot_key("main", HEAD), "fix": slot_key(FIX_ID, FIX_HEAD)}
OPENS = {
    "main": {TABLE_KEY, HEADS["main"]},
    "fix": {TABLE_KEY, HEADS["fix"], branch_ref_key("fix")},
}
SINGLE = sorted(WHOLE.objects.keys() - set(HEADS.values()))
REFS = {branch_ref_key("fix"), tag_ref_key("good")}


def copy() -> MemoryStore:
    store = MemoryStore(clock=ManualClock())
    store.objects.update(WHOLE.objects)
    return store


def flip(store: MemoryStore, key: str, at: float) -> None:
    """Change one bit of an object, at a relative position between 0 (its first byte) and 1."""
    data = bytearray(store.get(key))
    data[round(at * (len(data) - 1))] ^= 1
    store.replace(key, bytes(data))


def affected(key: str) -> set[tuple[str, int]]:
    """Return the versions that need an object; one that two branches share is under both."""
    return {place for place, needed in TRUTH.needs.items() if key in needed}


def said(report: FsckReport) -> dict[str, set[tuple[str, int]]]:
    """Return the versions of each damaged object, by key, under the branch that owns them."""
    return {
        finding.key: {
            (run.branch, version)
            for run in finding.versions
            for version in range(run.first, run.last + 1)
        }
        for finding in report.findings
        if finding.kind is not FindingKind.NOTE
    }


def owned(places: set[tuple[str, int]]) -> set[tuple[str, int]]:
    return {("main", v) if v <= FORK else (branch, v) for branch, v in places}


def names_object(error: FuseError, key: str) -> bool:
    """True if an error names the object that is lost or changed."""
    stem = key.rpartition("/")[2].partition("_v1")[0].partition(".")[0]
    if key == TABLE_KEY:
        return key in str(error) or "no fuse_stream table here" in str(error)
    return stem in str(error) or (stem.isdigit() and f"version={int(stem)}" in str(error))


def ask(key: str, call: Callable[..., object], *arguments: object) -> object:
    """Return the result of a call, or `FAILED` if its error names the damaged object."""
    try:
        return call(*arguments)
    except FuseError as error:
        if not names_object(error, key):
            raise
        return FAILED


def keys_at(table: Table, version: int | str) -> list[int]:
    return keys(table.to_arrow(version=version))


def check_reads(store: MemoryStore, key: str) -> None:
    """Check that every result is right or a typed error, and right if the object is not needed."""
    for branch, head in BRANCHES.items():
        table = ask(key, opened, store, branch)
        assert (table is FAILED) == (key in OPENS[branch])
        if not isinstance(table, Table):
            continue
        for version in (v for v in READ if v <= head):
            needed = key in TRUTH.needs[branch, version]
            right = FAILED if needed else TRUTH.rows[branch, version]
            assert ask(key, keys_at, table, version) == right
        answer = ask(key, changes_of, table, 1, head)
        assert answer == TRUTH.changes[branch] or (answer is FAILED and affected(key))
        needed = key in TRUTH.needs["main", TAGGED] | {tag_ref_key("good")}
        right = FAILED if needed else TRUTH.rows["main", TAGGED]
        assert ask(key, keys_at, table, "good") == right


def check_writes(store: MemoryStore, key: str) -> None:
    """Check that both branches accept a commit and keep it, unless they cannot be opened."""
    for branch, head in BRANCHES.items():
        if key in OPENS[branch]:
            continue
        snapshot = opened(store, branch).append(pa.table({"k": [7777], "s": ["z"]}))

        assert snapshot.version == head + 1
        again = opened(store, branch)
        assert again.head() == snapshot
        assert changes_of(again, head + 1, head + 1) == [(head + 1, 7777, "insert")]


@pytest.mark.parametrize("key", SINGLE)
def test_a_lost_object_is_named_and_calls_that_do_not_need_it_succeed(key: str) -> None:
    store = copy()
    store.delete(key)
    report = check_table(store, ManualClock())

    if key in REFS:  # a deletion leaves the same objects
        assert report.is_sound
    else:
        assert said(report) == {key: owned(affected(key))}
        for state in report.branches:
            whole = [
                v for v in range(BRANCHES[state.name] + 1) if (state.name, v) not in affected(key)
            ]
            assert state.last_good == max(whole)
            assert state.takes_commits == (key not in OPENS[state.name])
    check_reads(store, key)
    check_writes(store, key)


FLIPS = [
    (key, at)
    for key in SINGLE
    if key not in REFS
    # A hash covers all bytes of a segment or text; a block's pages have checksums, its footer none.
    for at in ((0.0, 0.2, 0.5, 0.8, 1.0) if key.endswith((".json", ".parquet")) else (0.6,))
]


@pytest.mark.parametrize(
    ("key", "at"),
    [
        pytest.param(*where, marks=[] if number % 3 == 0 else pytest.mark.long)
        for number, where in enumerate(FLIPS)
    ],
)
def test_an_object_with_a_flipped_bit_is_named_and_its_content_never_returned(
    key: str, at: float
) -> None:
    store = copy()
    flip(store, key, at)
    report = check_table(store, ManualClock(), deep=True)

    assert said(report) == {key: owned(affected(key))}
    if key != TABLE_KEY:
        check_reads(store, key)


# ---- objects whose hash no other object holds


def test_a_lost_head_without_a_hint_makes_the_version_before_it_the_head() -> None:
    store = copy()
    store.delete(HEADS["main"])
    report = check_table(store, ManualClock())

    assert report.is_sound
    assert report.branches[0].head == HEAD - 1
    assert report.unreachable["blocks"].object_count == 1
    assert opened(store).head().version == HEAD - 1


def test_a_lost_head_that_a_tag_names_is_reported_as_missing() -> None:
    store = copy()
    opened(store).create_tag("last")
    store.delete(HEADS["main"])

    assert said(check_table(store, ManualClock())) == {HEADS["main"]: {("main", HEAD)}}


def test_a_lost_head_that_the_hint_names_is_reported_as_missing() -> None:
    store = copy()
    store.replace("_hint/main", str(HEAD).encode())
    store.delete(HEADS["main"])
    report = check_table(store, ManualClock())

    assert said(report) == {HEADS["main"]: {("main", HEAD)}}
    assert not report.branches[0].takes_commits


def test_a_branch_with_a_lost_head_is_read_with_a_warning_and_refuses_commits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = copy()
    store.replace("_hint/main", str(HEAD).encode())
    lost = store.get(HEADS["main"])
    store.delete(HEADS["main"])
    table = opened(store)
    before = dict(store.objects)

    assert table.head().version == HEAD - 1
    assert f"names version {HEAD}" in caplog.text
    for commit in (
        lambda: table.append(pa.table({"k": [1], "s": ["x"]})),
        lambda: table.set_properties({"a": "b"}),
        table.vacuum,
    ):
        with pytest.raises(CorruptObjectError, match="delete _hint/main"):
            commit()
    slots = {key for key in store.objects if key.startswith("_ss/")}
    assert slots == {key for key in before if key.startswith("_ss/")}

    store.put(HEADS["main"], lost)
    assert table.append(pa.table({"k": [1], "s": ["x"]})).version == HEAD + 1


def test_a_branch_with_a_lost_head_accepts_commits_once_its_hint_is_deleted() -> None:
    store = copy()
    store.replace("_hint/main", str(HEAD).encode())
    store.delete(HEADS["main"])
    table = opened(store)
    store.delete("_hint/main")

    assert table.append(pa.table({"k": [1], "s": ["x"]})).version == HEAD
    assert opened(store).append(pa.table({"k": [2], "s": ["x"]})).version == HEAD + 1


@pytest.mark.parametrize("hint", [0, 1, HEAD - 1, HEAD])
def test_a_hint_that_is_not_ahead_causes_no_warning(
    hint: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = copy()
    store.replace("_hint/main", str(hint).encode())

    assert opened(store).append(pa.table({"k": [1], "s": ["x"]})).version == HEAD + 1
    assert caplog.text == ""


def test_a_lost_slot_below_the_head_that_a_hint_names_does_not_hide_the_head(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = copy()
    store.replace("_hint/main", b"7")
    store.delete(slot_key("main", 7))

    assert opened(store).append(pa.table({"k": [1], "s": ["x"]})).version == HEAD + 1
    assert caplog.text == ""


def test_the_slots_of_a_branch_whose_ref_is_lost_are_noted() -> None:
    store = copy()
    store.delete(branch_ref_key("fix"))
    report = check_table(store, ManualClock())

    assert [(note.kind, note.key) for note in report.findings] == [(FindingKind.NOTE, HEADS["fix"])]
    assert report.unreachable["snapshots"].object_count == FIX_HEAD - FORK


def test_a_branch_with_a_gap_that_hides_the_head_is_reported_as_refusing_commits() -> None:
    store = copy()
    for version in (16, 17, 18, 19):
        store.delete(slot_key("main", version))
    main = check_table(store, ManualClock()).branches[0]

    assert (main.head, main.last_good, main.takes_commits) == (HEAD, HEAD, False)


@pytest.mark.parametrize("key", sorted(REFS))
@pytest.mark.parametrize("at", [0.0, 0.6, 1.0])
def test_a_flipped_bit_of_a_ref_is_named(key: str, at: float) -> None:
    store = copy()
    flip(store, key, at)

    assert key in said(check_table(store, ManualClock()))


def without_hash(data: bytes) -> bytes:
    """Return a ref as written by a release that put no hash into refs."""
    fields = {**orjson.loads(data), "format_version": 1}
    del fields["sha256"]
    return dump_canonical(fields)


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_branch_ref_with_another_id_leaves_slots_that_no_ref_names(*, is_hashed: bool) -> None:
    store = copy()
    key = branch_ref_key("fix")
    wrong_id = ("0" if FIX_ID[0] != "0" else "1") + FIX_ID[1:]
    data = store.get(key).replace(FIX_ID.encode(), wrong_id.encode())
    store.replace(key, data if is_hashed else without_hash(data))
    report = check_table(store, ManualClock())
    damaged = [(FindingKind.DAMAGED, key)] if is_hashed else []

    assert [(found.kind, found.key) for found in report.findings] == [
        *damaged,
        (FindingKind.NOTE, HEADS["fix"]),
    ]


def test_changes_refuses_a_commit_whose_parent_was_changed() -> None:
    store = copy()
    key = slot_key("main", OVERWRITTEN - 1)
    changed = store.get(key).replace(b'"message":""', b'"message":"x"')
    store.replace(key, with_hash_in_place(changed))
    table = opened(store)

    with pytest.raises(CorruptObjectError, match="was changed"):
        changes_of(table, OVERWRITTEN, OVERWRITTEN)


def test_a_new_branch_whose_fork_point_was_changed_is_refused() -> None:
    store = copy()
    opened(store).create_branch("fresh", TAGGED)
    key = slot_key("main", TAGGED)
    changed = store.get(key).replace(b'"message":""', b'"message":"x"')
    store.replace(key, with_hash_in_place(changed))

    with pytest.raises(CorruptObjectError, match="fork point"):
        opened(store, "fresh")
