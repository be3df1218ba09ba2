"""Making a planned checkpoint: claim the folder, fill it, and bring it to life.

The order is the safety, for the process may die between any two calls and is then run again:

1. `metadata` is created, and says in no JSON that this checkpoint is unfinished and whose it is.
   Of any number of callers one succeeds; and from here on Spark refuses to start on the folder.
2. Everything else is written. A file that is there with its size is whole, for writes are atomic,
   and right, for what is copied never changes.
3. `metadata` is replaced by one with the query's id: the checkpoint is alive. The claim stays in it
   (Spark reads the id and passes over the rest), so the same call knows that it is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from fuse_stream.checkpoint.files import METADATA, UNFINISHED
from fuse_stream.checkpoint.plan import ForkPlan
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
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

Progress = Callable[[int, int], None]
"""Called with the number of files that are done, and of all."""

LARGE_BYTES = 8 * 2**20
"""A file that is larger counts as large: few of them are in memory at once."""
SMALL_AT_ONCE = 16
LARGE_AT_ONCE = 2

_QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Whose a checkpoint is that was made here."""

    facts: Mapping[str, Any]
    """What the caller noted, as JSON values."""
    query_id: str | None
    """None while it is unfinished."""


def new_query_id(clock: Clock) -> str:
    """Return a query id as Spark writes it."""
    digits = clock.new_id()
    ends = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[a:b] for a, b in pairwise(ends))


def load_claim(target: Store) -> Claim | None:
    """Return whose the checkpoint in `target` is; None if none was made here."""
    try:
        data = target.get(METADATA)
    except NotFoundError:
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
    """Write all files of a checkpoint but its final `metadata`; `finish_fork` is next.

    Calling it again goes on where it ended; once the checkpoint is finished, it does nothing.

    Args:
        source: where the plan's files are copied from; None if it has none.
        target: a folder that is new, or claimed by the same claim.
        plan: what to write.
        claim: JSON values by name, which say what this is; the same in every attempt.
        progress: called after each file, and first with what was there.

    Raises:
        AlreadyExistsError: the folder holds something else.
        ConflictError: Spark has cleaned up a file of the old checkpoint meanwhile.
        InvalidInputError: there is nowhere to copy from.
    """
    facts = load_json(dump_canonical(dict(claim)))
    standing = load_claim(target) or _take(target, facts)
    if standing.facts != facts:
        raise AlreadyExistsError(
            "another copy has begun in this folder; go on with that one, or use a new folder",
            checkpoint=target.url,
            theirs=dict(standing.facts),
        )
    if standing.query_id is not None:
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
    """Let Spark start a query with this id on the checkpoint; doing it again is harmless.

    Raises:
        InvalidInputError: this is no query id.
        NotFoundError: no checkpoint has been made in this folder.
        AlreadyExistsError: it was finished with another id.
    """
    if not _QUERY_ID.fullmatch(query_id):
        raise InvalidInputError(
            "this is no query id as Spark writes it (8-4-4-4-12 hex digits)", query_id=query_id
        )
    claim = load_claim(target)
    if claim is None:
        raise NotFoundError(
            "no checkpoint was begun in this folder, so there is none to finish; begin again",
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


def _take(target: Store, facts: Mapping[str, Any]) -> Claim:
    """Claim an empty folder; return the claim that stands then."""
    if any(True for _ in target.list("")):
        raise AlreadyExistsError(
            "this folder is not empty; name a new one for the checkpoint", checkpoint=target.url
        )
    try:
        target.put_if_absent(METADATA, UNFINISHED + b"\n" + dump_canonical(facts))
    except AlreadyExistsError:
        standing = load_claim(target)
        if standing is None:
            raise
        return standing
    return Claim(facts=facts, query_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    act: Callable[[], None]
    file_count: int = 1
    """Files that it writes."""
    byte_size: int = 0
    """About what it holds in memory."""

    def run(self) -> int:
        """Do it; return how many files it wrote."""
        self.act()
        return self.file_count


def _jobs(
    source: Store | None, target: Store, plan: ForkPlan, have: Mapping[str, int]
) -> Iterator[_Job]:
    """Yield what is left to do."""
    for key, text in plan.texts.items():
        if key not in have:
            yield _Job(act=partial(target.replace, key, text.encode()))
    if source is None:
        if plan.copies or plan.cuts:
            raise InvalidInputError(
                "this checkpoint takes files over from an old one; pass the old one's store",
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
            "a file of the old checkpoint is gone since it was listed: its query is running and "
            "has cleaned up; stop it, or run this again",
            checkpoint=source.url,
            key=key,
        ) from error
