"""Write a planned fork or a rebuilt checkpoint: claim the folder, write the files, finish it.

The process may die between any two calls and is then run again. The order makes this safe:

1. `metadata` is created with the claim of the caller and a mark that the checkpoint is unfinished,
   which is not JSON. Exactly one caller succeeds, and Spark refuses to start on the folder.
2. All other files are written. An existing file of the right size is complete, because writes are
   atomic, and right, because the files that are copied never change.
3. `metadata` is replaced by one with the query's id: Spark can start now. The claim stays in it
   (Spark ignores it), so a repeated call knows that the checkpoint is finished.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from fuse_stream.checkpoint.files import METADATA, UNFINISHED
from fuse_stream.checkpoint.fork import ForkPlan
from fuse_stream.checkpoint.source_log import LogPart, cut_log
from fuse_stream.clock import Clock
from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
)
from fuse_stream.format.forked import CLAIM_FIELD, claim_in
from fuse_stream.format.jsonio import dump_canonical, load_json
from fuse_stream.storage.base import Store, find_object
from fuse_stream.storage.parallel import each

Progress = Callable[[int, int], None]
"""Called with the number of files that are written, and the number of all files."""

LARGE_BYTES = 8 * 2**20
"""Files that are larger than this are large: only `LARGE_AT_ONCE` are in memory at once."""
SMALL_AT_ONCE = 16
LARGE_AT_ONCE = 2

_QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim in a checkpoint that this package makes or has made."""

    facts: Mapping[str, Any]
    """The caller's JSON values."""
    query_id: str | None
    """None while the checkpoint is unfinished."""


def new_query_id(clock: Clock) -> str:
    """Return a new query id in Spark's form."""
    digits = clock.new_id()
    ends = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[a:b] for a, b in pairwise(ends))


def load_claim(target: Store) -> Claim | None:
    """Return the claim in a checkpoint; None if this package did not make the checkpoint."""
    data = find_object(target, METADATA)
    if data is None:
        return None
    try:
        if data.startswith(UNFINISHED):
            return Claim(facts=load_json(data.removeprefix(UNFINISHED)), query_id=None)
        metadata = load_json(data)
    except CorruptObjectError:
        return None
    facts = claim_in(metadata)
    if facts is None or not isinstance(metadata.get("id"), str):
        return None
    return Claim(facts=facts, query_id=metadata["id"])


def store_fork(
    source: Store | None,
    target: Store,
    plan: ForkPlan,
    claim: Mapping[str, Any],
    *,
    progress: Progress | None = None,
) -> None:
    """Write all files of a checkpoint except the final `metadata`, which `finish_fork` writes.

    A repeated call continues where the last one ended; it does nothing for a finished checkpoint.

    Args:
        source: the old checkpoint, from which files are copied; None if the plan has no copies.
        target: the folder of the new checkpoint: empty, or with the same claim.
        plan: the files to write.
        claim: JSON values by name that identify this checkpoint; the same in every attempt.
        progress: called at the start with the number of existing files, and after each file.

    Raises:
        AlreadyExistsError: the folder is not empty and does not have this claim.
        ConflictError: Spark has deleted a file of the old checkpoint meanwhile.
        InvalidInputError: the plan has copies, and `source` is None.
    """
    facts = load_json(dump_canonical(dict(claim)))
    existing = load_claim(target) or _claim_folder(target, facts)
    if existing.facts != facts:
        raise AlreadyExistsError(
            "another copy has begun in this folder; finish that one, or use a new folder",
            checkpoint=target.url,
            theirs=dict(existing.facts),
        )
    if existing.query_id is not None:
        return  # a query may be running on it
    have = {file.key: file.size for file in target.list("")}
    jobs = list(_jobs(source, target, plan, have))
    done = plan.file_count - sum(job.file_count for job in jobs)
    report = progress or (lambda _done, _total: None)
    report(done, plan.file_count)
    stores = (target,) if source is None else (target, source)
    for at_once, is_large in ((SMALL_AT_ONCE, False), (LARGE_AT_ONCE, True)):
        chosen = [job for job in jobs if (job.byte_size > LARGE_BYTES) is is_large]
        for file_count in each(_Job.run, chosen, *stores, at_once=at_once):
            done += file_count
            report(done, plan.file_count)


def finish_fork(target: Store, query_id: str) -> None:
    """Finish a checkpoint, so that Spark starts a query with this id on it; idempotent.

    Raises:
        InvalidInputError: `query_id` is not a query id.
        NotFoundError: `store_fork` has not begun a checkpoint in this folder.
        AlreadyExistsError: the checkpoint was finished with another query id.
    """
    if not _QUERY_ID.fullmatch(query_id):
        raise InvalidInputError(
            "a query id has 8-4-4-4-12 hex digits, as Spark writes it", query_id=query_id
        )
    claim = load_claim(target)
    if claim is None:
        raise NotFoundError(
            "no checkpoint was begun in this folder, so there is none to finish; start again",
            checkpoint=target.url,
        )
    if claim.query_id is None:
        text = dump_canonical({"id": query_id, CLAIM_FIELD: claim.facts})
        target.replace(METADATA, text)
    elif claim.query_id != query_id:
        raise AlreadyExistsError(
            "this checkpoint was finished with another query id; use a new folder",
            checkpoint=target.url,
            query_id=claim.query_id,
        )


def _claim_folder(target: Store, facts: Mapping[str, Any]) -> Claim:
    """Claim an empty folder; return the folder's claim, which may be a concurrent caller's."""
    if any(True for _ in target.list("")):
        raise AlreadyExistsError(
            "this folder is not empty; name a new one for the checkpoint", checkpoint=target.url
        )
    try:
        target.put_if_absent(METADATA, UNFINISHED + b"\n" + dump_canonical(facts))
    except AlreadyExistsError:
        existing = load_claim(target)
        if existing is None:
            raise
        return existing
    return Claim(facts=facts, query_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    act: Callable[[], None]
    file_count: int = 1
    """The number of files that it writes."""
    byte_size: int = 0
    """The approximate size of the data that it holds in memory."""

    def run(self) -> int:
        """Write the files and return their number."""
        self.act()
        return self.file_count


def _jobs(
    source: Store | None, target: Store, plan: ForkPlan, have: Mapping[str, int]
) -> Iterator[_Job]:
    """Yield the jobs for the files of `plan` that `have`, the existing files, lacks."""
    for key, text in plan.texts.items():
        if key not in have:
            yield _Job(act=partial(target.replace, key, text.encode()))
    if source is None:
        if plan.copies or plan.cuts:
            raise InvalidInputError(
                "this checkpoint copies files from an old one; pass the old one's store",
                checkpoint=target.url,
            )
        return
    for folder, cut in plan.cuts.items():
        parts = [part for part in cut.parts if folder + part.name not in have]
        if parts:
            yield _Job(
                act=partial(_write_parts, source, target, folder, cut.compact, parts),
                file_count=len(parts),
            )
    for file in plan.copies:
        if have.get(file.key) != file.size:
            yield _Job(act=partial(_copy, source, target, file.key), byte_size=file.size)


def _copy(source: Store, target: Store, key: str) -> None:
    target.replace(key, _read(source, key))


def _write_parts(
    source: Store, target: Store, folder: str, compact: str, parts: list[LogPart]
) -> None:
    for name, data in cut_log(_read(source, folder + compact), parts).items():
        target.replace(folder + name, data)


def _read(source: Store, key: str) -> bytes:
    try:
        return source.get(key)
    except NotFoundError as error:
        raise ConflictError(
            "a file of the old checkpoint was deleted after it was listed: its query is running "
            "and deletes old files; stop the query, or run this again",
            checkpoint=source.url,
            key=key,
        ) from error
