"""One byte of a ref, lease, claim or hint changes: each verb returns or raises a typed error.

A changed object is refused, or has its old meaning. One of an older release, which has no hash,
may name something else, and no more than that. No loop is endless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pytest

from fuse_stream.check.findings import FindingKind
from fuse_stream.check.fsck import check_table
from fuse_stream.check.slots import MOST_MISSED
from fuse_stream.errors import CorruptObjectError, FuseError, UnsupportedFormatError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import (
    branch_ref_key,
    clone_ref_key,
    hint_key,
    lease_key,
    service_key,
    tag_ref_key,
)
from fuse_stream.format.refs import Lease
from fuse_stream.objects.hints import store_hint
from fuse_stream.objects.leases import store_lease
from fuse_stream.objects.slots import Metadata
from fuse_stream.optimize.claim import BranchClaim
from fuse_stream.refs.clone import clone
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from tests.recovery.histories import keys, rows

TYPED = "a typed error"
MOST_CALLS = 400
"""Of one verb; 30 to 100 of a whole table."""


@dataclass(frozen=True)
class Scene:
    """A table with one of each kind of name."""

    objects: dict[str, MemoryObject]
    names: dict[str, str]
    """Keys of the names, by kind."""
    now_us: int


def make(*, is_old: bool = False) -> Scene:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    schema = first_schema(columns_of_arrow(pa.schema([("k", pa.int64())])))
    table = create_table(store, schema, clock=clock, probe_store=False)
    for key in (1, 2, 3):
        clock.advance(1)
        table.append(rows(key))
    fork = table.create_branch("fix", 2)
    open_table(store, branch="fix", clock=clock, probe_store=False).append(rows(9))
    table.create_tag("good", 1)
    place = Metadata(MemoryStore(clock=clock), ManualClock(seed=7))
    clone(table.committer, place, version=1, origin_of=lambda _: store, probe_place=False)
    lease = Lease(
        consumer="nightly",
        owner_id="a" * 32,
        branch_id=fork.branch_id,
        forks=fork.forks,
        version=3,
        lease_us=60_000_000,
    )
    store_lease(table.metadata, lease)
    BranchClaim(table.metadata, "main", owner_id="c" * 32).take(clock.now_us())
    store_hint(table.metadata.store, "main", 2)
    names = {
        "branch": branch_ref_key("fix"),
        "tag": tag_ref_key("good"),
        "pin": clone_ref_key(place.load_table_file().table_id),
        "lease": lease_key("nightly"),
        "claim": service_key("main"),
        "hint": hint_key("main"),
    }
    if is_old:
        for kind in ("branch", "tag", "pin", "lease"):
            fields = {**orjson.loads(store.get(names[kind])), "format_version": 1}
            del fields["sha256"]
            store.replace(names[kind], dump_canonical(fields))
    return Scene(objects=dict(store.objects), names=names, now_us=clock.now_us())


NEW, OLD = make(), make(is_old=True)


def opened(store: FaultyStore, scene: Scene, branch: str = "main") -> Table:
    clock = ManualClock(wall_us=scene.now_us, seed=99)
    return open_table(store, branch=branch, clock=clock, probe_store=False)


Verb = Callable[[FaultyStore, Scene], object]

READS: dict[str, Verb] = {
    "main": lambda store, scene: keys(opened(store, scene).to_arrow()),
    "fix": lambda store, scene: keys(opened(store, scene, "fix").to_arrow()),
    "fix's log": lambda store, scene: [s.version for s in opened(store, scene, "fix").log()],
    "tag": lambda store, scene: keys(opened(store, scene).to_arrow(version="good")),
    "branches": lambda store, scene: opened(store, scene).branches(),
    "tags": lambda store, scene: opened(store, scene).tags(),
    "clones": lambda store, scene: opened(store, scene).clones(),
    "consumers": lambda store, scene: opened(store, scene).consumers(),
    "claim": lambda store, scene: (
        BranchClaim(opened(store, scene).metadata, "main", owner_id="d" * 32).take(scene.now_us)
        and None
    ),
    "fsck": lambda store, scene: check_table(store, ManualClock()).path,
    "dry run": lambda store, scene: opened(store, scene).vacuum(dry_run=True).object_count,
}
WRITES: dict[str, Verb] = {
    "append": lambda store, scene: opened(store, scene).append(rows(7)).version,
    "append to fix": lambda store, scene: opened(store, scene, "fix").append(rows(7)).version,
    "expire": lambda store, scene: opened(store, scene).expire(keep_last=2).floor,
    "vacuum": lambda store, scene: opened(store, scene).vacuum().object_count,
    "branch": lambda store, scene: opened(store, scene).create_branch("new", "fix@").forks,
    "delete": lambda store, scene: opened(store, scene).delete_branch("fix"),
    "release": lambda store, scene: opened(store, scene).release("nightly", force=True),
}
VERBS = READS | WRITES
OF_KIND = {
    "branch": ("fix", "branches", "dry run"),
    "tag": ("tag", "tags", "dry run"),
    "pin": ("clones", "dry run"),
    "lease": ("consumers", "dry run"),
    "claim": ("claim",),
    "hint": ("main", "append", "dry run"),
}


def run(verb: str, scene: Scene, changes: dict[str, bytes]) -> object:
    """Return a verb's result, `TYPED` for a typed error; its calls to the store are limited."""
    store = MemoryStore(clock=ManualClock(wall_us=scene.now_us))
    store.objects.update(scene.objects)
    for key, data in changes.items():
        store.replace(key, data)
    faulty = FaultyStore(store)
    try:
        return VERBS[verb](faulty, scene)
    except FuseError:
        return TYPED
    finally:
        assert len(faulty.calls) < (MOST_CALLS if verb != "fsck" else 2 * MOST_MISSED), verb


TRUTH = {verb: run(verb, NEW, {}) for verb in VERBS}


def flipped(
    scene: Scene, kind: str, *, step: int = 1, start: int = 0
) -> Iterator[dict[str, bytes]]:
    """Yield the name with one character changed, for its characters in turn."""
    key = scene.names[kind]
    data = scene.objects[key].data
    for at in range(start, len(data), step):
        for bit in (1, 16):
            changed = bytearray(data)
            changed[at] ^= bit
            yield {key: bytes(changed)}


def test_all_verbs_succeed_on_an_undamaged_table() -> None:
    assert TYPED not in TRUTH.values()
    assert {verb: run(verb, OLD, {}) for verb in VERBS} == TRUTH


@pytest.mark.parametrize("kind", sorted(OF_KIND))
def test_a_changed_byte_of_a_name_is_refused_or_has_no_effect(kind: str) -> None:
    for changes in flipped(NEW, kind):
        for verb in OF_KIND[kind]:
            assert run(verb, NEW, changes) in (TRUTH[verb], TYPED), (verb, changes)


@pytest.mark.parametrize("kind", sorted(OF_KIND))
def test_every_verb_ends_with_a_right_answer_or_a_typed_error_after_a_changed_byte(
    kind: str,
) -> None:
    for changes in flipped(NEW, kind, step=29, start=3):
        for verb in VERBS:
            assert run(verb, NEW, changes) in (TRUTH[verb], TYPED), (verb, changes)


@pytest.mark.parametrize("kind", ["branch", "tag", "pin", "lease"])
def test_every_verb_ends_after_a_changed_byte_in_a_name_of_an_older_release(kind: str) -> None:
    for changes in flipped(OLD, kind):
        for verb in OF_KIND[kind]:
            run(verb, OLD, changes)
    for changes in flipped(OLD, kind, step=7):
        run("fsck", OLD, changes)
        run("vacuum", OLD, changes)


@pytest.mark.parametrize("kind", ["branch", "tag", "pin", "lease"])
@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"{" * 2000, b"0" * 2**21])
def test_every_verb_ends_if_a_name_holds_arbitrary_bytes(kind: str, data: bytes) -> None:
    for verb in VERBS:
        assert run(verb, NEW, {NEW.names[kind]: data}) in (TRUTH[verb], TYPED), verb


def test_vacuum_does_not_delete_what_a_damaged_name_may_keep() -> None:
    """While a ref or lease cannot be read, vacuum deletes nothing."""
    for kind in ("branch", "tag", "pin", "lease"):
        for changes in flipped(NEW, kind, step=11):
            assert run("vacuum", NEW, changes) == TYPED


FOREIGN = [
    ("branch", "_refs/branches/._fix.json"),
    ("branch", "_refs/branches/fix.json.swp"),
    ("branch", "_refs/branches/sub/fix.json"),
    ("branch", "_refs/branches/main.json"),
    ("tag", "_refs/tags/good (1).json"),
    ("pin", "_refs/clones/copy.json"),
    ("lease", "_leases/._nightly.json"),
    ("lease", "_leases/sub/nightly.json"),
]
STRAY = [
    ("branch", "_refs/branches/fix2.json"),
    ("tag", "_refs/tags/good2.json"),
    ("pin", f"_refs/clones/{'e' * 32}.json"),
    ("lease", "_leases/nightly2.json"),
]


def findings(changes: dict[str, bytes]) -> dict[str, tuple[FindingKind, str]]:
    store = MemoryStore(clock=ManualClock(wall_us=NEW.now_us))
    store.objects.update(NEW.objects)
    for key, data in changes.items():
        store.replace(key, data)
    found = check_table(store, ManualClock()).findings
    return {one.key: (one.kind, one.wrong + one.lost) for one in found}


@pytest.mark.parametrize(("kind", "key"), FOREIGN)
def test_an_object_whose_key_is_no_valid_name_is_skipped(kind: str, key: str) -> None:
    changes = {key: NEW.objects[NEW.names[kind]].data}
    (noted,) = findings(changes).items()

    assert {verb: run(verb, NEW, changes) for verb in VERBS} == TRUTH
    assert noted[0] == key
    assert noted[1][0] is FindingKind.NOTE
    assert "delete this object" in noted[1][1]


@pytest.mark.parametrize(("kind", "key"), STRAY)
def test_the_error_for_a_name_copied_to_another_key_says_to_delete_the_copy(
    kind: str, key: str
) -> None:
    changes = {key: NEW.objects[NEW.names[kind]].data}
    store = MemoryStore(clock=ManualClock(wall_us=NEW.now_us))
    store.objects.update(NEW.objects)
    store.replace(key, changes[key])

    with pytest.raises(CorruptObjectError, match="delete this object") as raised:
        opened(FaultyStore(store), NEW).vacuum()
    assert raised.value.context["key"] == key
    found = findings(changes)
    assert set(found) == {key}
    assert found[key][0] is FindingKind.DAMAGED
    assert "delete this object" in found[key][1]
    assert "release" not in found[key][1]
    give_up(kind, opened(FaultyStore(store), NEW), key.rpartition("/")[2].removesuffix(".json"))
    opened(FaultyStore(store), NEW).vacuum()


def give_up(kind: str, table: Table, name: str) -> None:
    match kind:
        case "branch":
            table.delete_branch(name)
        case "tag":
            table.delete_tag(name)
        case "pin":
            table.unpin(name)
        case _:
            table.release(name, force=True)


@pytest.mark.parametrize("kind", ["branch", "tag", "pin", "lease"])
def test_a_name_that_seems_written_by_a_newer_release_can_be_deleted(kind: str) -> None:
    key = NEW.names[kind]
    store = MemoryStore(clock=ManualClock(wall_us=NEW.now_us))
    store.objects.update(NEW.objects)
    data = NEW.objects[key].data.replace(b'"format_version":2', b'"format_version":3')
    store.replace(key, data)

    with pytest.raises(UnsupportedFormatError, match="is damaged") as raised:
        opened(FaultyStore(store), NEW).vacuum()
    assert key in str(raised.value)
    if kind == "lease":
        with pytest.raises(UnsupportedFormatError):
            opened(FaultyStore(store), NEW).release("nightly")
    name = key.rpartition("/")[2].removesuffix(".json")
    give_up(kind, opened(FaultyStore(store), NEW), name)
    assert key not in store.objects
    opened(FaultyStore(store), NEW).vacuum()
