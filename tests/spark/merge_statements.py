"""Draw rows and statements from a seed: the same ones for a fuse table and for Spark's own.

The table is called `t`, the source `s` or, where a statement has none, the view `arriving`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.dml.result import ChangeResult

VIEW = "arriving"
MATCHED, NOT_MATCHED, BY_SOURCE = "MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"

TABLE = {
    "id": "BIGINT",
    "part": "STRING",
    "n": "INT",
    "x": "DOUBLE",
    "amount": "DECIMAL(12,2)",
    "day": "DATE",
    "item": "STRUCT<a: INT, b: STRING>",
}
SOURCES = {
    "the same": {**TABLE, "op": "STRING"},
    "narrower": {
        "OP": "STRING",
        "N": "SMALLINT",
        "Id": "INT",
        "PART": "STRING",
        "x": "FLOAT",
        "amount": "DECIMAL(6,1)",
        "Day": "DATE",
        "item": "STRUCT<a: INT, b: STRING>",
    },
    "wider": {**TABLE, "id": "DECIMAL(18,0)", "n": "BIGINT", "op": "STRING"},
    "without columns": {
        "id": "BIGINT",
        "part": "STRING",
        "n": "INT",
        "x": "DOUBLE",
        "op": "STRING",
    },
}
CELLS: dict[str, Sequence[str | None]] = {
    "id": [*"0123456789", None],
    "part": ["a", "b", "C", "c", "", None],
    "n": [*"01234", "-7", None],
    "x": ["0.0", "-0.0", "NaN", "1.5", "Infinity", "-2.25", None],
    "amount": ["0.0", "1.5", "-3.0", "1000.5", None],
    "day": ["2024-02-28", "2024-02-29", "1969-12-31", None],
    "op": ["d", "u", "i", None],
}

ON = [
    *["t.id = s.id"] * 6,
    "T.ID = S.id AND t.n > 1",
    "t.id <=> s.id",
    "t.id = s.id AND t.part = s.part",
    "s.id = t.id AND s.op <> 'd'",
    "t.id = s.n",
    "t.x = s.x AND t.id = s.id",
    "t.x <=> s.x",
    "s.id BETWEEN t.id AND t.id + 1",
    "false",
]
WHERE_TABLE = [
    "t.id > 3",
    "t.n % 2 = 0",
    "t.x > 1",
    "t.x = 0",
    "isnan(t.x)",
    "t.part IS NULL",
    "t.Part < 'b'",
    "t.item.a = 1",
    "t.amount >= 1.5",
    "NOT (t.n > 2)",
    "t.day = DATE '2024-02-29'",
]
WHERE_SOURCE = ["s.op = 'd'", "s.op <> 'd'", "s.n > 1", "s.X >= 0", "s.part IN ('a', 'b', NULL)"]
WHERE_BOTH = [*WHERE_TABLE, *WHERE_SOURCE, "t.n > s.n", "t.part = s.part", "t.x <=> s.x"]
WHERE_ALONE = [
    *(text.replace("t.", "") for text in WHERE_TABLE),
    "true",
    "n IS NOT NULL AND PART <> 'b'",
    f"id IN (SELECT id FROM {VIEW})",
    f"id NOT IN (SELECT id FROM {VIEW} WHERE id > 2)",
    f"n >= (SELECT max(n) FROM {VIEW})",
    "x IN (0.0, CAST('NaN' AS DOUBLE))",
]

OF_TABLE: dict[str, Sequence[str]] = {
    "id": ["t.id + 10", "t.n"],
    "part": ["upper(t.part)", "concat(t.part, '!')", "NULL", "'new'"],
    "n": ["t.n + 1", "length(t.part)", "NULL", "t.id", "0"],
    "x": ["-t.x", "t.n", "t.x / 2", "CAST('NaN' AS DOUBLE)", "1.5"],
    "amount": ["t.amount + 1", "t.n", "NULL", "1.25", "-t.amount"],
    "day": ["date_add(t.day, 1)", "NULL"],
    "item": ["NULL", "named_struct('a', t.n, 'b', t.part)"],
}
OF_SOURCE: dict[str, Sequence[str]] = {
    "id": ["s.id", "s.n"],
    "part": ["s.part", "coalesce(s.op, 'none')", "NULL"],
    "n": ["s.n", "s.n * 2", "length(s.op)"],
    "x": ["s.x", "s.n"],
    "amount": ["s.n", "s.n + 0.25"],
    "day": ["DATE '2024-03-01'"],
    "item": ["named_struct('a', 1, 'b', s.op)"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """What a merge does to some rows."""

    rows: str
    condition: str | None
    act: str
    """`DELETE`, `UPDATE` or `INSERT`."""
    values: Mapping[str, str] | None = None
    """Expressions by column; None for all columns of the source."""

    def sql(self) -> str:
        condition = f" AND {self.condition}" if self.condition else ""
        return f"WHEN {self.rows}{condition} THEN {self.act}{self._values()}"

    def _values(self) -> str:
        if self.act == "DELETE":
            return ""
        if self.act == "UPDATE":
            return f" SET {'*' if self.values is None else _assigned(self.values)}"
        if self.values is None:
            return " *"
        return f" ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())})"

    def added_to(self, merge: fuse.Merge) -> fuse.Merge:
        """Return `merge` with this clause, said in the words of its methods."""
        if self.rows == NOT_MATCHED:
            new = merge.when_not_matched(self.condition)
            return new.insert_all() if self.values is None else new.insert(self.values)
        if self.rows == BY_SOURCE:
            old = merge.when_not_matched_by_source(self.condition)
            return old.delete() if self.values is None else old.update(self.values)
        both = merge.when_matched(self.condition)
        if self.act == "DELETE":
            return both.delete()
        return both.update_all() if self.values is None else both.update(self.values)


def _assigned(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A MERGE of the view into the table."""

    on: str
    clauses: tuple[Clause, ...]

    def sql(self, table: str) -> str:
        clauses = " ".join(clause.sql() for clause in self.clauses)
        return f"MERGE INTO {table} AS t USING {VIEW} AS s ON {self.on} {clauses}"

    def run(self, spark: SparkSession, path: str) -> ChangeResult:
        """Do it by `fuse.merge`."""
        merge = fuse.merge(spark.table(VIEW), path, on=self.on)
        for clause in self.clauses:
            merge = clause.added_to(merge)
        return merge.execute()

    def acts(self) -> str:
        """Return SQL for the clause that applies to a pair of rows that match: its place or null.

        A place is negative if the clause deletes.
        """
        matched = [clause for clause in self.clauses if clause.rows == MATCHED]
        cases = " ".join(
            f"WHEN {clause.condition or 'true'} THEN {-at if clause.act == 'DELETE' else at}"
            for at, clause in enumerate(matched, 1)
        )
        return f"CASE {cases} END" if cases else "NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    where: str

    def sql(self, table: str) -> str:
        return f"DELETE FROM {table} WHERE {self.where}"

    def run(self, spark: SparkSession, path: str) -> ChangeResult:
        return fuse.delete(spark, path, self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    where: str
    values: Mapping[str, str]

    def sql(self, table: str) -> str:
        return f"UPDATE {table} SET {_assigned(self.values)} WHERE {self.where}"

    def run(self, spark: SparkSession, path: str) -> ChangeResult:
        return fuse.update(spark, path, self.where, self.values)


Statement = Merge | Delete | Update


def drawn_rows(draw: Random, columns: Mapping[str, str], count: int, *, distinct: bool) -> str:
    """Return a query of `count` rows of some columns; `distinct` gives each another id or null."""
    ids = draw.sample(CELLS["id"], k=count) if distinct else draw.choices(CELLS["id"], k=count)
    lines = [
        ", ".join(
            _cell(draw, kind, at if name.lower() == "id" else draw.choice(_cells(name)))
            for name, kind in columns.items()
        )
        for at in ids
    ]
    names = ", ".join(columns)
    return f"SELECT * FROM VALUES {', '.join(f'({line})' for line in lines)} AS v({names})"


def _cells(name: str) -> Sequence[str | None]:
    return CELLS.get(name.lower(), [None, "both", "a", "neither"])


def _cell(draw: Random, kind: str, value: str | None) -> str:
    if kind.startswith("STRUCT") and value is not None:
        a = f"CAST({draw.randrange(3)} AS INT)" if value in {"both", "a"} else "CAST(NULL AS INT)"
        b = "'q'" if value == "both" else "CAST(NULL AS STRING)"
        return f"named_struct('a', {a}, 'b', {b})"
    return f"CAST({'NULL' if value is None else repr(value)} AS {kind})"


def drawn_statement(draw: Random, source: Mapping[str, str]) -> Statement:
    kind = draw.choices(["merge", "delete", "update"], weights=[6, 1, 2])[0]
    if kind == "delete":
        return Delete(where=draw.choice(WHERE_ALONE))
    if kind == "update":
        alone = {name: [text.replace("t.", "") for text in of] for name, of in OF_TABLE.items()}
        return Update(where=draw.choice(WHERE_ALONE), values=_drawn_values(draw, alone))
    held = {name.lower() for name in source}
    both = {name: [*of, *OF_SOURCE[name]] for name, of in OF_TABLE.items()}
    for name in ("amount", "day", "item"):
        if name in held:
            both[name].append(f"s.{name}")
    clauses = [
        *_drawn_clauses(draw, MATCHED, WHERE_BOTH, ["DELETE", "UPDATE", "UPDATE"], both),
        *_drawn_clauses(draw, NOT_MATCHED, WHERE_SOURCE, ["INSERT"], OF_SOURCE),
        *_drawn_clauses(draw, BY_SOURCE, WHERE_TABLE, ["DELETE", "UPDATE"], OF_TABLE),
    ]
    if not clauses:
        clauses = [Clause(rows=MATCHED, condition=None, act="DELETE")]
    return Merge(on=draw.choice(ON), clauses=tuple(clauses))


def _drawn_clauses(
    draw: Random,
    rows: str,
    conditions: Sequence[str],
    acts: Sequence[str],
    values: Mapping[str, Sequence[str]],
) -> list[Clause]:
    """Return up to three clauses; only the last one may lack a condition."""
    found = []
    count = draw.choice([0, 1, 1, 2, 3])
    for at in range(count):
        is_last = at == count - 1
        act = draw.choice(acts)
        is_whole = act == "DELETE" or (rows != BY_SOURCE and draw.random() < 0.4)
        found.append(
            Clause(
                rows=rows,
                condition=None if is_last and draw.random() < 0.6 else draw.choice(conditions),
                act=act,
                values=None if is_whole else _drawn_values(draw, values),
            )
        )
    return found


def _drawn_values(draw: Random, values: Mapping[str, Sequence[str]]) -> dict[str, str]:
    names = draw.sample(sorted(values), k=draw.randrange(1, len(values)))
    return {draw.choice([name, name.upper()]): draw.choice(values[name]) for name in names}
