"""Check a whole table: every rule of the format that its objects can show.

Rules:
- The store is read without any cache; nothing is written.
- Damage is reported, never raised. Only a folder without a table, or a store that cannot be listed,
  is an error.
- Heads are taken from a listing of the slots. Readers and writers find heads without a listing, so
  the check also sees that they find the same ones.
- A commit, an expiry or a vacuum that runs meanwhile may cause false findings. What a branch, tag
  or clone lacks that was deleted meanwhile is none: the check begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fuse_stream.check.contents import Contents
from fuse_stream.check.findings import (
    BranchState,
    Evidence,
    Fault,
    FindingKind,
    FsckReport,
    Leftovers,
    Place,
)
from fuse_stream.check.references import References, load_leased, load_leases, load_references
from fuse_stream.check.slots import (
    TABLE_FILE_REMEDY,
    Slots,
    check_leased,
    note_hints,
    note_young,
    takes_commits,
)
from fuse_stream.clock import Clock
from fuse_stream.errors import NotFoundError
from fuse_stream.format.codec import decode_snapshot, decode_table_file
from fuse_stream.format.layout import (
    CHUNK_VERSIONS,
    FLOOR_PREFIX,
    MAIN,
    PROBE_PREFIX,
    SLOTS_PREFIX,
    TABLE_KEY,
    floor_of,
    slot_key,
    slot_of,
)
from fuse_stream.format.records import TableFile
from fuse_stream.storage.base import Store

SNAPSHOTS, PROBES = "snapshots", "probes"

CheckProgress = Callable[[int, int], None]
"""Called with the number of objects checked, and the greatest possible number."""


def check_table(
    store: Store, clock: Clock, *, deep: bool = False, progress: CheckProgress | None = None
) -> FsckReport:
    """Check the table in `store` as `Table.fsck` does; `clock` decides which tags have lapsed.

    Raises:
        NotFoundError: there is neither a table file nor a slot.
        StorageError: the store cannot be listed.
    """
    evidence = Evidence(store)
    sizes: dict[Place, int] = {}
    newest_us = 0
    for info in store.list(SLOTS_PREFIX):
        if (place := slot_of(info.key)) is not None:
            sizes[place] = info.size
            newest_us = max(newest_us, info.modified_us)
    table_file = _load_table_file(evidence, sizes)
    heads: dict[str, int] = {}
    for branch_id, version in sizes:
        heads[branch_id] = max(version, heads.get(branch_id, 0))
    now_us = clock.now_us()
    refs = load_references(evidence, heads, now_us)
    meter = _Meter(progress)
    # Blocks are listed after the slots, so the blocks of each listed slot are in the listing.
    contents = Contents(evidence, deep=deep, newest_us=newest_us, on_block=meter.step)
    meter.total = len(sizes) + (contents.listed_count if deep else 0)
    slots = Slots(evidence, contents, refs, table_file, listed=sizes, on_slot=meter.step)
    states: list[BranchState] = []
    for ref in refs.items:
        walked = slots.walk(ref)
        if not ref.is_single:
            opens = table_file is not None and walked.has_head
            states.append(
                BranchState(
                    name=ref.name,
                    head=ref.head,
                    floor=walked.floor,
                    last_good=walked.last_good,
                    takes_commits=opens and takes_commits(evidence, clock, ref),
                )
            )
    slots.check_targets()
    slots.check_claims()
    floors = {ref.branch_id: state.floor for ref, state in zip(refs.items, states, strict=False)}
    _check_markers(evidence, floors, refs)
    leases = load_leases(evidence)
    check_leased(evidence, leases, heads, refs)
    note_hints(evidence, heads, refs)
    _note_unnamed(evidence, heads, refs)
    for origin, count in sorted(contents.foreign.items()):
        wrong = f"{count} blocks are in table {origin}, and were not checked"
        evidence.note(TABLE_KEY, wrong, "not known: check that table, too")
    leased = load_leased(evidence, leases, sizes, slots.seen)
    note_young(evidence, contents.young(leased))
    if any(problem.kind is not FindingKind.NOTE for problem in evidence.problems):
        left = load_references(Evidence(store), heads, now_us).items
        if any(ref not in left for ref in refs.items):  # vacuum may have deleted its objects
            return check_table(store, clock, deep=deep, progress=progress)
    kept = slots.seen.keys() | leased.places
    states += [
        BranchState(name=name, head=None, floor=0, last_good=None, takes_commits=False)
        for name in refs.unreadable
    ]
    findings = [problem.finding(refs.name_of) for problem in evidence.problems]
    return FsckReport(
        path=store.url,
        deep=deep,
        branches=tuple(states),
        findings=tuple(sorted(findings, key=lambda one: one.kind is FindingKind.NOTE)),
        snapshot_count=len(slots.seen),
        segment_count=contents.segment_count,
        block_count=contents.block_count,
        deletion_file_count=contents.deletion_file_count,
        origins=tuple(sorted(contents.foreign)),
        unreachable={
            SNAPSHOTS: _left_over([size for at, size in sizes.items() if at not in kept]),
            **contents.unreachable(leased),
            PROBES: _left_over([info.size for info in store.list(PROBE_PREFIX)]),
        },
    )


class _Meter:
    def __init__(self, progress: CheckProgress | None) -> None:
        self._progress = progress
        self._done = 0
        self.total = 0

    def step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, max(self._done, self.total))


def _load_table_file(evidence: Evidence, places: Collection[Place]) -> TableFile | None:
    found = evidence.load(TABLE_KEY, decode_table_file)
    if not isinstance(found, Fault):
        if not _is_anothers(evidence, found, places):
            return found
        found = Fault(FindingKind.DAMAGED, "it is another table's: all snapshots have another id")
    if found.kind is FindingKind.MISSING and not places:
        raise NotFoundError(
            "there is no fuse_stream table here; check the path", path=evidence.store.url
        )
    lost = "the table cannot be opened"
    if found.kind is not FindingKind.UNREADABLE:
        lost = f"{lost}; {TABLE_FILE_REMEDY}"
    evidence.report(found, TABLE_KEY, lost)
    return None


def _is_anothers(evidence: Evidence, table_file: TableFile, places: Collection[Place]) -> bool:
    """True if all snapshots have the same table id, and the table file has another."""
    ids: set[str] = set()
    floor = 0
    for branch_id, version in sorted(places, key=lambda place: place[1], reverse=True):
        if branch_id == MAIN and version < floor:
            continue  # expired, such as a version 0 created again after its history was lost
        snapshot = evidence.load(slot_key(branch_id, version), decode_snapshot)
        if isinstance(snapshot, Fault):
            continue
        if snapshot.table_id == table_file.table_id:
            return False  # usually for the first snapshot
        ids.add(snapshot.table_id)
        floor = max(floor, snapshot.floor) if branch_id == MAIN else floor
    return len(ids) == 1


def _check_markers(evidence: Evidence, floors: dict[str, int], refs: References) -> None:
    for info in evidence.store.list(FLOOR_PREFIX):
        marker = floor_of(info.key)
        if marker is None or marker[0] not in floors:
            continue
        branch_id, chunk = marker
        end = (chunk + 1) * CHUNK_VERSIONS
        if end > floors[branch_id]:
            evidence.report(
                Fault(
                    FindingKind.BROKEN,
                    f"it says that all versions below {end} of {refs.name_of(branch_id)} have "
                    f"expired, but those from {floors[branch_id]} on have not",
                ),
                info.key,
                "a lost slot among them would be taken for one that has expired, and a writer "
                "may look for the head too far",
            )


def _note_unnamed(evidence: Evidence, heads: dict[str, int], refs: References) -> None:
    known: set[str] = {place[0] for place in refs.claims} | refs.names.keys()
    for branch_id in sorted(heads.keys() - known):
        newest: Place = branch_id, heads[branch_id]
        evidence.note(
            slot_key(*newest),
            "no ref names the branch of this snapshot",
            "nothing if the branch was deleted; if its ref was lost, restore that from a copy "
            "before the next vacuum",
        )


def _left_over(sizes: list[int]) -> Leftovers:
    return Leftovers(object_count=len(sizes), byte_size=sum(sizes))
