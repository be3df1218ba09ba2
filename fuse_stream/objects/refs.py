"""Branches, tags and the pins of clones: small objects that name snapshots.

Rules:
- A ref is created once and never changed; deleting it only frees the name.
- A ref holds its own hash, because no other object holds it. A ref of an older release has none.
- A branch has a random id, so a new branch with a deleted branch's name does not get its slots.
- A ref holds all its fork points, so it stays valid when its ancestor branches are deleted.
- A tag whose retention time is over counts as deleted.
- The name of a pin is its clone's table id. Only a person removes a pin: no program can know that
  a clone, which may have been moved, no longer exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TypeVar

from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import decode_ref, encode_ref
from fuse_stream.format.layout import (
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    MAIN,
    TAGS_PREFIX,
    branch_ref_key,
    clone_ref_key,
    is_id,
    tag_ref_key,
)
from fuse_stream.format.names import (
    check_name,
    check_tag_name,
    has_only_digits,
    is_like_head,
    listed_name,
    nearest,
)
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.objects.slots import Metadata, Stored

MAIN_BRANCH = BranchRef(name=MAIN, branch_id=MAIN, created_us=0)
"""The default branch. Every table has it, and no ref names it."""

Ref = TypeVar("Ref", BranchRef, TagRef, CloneRef)

_KINDS = {BranchRef: "a branch's ref", TagRef: "a tag", CloneRef: "the pin of a clone"}
_GIVE_UP = {
    BranchRef: "delete the branch; a later vacuum then deletes its own snapshots",
    TagRef: "delete the tag, and create it again if its version still exists",
    CloneRef: "unpin the clone; a later vacuum may then delete its blocks",
}


def load_branch(metadata: Metadata, name: str) -> BranchRef:
    """Return the ref of a branch; `metadata` learns its forks.

    Raises:
        NotFoundError: there is no such branch; the error names the nearest one.
        InvalidInputError: `name` is not a valid name.
        CorruptObjectError: the ref is damaged.
    """
    if name == MAIN:
        return MAIN_BRANCH
    try:
        branch = _load(metadata, BranchRef, branch_ref_key(check_name(name)), name)
    except NotFoundError:
        known = list(iter_branch_names(metadata))
        raise NotFoundError(
            "there is no such branch", branch=name, nearest=nearest(name, known), branches=known
        ) from None
    metadata.learn_branch(branch)
    return branch


def iter_branch_names(metadata: Metadata) -> Iterator[str]:
    """Yield the names of the branches, `main` first, also of those whose ref is damaged."""
    yield MAIN
    yield from _names(metadata, BRANCHES_PREFIX)


def iter_branches(metadata: Metadata) -> Iterator[BranchRef]:
    """Yield the refs of all branches: `main` first, the others by name."""
    yield MAIN_BRANCH
    yield from _iter(metadata, BRANCHES_PREFIX, load_branch)


def find_branch(metadata: Metadata, branch_id: str) -> BranchRef | None:
    """Return the ref of the branch with an id; None if there is none, or not any more."""
    return next((ref for ref in iter_branches(metadata) if ref.branch_id == branch_id), None)


def iter_branch_heads(
    metadata: Metadata, branch_ids: Collection[str] | None = None
) -> Iterator[tuple[BranchRef, Stored]]:
    """Yield the refs and newest snapshots of all branches, but of none deleted meanwhile.

    `branch_ids` are the branches to yield; None is all.
    """
    for branch in iter_branches(metadata):
        if branch_ids is not None and branch.branch_id not in branch_ids:
            continue
        try:
            head = metadata.load_head(branch.branch_id)
        except NotFoundError:
            if branch.name in iter_branch_names(metadata):
                raise
        else:
            yield branch, head


def store_branch(metadata: Metadata, branch: BranchRef) -> None:
    """Create the ref of a branch.

    Raises:
        AlreadyExistsError: the name is taken.
    """
    _create(metadata, branch_ref_key(branch.name), branch)
    metadata.learn_branch(branch)


def delete_branch(metadata: Metadata, name: str) -> None:
    """Delete the ref of a branch, even if it cannot be read.

    The next vacuum deletes the branch's own snapshots.

    Raises:
        NotFoundError: there is no such branch.
        InvalidInputError: it is `main`.
    """
    if has_only_digits(name):
        raise NotFoundError("there is no such branch", branch=name)
    if check_name(name) == MAIN:
        raise InvalidInputError("every table has the branch main: it stays", name=name)
    _delete(metadata, branch_ref_key, name, load_branch)


def load_tag(metadata: Metadata, name: str, *, now_us: int | None = None) -> TagRef:
    """Return a tag; `metadata` learns the forks of its branch.

    `now_us` decides whether the tag's retention time is over; by default this machine's time.

    Raises:
        NotFoundError: there is no such tag, or its retention time is over; the error names the
            nearest tag.
        InvalidInputError: `name` is not a valid name.
        CorruptObjectError: the tag is damaged.
    """
    try:
        tag = _load(metadata, TagRef, tag_ref_key(check_tag_name(name)), name)
    except NotFoundError:
        known = list(_names(metadata, TAGS_PREFIX))
        is_branch = name in _names(metadata, BRANCHES_PREFIX) or name == MAIN
        hint = f"; it is a branch: write {name}@" if is_branch else ""
        if is_like_head(name):
            hint += "; HEAD names the newest snapshot"
        raise NotFoundError(
            f"there is no such tag{hint}", tag=name, nearest=nearest(name, known), tags=known
        ) from None
    if is_over(tag, metadata.clock.now_us() if now_us is None else now_us):
        raise NotFoundError(
            "the retention time of this tag is over; name its version by number, if that has not "
            "expired",
            tag=name,
            version=tag.target.version,
        )
    metadata.learn_forks(tag.target.branch_id, tag.forks[:-1])
    return tag


def find_tag(metadata: Metadata, name: str) -> TagRef | None:
    """Return a tag as `load_tag` does; None if there is none, or if its retention time is over."""
    try:
        tag = _load(metadata, TagRef, tag_ref_key(check_tag_name(name)), name)
    except NotFoundError:
        return None
    if is_over(tag, metadata.clock.now_us()):
        return None
    metadata.learn_forks(tag.target.branch_id, tag.forks[:-1])
    return tag


def has_tag(metadata: Metadata, name: str) -> bool:
    """True if there is a tag of this name, also one whose retention time is over."""
    return name in _names(metadata, TAGS_PREFIX)


def iter_tags(metadata: Metadata, *, now_us: int | None = None) -> Iterator[TagRef]:
    """Yield the tags whose retention time is not over, by name; `now_us` as for `load_tag`."""
    return _iter(metadata, TAGS_PREFIX, partial(load_tag, now_us=now_us))


def store_tag(metadata: Metadata, tag: TagRef) -> None:
    """Create a tag; an old tag of this name is replaced if its retention time is over.

    Raises:
        AlreadyExistsError: the name is taken.
    """
    key = tag_ref_key(tag.name)
    try:
        _create(metadata, key, tag)
    except AlreadyExistsError:
        try:
            load_tag(metadata, tag.name)
        except NotFoundError:
            metadata.store.delete(key)
            _create(metadata, key, tag)
        else:
            raise


def delete_tag(metadata: Metadata, name: str) -> None:
    """Delete a tag, even if it cannot be read.

    Raises:
        NotFoundError: there is no such tag.
    """
    try:
        check_tag_name(name)
    except InvalidInputError:
        if has_only_digits(name):
            raise NotFoundError("there is no such tag", tag=name) from None
        raise
    _delete(metadata, tag_ref_key, name, load_tag)


def load_pin(metadata: Metadata, clone_id: str) -> CloneRef:
    """Return the pin of a clone; `metadata` learns the forks of its branch.

    Raises:
        NotFoundError: there is no such pin.
        InvalidInputError: `clone_id` is not a table id.
        CorruptObjectError: the pin is damaged.
    """
    if not is_id(clone_id):
        raise InvalidInputError(
            "the name of a clone is its table id, 32 hex digits; clones() lists them",
            clone_id=clone_id,
        )
    try:
        pin = _load(metadata, CloneRef, clone_ref_key(clone_id), clone_id)
    except NotFoundError:
        raise NotFoundError(
            "there is no pin of this clone; clones() lists all pins",
            clone_id=clone_id,
            path=metadata.store.url,
        ) from None
    metadata.learn_forks(pin.target.branch_id, pin.forks[:-1])
    return pin


def iter_pins(metadata: Metadata) -> Iterator[CloneRef]:
    """Yield the pins of all clones of the table, by table id."""
    return _iter(metadata, CLONES_PREFIX, load_pin)


def store_pin(metadata: Metadata, pin: CloneRef) -> None:
    """Create the pin of a clone; no error if the same pin exists."""
    _create(metadata, clone_ref_key(pin.table_id), pin)


def delete_pin(metadata: Metadata, clone_id: str) -> None:
    """Remove the pin of a clone, even if it cannot be read.

    Raises:
        NotFoundError: there is no such pin.
        InvalidInputError: `clone_id` is not a table id.
    """
    _delete(metadata, clone_ref_key, clone_id, load_pin)


def is_over(tag: TagRef, now_us: int) -> bool:
    """True if the retention time of a tag is over."""
    return tag.expires_us is not None and tag.expires_us <= now_us


def _iter(metadata: Metadata, prefix: str, load: Callable[[Metadata, str], Ref]) -> Iterator[Ref]:
    for name in _names(metadata, prefix):
        with contextlib.suppress(NotFoundError):  # deleted since the listing, or a tag that is over
            yield load(metadata, name)


def _delete(
    metadata: Metadata,
    key_of: Callable[[str], str],
    name: str,
    load: Callable[[Metadata, str], object],
) -> None:
    with contextlib.suppress(CorruptObjectError, UnsupportedFormatError):
        load(metadata, name)
    metadata.store.delete(key_of(name))


def _create(metadata: Metadata, key: str, ref: Ref) -> None:
    try:
        metadata.store.put_if_absent(key, encode_ref(ref))
    except FuseError as error:
        # Compare with the stored object: the put may have succeeded and its reply been lost.
        try:
            existing = _load(metadata, type(ref), key, ref.name)
        except NotFoundError:
            raise error from None
        if existing != ref:
            raise AlreadyExistsError(
                "the name is taken; choose another, or delete the existing one first", name=ref.name
            ) from error


def _load(metadata: Metadata, cls: type[Ref], key: str, name: str) -> Ref:
    """Return the ref under `key`; the errors of damage say what to do."""
    data = metadata.store.get(key)
    try:
        ref = decode_ref(cls, data)
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(
            f"{error.message}; or {key} is damaged: restore it from a copy, or {_GIVE_UP[cls]}",
            **error.context,
            key=key,
        ) from error
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"{_KINDS[cls]} is damaged ({error.message}), so what it names and keeps is not known; "
            f"restore {key} from a copy, or {_GIVE_UP[cls]}",
            **error.context,
            key=key,
        ) from error
    if ref.name != name:
        raise CorruptObjectError(
            f"{_KINDS[cls]} has the key of another name: it was copied or renamed by hand; "
            "delete this object, or rename it to the name that it holds if that name is free",
            name=name,
            holds=ref.name[:100],
            key=key,
        )
    return ref


def _names(metadata: Metadata, prefix: str) -> Iterator[str]:
    for info in metadata.store.list(prefix):
        if (name := listed_name(info.key, prefix)) is not None:
            yield name
