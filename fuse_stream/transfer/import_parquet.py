"""Make a table of Parquet files: take over those that are blocks as they are, rewrite the others.

Rules:
- The files are only read. Their bytes or rows are put below the table's folder.
- As for a copy, a claim comes first and the table file last: before that the folder is no table.
- What is done is noted under `_staged/`, a file or a group of small ones at a time. The same call
  goes on with the rest; a file that was changed meanwhile is done again.
- Memory holds a file that is taken over, or the rows of one block.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.create import (
    check_clock,
    check_folder_is_free,
    column_ids,
    new_table_file,
    probe_store,
    put_version_0,
)
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_blocks
from fuse_stream.dml.upsert import set_key
from fuse_stream.errors import AlreadyExistsError, CorruptObjectError
from fuse_stream.format.codec import decode_segment, encode_segment, sha256_hex
from fuse_stream.format.layout import BLOCKS_PREFIX, COPY_KEY, block_key, staged_prefix
from fuse_stream.format.one_line import one_line
from fuse_stream.format.properties import BlockTarget, block_target
from fuse_stream.format.records import Block, Operation, Segment, Snapshot, TableFile
from fuse_stream.format.schema import Schema
from fuse_stream.format.stats import summarize
from fuse_stream.objects.adopted import adopt_block
from fuse_stream.objects.blocks import store_blocks
from fuse_stream.objects.refs import MAIN_BRANCH
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.storage.base import Store, get_large
from fuse_stream.storage.parallel import background_puts
from fuse_stream.transfer.claim import CopyClaim, find_claim, other_copy, put_claim
from fuse_stream.transfer.parquet_files import Footer, find_flaw, iter_tables, load_schema
from fuse_stream.transfer.parts import Progress
from fuse_stream.transfer.sources import Source, SourceFile

GROUP_BYTES = 128 * 2**20
"""Files of so many bytes are rewritten together."""
MOST_TAKEN_BYTES = 2**29
"""A larger file is rewritten: to take it over, memory would have to hold it."""
COMMIT_BLOCKS = 20_000
"""Blocks of one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """A table that was made of Parquet files."""

    table_id: str
    location: str
    source: str
    """What was imported, such as "a folder of Parquet files"."""
    file_count: int
    taken_count: int
    """Files that became blocks as they are."""
    rewritten_count: int
    """Files whose rows were written anew; files without rows are in neither number."""
    reasons: Mapping[str, int]
    """Why files were rewritten, by this call: the number of files for each reason."""
    snapshot: Snapshot
    """The newest snapshot of the table."""

    __repr__ = one_line(
        "location rows=snapshot.summary.row_count file_count taken_count rewritten_count"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What the table is to have, beside the rows."""

    cluster_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def import_files(
    store: Store,
    source: Source,
    place: Metadata,
    request: ImportRequest,
    *,
    report: Progress,
    probe_place: bool = True,
) -> ImportReport:
    """Make a table at `place` of the files of a source; errors of `fuse_stream.import_parquet`."""
    found, claim = place.find_table_file(), find_claim(place.store)
    if found is not None and claim is None:
        raise AlreadyExistsError(
            "there is a table here already; use another path", path=place.store.url
        )
    if claim is None:
        check_folder_is_free(place)
    schema, footers = load_schema(store, source, report)
    wanted = new_table_file(
        place.clock, schema, cluster_by=request.cluster_by, properties=request.properties
    )
    column_ids(schema, request.key, argument="key")
    offset_us = probe_store(place) if probe_place else 0
    check_clock(place.clock.now_us(), place.clock.now_us() + offset_us)
    current = _claimed(place, claim, wanted, store.url)
    writer = _Import(
        store=store,
        source=source,
        place=place,
        table_file=current,
        target=block_target(current.properties),
        report=report,
    )
    blocks = writer.run(footers)
    committer = Committer(place, MAIN_BRANCH, grace_us=current.grace_us, is_probed=True)
    committer.clock_offset_us = offset_us
    put_version_0(place, current)
    snapshot = _commit(committer, current.schema, blocks, f"import of {source.kind}")
    if request.key and snapshot.key != column_ids(schema, request.key, argument="key"):
        snapshot = set_key(committer, request.key, replan=True)
    if found is None:
        place.store_table_file(current)
    place.store.delete(COPY_KEY)
    place.store.delete_all(sorted(writer.notes))
    return ImportReport(
        table_id=current.table_id,
        location=place.store.url,
        source=source.kind,
        file_count=len(source.files),
        taken_count=writer.taken_count,
        rewritten_count=writer.rewritten_count,
        reasons=dict(writer.reasons),
        snapshot=snapshot,
    )


def _claimed(place: Metadata, claim: CopyClaim | None, wanted: TableFile, url: str) -> TableFile:
    """Return the table file of the claim in the folder; put the claim if there is none."""
    if claim is None:
        put_claim(place.store, CopyClaim(table_file=wanted, source_id=url))
        return wanted
    current = claim.table_file
    is_same = (current.schema, current.cluster_key, current.properties) == (
        wanted.schema,
        wanted.cluster_key,
        wanted.properties,
    )
    if claim.source_id != url or claim.target is not None or not is_same:
        raise other_copy(place.store)
    return current


@dataclass(slots=True, kw_only=True)
class _Import:
    """The work of one call."""

    store: Store
    source: Source
    place: Metadata
    table_file: TableFile
    target: BlockTarget
    report: Progress
    notes: set[str] = field(default_factory=set)
    """The keys of the notes of what is done, also by earlier calls."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the blocks that earlier calls have put."""
    taken_count: int = 0
    rewritten_count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def schema(self) -> Schema:
        return self.table_file.schema

    def run(self, footers: Sequence[Footer]) -> tuple[Block, ...]:
        """Return the blocks of all files, in their order; put those that lack."""
        place = self.place.store
        prefix = staged_prefix(self.table_file.table_id)
        self.notes = {info.key for info in place.list(prefix)}
        self.sizes = {info.key: info.size for info in place.list(BLOCKS_PREFIX)}
        files = [
            file
            for file, footer in zip(self.source.files, footers, strict=True)
            if footer.row_count
        ]
        blocks: list[Block] = []
        group: list[SourceFile] = []
        for number, file in enumerate(files, 1):
            taken = self._take(file)
            if taken is None:
                group.append(file)
            if group and (taken is not None or sum(one.size for one in group) >= GROUP_BYTES):
                blocks += self._rewrite(group)
                group = []
            if taken is not None:
                blocks.append(taken)
                self.taken_count += 1
            self.report("importing files", number, len(files))
        return (*blocks, *(self._rewrite(group) if group else ()))

    def _take(self, file: SourceFile) -> Block | None:
        """Return the block that a file is, put below the table; None if it has to be rewritten."""
        key = self._note([file], "taken")
        if (known := self._done(key)) is not None:
            return known[0]
        if self._done(self._note([file], "rewritten")) is not None:
            return None
        flaw = self._flaw(file)
        if flaw is None:
            data = get_large(self.store, file.key, file.size)
            block_id = self.place.clock.new_id()
            made = adopt_block(data, self.schema, self.table_file.cluster_key, block_id=block_id)
            if isinstance(made, Block):
                self.place.store.put(block_key(block_id), data)
                self._write_note(key, (made,))
                return made
            flaw = made
        self.reasons[flaw] += 1
        return None

    def _flaw(self, file: SourceFile) -> str | None:
        if file.size > MOST_TAKEN_BYTES:
            return "too large to be a block"
        if self.target.private:
            return "private columns, whose bounds a footer may show"
        return find_flaw(self.store, file, self.source, self.schema)

    def _rewrite(self, group: Sequence[SourceFile]) -> tuple[Block, ...]:
        """Return the blocks with the rows of files."""
        self.rewritten_count += len(group)
        key = self._note(group, "rewritten")
        if (known := self._done(key)) is not None:
            return known
        with background_puts(self.place.store) as puts:
            made = tuple(
                store_blocks(
                    puts,
                    iter_tables(self.store, group, self.source, self.schema),
                    self.schema,
                    self.table_file.cluster_key,
                    target=self.target,
                    clock=self.place.clock,
                )
            )
        self._write_note(key, made)
        return made

    def _note(self, files: Sequence[SourceFile], how: str) -> str:
        """Return the key of the note that files, as they are now, were taken or rewritten."""
        facts = [[file.key, file.size, file.modified_us, dict(file.values)] for file in files]
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return f"{staged_prefix(self.table_file.table_id)}{name}-{how}"

    def _write_note(self, key: str, blocks: tuple[Block, ...]) -> None:
        segment = Segment(blocks=blocks, summary=summarize(blocks, self.target))
        data, _ = encode_segment(segment, self.schema.leaf_types)
        self.place.store.put(key, data)
        self.notes.add(key)

    def _done(self, key: str) -> tuple[Block, ...] | None:
        """Return the blocks of an earlier call, if all of them are there."""
        if key not in self.notes:
            return None
        data = self.place.store.get(key)
        try:
            blocks = decode_segment(data, sha256_hex(data), self.schema.leaf_types).blocks
        except CorruptObjectError:  # only work is lost
            return None
        sizes = (self.sizes.get(block_key(one.id)) for one in blocks)
        is_whole = all(size == one.file_size for size, one in zip(sizes, blocks, strict=True))
        return blocks if is_whole else None


def _commit(
    committer: Committer, schema: Schema, blocks: Sequence[Block], message: str
) -> Snapshot:
    """Commit the blocks that the table has not, a bounded number at a time."""
    metadata = committer.metadata
    head = committer.head().snapshot
    known = {
        block.id
        for segment in metadata.iter_segments(head.segments, schema.leaf_types)
        for block in segment.blocks
    }
    if known - {block.id for block in blocks}:
        raise AlreadyExistsError(
            "the files were changed after an earlier call had brought their rows: remove the "
            "folder, and import them again",
            path=metadata.store.url,
        )
    for part in _parts([block for block in blocks if block.id not in known]):

        def stage(on: Stored, _before: Staged | None, part: tuple[Block, ...] = part) -> Staged:
            return stage_blocks(metadata, on.snapshot, schema, part, epoch=on.snapshot.epoch)

        intent = Intent(operation=Operation.APPEND, message=message)
        head = committer.commit(intent, stage).stored.snapshot
    return head


def _parts(blocks: Sequence[Block]) -> Iterator[tuple[Block, ...]]:
    for start in range(0, len(blocks), COMMIT_BLOCKS):
        yield tuple(blocks[start : start + COMMIT_BLOCKS])
