"""The checks of `doctor` for an object store: what the caller may do there, and Spark's reader.

Each right is tried by itself, on one object that is deleted again. What Spark brings is read from
its folder, without starting it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuse_stream.cli.doctor_python import find_version, spark_folder
from fuse_stream.cli.findings import Finding, ok, problem, warning
from fuse_stream.clock import Clock
from fuse_stream.errors import FuseError, NotFoundError, StorageError, UnsupportedStorageError
from fuse_stream.format.layout import PROBE_PREFIX, probe_key
from fuse_stream.storage.adapters import Fault, fault_in
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import kind_of
from fuse_stream.storage.schemes import EXTRAS, HADOOP_JARS, HADOOP_SCHEMES, SCHEMES

_PAGE = "docs/object-stores.md has them as a policy to copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A provider of object stores."""

    package: str
    """fsspec's adapter."""
    rights: Mapping[str, str]
    """The provider's names of what a caller may do."""

    @property
    def schemes(self) -> tuple[str, ...]:
        return SCHEMES[self.package]

    @property
    def coordinates(self) -> str:
        """Maven's, of the jar with Spark's file system, without a version."""
        scheme = self.schemes[0]
        return HADOOP_JARS[HADOOP_SCHEMES.get(scheme, scheme)]

    @property
    def jar(self) -> str:
        """The start of the name of the jar."""
        return self.coordinates.partition(":")[2]

    @property
    def is_of_hadoop(self) -> bool:
        """True if the jar has the version of Hadoop."""
        return self.jar.startswith("hadoop-")


_SERVICES = (
    Service(
        package="s3fs",
        rights={
            "read": "s3:GetObject",
            "create": "s3:PutObject",
            "replace": "s3:PutObject",
            "list": "s3:ListBucket",
            "delete": "s3:DeleteObject",
        },
    ),
    Service(
        package="adlfs",
        rights={
            "read": "blobs/read",
            "create": "blobs/write",
            "replace": "blobs/write",
            "list": "blobs/read",
            "delete": "blobs/delete",
        },
    ),
    Service(
        package="gcsfs",
        rights={
            "read": "storage.objects.get",
            "create": "storage.objects.create",
            "replace": "storage.objects.delete",
            "list": "storage.objects.list",
            "delete": "storage.objects.delete",
        },
    ),
)


def find_service(path: str) -> Service | None:
    """Return the provider of the store of a path or URL; None if it is no known object store."""
    scheme = kind_of(path)
    return next((service for service in _SERVICES if scheme in service.schemes), None)


def check_package(service: Service) -> Finding:
    """Check that fsspec's adapter is installed."""
    version = find_version(service.package)
    if version is None:
        found = f"not installed, so this kind of store cannot be opened: {service.schemes[0]}://"
        return problem(
            service.package, found, f"pip install 'fuse-stream[{EXTRAS[service.package]}]'"
        )
    return ok(service.package, version)


# ---- what the caller may do


class Access:
    """What a caller may do in a store, tried one by one on one object."""

    def __init__(self, store: Store, service: Service, clock: Clock, *, write: bool) -> None:
        self.is_open = False
        """True if the store can be reached and answers some request."""
        self.may_probe = False
        """True if the caller has all rights that the probe of a store needs, or if only the probe
        says why the store cannot be written."""

        self._store = store
        self._service = service
        self._write = write
        self._key = probe_key(clock.new_id())
        self._body = b"fuse-stream doctor " + self._key.encode()
        self._refused: dict[str, FuseError | None] = {}
        """By what was tried: the error, None if it was allowed."""

    def findings(self) -> Iterator[Finding]:
        """Yield what was found; the object that was written is named."""
        missing = _failure(lambda: self._store.get(self._key))
        fault = fault_in(missing) if isinstance(missing, StorageError) else None
        if fault not in {None, Fault.RIGHTS}:
            yield _unreachable(fault, missing)
            return
        created = self._try_all()
        if all(self._refused.values()) and missing is not None:
            found = f"every request is refused: {_reason(missing)}"
            yield problem("credentials", found, "check whose they are, and their rights")
            return
        self.is_open = True
        yield ok("credentials", "the store accepts them")
        for verb, error in self._refused.items():
            yield self._judged(verb, error, missing, created=created)
        self.may_probe |= created and not any(self._refused.values()) and missing is None

    def _try_all(self) -> bool:
        """Try each right; return whether the object was created, or may have been."""
        store, key = self._store, self._key
        tried = self._refused
        created = False
        if self._write:
            error = _failure(lambda: store.put_if_absent(key, self._body))
            self.may_probe = isinstance(error, UnsupportedStorageError)
            if not self.may_probe:
                tried["create"] = error
                created = error is None or not _is_refused(error)  # a reply may be lost
        tried["read"] = _failure(lambda: store.get(key))
        tried["list"] = _failure(lambda: store.names(PROBE_PREFIX))
        if created:
            tried["replace"] = _failure(lambda: store.replace(key, self._body))
            tried["delete"] = _failure(lambda: store.delete(key))
        return created

    def _judged(
        self, verb: str, error: FuseError | None, missing: FuseError | None, *, created: bool
    ) -> Finding:
        check, right = f"may {verb}", self._service.rights[verb]
        where = f"{self._store.url}/{self._key}"
        is_hidden = missing is not None and created and self._refused["read"] is None
        if error is None and verb == "list" and is_hidden:
            found = "a missing object is answered by 403 and not by 404, as if listing were refused"
            return problem(check, found, f"allow {right}; {_PAGE}")
        if error is None:
            done = {"create": f"; wrote {where}", "delete": f"; deleted {where}"}.get(verb, "")
            return ok(check, f"{right}{done}")
        if not _is_refused(error):
            return problem(check, _reason(error), "see the reason, and call again")
        found = f"{right} is refused: {_reason(error)}"
        if verb == "list":
            found += "; without it a missing object is answered by 403 and not by 404"
        if verb == "delete":
            found += f"; {where} was written and is left"
        remedy = f"allow {right}; {_PAGE}"
        if verb == "create":
            remedy += "; for reading alone, use --no-write"
        return problem(check, found, remedy)


def _failure(act: Callable[[], object]) -> FuseError | None:
    """Return the error of a call; None if it was done, or if there is no such object."""
    try:
        act()
    except NotFoundError:
        return None
    except FuseError as error:
        return error
    return None


def _is_refused(error: FuseError) -> bool:
    return isinstance(error, StorageError) and fault_in(error) is Fault.RIGHTS


def _unreachable(fault: Fault | None, error: FuseError | None) -> Finding:
    check = "bucket" if fault is Fault.BUCKET else "credentials"
    if fault in {Fault.NETWORK, Fault.OPTIONS, Fault.OTHER}:
        check = "network" if fault is Fault.NETWORK else "store"
    return problem(check, _reason(error), str(fault))


def _reason(error: FuseError | None) -> str:
    if error is None:
        return ""
    return str(error.context.get("reason", error.message))


# ---- Spark's own reader


def check_reader(service: Service, path: str, environ: Mapping[str, str]) -> Finding:
    """Check that Spark has its own file system for the store, in the version of its Hadoop."""
    check = "Spark's reader"
    folder = spark_folder(environ)
    if folder is None:
        return warning(check, "there is no Spark here, so it was not looked for", "see pyspark")
    hadoop = _versions(folder / "jars", "hadoop-client-api")
    present = _versions(folder / "jars", service.jar)
    wanted = f"{service.coordinates}:{hadoop[0] if hadoop and service.is_of_hadoop else 'VERSION'}"
    if present and service.is_of_hadoop and hadoop and present[0] != hadoop[0]:
        return problem(
            check,
            f"{service.jar} {present[0]} beside Hadoop {hadoop[0]}: they do not work together",
            f"remove it, and set spark.jars.packages={wanted}",
        )
    if present:
        return ok(check, f"{service.jar} {present[0]} in {folder / 'jars'}")
    if (named := _named_in(service, folder, environ)) is not None:
        return ok(check, f"{named} names {service.jar}")
    scheme = kind_of(path)
    return warning(
        check,
        f"Spark in {folder} has no file system for {HADOOP_SCHEMES.get(scheme, scheme)}://, unless "
        "the session names one: tables are read by Python workers, which is slower, and a query "
        "cannot keep its checkpoint there",
        f"set spark.jars.packages={wanted}",
    )


def _versions(jars: Path, name: str) -> list[str]:
    """Return the versions of a jar that is in a folder."""
    found = [re.fullmatch(rf"{name}-(\d.*)\.jar", jar.name) for jar in jars.glob(f"{name}-*.jar")]
    return sorted(match[1] for match in found if match)


def _named_in(service: Service, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return which settings name the jar: those of a file, or the arguments of a submission."""
    if service.jar in environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return "PYSPARK_SUBMIT_ARGS"
    file = Path(environ.get("SPARK_CONF_DIR") or folder / "conf", "spark-defaults.conf")
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    is_named = any(service.jar in line and not line.lstrip().startswith("#") for line in lines)
    return str(file) if is_named else None
