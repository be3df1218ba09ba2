"""Branches, tags and the pins of clones: the small objects that name snapshots.

Rules:
- A ref is created once and never changed; deleting it frees the name and nothing else.
- It holds the hash of itself: no other object holds it. One of an older release has none.
- A branch has a random id, so a name that comes back does not bring old slots with it.
- A ref holds its whole lineage, so it stands on its own when the branches before it are deleted.
- A tag whose time is up names nothing any more.
- A pin has the table id of its clone as its name. Only a person removes it: nobody else can know
  that a clone, which may have moved, is gone.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator
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
    tag_ref_key,
)
from fuse_stream.format.names import check_name, check_new_name, listed_name
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.objects.slots import Metadata

MAIN_BRANCH = BranchRef(name=MAIN, branch_id=MAIN, created_us=0)
"""Every table has it, and nothing stored names it."""

Ref = TypeVar("Ref", BranchRef, TagRef, CloneRef)

_KINDS = {BranchRef: "a branch's ref", TagRef: "a tag", CloneRef: "the pin of a clone"}
_GIVE_UP = {
    BranchRef: "delete the branch, whose own snapshots then go with a later vacuum",
    TagRef: "delete the tag, and make it again if its version still stands",
    CloneRef: "unpin the clone, whose blocks may then go with a later vacuum",
}


def load_branch(metadata: Metadata, name: str) -> BranchRef:
    """Return the branch of this name, and make its versions known to `metadata`.

    Raises:
        NotFoundError: there is none; names the nearest.
        InvalidInputError: this is no name.
        CorruptObjectError: it is damaged.
    """
    if name == MAIN:
        return MAIN_BRANCH
    try:
        branch = _load(metadata, BranchRef, branch_ref_key(check_name(name)), name)
    except NotFoundError:
        known = list(iter_branch_names(metadata))
        raise NotFoundError(
            "there is no such branch", branch=name, nearest=_nearest(name, known), branches=known
        ) from None
    metadata.follow(branch.branch_id, branch.forks, branch.floor)
    return branch


def iter_branch_names(metadata: Metadata) -> Iterator[str]:
    """Yield the names of the branches, `main` first, also of those whose ref is damaged."""
    yield MAIN
    yield from _names(metadata, BRANCHES_PREFIX)


def iter_branches(metadata: Metadata) -> Iterator[BranchRef]:
    """Yield the branches, `main` first, then by name."""
    yield MAIN_BRANCH
    yield from _iter(metadata, BRANCHES_PREFIX, load_branch)


def store_branch(metadata: Metadata, branch: BranchRef) -> None:
    """Create a branch.

    Raises:
        AlreadyExistsError: the name is taken.
    """
    _create(metadata, branch_ref_key(branch.name), branch)
    metadata.follow(branch.branch_id, branch.forks, branch.floor)


def delete_branch(metadata: Metadata, name: str) -> None:
    """Delete the ref of a branch, even one that cannot be read.

    Its snapshots go with the next vacuum.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: it is `main`.
    """
    check_new_name(name)
    _delete(metadata, branch_ref_key, name, load_branch)


def load_tag(metadata: Metadata, name: str, *, now_us: int | None = None) -> TagRef:
    """Return the tag of this name, and make its snapshot's line known to `metadata`.

    Its time is up by `now_us`; by this machine's clock if that is not given.

    Raises:
        NotFoundError: there is none, or its time is up; names the nearest.
        InvalidInputError: this is no name.
        CorruptObjectError: it is damaged.
    """
    try:
        tag = _load(metadata, TagRef, tag_ref_key(check_name(name)), name)
    except NotFoundError:
        known = list(_names(metadata, TAGS_PREFIX))
        raise NotFoundError(
            "there is no such tag", tag=name, nearest=_nearest(name, known), tags=known
        ) from None
    if is_over(tag, metadata.clock.now_us() if now_us is None else now_us):
        raise NotFoundError(
            "this tag was to be kept for a time, which is over; name its version by number, as "
            "long as that stands",
            tag=name,
            version=tag.target.version,
        )
    metadata.follow(tag.target.branch_id, tag.forks[:-1])
    return tag


def iter_tags(metadata: Metadata, *, now_us: int | None = None) -> Iterator[TagRef]:
    """Yield the tags that stand, by name; `now_us` as for `load_tag`."""
    return _iter(metadata, TAGS_PREFIX, partial(load_tag, now_us=now_us))


def store_tag(metadata: Metadata, tag: TagRef) -> None:
    """Create a tag; one of its name whose time is up makes room.

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
    """Delete a tag, even one that cannot be read.

    Raises:
        NotFoundError: there is none.
    """
    _delete(metadata, tag_ref_key, name, load_tag)


def load_pin(metadata: Metadata, clone_id: str) -> CloneRef:
    """Return the pin of a clone, and make its snapshot's line known to `metadata`.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: this is no table id.
        CorruptObjectError: it is damaged.
    """
    try:
        key = clone_ref_key(clone_id)
    except CorruptObjectError:
        raise InvalidInputError(
            "a clone is named by its table id, 32 hex digits; clones() lists them",
            clone_id=clone_id,
        ) from None
    try:
        pin = _load(metadata, CloneRef, key, clone_id)
    except NotFoundError:
        raise NotFoundError(
            "there is no pin of such a clone; clones() lists those that stand",
            clone_id=clone_id,
            path=metadata.store.url,
        ) from None
    metadata.follow(pin.target.branch_id, pin.forks[:-1])
    return pin


def iter_pins(metadata: Metadata) -> Iterator[CloneRef]:
    """Yield the pins of the table's clones, by the clone's table id."""
    return _iter(metadata, CLONES_PREFIX, load_pin)


def store_pin(metadata: Metadata, pin: CloneRef) -> None:
    """Create the pin of a clone; once more is no error."""
    _create(metadata, clone_ref_key(pin.table_id), pin)


def delete_pin(metadata: Metadata, clone_id: str) -> None:
    """Remove the pin of a clone, even one that cannot be read.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: this is no table id.
    """
    _delete(metadata, clone_ref_key, clone_id, load_pin)


def is_over(tag: TagRef, now_us: int) -> bool:
    """Whether the time for which a tag was to be kept is up."""
    return tag.expires_us is not None and tag.expires_us <= now_us


def _iter(metadata: Metadata, prefix: str, load: Callable[[Metadata, str], Ref]) -> Iterator[Ref]:
    for name in _names(metadata, prefix):
        with contextlib.suppress(NotFoundError):  # deleted since it was listed, or over
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
        # The object itself says whose it is: the put may have landed although it failed.
        try:
            standing = _load(metadata, type(ref), key, ref.name)
        except NotFoundError:
            raise error from None
        if standing != ref:
            raise AlreadyExistsError(
                "the name is taken; choose another, or delete that one first", name=ref.name
            ) from error


def _load(metadata: Metadata, cls: type[Ref], key: str, name: str) -> Ref:
    """Return a ref.

    Raises:
        NotFoundError: there is none.
        CorruptObjectError: it is damaged; says what to do.
        UnsupportedFormatError: a newer release wrote it.
    """
    data = metadata.store.get(key)
    try:
        ref = decode_ref(cls, data)
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(
            f"{error.message}; or {key} is damaged: restore it from a copy, or give it up: "
            f"{_GIVE_UP[cls]}",
            **error.context,
            key=key,
        ) from error
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"{_KINDS[cls]} is damaged ({error.message}), so what it names and keeps is not known; "
            f"restore {key} from a copy, or give it up: {_GIVE_UP[cls]}",
            **error.context,
            key=key,
        ) from error
    if ref.name != name:
        raise CorruptObjectError(
            f"{_KINDS[cls]} stands under another's name: it is a stray copy, or was renamed; "
            "delete this object, or give it back the name that it holds if no other object has it",
            name=name,
            holds=ref.name[:100],
            key=key,
        )
    return ref


def _names(metadata: Metadata, prefix: str) -> Iterator[str]:
    for info in metadata.store.list(prefix):
        if (name := listed_name(info.key, prefix)) is not None:
            yield name


def _nearest(name: str, known: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
