"""The page of a table: what it says, and that nothing in it can run, load or mislead."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.report.facts import collect_facts, spread
from fuse_stream.report.page import render
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from tests.cli.leases import put_lease
from tests.report.kit import NAME, Page, hostile_table, page_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ELEMENTS = frozenset(
    "html head meta title style body main header h1 h2 h3 p b i bdi span div section ul li code br "
    "figure figcaption svg rect line path table tr th td".split()
)
ATTRIBUTES = frozenset(
    "lang charset http-equiv content name class viewbox preserveaspectratio height width role x y "
    "x1 x2 y1 y2 d".split()
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "flights", SCHEMA, cluster_by=["id"])
    for number in range(4):
        table.append(
            pa.table({"id": [number], "name": ["a"]}, schema=SCHEMA),
            app_id="loader",
            batch_id=number,
            message=f"load {number}",
            author="ann",
        )
    return table


def test_a_page_says_what_the_table_is(table: Table) -> None:
    table.create_tag("good", 2)
    table.create_branch("fix", 2)
    put_lease(table, "nightly", 1)
    words = Page(page_of(table)).words

    assert "flights" in words
    assert "4version 4rows" in words
    assert "loader" in words
    assert "3 versions behind" in words
    assert "version 2, from main@2" in words
    assert "good (2)" in words
    assert "load 3" in words
    assert "append" in words


def test_an_empty_table_has_a_page(tmp_path: Path) -> None:
    words = Page(page_of(Table.create(tmp_path / "t", SCHEMA))).words

    assert "There are no blocks." in words
    assert "Nobody follows this table" in words
    assert "No batch has a number" in words


def test_a_page_forbids_scripts_and_loads_nothing(table: Table) -> None:
    html = page_of(table)
    page = Page(html)

    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert ("http-equiv", "Content-Security-Policy") in page.attributes
    assert ("content", policy) in page.attributes
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert "url(" not in html
    assert "@import" not in html


def test_hostile_texts_make_no_element_and_no_attribute(tmp_path: Path) -> None:
    page = Page(page_of(hostile_table(tmp_path / "t")))

    assert set(page.tags) <= ELEMENTS
    assert {name for name, _ in page.attributes} <= ATTRIBUTES
    assert page.text.count("<script>document.title='owned'</script>") > 8
    assert "{{ 7*7 }}" in page.text


def test_hostile_texts_are_shown_without_control_characters_and_directions(
    tmp_path: Path,
) -> None:
    html = page_of(hostile_table(tmp_path / "t"))

    assert {char for char in html if not char.isprintable()} == {"\n"}
    assert "\\u202e" in html
    assert "\\x1b" in html


def test_each_hostile_text_is_on_the_page(tmp_path: Path) -> None:
    table = hostile_table(tmp_path / "t")
    page = Page(page_of(table)).text
    shown = NAME.encode("unicode_escape").decode()[:60]

    assert f"+ more{shown}" in page  # a column that was added
    assert f"by {shown}" in page  # the cluster key


def test_the_page_of_a_path_with_markup_is_harmless(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "<img src=x onerror=alert(1)>", SCHEMA)
    page = Page(page_of(table))

    assert "img" not in page.tags
    assert "<img src=x onerror=alert(1)>" in page.text


def test_a_page_that_is_written_again_tells_the_browser_so(table: Table) -> None:
    facts = collect_facts(table, limit=10)

    assert ("content", "10") in Page(render(facts, refresh_s=10)).attributes
    assert "refresh" not in render(facts)


def test_the_newest_versions_are_read_one_by_one_and_older_ones_now_and_then(
    table: Table,
) -> None:
    facts = collect_facts(table, limit=2)

    assert [commit.version for commit in facts.commits] == [3, 4]
    assert [commit.version for commit in facts.points] == [0, 1, 2, 3, 4]
    assert facts.garbage is None


@pytest.mark.parametrize(
    ("first", "last", "most", "expected"),
    [
        (0, 4, 9, (0, 1, 2, 3, 4)),
        (3, 3, 9, (3,)),
        (0, 10, 3, (0, 5, 10)),
        (7, 17, 2, (7, 17)),
        (7, 17, 1, (17,)),
    ],
)
def test_points_are_evenly_spread(
    first: int, last: int, most: int, expected: tuple[int, ...]
) -> None:
    assert spread(first, last, most) == expected


def test_a_lost_version_is_a_line_of_the_health(table: Table) -> None:
    store = LocalStore(Path(table.location.path))
    (store.root / "_ss/main/00000000000000000002_v1.json").unlink()
    facts = collect_facts(Table.open(table.location.path), limit=10)
    words = Page(render(facts)).words

    assert "cannot be read: version 2" in words
    assert "damaged" in words
    assert [commit.version for commit in facts.commits] == [0, 1, 3, 4]


def test_a_lost_segment_does_not_end_the_report(table: Table) -> None:
    for segment in Path(table.location.path).glob("_sg/*"):
        segment.unlink()
    words = Page(page_of(Table.open(table.location.path))).words

    assert "cannot be read: blocks" in words
    assert "cannot be read: garbage" in words
