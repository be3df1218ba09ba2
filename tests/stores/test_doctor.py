"""`doctor` on real servers: wrong credentials, a missing bucket, each right that is missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from click.testing import CliRunner

import fuse_stream as fuse
from fuse_stream.cli.doctor import check_place
from fuse_stream.cli.findings import Finding, Status
from fuse_stream.cli.main import main
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.table.location import TableLocation
from scripts.fetch_servers import SERVERS
from tests.kit.servers import BUCKET, Place
from tests.spark.driver import ROOT

pytestmark = pytest.mark.long

USER, SECRET = "reader", "of-this-test-alone"
SCHEMA = pa.schema([("k", pa.int64())])


def examined(url: str, options: dict[str, Any], *, write: bool = True) -> dict[str, Finding]:
    location = TableLocation.of(url, storage_options=options)
    found = check_place(location, SYSTEM_CLOCK, write=write)
    return {finding.check: finding for finding in found}


def problems(found: dict[str, Finding]) -> dict[str, str]:
    return {each.check: each.found for each in found.values() if each.status is Status.PROBLEM}


def objects(url: str, options: dict[str, Any]) -> list[str]:
    fs, root = fsspec.url_to_fs(url, **options, skip_instance_cache=True)
    return list(fs.find(root))


def test_an_owner_has_all_rights_and_nothing_is_left(place: Place, url: str) -> None:
    options = dict(place.options)
    found = examined(url, options)
    assert problems(found) == {}
    allowed = ["credentials", *(f"may {verb}" for verb in RIGHTS), "store"]
    assert [found[check].status for check in allowed] == [Status.OK] * len(allowed)
    assert f"wrote {url}/_probe/" in found["may create"].found
    assert f"deleted {url}/_probe/" in found["may delete"].found
    assert objects(url, options) == []


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_the_environment_of_the_page_is_enough(
    places: dict[str, Place], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = places[kind].options
    given = {
        "s3": {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": "endpoint_url",
        },
        "azure": {"AZURE_STORAGE_CONNECTION_STRING": "connection_string"},
    }
    page = (ROOT / "docs" / "object-stores.md").read_text()
    for variable, name in given[kind].items():
        assert f"| `{variable}` | `{name}` |" in page
        monkeypatch.setenv(variable, str(options[name]))
    found = examined(f"{places[kind].url}/{tmp_path.name}", {})
    assert problems(found) == {}
    assert found["store"].status is Status.OK


RIGHTS = ("create", "read", "list", "replace", "delete")


def test_without_writing_only_reading_is_tried(place: Place, url: str) -> None:
    options = dict(place.options)
    fuse.Table.create(url, SCHEMA, storage_options=options)
    before = objects(url, options)
    found = examined(url, options, write=False)
    assert problems(found) == {}
    assert [check for check in found if check.startswith("may ")] == ["may read", "may list"]
    assert found["table"].status is Status.OK
    assert objects(url, options) == before


def test_a_missing_bucket_is_named(place: Place) -> None:
    found = examined(f"{place.url.replace(BUCKET, 'fuse-nowhere')}/t", dict(place.options))
    assert list(problems(found)) == ["bucket"]
    assert "create it or correct the path" in found["bucket"].remedy


@pytest.mark.parametrize("kind", ["s3", "azure"])  # Google's emulator asks for none
def test_a_wrong_secret_is_named_and_not_shown(places: dict[str, Place], kind: str) -> None:
    place = places[kind]
    url, options = f"{place.url}/wrong secret", dict(place.options)
    wrong = "A" * 32
    for name in ("secret", "connection_string"):
        if name in options:
            before, key, after = str(options[name]).rpartition("AccountKey=")
            options[name] = f"{before}{key}{wrong + after[32:] if key else wrong}"
    found = examined(url, options)
    assert list(problems(found)) == ["credentials"]
    assert "missing, wrong or expired" in found["credentials"].remedy
    assert wrong not in found["credentials"].found


def test_a_server_that_cannot_be_reached_is_named(places: dict[str, Place]) -> None:
    nobody = {**places["s3"].options, "endpoint_url": "http://127.0.0.1:9"}
    found = examined(f"{places['s3'].url}/t", nobody)
    assert list(problems(found)) == ["network"]


def test_the_command_takes_the_options_of_the_store_and_exits_with_1(
    place: Place, url: str
) -> None:
    given = [f"--storage-option={name}={value}" for name, value in place.options.items()]
    done = CliRunner().invoke(main, ["doctor", url, "--json", "--no-write", *given])
    checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert checks["may list"]["status"] == "ok"
    assert checks["Spark's reader"]["status"] == "warning"
    nowhere = url.replace(BUCKET, "fuse-nowhere")
    done = CliRunner().invoke(main, ["doctor", nowhere, "--json", *given])
    assert done.exit_code == 1
    checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert checks["bucket"]["status"] == "problem"


# ---- rights


def policy_of_the_page() -> list[dict[str, Any]]:
    """Return the statements that docs/object-stores.md gives to copy, for all of the bucket."""
    page = (ROOT / "docs" / "object-stores.md").read_text()
    text = page.partition("```json\n")[2].partition("```")[0]
    statements: list[dict[str, Any]] = json.loads(text)["Statement"]
    for statement in statements:
        statement.pop("Condition", None)  # versitygw knows none
        statement["Resource"] = statement["Resource"].replace("lake/flights", BUCKET)
        statement["Resource"] = statement["Resource"].replace(":::lake", f":::{BUCKET}")
    return statements


class Allowed:
    """A user of the S3 server, whose rights a test sets."""

    def __init__(self, place: Place) -> None:
        self.options = {**place.options, "key": USER, "secret": SECRET}
        self.admin, _ = fsspec.url_to_fs(place.url, **place.options)

    def only(self, *, without: str = "") -> None:
        """Allow what the page's policy allows, without one action."""
        made = []
        for statement in policy_of_the_page():
            actions = statement["Action"]
            actions = [actions] if isinstance(actions, str) else actions
            if kept := [action for action in actions if action != without]:
                made.append({**statement, "Action": kept, "Principal": {"AWS": [USER]}})
        policy = json.dumps({"Version": "2012-10-17", "Statement": made})
        self.admin.call_s3("put_bucket_policy", Bucket=BUCKET, Policy=policy)


@pytest.fixture(scope="module")
def allowed(places: dict[str, Place]) -> Iterator[Allowed]:
    place = places["s3"]
    command = [str(SERVERS["s3"].program), "admin", "--access", str(place.options["key"])]
    command += ["--secret", str(place.options["secret"])]
    command += ["--endpoint-url", str(place.options["endpoint_url"])]
    command += ["create-user", "--access", USER, "--secret", SECRET, "--role", "user"]
    subprocess.run(command, check=True, capture_output=True)
    user = Allowed(place)
    yield user
    user.admin.call_s3("delete_bucket_policy", Bucket=BUCKET)


@pytest.fixture
def s3_url(places: dict[str, Place], tmp_path: Path) -> str:
    return f"{places['s3'].url}/{tmp_path.name}"


def test_the_policy_of_the_page_is_enough(allowed: Allowed, s3_url: str) -> None:
    allowed.only()
    assert problems(examined(s3_url, allowed.options)) == {}
    table = fuse.Table.create(s3_url, SCHEMA, storage_options=allowed.options)
    table.append(pa.table({"k": pa.array(range(1000), pa.int64())}))
    table.delete("k = 7")
    table.compact()
    assert table.to_arrow().num_rows == 999
    table.vacuum()


@pytest.mark.parametrize(
    ("action", "checks"),
    [
        ("s3:GetObject", {"may read"}),
        ("s3:PutObject", {"may create"}),
        ("s3:DeleteObject", {"may delete"}),
        ("s3:ListBucket", {"may list"}),
    ],
)
def test_a_right_that_is_missing_is_named(
    allowed: Allowed, s3_url: str, action: str, checks: set[str]
) -> None:
    allowed.only(without=action)
    found = examined(s3_url, allowed.options)
    refused = {check: text for check, text in problems(found).items() if check.startswith("may ")}
    assert set(refused) == checks
    assert all(f"{action} is refused" in text for text in refused.values())
    assert found["store"].status is not Status.OK


def test_an_object_that_may_not_be_deleted_is_named(allowed: Allowed, s3_url: str) -> None:
    allowed.only(without="s3:DeleteObject")
    found = examined(s3_url, allowed.options)
    allowed.only()
    (left,) = objects(s3_url, allowed.options)
    assert f"s3://{left} was written and is left" in found["may delete"].found


def test_a_user_without_any_right_is_told_so(allowed: Allowed, s3_url: str) -> None:
    allowed.admin.call_s3("delete_bucket_policy", Bucket=BUCKET)
    found = examined(s3_url, allowed.options)
    assert "every request is refused" in problems(found)["credentials"]
