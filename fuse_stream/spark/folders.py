"""The names of tables in a catalog: the folders below its root.

`lake.t` is the folder `t` of the root, and so is `lake.default.t`, by the name of the default
namespace. Another namespace is a folder of the root that is no table: `lake.a.b.t` is `a/b/t`. A
folder with the name of the default namespace is not seen.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from fuse_stream.format.layout import TABLE_KEY
from fuse_stream.objects.other_files import no_table
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.table.location import TableLocation
from fuse_stream.table.places import is_below

Namespace = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The folders of a catalog."""

    root: TableLocation
    """Its path is that of the root."""
    default: str
    """The name of the namespace that is the root."""

    def location(self, namespace: Namespace, name: str) -> TableLocation:
        """Return the location of the table with a name.

        Raises:
            InvalidInputError: it cannot be the name of a folder.
        """
        return self.root.at("/".join((self.path(namespace), _checked(name))))

    def readable(self, namespace: Namespace, name: str) -> TableLocation:
        """Return the location of a table; of a clone, with the origins below the same root.

        The root is the user's, so the user trusts the tables in it.

        Raises:
            InvalidInputError: the name cannot be that of a folder.
        """
        location = self.location(namespace, name)
        found = Metadata(location.store(), SYSTEM_CLOCK).find_table_file()
        recorded = () if found is None else found.origins
        inside = (origin for _, origin in recorded if is_below(origin, self.root.path))
        return dataclasses.replace(location, origins=(*location.origins, *inside))

    def find_table_names(self, namespace: Namespace) -> tuple[str, ...]:
        """Return the names of the tables in a namespace, sorted."""
        return tuple(name for name in self._names(namespace) if self._is_table(namespace, name))

    def find_namespaces(self, parent: Namespace) -> tuple[Namespace, ...]:
        """Return the namespaces in another one, sorted; at the top, the default one first."""
        inner = self.folded(parent)
        found = tuple(
            (*inner, name)
            for name in self._names(inner)
            if not self._is_table(inner, name) and (inner or name != self.default)
        )
        return ((self.default,), *found) if not parent else found

    def has_namespace(self, namespace: Namespace) -> bool:
        """True if a namespace is a folder that is no table."""
        inner = self.folded(namespace)
        if not inner:
            return True
        store = self._store(inner)
        if isinstance(store, LocalStore):
            return store.root.is_dir() and not (store.root / TABLE_KEY).exists()
        names = store.names("")
        return bool(names) and TABLE_KEY not in names

    def create(self, namespace: Namespace) -> None:
        """Create the folder of a namespace.

        Raises:
            AlreadyExistsError: there is such a folder.
            InvalidInputError: the store has no empty folders, or a folder of the name is a table.
        """
        self.check_no_table_above(namespace)
        folder = self._local(namespace, "a store of objects has no empty folders: create a table")
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            raise AlreadyExistsError("this folder exists already", path=str(folder)) from error

    def drop(self, namespace: Namespace) -> None:
        """Remove the folder of an empty namespace.

        Raises:
            InvalidInputError: it is the root, or it holds something.
        """
        if not self.folded(namespace):
            raise InvalidInputError("the default namespace is the root of the catalog")
        held = self._names(namespace)
        folder = self._local(namespace, "a store of objects has no empty folders to drop")
        if held:
            raise InvalidInputError(
                "the namespace is not empty: drop its tables one by one", path=str(folder), has=held
            )
        folder.rmdir()

    def folded(self, namespace: Namespace) -> Namespace:
        """Return a namespace without the name of the default one, which is the root."""
        return () if namespace == (self.default,) else namespace

    def check_root(self) -> None:
        """Raise InvalidInputError if the root is a table itself."""
        if TABLE_KEY in self._store(()).names(""):
            path = Path(self.root.path)
            raise InvalidInputError(
                "the root of a catalog is a folder of tables, and this is a table: attach the "
                "folder above it",
                root=self.root.path,
                above=str(path.parent),
            )

    def check_no_table_above(self, namespace: Namespace) -> None:
        """Raise InvalidInputError if a folder of a namespace is a table."""
        inner = self.folded(namespace)
        for count in range(1, len(inner) + 1):
            *above, name = inner[:count]
            if self._is_table(tuple(above), name):
                raise InvalidInputError(
                    "this name is a table, and no namespace that could hold tables: choose another "
                    "namespace",
                    table=self.path(inner[:count]),
                )

    def missing(self, namespace: Namespace, name: str) -> NotFoundError:
        """Return the error for a name without a table, which says what is there instead."""
        return no_table(self.location(namespace, name).store())

    def path(self, namespace: Namespace) -> str:
        """Return the path of the folder of a namespace."""
        names = map(_checked, self.folded(namespace))
        return "/".join((self.root.path.rstrip("/") or "/", *names))

    def _store(self, namespace: Namespace) -> Store:
        return open_store(self.path(namespace), storage_options=self.root.storage_options)

    def _names(self, namespace: Namespace) -> list[str]:
        names = self._store(namespace).names("")
        folders = [name[:-1] for name in names if name.endswith("/")]
        return sorted(name for name in folders if not name.startswith((".", "_")))

    def _is_table(self, namespace: Namespace, name: str) -> bool:
        store = self._store((*self.folded(namespace), name))
        if isinstance(store, LocalStore):
            return (store.root / TABLE_KEY).exists()
        return TABLE_KEY in store.names("")

    def _local(self, namespace: Namespace, otherwise: str) -> Path:
        store = self._store(namespace)
        if not isinstance(store, LocalStore):
            raise InvalidInputError(otherwise, path=self.path(namespace))
        return store.root


def _checked(name: str) -> str:
    parts: Sequence[str] = ("/", os.sep, "\\", "\0")
    if not name or name.startswith((".", "_")) or any(part in name for part in parts):
        raise InvalidInputError(
            "a name in a catalog is the name of a folder: it is not empty, does not begin with a "
            "dot or an underscore, and has no slash",
            name=name,
        )
    return name
