"""Bind a predicate to a schema: resolve its columns and cast its literals to their types.

Rules:
- A predicate that Spark's ANSI mode refuses, or would fail on at the first row, is refused here.
- A cast of the column that does not keep order is refused too: statistics cannot answer it.
- A list, map or struct can only be compared with null.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from decimal import Decimal

import pyarrow as pa

from fuse_stream.errors import InvalidInputError
from fuse_stream.format import schema as schemas
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.predicate.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundIsNull,
    BoundLike,
    BoundNot,
    BoundOr,
    translate_like,
)
from fuse_stream.predicate.casts import (
    beyond_longs,
    cast_literal,
    common_type,
    compare_any,
    compare_as,
    decimal_type,
    digits_of,
)
from fuse_stream.predicate.times import zone_of
from fuse_stream.predicate.tree import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Or,
    Predicate,
)


def bind(
    predicate: Predicate, schema: pa.Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> Bound:
    """Return `predicate` bound to `schema`; `time_zone` is the session's.

    Raises:
        InvalidInputError: a column is unknown or ambiguous, a literal is malformed, or Spark or
            this package does not support the comparison.
        UnsupportedTypeError: the schema has a type that the format does not have.
    """
    binder = _Binder(
        columns=columns_of_arrow(schema), zone=zone_of(time_zone), case_sensitive=case_sensitive
    )
    return binder.bind(predicate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binder:
    columns: tuple[schemas.Column, ...]
    zone: tzinfo
    case_sensitive: bool

    def bind(self, node: Predicate) -> Bound:
        match node:
            case And(operands=operands):
                return BoundAnd(operands=tuple(self.bind(item) for item in operands))
            case Or(operands=operands):
                return BoundOr(operands=tuple(self.bind(item) for item in operands))
            case Not(operand=operand):
                return BoundNot(operand=self.bind(operand))
            case Literal():
                return _constant(node)
            case _:
                return self._leaf(node)

    def _leaf(self, node: Column | Compare | NullSafeEqual | In | IsNull | Like) -> Bound:
        match node:
            case Column():
                return self._truth(node)
            case IsNull(column=column):
                return BoundIsNull(column=self._get_column(column))
            case Compare(column=column, op=op, literal=literal):
                return self._compare(self._get_primitive(column), op, literal)
            case NullSafeEqual(column=column, literal=literal):
                return self._null_safe(column, literal)
            case In(column=column, literals=literals):
                return self._one_of(self._get_primitive(column), literals)
            case Like():
                return self._like(node)

    def _truth(self, node: Column) -> Bound:
        column = self._get_primitive(node)
        if column.type != "boolean":
            raise InvalidInputError(
                "a column alone is a predicate only if it is boolean; compare it with a literal",
                column=".".join(column.path),
                type=column.type,
            )
        return BoundCompare(column=column, op=Op.EQ, value=True)

    def _compare(self, column: BoundColumn, op: Op, literal: Literal) -> Bound:
        if literal.value is None:
            return BoundConstant(value=None)
        if schemas.decimal_of(column.type) and isinstance(literal.value, int):
            # The precision of an integer literal is its own digits, not those of its type.
            digits = digits_of("byte") if literal.type == "byte" else None
            if digits_of(literal.type):
                name = f"decimal({digits[0]},0)" if digits else decimal_type(Decimal(literal.value))
                literal = replace(literal, type=name, value=Decimal(literal.value))
        if (always := beyond_longs(column, op, literal.value)) is not None:
            return BoundConstant(value=always)
        type_name = _common_type(column, [literal])
        value = cast_literal(literal, type_name, self.zone)
        return compare_as(column, op, value, type_name, self.zone)

    def _null_safe(self, node: Column, literal: Literal) -> Bound:
        if literal.value is None:
            return BoundIsNull(column=self._get_column(node))
        column = self._get_primitive(node)
        known = BoundNot(operand=BoundIsNull(column=column))
        return BoundAnd(operands=(known, self._compare(column, Op.EQ, literal)))

    def _one_of(self, column: BoundColumn, literals: Sequence[Literal]) -> Bound:
        if not literals:
            return BoundConstant(value=False)
        known = [literal for literal in literals if literal.value is not None]
        type_name = _common_type(column, known)
        values = [cast_literal(literal, type_name, self.zone) for literal in known]
        with_null = len(known) < len(literals)
        return compare_any(column, values, type_name, self.zone, with_null=with_null)

    def _like(self, node: Like) -> Bound:
        column = self._get_primitive(node.column)
        if column.type != "string":
            raise InvalidInputError(
                "LIKE takes a string column", column=".".join(column.path), type=column.type
            )
        if node.pattern is None:
            return BoundConstant(value=None)
        pattern = translate_like(node.pattern, node.escape)
        if pattern.is_literal:
            return BoundCompare(column=column, op=Op.EQ, value=pattern.prefix)
        return BoundLike(column=column, pattern=pattern)

    def _get_primitive(self, node: Column) -> BoundColumn:
        column = self._get_column(node)
        if column.type in schemas.NESTED:
            raise InvalidInputError(
                "a list, map or struct can only be compared with IS [NOT] NULL; name one of its "
                "fields",
                column=".".join(column.path),
                type=column.type,
            )
        return column

    def _get_column(self, node: Column) -> BoundColumn:
        within = self.columns
        path: list[str] = []
        found: schemas.Column | None = None
        for name in node.path:
            if found is not None and found.type != schemas.STRUCT:
                within = ()
            found = self._pick(within, name, node)
            path.append(found.name)
            within = found.children
        if found is None:
            raise InvalidInputError("a column's path is empty; name the column")
        return BoundColumn(path=tuple(path), type=found.type)

    def _pick(self, within: tuple[schemas.Column, ...], name: str, node: Column) -> schemas.Column:
        same = [item for item in within if self._key(item.name) == self._key(name)]
        if len(same) > 1:
            raise InvalidInputError(
                "several columns have this name and differ only in case; use fuse.read in a "
                "case-sensitive session, or filter the DataFrame or Arrow table by the exact name",
                column=".".join(node.path),
                columns=[item.name for item in same],
            )
        if not same:
            shown = tuple(item for item in self.columns if not schemas.is_hidden(item.name))
            spelt = {self._key(path): path for path in _paths(shown, "")}
            wanted = self._key(".".join(node.path))
            nearest = difflib.get_close_matches(wanted, spelt, n=3, cutoff=0.5)
            raise InvalidInputError(
                "there is no such column; a name with special characters needs backquotes",
                column=".".join(node.path),
                nearest=[spelt[item] for item in nearest] or list(spelt.values())[:10],
            )
        return same[0]

    def _key(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()


def _constant(literal: Literal) -> Bound:
    if literal.value is None or isinstance(literal.value, bool):
        return BoundConstant(value=literal.value)
    raise InvalidInputError(
        "a literal alone is a predicate only if it is TRUE, FALSE or NULL",
        literal=str(literal.value)[:100],
    )


def _common_type(column: BoundColumn, literals: Sequence[Literal]) -> str:
    type_name = common_type([column.type, *(literal.type for literal in literals)])
    if type_name is None:
        raise InvalidInputError(
            "these types cannot be compared; write the literal in the column's type",
            column=".".join(column.path),
            type=column.type,
            literals=sorted({literal.type for literal in literals}),
        )
    return type_name


def _paths(columns: tuple[schemas.Column, ...], parent: str) -> Iterator[str]:
    for column in columns:
        yield f"{parent}{column.name}"
        if column.type == schemas.STRUCT:
            yield from _paths(column.children, f"{parent}{column.name}.")
