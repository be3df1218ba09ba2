"""The documents that `--json` prints: no key and no value of them changes by accident."""

from __future__ import annotations

import json

import pytest

from fuse_stream.cli.main import main
from tests.cli import documents
from tests.cli.documents import Documents

EXPECTED: Documents = json.loads(documents.FILE.read_text())


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    return documents.collect(tmp_path_factory.mktemp("documents"))


@pytest.mark.parametrize("usage", EXPECTED)
def test_json_output_equals_the_recorded_document(usage: str, printed: Documents) -> None:
    assert json.dumps(printed[usage]) == json.dumps(EXPECTED[usage])  # in this order, too


def test_every_recorded_document_belongs_to_a_case(printed: Documents) -> None:
    assert printed.keys() == EXPECTED.keys()
    known = {*main.commands, "an"} - {"sql-server"}  # "an error"; and one that only serves
    assert {usage.split()[0] for usage in EXPECTED} == known
