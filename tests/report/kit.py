"""A table whose every text tries to leave its place on a page, and the page of a table."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa

from fuse_stream.report.facts import collect_facts
from fuse_stream.report.page import render
from fuse_stream.table.handle import Table
from tests.cli.leases import put_lease

EVIL = (
    "<script>document.title='owned'</script>]]>--></style></title></svg><svg onload=alert(1)>"
    "<img src=x onerror=alert(1)>{{ 7*7 }}{% raw %}&lt;b&gt;\"'><b>\x1b[2J\u202eabc\u2066\u200f"
    "\u061c\u2028\x00\x85\ud800"
)
NAME = EVIL.replace("\x00", "").replace("\ud800", "")
"""A column's name, and a text that is stored: these characters are refused there."""

VOID = frozenset({"meta", "br", "rect", "line", "path"})


def page_of(table: Table, *, limit: int = 2000) -> str:
    return render(collect_facts(table, limit=limit))


def hostile_table(path: Path) -> Table:
    schema = pa.schema([("id", pa.int64()), (NAME, pa.string())])
    table = Table.create(path, schema, cluster_by=[NAME], properties={NAME: NAME})
    for number in range(3):
        table.append(
            pa.table([[number], [NAME]], schema=schema),
            app_id=NAME,
            batch_id=number,
            writer=NAME,
            author=NAME,
            message=NAME,
        )
    more = pa.table([[9], [NAME], [NAME]], names=["id", NAME, f"more{NAME}"])
    table.append(more, merge_schema=True)
    table.set_properties({"fuse.retain": "30d"})
    table.create_tag("good", 1)
    table.create_branch("fix", 2)
    put_lease(table, "nightly", 1)
    put_lease(table, "lapsed", 1, lease_us=1)
    return table


class Page(HTMLParser):
    """The elements and the text of a page; fails where an element is not closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    @property
    def words(self) -> str:
        """The text with its white space as single blanks."""
        return re.sub(r"\s+", " ", self.text)
