"""What a report shows of a table, read from its objects; no block is opened.

Rules:
- The newest `limit` versions of the branch are read one by one. Of older ones at most `MOST_POINTS`
  are read, evenly spread: so a long history costs no more than its newest part.
- What cannot be read is a problem that the report shows; it does not end the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fuse_stream.errors import FuseError
from fuse_stream.expiry.vacuum import VacuumReport
from fuse_stream.feed.consumers import ConsumerState
from fuse_stream.format.layout import BLOCKS_PREFIX, PREFIXES
from fuse_stream.format.properties import BlockTarget, block_target
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.format.refs import BranchRef, TagRef
from fuse_stream.objects.refs import iter_branch_heads
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.optimize.claim import find_claim
from fuse_stream.optimize.overlap import Clustering, measure_clustering
from fuse_stream.table.handle import Table
from fuse_stream.table.metadata_tables import batch_names

MOST_POINTS = 500
"""The points of a chart, and the bins of a history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the charts need of a snapshot; a snapshot itself would hold the whole ledger."""

    version: int
    time_us: int
    operation: Operation
    row_count: int
    block_count: int
    stored_bytes: int
    segment_count: int
    schema_id: int
    columns: tuple[tuple[int, str, str], ...]
    """The id, name and type of each column."""
    epoch: int
    batches: tuple[str, ...] = ()
    author: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFacts:
    """A branch and its head."""

    ref: BranchRef
    version: int
    floor: int
    time_us: int
    forked_from: str | None
    """The name of the branch that it forked from; its id if that was deleted."""

    @property
    def forked_at(self) -> int | None:
        return self.ref.forks[-1].version if self.ref.forks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A part of the report that could not be read."""

    part: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a report shows. `None` is what could not be read, or was not asked for."""

    path: str
    branch: str
    now_us: int
    head: Snapshot
    commits: tuple[Commit, ...]
    """The newest ones, oldest first, without a gap unless one could not be read."""
    points: tuple[Commit, ...]
    """Some of the whole history, oldest first; all of it if it is short."""
    blocks: tuple[Block, ...] | None = None
    target: BlockTarget | None = None
    clustering: Clustering | None = None
    branches: tuple[BranchFacts, ...] = ()
    tags: tuple[TagRef, ...] = ()
    consumers: tuple[ConsumerState, ...] | None = None
    stored: Mapping[str, int] | None = None
    """The bytes of the table's objects by the prefix of their keys."""
    garbage: VacuumReport | None = None
    """None also if the history is longer than the limit."""
    optimizer_vacuumed_us: int | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def first(self) -> int:
        """The first version that was read one by one."""
        return self.commits[0].version if self.commits else self.head.version

    @property
    def stored_bytes(self) -> int | None:
        return None if self.stored is None else sum(self.stored.values())

    @property
    def block_bytes(self) -> int | None:
        """The bytes of all block files, of every version."""
        return None if self.stored is None else self.stored.get(BLOCKS_PREFIX, 0)


@dataclass(slots=True)
class _Problems:
    found: list[Problem] = field(default_factory=list)

    @contextmanager
    def noted(self, part: str) -> Iterator[None]:
        """Note an error of the `with` block, and go on."""
        try:
            yield
        except FuseError as error:
            self.found.append(Problem(part=part, text=str(error)))


def collect_facts(table: Table, *, limit: int) -> Facts:
    """Return what a report shows of a branch; reads the newest `limit` versions one by one.

    Raises:
        FuseError: the head cannot be read.
    """
    metadata = table.committer.metadata
    problems = _Problems()
    head = table.head()
    commits, points = _load_commits(metadata, head, limit, problems)
    blocks = clustering = target = consumers = stored = garbage = claim = None
    branches: tuple[BranchFacts, ...] = ()
    tags: tuple[TagRef, ...] = ()
    with problems.noted("blocks"):
        blocks = tuple(iter_blocks(metadata, head))
        target = block_target(head.properties)
        clustering = measure_clustering(head, blocks) if head.cluster_key else None
    with problems.noted("branches"):
        branches = _branches(list(iter_branch_heads(metadata)))
    with problems.noted("tags"):
        tags = table.tags()
    with problems.noted("consumers"):
        consumers = table.consumers()
    with problems.noted("files"):
        stored = {
            prefix: sum(info.size for info in metadata.store.list(prefix)) for prefix in PREFIXES
        }
    with problems.noted("optimizer"):
        claim = find_claim(metadata, table.committer.branch_id)
    if branches and sum(one.version - one.floor + 1 for one in branches) <= limit:
        with problems.noted("garbage"):
            garbage = table.vacuum(dry_run=True)
    return Facts(
        path=table.location.path,
        branch=table.branch,
        now_us=metadata.clock.now_us(),
        head=head,
        commits=commits,
        points=points,
        blocks=blocks,
        target=target,
        clustering=clustering,
        branches=branches,
        tags=tags,
        consumers=consumers,
        stored=stored,
        garbage=garbage,
        optimizer_vacuumed_us=claim.past.vacuumed_us if claim else None,
        problems=tuple(problems.found),
    )


def _load_commits(
    metadata: Metadata, head: Snapshot, limit: int, problems: _Problems
) -> tuple[tuple[Commit, ...], tuple[Commit, ...]]:
    """Return the newest commits, and the points of the whole history."""
    floor, newest = head.floor, head.version
    first = max(floor, newest - limit + 1)
    wanted = dict.fromkeys((*spread(floor, newest, MOST_POINTS), *range(first, newest + 1)))
    found: dict[int, Commit] = {}
    for version in sorted(wanted):
        with problems.noted(f"version {version}"):
            found[version] = _commit(
                head if version == newest else metadata.peek(head.branch_id, version)
            )
    commits = tuple(commit for version, commit in found.items() if version >= first)
    points = tuple(
        found[version] for version in spread(floor, newest, MOST_POINTS) if version in found
    )
    return commits, points


def spread(first: int, last: int, most: int) -> tuple[int, ...]:
    """Return at most `most` numbers from `first` to `last`, both included, evenly spread."""
    count = min(last - first + 1, most)
    if count < 2:
        return (last,)
    return tuple(first + at * (last - first) // (count - 1) for at in range(count))


def _commit(snapshot: Snapshot) -> Commit:
    return Commit(
        version=snapshot.version,
        time_us=snapshot.timestamp_us,
        operation=snapshot.operation,
        row_count=snapshot.summary.row_count,
        block_count=snapshot.summary.block_count,
        stored_bytes=snapshot.summary.compressed_byte_size,
        segment_count=len(snapshot.segments),
        schema_id=snapshot.schema.id,
        columns=tuple((one.id, one.name, one.type) for one in snapshot.schema.visible.columns),
        epoch=snapshot.epoch,
        batches=tuple(batch_names(snapshot)),
        author=snapshot.author,
        message=snapshot.message,
    )


def _branches(found: Sequence[tuple[BranchRef, Stored]]) -> tuple[BranchFacts, ...]:
    names = {ref.branch_id: ref.name for ref, _ in found}
    return tuple(
        BranchFacts(
            ref=ref,
            version=stored.snapshot.version,
            floor=stored.snapshot.floor,
            time_us=stored.snapshot.timestamp_us,
            forked_from=names.get(ref.forks[-1].branch_id, ref.forks[-1].branch_id[:8])
            if ref.forks
            else None,
        )
        for ref, stored in found
    )
