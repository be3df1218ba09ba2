"""The page of a report: its charts and tables from the facts, and the HTML around them. Pure.

Rules:
- The page loads nothing and runs nothing: no script, no font, no image. Its policy forbids them.
- Every text passes jinja2's escaping, and `printable` before it, so that neither markup nor control
  characters nor marks of direction in messages and names have any effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fuse_stream.format.properties import DEFAULTS, OWN_PREFIX
from fuse_stream.format.sizes import size
from fuse_stream.format.text import brief, count, duration, first_line, iso, plural, printable
from fuse_stream.report.charts import Bar, Stretch, area, bars, strip
from fuse_stream.report.facts import Commit, Facts
from fuse_stream.report.health import check_health, worst

NEWEST = 25
"""Commits that are listed."""
MOST_BARS = 100
MOST_LISTED = 50
"""Branches, consumers, writers and changes of the columns that are listed."""
_LONGEST = 120
"""Characters of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing, and the labels around it."""

    title: str
    drawing: Markup
    top: str
    """What the highest point means."""
    start: str
    end: str
    note: str = ""


def render(facts: Facts, *, refresh_s: int | None = None) -> str:
    """Return the page of a table; with `refresh_s` the browser loads it anew after that time."""
    checks = check_health(facts)
    return _PAGE.render(
        facts=facts,
        refresh_s=refresh_s,
        name=facts.path.rstrip("/").rpartition("/")[2] or facts.path,
        checks=checks,
        worst=worst(checks),
        charts=list(_charts(facts)),
        block_charts=list(_block_charts(facts)),
        branches=list(_branch_rows(facts)),
        storage=list(_storage(facts)),
        storage_strip=_storage_strip(facts),
        kinds=_kinds(facts.commits),
        changes=list(_schema_changes(facts))[-MOST_LISTED:][::-1],
        newest=facts.commits[-NEWEST:][::-1],
        before={after.version: before.row_count for before, after in pairwise(facts.commits)},
        policy={
            **DEFAULTS,
            **{n: v for n, v in facts.head.properties.items() if n.startswith(OWN_PREFIX)},
        },
        last_version=max((one.version for one in facts.branches), default=0),
        most=MOST_LISTED,
    )


def _charts(facts: Facts) -> Iterator[Chart]:
    points = facts.points
    ends = {"start": f"version {points[0].version}", "end": f"version {points[-1].version}"}
    added = list(_binned(points))
    most = max((bar.value for bar in added), default=0)
    least = min((bar.value for bar in added), default=0)
    lowest = f"; lowest {count(round(least))}" if least < 0 else ""
    yield Chart(
        title="Rows added by a commit",
        drawing=bars(added),
        top=f"{count(round(most))}{lowest}",
        note="the average of the commits of a bar; below the line rows were removed",
        **ends,
    )
    gaps = list(_gap_bars(points))
    yield Chart(
        title="Time between commits",
        drawing=bars(gaps),
        top=brief(round(max((bar.value for bar in gaps), default=0))),
        note="the average of the commits of a bar",
        **ends,
    )
    times = {"start": iso(points[0].time_us), "end": iso(points[-1].time_us)}
    for title, shown, values in (
        ("Rows", count, [one.row_count for one in points]),
        ("Bytes of the newest version", size, [one.stored_bytes for one in points]),
        ("Blocks", count, [one.block_count for one in points]),
        ("Segments", count, [one.segment_count for one in points]),
    ):
        drawn = [
            (float(one.time_us - points[0].time_us), float(value))
            for one, value in zip(points, values, strict=True)
        ]
        yield Chart(title=title, drawing=area(drawn), top=shown(max(values)), **times)


def _binned(points: Sequence[Commit]) -> Iterator[Bar]:
    for before, after in _steps(points):
        commits = after.version - before.version
        added = (after.row_count - before.row_count) / commits
        yield Bar(
            value=added,
            style="a" if added >= 0 else "w",
            title=f"versions {before.version + 1} to {after.version}: {count(round(added))} rows a "
            f"commit, from {iso(before.time_us)} to {iso(after.time_us)}",
        )


def _gap_bars(points: Sequence[Commit]) -> Iterator[Bar]:
    for before, after in _steps(points):
        gap_us = (after.time_us - before.time_us) / (after.version - before.version)
        yield Bar(
            value=gap_us,
            title=f"versions {before.version + 1} to {after.version}: {brief(round(gap_us))}",
        )


def _steps(points: Sequence[Commit]) -> Iterator[tuple[Commit, Commit]]:
    """Yield the first and last commit of at most `MOST_BARS` bars."""
    every = max(-(-(len(points) - 1) // MOST_BARS), 1)
    chosen = [*points[:-1:every], points[-1]]
    return pairwise(chosen)


def _block_charts(facts: Facts) -> Iterator[Chart]:
    blocks, target = facts.blocks, facts.target
    if blocks and target:
        by_size = Counter(max(block.file_size, 1).bit_length() for block in blocks)
        small = Counter(
            max(block.file_size, 1).bit_length() for block in blocks if not target.is_perfect(block)
        )
        first, last = min(by_size), max(by_size)
        drawn = [
            Bar(
                value=by_size[power],
                style="w" if small[power] * 2 > by_size[power] else "a",
                title=f"{size(2 ** (power - 1))} to {size(2**power)}: "
                f"{plural(by_size[power], 'block')}, {count(small[power])} small",
            )
            for power in range(first, last + 1)
        ]
        yield Chart(
            title="Blocks by stored size",
            drawing=bars(drawn),
            top=plural(max(by_size.values()), "block"),
            start=size(2 ** (first - 1)),
            end=size(2**last),
            note="each bar is twice the size of the one before; in amber most blocks are small, "
            "that is, compaction merges them",
        )
    if facts.clustering and facts.clustering.depths:
        depths = facts.clustering.depths
        deepest = max(depths)
        step = -(-deepest // MOST_BARS)
        binned: Counter[int] = Counter()
        for depth, number in depths.items():
            binned[(depth - 1) // step] += number
        yield Chart(
            title="Blocks by depth of overlap",
            drawing=bars([Bar(value=binned[at]) for at in range((deepest - 1) // step + 1)]),
            top=plural(max(binned.values()), "block"),
            start="depth 1",
            end=f"depth {deepest}",
            note="a search for one key opens as many blocks as the depth; by "
            + ", ".join(facts.clustering.columns),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BranchRow:
    name: str
    drawing: Markup
    text: str
    tags: str


def _branch_rows(facts: Facts) -> Iterator[_BranchRow]:
    last = max((one.version for one in facts.branches), default=0) or 1
    ids = {one.ref.branch_id for one in facts.branches}
    ordered = sorted(facts.branches, key=lambda one: (one.forked_at or 0, one.ref.name))
    for one in ordered[:MOST_LISTED]:
        start = one.floor if one.forked_at is None else one.forked_at
        owned = [tag for tag in facts.tags if tag.target.branch_id == one.ref.branch_id]
        whole = Stretch(
            start=start / last,
            end=one.version / last,
            title=f"{one.ref.name}: versions {start} to {one.version}",
        )
        marks = [
            Stretch(
                start=tag.target.version / last,
                end=tag.target.version / last,
                style="t",
                title=f"tag {tag.name}: version {tag.target.version}",
            )
            for tag in owned
        ]
        marks += [
            Stretch(
                start=state.version / last,
                end=state.version / last,
                style="w",
                title=f"consumer {state.consumer}: version {state.version}",
            )
            for state in facts.consumers or ()
            if state.branch == one.ref.name
        ]
        origin = "" if one.forked_from is None else f", from {one.forked_from}@{one.forked_at}"
        names = ", ".join(f"{tag.name} ({tag.target.version})" for tag in owned[:MOST_LISTED])
        yield _BranchRow(
            name=one.ref.name,
            drawing=strip([whole, *marks]),
            text=f"version {one.version}{origin}; "
            f"last commit {duration(max(facts.now_us - one.time_us, 0))} ago",
            tags=names,
        )
    orphans = [tag for tag in facts.tags if tag.target.branch_id not in ids]
    if orphans:
        names = ", ".join(f"{tag.name} ({tag.target.version})" for tag in orphans[:MOST_LISTED])
        yield _BranchRow(name="deleted branches", drawing=Markup(), text="tags keep", tags=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoragePart:
    name: str
    style: str
    byte_count: int
    note: str


def _storage(facts: Facts) -> Iterator[_StoragePart]:
    live = facts.head.summary.compressed_byte_size
    if facts.block_bytes is None or facts.stored_bytes is None:
        return
    yield _StoragePart(
        name="live", style="a", byte_count=live, note="blocks of the newest version of this branch"
    )
    freed, waiting = 0, 0
    if facts.garbage is not None:
        freed = facts.garbage.byte_size
        waiting = sum(removed.byte_size for removed in facts.garbage.waiting.values())
    held = max(facts.block_bytes - live, 0)
    others = facts.stored_bytes - facts.block_bytes
    if facts.garbage is None:
        note = (
            "blocks of older versions, branches and tags, and garbage; fuse-stream stats PATH "
            "--garbage tells them apart"
        )
    else:
        spared = sum(
            kinds["blocks"].byte_size
            for kinds in (facts.garbage.deleted, facts.garbage.waiting)
            if "blocks" in kinds
        )
        held = max(held - spared, 0)
        others = max(others - (freed + waiting - spared), 0)
        note = "blocks of older versions, branches, tags and consumers"
    yield _StoragePart(name="held", style="h", byte_count=held, note=note)
    yield _StoragePart(
        name="metadata", style="m", byte_count=others, note="snapshots, segments and the rest"
    )
    if facts.garbage is not None:
        yield _StoragePart(
            name="garbage", style="w", byte_count=freed, note="the next vacuum deletes it"
        )
        yield _StoragePart(
            name="garbage later",
            style="g",
            byte_count=waiting,
            note=f"may belong to a commit in flight: two vacuums delete it, the first from "
            f"{iso(facts.garbage.due_us)} on",
        )


def _storage_strip(facts: Facts) -> Markup:
    parts = [part for part in _storage(facts) if part.byte_count]
    total = sum(part.byte_count for part in parts) or 1
    stretches = []
    start = 0
    for part in parts:
        end = start + part.byte_count
        title = f"{part.name}: {size(part.byte_count)}"
        stretches.append(
            Stretch(start=start / total, end=end / total, style=part.style, title=title)
        )
        start = end
    return strip(stretches, height=22)


def _kinds(commits: Sequence[Commit]) -> list[tuple[str, int, Commit]]:
    """Return how often each operation was committed, and the last commit of each."""
    last = {commit.operation: commit for commit in commits}
    counted = Counter(commit.operation for commit in commits)
    return [(str(kind), number, last[kind]) for kind, number in counted.most_common()]


def _schema_changes(facts: Facts) -> Iterator[tuple[Commit, str, bool]]:
    """Yield the commits that changed the columns, what changed, and if the version is exact.

    Between two points of the older history only the range is known.
    """
    known = {commit.version: commit for commit in (*facts.points, *facts.commits)}
    ordered = [known[version] for version in sorted(known)]
    for before, after in pairwise(ordered):
        if before.schema_id != after.schema_id:
            yield after, _change_of(before, after), after.version == before.version + 1


def _change_of(before: Commit, after: Commit) -> str:
    old = {column: (name, kind) for column, name, kind in before.columns}
    new = {column: (name, kind) for column, name, kind in after.columns}
    parts = [f"+ {name} {kind}" for column, (name, kind) in new.items() if column not in old]
    parts += [f"- {name}" for column, (name, _) in old.items() if column not in new]
    for column, (name, kind) in new.items():
        was = old.get(column, (name, kind))
        if was != (name, kind):
            parts.append(f"{was[0]} {was[1]} → {name} {kind}")
    return ", ".join(parts) or "within columns"


def _message(text: str) -> str:
    line = first_line(text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _shown(value: object) -> object:
    """Return a value as the page shows it; what is markup already is shown as it is."""
    return value if isinstance(value, Markup) else printable(str(value))


_ENVIRONMENT = Environment(
    loader=PackageLoader("fuse_stream.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(
    brief=brief,
    count=count,
    duration=duration,
    iso=iso,
    message=_message,
    plural=plural,
    size=size,
)
_PAGE = _ENVIRONMENT.get_template("page.html")
