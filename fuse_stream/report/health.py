"""The health of a table: what an operator has to know first, each with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

from fuse_stream.errors import FuseError
from fuse_stream.format.properties import CLUSTER_DEPTH, RETAIN, VACUUM_AGE, duration_property_us
from fuse_stream.format.sizes import size
from fuse_stream.format.text import brief, count, duration, iso, plural
from fuse_stream.optimize.policy import VACUUMS_PER_AGE, imperfect, policy_of
from fuse_stream.report.facts import Facts

_HOUR_US = 3_600_000_000
_LATE_GAPS = 10
"""A head is late if it is older than so many usual gaps between commits."""
_USUAL = 100
"""The newest commits that tell the usual gap."""
_MUCH_GARBAGE = 0.2
"""Of all stored bytes."""


class Level(StrEnum):
    """How much a line of the health matters."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the health."""

    level: Level
    name: str
    text: str
    remedy: str = ""
    """A command or an action; empty if nothing has to be done."""


def check_health(facts: Facts) -> tuple[Check, ...]:
    """Return the health of a table, what matters most first."""
    order = (Level.BAD, Level.WARNING, Level.GOOD, Level.NOTE)
    return tuple(sorted(_checks(facts), key=lambda check: order.index(check.level)))


def worst(checks: tuple[Check, ...]) -> Level:
    """Return the level of the table: good if there is no warning."""
    levels = {check.level for check in checks}
    return next((one for one in (Level.BAD, Level.WARNING) if one in levels), Level.GOOD)


def vacuumed_us(facts: Facts) -> int | None:
    """Return when the table was last vacuumed, as far as that is known."""
    raised = [
        after.time_us for before, after in pairwise(facts.commits) if after.epoch > before.epoch
    ]
    known = [*raised[-1:], *filter(None, [facts.optimizer_vacuumed_us])]
    return max(known, default=None)


def _checks(facts: Facts) -> Iterator[Check]:
    for problem in facts.problems:
        yield Check(
            level=Level.BAD,
            name=f"cannot be read: {problem.part}",
            text=problem.text,
            remedy="fuse-stream fsck PATH",
        )
    yield _head(facts)
    yield from _consumers(facts)
    try:
        yield from _upkeep(facts)
    except FuseError as error:
        yield Check(level=Level.BAD, name="properties", text=str(error))
    yield from _garbage(facts)


def _head(facts: Facts) -> Check:
    age_us = max(facts.now_us - facts.head.timestamp_us, 0)
    newest = facts.commits[-_USUAL:]
    gaps = [after.time_us - before.time_us for before, after in pairwise(newest)]
    usual_us = int(median(gaps)) if gaps else 0
    is_late = len(gaps) > 2 and age_us > max(_HOUR_US, _LATE_GAPS * usual_us)
    usual = f"; usually one every {brief(usual_us)}" if gaps else ""
    return Check(
        level=Level.WARNING if is_late else Level.GOOD,
        name="last commit",
        text=f"{duration(age_us)} ago, version {facts.head.version}{usual}",
        remedy="see if the query that writes still runs" if is_late else "",
    )


def _consumers(facts: Facts) -> Iterator[Check]:
    for state in facts.consumers or ():
        behind = state.versions_behind
        if not state.is_live:
            yield Check(
                level=Level.WARNING,
                name=f"consumer {state.consumer}",
                text=f"its lease lapsed at {iso(state.lapses_us)}: what it has not read may expire",
                remedy="start its stream again, or fuse-stream consumers PATH --release NAME",
            )
        elif behind is None:
            yield Check(
                level=Level.WARNING,
                name=f"consumer {state.consumer}",
                text="its branch was deleted",
                remedy="fuse-stream consumers PATH --release NAME",
            )
        else:
            late = f", {brief(state.behind_us)}" if behind and state.behind_us else ""
            yield Check(
                level=Level.GOOD,
                name=f"consumer {state.consumer}",
                text=f"{plural(behind, 'version')} behind{late}" if behind else "up to date",
            )
    if facts.consumers == ():
        yield Check(level=Level.NOTE, name="consumers", text="nobody follows under a name")


def _upkeep(facts: Facts) -> Iterator[Check]:
    head = facts.head
    policy = policy_of(head.properties)
    small = imperfect(head.summary)
    is_much = small >= 2 * policy.blocks
    yield Check(
        level=Level.WARNING if is_much else Level.GOOD,
        name="small blocks",
        text=f"{count(small)} of {plural(head.summary.block_count, 'block')}; "
        f"an optimizer merges them from {policy.blocks} on",
        remedy="fuse-stream compact PATH" if is_much else "",
    )
    if head.stored_rows and head.hidden_rows:
        percent = 100 * head.hidden_rows / head.stored_rows
        is_much = percent >= policy.hidden_percent
        yield Check(
            level=Level.WARNING if is_much else Level.GOOD,
            name="deleted rows",
            text=f"{count(head.hidden_rows)} are still in blocks, {percent:.1f} % of their rows",
            remedy="fuse-stream compact PATH" if is_much else "",
        )
    if facts.clustering is not None:
        depth, wanted = facts.clustering.average_depth, int(head.properties.get(CLUSTER_DEPTH, "4"))
        is_deep = depth > wanted
        yield Check(
            level=Level.WARNING if is_deep else Level.GOOD,
            name="order of rows",
            text=f"average depth {depth:,.1f}, at most {wanted} is wanted; by "
            + ", ".join(facts.clustering.columns),
            remedy="fuse-stream recluster PATH" if is_deep else "",
        )
    yield _vacuum(facts)


def _vacuum(facts: Facts) -> Check:
    properties = facts.head.properties
    last_us = vacuumed_us(facts)
    last = "not known" if last_us is None else f"{duration(facts.now_us - last_us)} ago"
    if RETAIN not in properties:
        return Check(
            level=Level.NOTE,
            name="last vacuum",
            text=f"{last}; {RETAIN} is not set, so every version is kept",
        )
    due_us = 3 * duration_property_us(properties, VACUUM_AGE) // VACUUMS_PER_AGE
    age_us = facts.now_us - (last_us or facts.commits[0].time_us)
    is_late = age_us > due_us
    return Check(
        level=Level.WARNING if is_late else Level.GOOD,
        name="last vacuum",
        text=f"{last}; versions are kept {properties[RETAIN]}",
        remedy="fuse-stream optimize PATH --watch, or fuse-stream vacuum PATH" if is_late else "",
    )


def _garbage(facts: Facts) -> Iterator[Check]:
    if facts.garbage is None or not facts.stored_bytes:
        return
    freed = facts.garbage.byte_size
    is_much = freed > _MUCH_GARBAGE * facts.stored_bytes
    waiting = sum(removed.byte_size for removed in facts.garbage.waiting.values())
    later = f"; {size(waiting)} more from {iso(facts.garbage.due_us)} on" if waiting else ""
    yield Check(
        level=Level.WARNING if is_much else Level.GOOD,
        name="garbage",
        text=f"a vacuum now deletes {size(freed)}{later}",
        remedy="fuse-stream vacuum PATH" if is_much else "",
    )
