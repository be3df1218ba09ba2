"""Parse the SQL text of an aggregate: `SELECT a, count(*) AS n, sum(b) FROM t GROUP BY a`.

The grammar is small: plain columns, aggregate functions of plain columns, one table of any name,
GROUP BY. Everything else is an error that says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.indexes import MAX_INDEX_COLUMNS, IndexColumn
from fuse_stream.format.jsonio import is_storable
from fuse_stream.format.names import nearest
from fuse_stream.format.schema import Column, Schema

T = TypeVar("T")

MAX_SQL_LENGTH = 64 * 1024
"""Characters."""

FUNCTIONS = {
    "count": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
}
"""The name by which a definition keeps each function, by Spark's names."""

SUPPORTED = (
    "it is SELECT, columns and functions, FROM, a name, GROUP BY, those columns; the functions are "
    "count(*), and of a column " + ", ".join(FUNCTIONS)
)

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<mark>[(),.*;]))"
)
_WORDS = frozenset("select from group by as distinct all".split())


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_quoted: bool
    at: int

    @property
    def word(self) -> str | None:
        """The reserved word, in lower case; None for anything else."""
        folded = self.text.lower()
        return folded if not self.is_quoted and folded in _WORDS else None

    @property
    def is_name(self) -> bool:
        return self.is_quoted or (self.word is None and self.text not in set("(),.*;"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A column of the result, as it is written."""

    name: str
    function: str | None
    column: str | None


def parse_aggregate(sql: str, schema: Schema) -> tuple[IndexColumn, ...]:
    """Return the columns of the result of an aggregate over a table with `schema`.

    Raises:
        InvalidInputError: the text is not such a statement; or it names a column that the table
            lacks, or has no function, or two columns of one name.
    """
    if not is_storable(sql) or len(sql) > MAX_SQL_LENGTH:
        raise InvalidInputError(
            f"sql is text of at most {MAX_SQL_LENGTH:,} characters; {SUPPORTED}"
        )
    parser = _Parser(sql)
    items, groups = parser.statement()
    found: list[IndexColumn] = []
    grouped = {_find(schema, name).id for name in groups}
    for item in items:
        column = None if item.column is None else _find(schema, item.column)
        if item.function is None and column is not None and column.id not in grouped:
            raise InvalidInputError(
                "a plain column of an aggregate has to be in its GROUP BY", column=item.column
            )
        found.append(
            IndexColumn(
                name=item.name,
                function=item.function,
                column=None if column is None else column.id,
                stored=None if column is None else column.stored_name,
            )
        )
    _check(found, groups, grouped)
    return tuple(found)


def _check(found: list[IndexColumn], groups: list[str], grouped: set[int]) -> None:
    names = [one.name.casefold() for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            "two columns of the result have one name; give one another name with AS", names=twice
        )
    if all(one.function is None for one in found):
        raise InvalidInputError(f"there is no function in the aggregate: {SUPPORTED}")
    shown = [one.column for one in found if one.function is None]
    if grouped != set(shown) or len(shown) != len(set(shown)):
        raise InvalidInputError(
            "an aggregate selects each column of its GROUP BY, once", group_by=groups
        )
    if len(found) > MAX_INDEX_COLUMNS:
        raise InvalidInputError(
            "the aggregate has too many columns", columns=len(found), most=MAX_INDEX_COLUMNS
        )


def _find(schema: Schema, name: str) -> Column:
    """Return a column by its name; in another case if there is none of the exact name."""
    exact = [one for one in schema.columns if one.name == name]
    folded = [one for one in schema.columns if one.name.casefold() == name.casefold()]
    for column in (*exact, *folded):
        return column
    known = schema.visible.names()
    raise InvalidInputError(
        "the table has no such column",
        column=name,
        nearest=nearest(name, known),
        columns=list(known),
    )


class _Parser:
    def __init__(self, sql: str) -> None:
        self._tokens = list(_tokens(sql))
        self._next = 0
        self._table: set[str] = set()
        """The names before the dot of a column, in lower case."""

    def statement(self) -> tuple[list[_Item], list[str]]:
        """Return the columns of the result, and the names in GROUP BY."""
        self._expect("select")
        written = self._listed(self._item, ",")
        self._expect("from")
        self._from()
        groups: list[tuple[str, ...]] = []
        if self._takes("group"):
            self._expect("by")
            groups = self._listed(self._column, ",")
        self._takes(";")
        if self._next < len(self._tokens):
            raise self._unexpected()
        return (
            [
                _Item(
                    name=_shown(function, column) if alias is None else alias,
                    function=function and FUNCTIONS[function],
                    column=self._plain(column) if column else None,
                )
                for function, column, alias in written
            ],
            [self._plain(path) for path in groups],
        )

    def _item(self) -> tuple[str | None, tuple[str, ...] | None, str | None]:
        """Return the function, the column and the name that AS gives."""
        path: tuple[str, ...] | None = self._column()
        function = None
        if self._takes("("):
            function = (path or ("",))[-1].lower()
            if path is None or len(path) > 1 or function not in FUNCTIONS:
                raise InvalidInputError(f"there is no such function: {SUPPORTED}", function=path)
            if self._takes("*"):
                if function != "count":
                    raise self._unexpected(back=1)
                path = None
            else:
                self._takes("all")
                path = self._column()
            self._expect(")")
        alias = None
        if self._takes("as") or (self._token is not None and self._token.is_name):
            alias = self._name()
        return function, path, alias

    def _from(self) -> None:
        path = self._column()
        self._table = {path[-1].lower()}
        if self._takes("as") or (self._token is not None and self._token.is_name):
            self._table = {self._name().lower()}

    def _column(self) -> tuple[str, ...]:
        return tuple(self._listed(self._name, "."))

    def _listed(self, read: Callable[[], T], separator: str) -> list[T]:
        found = [read()]
        while self._takes(separator):
            found.append(read())
        return found

    def _plain(self, path: tuple[str, ...]) -> str:
        """Return the name of a column, without the name of the table before it."""
        if len(path) == 2 and path[0].lower() in self._table:
            return path[1]
        if len(path) > 1:
            raise InvalidInputError(
                "an aggregate takes whole columns, no field of one", column=".".join(path)
            )
        return path[0]

    def _name(self) -> str:
        token = self._token
        if token is None or not token.is_name:
            raise self._unexpected()
        self._next += 1
        return token.text

    @property
    def _token(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _takes(self, wanted: str) -> bool:
        token = self._token
        if token is None or token.is_quoted or wanted not in (token.word, token.text):
            return False
        self._next += 1
        return True

    def _expect(self, wanted: str) -> None:
        if not self._takes(wanted):
            raise self._unexpected()

    def _unexpected(self, back: int = 0) -> InvalidInputError:
        at = self._next - back
        token = self._tokens[at] if at < len(self._tokens) else None
        return InvalidInputError(
            f"the text is no aggregate: {SUPPORTED}",
            unexpected="the end" if token is None else token.text[:50],
            position=None if token is None else token.at,
        )


def _shown(function: str | None, column: tuple[str, ...] | None) -> str:
    """Return the name that Spark gives a column without AS."""
    name = "1" if column is None else column[-1]
    return name if function is None else f"{function}({name})"


def _tokens(sql: str) -> Iterator[_Token]:
    at = 0
    for found in _TOKEN.finditer(sql := sql.rstrip()):
        if found.start() > at:
            break
        quoted = found["quoted"]
        text = quoted.replace("``", "`") if quoted else found["name"] or found["mark"]
        yield _Token(text=text, is_quoted=quoted is not None, at=found.end() - len(text))
        at = found.end()
    if at < len(sql):
        raise InvalidInputError(
            f"the text is no aggregate: {SUPPORTED}",
            unexpected=sql[at:].strip()[:20],
            position=at,
        )
