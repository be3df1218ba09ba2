"""The newest versions of a table: whether they are found, and what shows that one is lost.

No object holds the hash of a newest slot, so a lost one sets its branch back by a version. What
can show that: a hint, which is written after its version; a ref or a lease that names it, which was
made of it; blocks that are younger than every slot, which a commit in flight has, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fuse_stream.clock import Clock
from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.layout import HINT_PREFIX, hint_key, slot_key
from fuse_stream.format.refs import Lease
from fuse_stream.objects.hints import load_hint
from fuse_stream.objects.metadata import Metadata
from fuse_stream.recovery.evidence import Evidence, Fault
from fuse_stream.recovery.lines import Line, Lines
from fuse_stream.recovery.report import FindingKind


def takes_commits(evidence: Evidence, clock: Clock, line: Line) -> bool:
    """Whether a reader or writer that starts afresh finds the newest version, and may add to it."""
    metadata = Metadata(evidence.store, clock)
    metadata.follow(line.branch_id, line.forks)
    try:
        head = metadata.find_head(line.branch_id)
    except FuseError as error:
        wrong = f"a reader that starts afresh cannot find it: {error.message}"
    else:
        if head.snapshot.version >= line.head:
            try:
                metadata.check_not_set_back(line.branch_id, head)
            except CorruptObjectError:
                _report_hint(evidence, line, head.snapshot.version)
                return False
            return True
        wrong = f"a reader that starts afresh takes version {head.snapshot.version} for the newest"
    evidence.report(
        Fault(FindingKind.BROKEN, wrong),
        slot_key(*line.place(line.head)),
        f"do not write to {line.name} until this is mended: new commits would not follow its "
        "newest version",
    )
    return False


def check_leased(
    evidence: Evidence, leases: Iterable[Lease], heads: Mapping[str, int], lines: Lines
) -> None:
    """See that no lease names a newer version of a branch than the newest that is there."""
    known = {line.branch_id: line for line in lines.lines if not line.is_single}
    for lease in leases:
        line = known.get(lease.branch_id)
        if line is None or lease.version <= max(line.head, heads.get(lease.branch_id, 0)):
            continue
        key = slot_key(*line.place(lease.version))
        if any(problem.key == key for problem in evidence.problems) or evidence.stands(key):
            continue
        wrong = f"it is not there, and the consumer {lease.name} has read it"
        _report_loss(
            evidence, line, lease.version, wrong, remedy=f"release the consumer {lease.name}"
        )


def note_hints(evidence: Evidence, heads: Mapping[str, int], lines: Lines) -> None:
    """Note the hints that say nothing, or more than is known and was not reported."""
    reported = {problem.key for problem in evidence.problems}
    for info in evidence.store.list(HINT_PREFIX):
        branch_id = info.key.removeprefix(HINT_PREFIX)
        if branch_id not in lines.names:
            continue
        hint = evidence.load(info.key, _number)
        newest = heads.get(branch_id, 0)
        if isinstance(hint, Fault):
            _note(evidence, info.key, "it holds no version", "nothing: readers pass over it")
        elif hint > newest and slot_key(branch_id, hint) not in reported:
            _note(
                evidence,
                info.key,
                f"it points to version {hint}, the newest is {newest}",
                "nothing for it alone; but nobody writes a hint before the version stands, so "
                "newer snapshots may be lost, or the folder is an older copy",
            )


def note_young(evidence: Evidence, young: Sequence[str]) -> None:
    """Note blocks, by their keys, that are younger than every slot, and in no version."""
    if young:
        _note(
            evidence,
            young[0],
            f"{len(young)} such blocks were written after the newest version, and are in none",
            "nothing, if they are of a commit in flight, or of one that died; else the newest "
            "version of a branch is lost",
        )


def _report_hint(evidence: Evidence, line: Line, head: int) -> None:
    key = hint_key(line.branch_id)
    hint = load_hint(evidence.store, line.branch_id)
    wrong = (
        f"it is not there, and {key}, which is only written once it is, names it; the newest is "
        f"version {head}"
    )
    _report_loss(evidence, line, hint, wrong, remedy=f"delete {key}")


def _report_loss(evidence: Evidence, line: Line, version: int, wrong: str, *, remedy: str) -> None:
    place = line.branch_id, version
    evidence.report(
        Fault(FindingKind.MISSING, wrong),
        slot_key(*place),
        f"the newest versions of {line.name}, with their rows and entries of the ledger. Do not "
        f"write to it until they are restored from a copy; to go on without them, {remedy}",
        place=place,
    )


def _note(evidence: Evidence, key: str, wrong: str, lost: str) -> None:
    evidence.report(Fault(FindingKind.NOTE, wrong), key, lost)


def _number(data: bytes) -> int | Fault:
    text = data[:21]
    if text.isdigit() and len(text) <= 20:
        return int(text)
    return Fault(FindingKind.NOTE, "")
