"""Ask a remote store at once for what opening a branch reads in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.format.layout import MAIN, TABLE_KEY, branch_ref_key, hint_key
from fuse_stream.format.names import check_name
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each
from fuse_stream.storage.wrappers import StoreWrapper


@contextmanager
def entering(metadata: Metadata, branch: str) -> Iterator[None]:
    """Let a `with` block that opens `branch` get its first objects in one round, once each.

    These are the table file, and the branch's ref; for `main` its hint. No answer is kept after the
    block. A store that is not remote is asked as the block goes.
    """
    store = metadata.store
    if not store.is_remote:
        yield
        return
    keys = [TABLE_KEY]
    with suppress(InvalidInputError):  # it is reported once there is a table
        keys.append(hint_key(MAIN) if branch == MAIN else branch_ref_key(check_name(branch)))
    metadata.store = _AskedTogether(store, keys)
    try:
        yield
    finally:
        metadata.store = store


class _AskedTogether(StoreWrapper):
    """A store that was asked for some objects; the first `get` of each gets the answer."""

    def __init__(self, store: Store, keys: Sequence[str]) -> None:
        super().__init__(store)

        def ask(key: str) -> bytes | FuseError:
            try:
                return store.get(key)
            except FuseError as error:
                return error

        self._answers = dict(zip(keys, each(ask, keys, store, at_once=len(keys)), strict=True))

    def get(self, key: str) -> bytes:
        if key not in self._answers:
            return self.store.get(key)
        answer = self._answers.pop(key)
        if isinstance(answer, FuseError):
            raise answer
        return answer
