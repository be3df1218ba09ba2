"""Check the slots of a table: walk each history from its head down, and look for lost heads.

- Each snapshot has the hash of its parent, so the head's hash covers all versions below it. A slot
  is believed if the version after it is believed and has its hash; a head is believed unless a ref
  has another hash. What an unbelieved slot names is not checked: one flipped byte is one finding.
- No object has the hash of the newest slot, so if it is lost, its branch is set back by a version.
  This shows it: a hint, which is written after its version; a ref or a lease that names the
  version; blocks that are younger than every slot, which a commit in flight has as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.check.contents import Contents
from fuse_stream.check.findings import Evidence, Fault, FindingKind, Place
from fuse_stream.check.references import Reference, References
from fuse_stream.clock import Clock
from fuse_stream.commit.invariants import RULES, parent_hash_is_heads
from fuse_stream.commit.version_0 import create_snapshot
from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.codec import decode_snapshot, encode_snapshot, sha256_hex
from fuse_stream.format.layout import HINT_PREFIX, TABLE_KEY, hint_key, id_checked, slot_key
from fuse_stream.format.records import Parent, Snapshot, TableFile
from fuse_stream.format.refs import Lease
from fuse_stream.format.sides import row_lists
from fuse_stream.objects.hints import load_hint
from fuse_stream.objects.slots import Metadata

AHEAD = 16
"""Slots that are asked for together."""
MOST_MISSED = 1_000
"""How many versions in a row are read although no listing has them."""


TABLE_FILE_REMEDY = (
    "no row is lost: put it back from a copy; or move the damaged file away, if there is one, and "
    "restore it with fuse-stream restore-table-file"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot that was checked."""

    sha256: str = ""
    snapshot_id: str = ""
    floor: int = 0
    is_believed: bool = False
    """True if it has the snapshot that was committed there."""
    is_whole: bool = False
    """True if all objects that the snapshot names are whole, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """The result of a walk."""

    floor: int
    last_good: int | None
    has_head: bool


class Slots:
    """Checks slots, each once, even if several branches share it."""

    def __init__(
        self,
        evidence: Evidence,
        contents: Contents,
        refs: References,
        table_file: TableFile | None,
        *,
        listed: Collection[Place],
        on_slot: Callable[[], None],
    ) -> None:
        self._evidence = evidence
        self._contents = contents
        self._refs = refs
        self._table_file = table_file
        self._listed = listed
        self._on_slot = on_slot
        self.seen: dict[Place, Slot] = {}
        self._targets: list[tuple[Place, Parent]] = []

    def walk(self, ref: Reference) -> Walked:
        """Check the versions of a branch, tag or clone, newest first, down to the floor."""
        floor = ref.head if ref.is_single else ref.floor
        is_floor_known = ref.is_single
        last_good: int | None = None
        child: Snapshot | None = None
        missed = 0
        version = ref.head
        read_to = version + 1
        while version >= floor:
            if version < read_to:
                read_to = max(version - AHEAD + 1, floor)
                self._read_ahead(ref, range(version, read_to - 1, -1))
            place = ref.place(version)
            snapshot: Snapshot | None = None
            slot = self.seen.get(place)
            if slot is None:
                slot, snapshot = self._look(ref, place, child)
            elif slot.is_believed and (child or ref.place(version - 1) not in self.seen):
                snapshot = self._load_again(place)
            if child is not None and snapshot is not None:
                for wrong in _breaches(snapshot, slot.sha256, child):
                    self._breach((child.branch_id, child.version), wrong)
            if not is_floor_known and slot.is_believed:
                floor, is_floor_known = max(slot.floor, floor), True
            if last_good is None and slot.is_whole:
                last_good = version
            child = snapshot
            version -= 1
            missed = 0 if slot.is_believed or place in self._listed else missed + 1
            if missed == MOST_MISSED:  # a damaged ref may name any number
                version, missed = self._pass_gap(ref, version, floor), 0
        has_head = self.seen[ref.place(ref.head)].is_believed
        return Walked(floor=floor, last_good=last_good, has_head=has_head)

    def _read_ahead(self, ref: Reference, versions: Iterable[int]) -> None:
        """Ask for slots that come next, and for what they name, several at once."""
        self._evidence.forget_ahead()
        places = [place for place in map(ref.place, versions) if place not in self.seen]
        found = self._evidence.read_ahead(slot_key(*place) for place in places)
        self._contents.read_ahead(found.values())

    def _pass_gap(self, ref: Reference, last: int, floor: int) -> int:
        """Return the next version below that is listed; report those above it as one problem."""
        listed = (place[1] for place in self._listed if place == ref.place(place[1]))
        below = max((version for version in listed if version <= last), default=-1)
        below = max(below, floor - 1)
        if below < last:
            self._evidence.report(
                Fault(FindingKind.MISSING, f"nor is any version of {ref.name} above {below}"),
                slot_key(*ref.place(last)),
                f"the versions from {below + 1} to {last}, if they ever existed: if not, the ref "
                "that names a later one is damaged",
            )
        return below

    def check_targets(self) -> None:
        """Check the hashes that rewinds, reverts and publishes have of retained snapshots."""
        for place, target in self._targets:
            slot = self.seen.get((target.branch_id, target.version))
            if slot is not None and slot.is_believed and slot.sha256 != target.sha256:
                self._breach(place, "the snapshot that it goes back to has another hash")

    def check_claims(self) -> None:
        """Check the hashes and ids that refs have of snapshots."""
        for place, claims in self._refs.claims.items():
            slot = self.seen.get(place)
            if slot is None or not slot.is_believed:
                continue  # expired, or reported
            for claim in claims:
                if claim.sha256 != slot.sha256 or claim.snapshot_id not in {None, slot.snapshot_id}:
                    self._evidence.report(
                        Fault(
                            FindingKind.DAMAGED,
                            f"it names another snapshot than the one in {slot_key(*place)}; one "
                            "of the two was changed",
                        ),
                        claim.key,
                        "which snapshot this name means is not certain",
                    )

    def _look(
        self, ref: Reference, place: Place, child: Snapshot | None
    ) -> tuple[Slot, Snapshot | None]:
        self._on_slot()
        found = self._evidence.load(slot_key(*place), lambda data: _read_slot(data, place))
        fault = found if isinstance(found, Fault) else self._doubt(found, place, child)
        if isinstance(found, Fault) or fault is not None:
            assert fault is not None
            lost = _lost(ref, place[1])
            self._evidence.report(fault, slot_key(*place), lost, place=place)
            self.seen[place] = Slot()
            return self.seen[place], None
        snapshot, sha256 = found
        self._check_create(snapshot, sha256)
        if snapshot.target is not None:
            self._targets.append((place, snapshot.target))
        self.seen[place] = Slot(
            sha256=sha256,
            snapshot_id=snapshot.snapshot_id,
            floor=snapshot.floor,
            is_believed=True,
            is_whole=self._contents.see(snapshot, place),
        )
        return self.seen[place], snapshot

    def _doubt(
        self, found: tuple[Snapshot, str], place: Place, child: Snapshot | None
    ) -> Fault | None:
        """Return a fault if the next version or the table file shows that a slot was changed."""
        snapshot, sha256 = found
        parent = child.parent if child else None
        if parent is not None and (parent.branch_id, parent.version) == place:
            if parent.sha256 != sha256:
                return Fault(
                    FindingKind.DAMAGED,
                    f"it is not the snapshot that version {place[1] + 1} was built on",
                )
        elif self._table_file and snapshot.table_id != self._table_file.table_id:
            return Fault(FindingKind.DAMAGED, f"it is of another table than {TABLE_KEY} says")
        return None

    def _load_again(self, place: Place) -> Snapshot | None:
        found = self._evidence.load(slot_key(*place), lambda data: _read_slot(data, place))
        return None if isinstance(found, Fault) else found[0]

    def _check_create(self, snapshot: Snapshot, sha256: str) -> None:
        if snapshot.version or self._table_file is None:
            return
        if sha256_hex(encode_snapshot(create_snapshot(self._table_file))) != sha256:
            self._evidence.report(
                Fault(FindingKind.DAMAGED, "it does not agree with version 0"),
                TABLE_KEY,
                f"its content is not certain; {TABLE_FILE_REMEDY}",
            )

    def _breach(self, place: Place, wrong: str) -> None:
        self._evidence.report(
            Fault(FindingKind.BROKEN, wrong),
            slot_key(*place),
            "it can be read, but a commit should not have made it",
            place=place,
        )


def _breaches(older: Snapshot, sha256: str, newer: Snapshot) -> list[str]:
    try:
        found = [rule(older, newer) for rule in RULES]
    except FuseError as error:  # a bound is of another type
        found = [str(error)]
    return [wrong for wrong in (parent_hash_is_heads(sha256, newer), *found) if wrong]


def _read_slot(data: bytes, place: Place) -> tuple[Snapshot, str]:
    snapshot = decode_snapshot(data)
    if (snapshot.branch_id, snapshot.version) != place:
        raise CorruptObjectError("a slot holds another slot's snapshot", version=place[1])
    for held in row_lists(snapshot):
        for ref in held.segments:
            id_checked(ref.id)
        dict(held.summary.col_stats)  # decoded lazily: do it now
    for entry in snapshot.ledger.entries.values():
        for offsets in entry.offsets:
            id_checked(offsets.id or "0" * 32)
    return snapshot, sha256_hex(data)


def _lost(ref: Reference, version: int) -> str:
    if ref.is_single:
        return (
            f"the snapshot of the tag or clone {ref.name}; if the call that made it never "
            "returned, delete it: it never kept anything"
        )
    if version == ref.head:
        return (
            f"version {version}, the newest of {ref.name}: the branch cannot be opened, read or "
            "written until the slot is restored"
        )
    return (
        f"version {version} of {ref.name}; a stream, diff or walk over it stops there. Later "
        "versions can be read"
    )


def takes_commits(evidence: Evidence, clock: Clock, ref: Reference) -> bool:
    """True if a new reader or writer finds the newest version and can commit after it."""
    metadata = Metadata(evidence.store, clock)
    metadata.learn_forks(ref.branch_id, ref.forks)
    try:
        head = metadata.load_head(ref.branch_id)
    except FuseError as error:
        wrong = f"a new reader cannot find it: {error.message}"
    else:
        if head.snapshot.version >= ref.head:
            try:
                metadata.check_not_set_back(ref.branch_id, head)
            except CorruptObjectError:
                _report_hint(evidence, ref, head.snapshot.version)
                return False
            return True
        wrong = f"a new reader takes version {head.snapshot.version} for the newest"
    evidence.report(
        Fault(FindingKind.BROKEN, wrong),
        slot_key(*ref.place(ref.head)),
        f"do not write to {ref.name} until this is repaired: new commits would not follow its "
        "newest version",
    )
    return False


def check_leased(
    evidence: Evidence, leases: Iterable[Lease], heads: Mapping[str, int], refs: References
) -> None:
    """Report each lease that names a newer version of a branch than the newest one."""
    known = {ref.branch_id: ref for ref in refs.items if not ref.is_single}
    for lease in leases:
        ref = known.get(lease.branch_id)
        if ref is None or lease.version <= max(ref.head, heads.get(lease.branch_id, 0)):
            continue
        key = slot_key(*ref.place(lease.version))
        if any(problem.key == key for problem in evidence.problems) or evidence.has(key):
            continue
        wrong = f"it is not there, and the consumer {lease.name} has read it"
        _report_loss(
            evidence, ref, lease.version, wrong, remedy=f"release the consumer {lease.name}"
        )


def note_hints(evidence: Evidence, heads: Mapping[str, int], refs: References) -> None:
    """Note hints without a version, and hints to versions above the newest, unless reported."""
    reported = {problem.key for problem in evidence.problems}
    for info in evidence.store.list(HINT_PREFIX):
        branch_id = info.key.removeprefix(HINT_PREFIX)
        if branch_id not in refs.names:
            continue
        hint = evidence.load(info.key, _number)
        newest = heads.get(branch_id, 0)
        if isinstance(hint, Fault):
            evidence.note(info.key, "it holds no version", "nothing: readers ignore it")
        elif hint > newest and slot_key(branch_id, hint) not in reported:
            evidence.note(
                info.key,
                f"it points to version {hint}, the newest is {newest}",
                "newer snapshots, perhaps: a hint is only written after its version. Or the folder "
                "is an older copy",
            )


def note_young(evidence: Evidence, young: Sequence[str]) -> None:
    """Note the blocks of these keys: they are younger than every slot and in no version."""
    if young:
        evidence.note(
            young[0],
            f"{len(young)} such blocks were written after the newest version, and are in none",
            "nothing, if a commit in flight or one that died wrote them; else the newest version "
            "of a branch is lost",
        )


def _report_hint(evidence: Evidence, ref: Reference, head: int) -> None:
    key = hint_key(ref.branch_id)
    hint = load_hint(evidence.store, ref.branch_id)
    wrong = (
        f"it is missing, but {key} names it, which is only written after it; the newest is version "
        f"{head}"
    )
    _report_loss(evidence, ref, hint, wrong, remedy=f"delete {key}")


def _report_loss(
    evidence: Evidence, ref: Reference, version: int, wrong: str, *, remedy: str
) -> None:
    place = ref.branch_id, version
    evidence.report(
        Fault(FindingKind.MISSING, wrong),
        slot_key(*place),
        f"the newest versions of {ref.name}, with their rows and entries of the ledger. Do not "
        f"write to it until they are restored from a copy; to continue without them, {remedy}",
        place=place,
    )


def _number(data: bytes) -> int | Fault:
    text = data[:21]
    if text.isdigit() and len(text) <= 20:
        return int(text)
    return Fault(FindingKind.NOTE, "")
