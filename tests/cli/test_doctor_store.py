"""`doctor` for an object store: rights that a store refuses, and the jars that Spark has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from fuse_stream.cli import doctor_store
from fuse_stream.cli.doctor import check_place
from fuse_stream.cli.doctor_store import Access, Service, check_reader, find_service
from fuse_stream.cli.findings import Finding, Status
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import NotFoundError, StorageError
from fuse_stream.storage.adapters import Fault
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import ReadOnlyStore, StoreWrapper
from fuse_stream.table.location import TableLocation
from fuse_stream.testing.memory import MemoryStore

T = TypeVar("T")


class RefusingStore(StoreWrapper):
    """A store that refuses some verbs, as S3 does; and perhaps says 403 for a missing object."""

    def __init__(self, store: Store, *refused: str, hides_missing: bool = False) -> None:
        super().__init__(store)
        self._refused = refused
        self._hides_missing = hides_missing
        self.calls: list[str] = []

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        self.calls.append(verb)
        if verb in self._refused:
            raise self._error()
        try:
            return act(self.store, key)
        except NotFoundError as error:
            if self._hides_missing:
                raise self._error() from error
            raise

    def _error(self) -> StorageError:
        return StorageError(f"cannot do it: {Fault.RIGHTS}", reason="PermissionError: no")


class LosingStore(StoreWrapper):
    """A store whose reply to a creation is lost."""

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self.store.put_if_absent(key, data)
        raise StorageError(f"cannot create an object: {Fault.OTHER}", reason="the reply is lost")


@pytest.fixture
def s3() -> Service:
    found = find_service("s3://lake/t")
    assert found is not None
    return found


def tried(store: Store, service: Service, *, write: bool = True) -> tuple[Access, list[Finding]]:
    access = Access(store, service, SYSTEM_CLOCK, write=write)
    return access, list(access.findings())


def problems(findings: list[Finding]) -> list[str]:
    return [each.check for each in findings if each.status is Status.PROBLEM]


# ---- rights


def test_a_caller_with_all_rights_may_probe_and_leaves_nothing(
    store: MemoryStore, s3: Service
) -> None:
    access, findings = tried(store, s3)
    assert problems(findings) == []
    assert access.may_probe
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    ("verb", "check", "right"),
    [
        ("put_if_absent", "may create", "s3:PutObject"),
        ("get", "may read", "s3:GetObject"),
        ("names", "may list", "s3:ListBucket"),
        ("replace", "may replace", "s3:PutObject"),
        ("delete", "may delete", "s3:DeleteObject"),
    ],
)
def test_a_refused_right_is_named(
    store: MemoryStore, s3: Service, verb: str, check: str, right: str
) -> None:
    access, findings = tried(RefusingStore(store, verb), s3)
    assert problems(findings) == [check]
    (found,) = (each for each in findings if each.check == check)
    assert right in found.found
    assert f"allow {right}" in found.remedy
    assert not access.may_probe
    assert len(list(store.list(""))) == (verb == "delete")


def test_a_missing_object_that_is_answered_by_403_is_a_right_to_list(
    store: MemoryStore, s3: Service
) -> None:
    access, findings = tried(RefusingStore(store, hides_missing=True), s3)
    assert problems(findings) == ["may list"]
    assert not access.may_probe


def test_an_object_whose_creation_is_not_known_is_deleted(store: MemoryStore, s3: Service) -> None:
    access, findings = tried(LosingStore(store), s3)
    assert problems(findings) == ["may create"]
    assert not access.may_probe
    assert list(store.list("")) == []


def test_a_store_that_nobody_may_write_is_left_to_the_probe(
    store: MemoryStore, s3: Service
) -> None:
    access, findings = tried(ReadOnlyStore(store), s3)
    assert problems(findings) == []
    assert access.may_probe


def test_nothing_is_written_if_writing_is_not_to_be_tried(store: MemoryStore, s3: Service) -> None:
    refusing = RefusingStore(store)
    _, findings = tried(refusing, s3, write=False)
    assert problems(findings) == []
    assert set(refusing.calls) == {"get", "names"}


def test_a_caller_without_any_right_is_one_problem(store: MemoryStore, s3: Service) -> None:
    every = ("put_if_absent", "get", "names", "replace", "delete")
    access, findings = tried(RefusingStore(store, *every), s3)
    assert problems(findings) == ["credentials"]
    assert not access.is_open


# ---- the package


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_store, "find_version", lambda _package: None)
    location = TableLocation(path="az://lake/t")
    (found,) = check_place(location, SYSTEM_CLOCK, write=True)
    assert (found.check, found.status) == ("adlfs", Status.PROBLEM)
    assert found.remedy == "pip install 'fuse-stream[azure]'"


def test_a_local_path_and_another_kind_of_store_have_no_service() -> None:
    assert [find_service(path) for path in ("/lake/t", "file:///t", "sftp://h/t")] == [None] * 3


# ---- Spark's own reader


def home(folder: Path, *jars: str, defaults: str = "") -> dict[str, str]:
    (folder / "jars").mkdir()
    (folder / "conf").mkdir()
    for jar in jars:
        (folder / "jars" / jar).touch()
    (folder / "conf" / "spark-defaults.conf").write_text(defaults)
    return {"SPARK_HOME": str(folder)}


HADOOP = "hadoop-client-api-3.5.0.jar"


def test_a_spark_without_the_jar_is_told_which_one(tmp_path: Path, s3: Service) -> None:
    found = check_reader(s3, "s3://lake/t", home(tmp_path, HADOOP))
    assert found.status is Status.WARNING
    assert "s3a://" in found.found
    assert found.remedy == "set spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0"


def test_a_spark_with_the_jar_of_its_hadoop_is_ok(tmp_path: Path, s3: Service) -> None:
    found = check_reader(s3, "s3://lake/t", home(tmp_path, HADOOP, "hadoop-aws-3.5.0.jar"))
    assert found.status is Status.OK


def test_the_jar_of_another_hadoop_is_a_problem(tmp_path: Path, s3: Service) -> None:
    found = check_reader(s3, "s3://lake/t", home(tmp_path, HADOOP, "hadoop-aws-3.4.1.jar"))
    assert found.status is Status.PROBLEM
    assert "3.4.1" in found.found


def test_googles_jar_has_versions_of_its_own(tmp_path: Path) -> None:
    service = find_service("gs://lake/t")
    assert service is not None
    environ = home(tmp_path, HADOOP, "gcs-connector-4.0.1.jar")
    assert check_reader(service, "gs://lake/t", environ).status is Status.OK


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("spark.jars.packages org.apache.hadoop:hadoop-aws:3.5.0\n", Status.OK),
        ("# spark.jars.packages org.apache.hadoop:hadoop-aws:3.5.0\n", Status.WARNING),
    ],
)
def test_the_settings_of_spark_may_name_the_jar(
    tmp_path: Path, s3: Service, line: str, status: Status
) -> None:
    assert check_reader(s3, "s3://lake/t", home(tmp_path, HADOOP, defaults=line)).status is status


def test_the_arguments_of_a_submission_may_name_the_jar(tmp_path: Path, s3: Service) -> None:
    environ = {**home(tmp_path, HADOOP), "PYSPARK_SUBMIT_ARGS": "--packages x:hadoop-aws:3.5.0 y"}
    assert check_reader(s3, "s3://lake/t", environ).status is Status.OK
