"""A predicate that Spark has resolved, and the bound of it that statistics can answer.

It is the condition of a read, or the filters with which Spark's planner asks for files. Settings
decide what a text means: ANSI mode, escapes, quotes, the type of TIMESTAMP, case, `${…}`. Spark
resolves the text under all of them; this module reads the resolved tree, never the text.

Rules:
- The bound is loose: every row that Spark's filter keeps satisfies it.
- The text is parsed once, for pruning and for Spark's filter: `TIMESTAMP 'now'` is one time.
- Other expressions (functions, arithmetic, subqueries) prune nothing. Spark filters by them.
- A comparison with a literal that ANSI mode refuses to cast prunes nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.format.schema import Schema
from fuse_stream.predicate.bound import (
    Bound,
    BoundAnd,
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
    compare_any,
    compare_as,
)
from fuse_stream.predicate.times import zone_of
from fuse_stream.predicate.tree import Literal, Op
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.expression_tree import CastColumn, Leaves, Node, literals_of, parse_tree
from fuse_stream.spark.types import spark_schema

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

MAX_HEIGHT = 64
"""The greatest height of a node that is read; Spark balances long chains of AND and OR."""
MAX_ASKED = 256
"""The most nodes that are read from the JVM: each takes several calls."""
MAX_LISTED = 64
"""The most values of Spark's sets of literals that are compared one by one with each block."""

_OPS = {
    "EqualTo": Op.EQ,
    "LessThan": Op.LT,
    "LessThanOrEqual": Op.LE,
    "GreaterThan": Op.GT,
    "GreaterThanOrEqual": Op.GE,
}
_KNOWN = frozenset(
    {
        *_OPS,
        *("And", "Or", "Not", "IsNull", "IsNotNull", "In", "Like", "EqualNullSafe", "Between"),
        *("With", "CommonExpressionRef", "CommonExpressionDef"),
        *("AttributeReference", "GetStructField", "Literal", "Cast"),
    }
)
"""Expressions without a subquery: all of their columns are in the tree."""
_BOOLEANS = {None: None, "true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A predicate's bound, for pruning, and its columns."""

    bound: Bound
    columns: frozenset[str] | None
    """The names of the top-level columns; None if not all are known."""


def analyse(spark: SparkSession, schema: Schema, where: str) -> tuple[Condition, JavaObject]:
    """Return the condition of `where` on rows of `schema`, and the JVM's Column to filter by.

    Raises:
        InvalidInputError: Spark refuses the predicate.
    """
    if not isinstance(where, str):
        raise InvalidInputError("where is a SQL predicate as text", where=where)
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - the same
    fields = user.parseDataType(spark_schema(schema).json())
    nothing = Condition(bound=BoundConstant(value=True), columns=None)
    try:
        rows = user.createDataFrame(jvm.java.util.ArrayList(), fields).filter(where)
        parsed = rows.queryExecution().logical().condition()
        condition = jvm.org.apache.spark.sql.classic.ExpressionUtils.column(parsed)
        plan = rows.queryExecution().analyzed()
        # With a function that is written in SQL, the plan has more nodes than the filter.
        if plan.nodeName() != "Filter" or not plan.child().children().isEmpty():
            return nothing, condition
        expression = plan.condition()
        tree = expression.toJSON()
    except SPARK_ERRORS as error:
        raise refused(error) from error
    return read_condition(tree, schema, expression.apply), condition


def refused(error: Exception) -> InvalidInputError:
    """Return the error to raise for a predicate that Spark refuses."""
    return InvalidInputError(
        "Spark refuses the predicate; correct it, or filter the DataFrame", reason=reason_of(error)
    )


def reason_of(error: Exception) -> str:
    """Return the first line of what Spark says."""
    return str(error).strip().partition("\n")[0][:300]


def read_condition(tree: str, schema: Schema, node_at: Callable[[int], Any]) -> Condition:
    """Return the condition of `tree`, the JSON of one of Spark's expressions.

    `node_at` returns the JVM's expression at a position of the tree.
    """
    root, nodes = parse_tree(tree)
    asked = itertools.count()

    def ask(at: int) -> Any:
        return node_at(at) if next(asked) < MAX_ASKED else None

    def literal_at(at: int) -> object:
        node = ask(at)
        return None if node is None else node.value()

    reader = _Reader(leaves=Leaves(schema=schema, literal_at=literal_at), ask=ask)
    bound = reader.loose(root)
    written = {node.fields["name"] for node in nodes if node.name == "AttributeReference"}
    columns = [reader.leaves.top_column(name) for name in written]
    names = frozenset(column.name for column in columns if column is not None)
    is_known = len(names) == len(written) and all(node.name in _KNOWN for node in nodes)
    return Condition(
        bound=BoundConstant(value=True) if bound is None else bound,
        columns=names if is_known else None,
    )


def read_filters(filters: Any, schema: Schema) -> Bound | None:
    """Return the bound of a sequence of Spark's expressions that all hold; None if none is known.

    Their attributes have the names of the columns of `schema`.
    """
    found = []
    for at in range(filters.size()):
        expression = filters.apply(at)
        condition = read_condition(expression.toJSON(), schema, expression.apply)
        if not isinstance(condition.bound, BoundConstant):
            found.append(condition.bound)
    return BoundAnd(operands=tuple(found)) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    leaves: Leaves
    ask: Callable[[int], Any]
    """Returns the JVM's expression at a position of the tree; None after `MAX_ASKED` calls."""

    def loose(self, node: Node) -> Bound | None:
        """Return a bound that is true for every row for which `node` is; None if none is known."""
        if node.height > MAX_HEIGHT:
            return None
        if node.name == "And":
            found = [bound for bound in map(self.loose, node.children) if bound is not None]
            return BoundAnd(operands=tuple(found)) if found else None
        if node.name == "Or":
            return _all_of(BoundOr, map(self.loose, node.children))
        if (body := _between(node)) and self.leaves.common is None:
            return self._within(node).loose(body)
        if node.name == "InSet":
            return self._within_set(node)
        return self.exact(node)

    def exact(self, node: Node) -> Bound | None:
        """Return a bound with the same value as `node`; None if none is known.

        Where a column's cast overflows, the bound is true or false, while Spark's value is null or
        an error. So the negation of the bound is loose as well.
        """
        if (body := _between(node)) and self.leaves.common is None:
            return self._within(node).exact(body)
        match node.name:
            case "And":
                return _all_of(BoundAnd, map(self.exact, node.children))
            case "Or":
                return _all_of(BoundOr, map(self.exact, node.children))
            case "Not":
                operand = self.exact(node.children[0])
                return operand and BoundNot(operand=operand)
            case _:
                try:
                    return self._test(node)
                except InvalidInputError:  # not supported here; Spark decides
                    return None

    def _within(self, node: Node) -> _Reader:
        common = node.children[0].children[1].children[0]
        return dataclasses.replace(self, leaves=dataclasses.replace(self.leaves, common=common))

    def _test(self, node: Node) -> Bound | None:
        match node.name:
            case "Literal":
                literal = self.leaves.literal(node)
                known = literal and literal.type in {"boolean", "void"}
                return BoundConstant(value=_BOOLEANS[node.fields["value"]]) if known else None
            case "AttributeReference" | "GetStructField":
                column = self.leaves.column(node)
                if column is None or column.type != "boolean":
                    return None
                return BoundCompare(column=column.column, op=Op.EQ, value=True)
            case "IsNull" | "IsNotNull":
                found = self._is_null(self.leaves.column(node.children[0], nested=True))
                return found if node.name == "IsNull" else found and BoundNot(operand=found)
            case _ if node.name in _OPS:
                return self._comparison(node)
            case _:
                tests = {
                    "In": self._in,
                    "InSet": self._in_set,
                    "Like": self._like,
                    "StartsWith": self._starts_with,
                    "EqualNullSafe": self._null_safe,
                }
                return tests[node.name](node) if node.name in tests else None

    def _comparison(self, node: Node) -> Bound | None:
        op = _OPS[node.name]
        if sides := self._sides(*node.children):
            return _compare(sides[0], op, sides[1])
        if sides := self._sides(*reversed(node.children)):
            return _compare(sides[0], op.mirrored(), sides[1])
        return None

    def _null_safe(self, node: Node) -> Bound | None:
        sides = self._sides(*node.children) or self._sides(*reversed(node.children))
        if sides is None:
            return None
        column, literal = sides
        if literal.value is None:
            return self._is_null(column)
        known = BoundNot(operand=BoundIsNull(column=column.column))
        return BoundAnd(operands=(known, _compare(column, Op.EQ, literal)))

    def _sides(self, left: Node, right: Node) -> tuple[CastColumn, Literal] | None:
        column, literal = self.leaves.column(left), self.leaves.literal(right)
        if column is None or literal is None or column.type != literal.type:
            return None
        return column, literal

    def _is_null(self, column: CastColumn | None) -> Bound | None:
        # A cast may turn values into nulls.
        if column is None or column.type != column.column.type:
            return None
        return BoundIsNull(column=column.column)

    def _in(self, node: Node) -> Bound | None:
        column = self.leaves.column(node.children[0])
        literals = [self.leaves.literal(item) for item in node.children[1:]]
        known = [item for item in literals if item is not None]
        if column is None or len(known) < len(literals):
            return None
        is_alike = all(item.type == column.type for item in known)
        return _any_of(column, known) if is_alike else None

    def _in_set(self, node: Node) -> Bound | None:
        found = self._set_of(node)
        return None if found is None or len(found[1]) > MAX_LISTED else _any_of(*found)

    def _within_set(self, node: Node) -> Bound | None:
        """Return a loose bound of a set: of a large one, that the value is between its ends."""
        found = self._set_of(node)
        if found is None:
            return None
        column, literals = found
        values = [item for item in literals if item.value is not None]
        if len(literals) <= MAX_LISTED or not values:
            return _any_of(column, literals)
        in_order = sorted(values, key=lambda item: item.value)  # type: ignore[arg-type, return-value]  # of one type
        ends = (Op.GE, in_order[0]), (Op.LE, in_order[-1])
        return BoundAnd(operands=tuple(_compare(column, op, end) for op, end in ends))

    def _set_of(self, node: Node) -> tuple[CastColumn, list[Literal]] | None:
        column, found = self.leaves.column(node.children[0]), self.ask(node.position)
        literals = (
            None if column is None or found is None else literals_of(found.hset(), column.type)
        )
        return None if column is None or literals is None else (column, literals)

    def _starts_with(self, node: Node) -> Bound | None:
        sides = self._sides(*node.children)
        if sides is None or sides[0].column.type != "string" or sides[1].value is None:
            return None
        prefix = re.sub(r"([\\%_])", r"\\\1", str(sides[1].value))
        return BoundLike(column=sides[0].column, pattern=translate_like(f"{prefix}%", "\\"))

    def _like(self, node: Node) -> Bound | None:
        sides = self._sides(*node.children)
        if sides is None:
            return None
        column, literal = sides
        if column.column.type != "string" or column.type != "string":
            return None
        if literal.value is None:
            return BoundConstant(value=None)
        like = self.ask(node.position)  # the tree lacks the escape character
        if like is None:
            return None
        pattern = translate_like(str(literal.value), like.escapeChar())
        if pattern.is_literal:
            return BoundCompare(column=column.column, op=Op.EQ, value=pattern.prefix)
        return BoundLike(column=column.column, pattern=pattern)


def _between(node: Node) -> Node | None:
    """Return the comparisons of a BETWEEN, over a common expression; None for other nodes."""
    if node.name != "Between" or len(node.children) != 1:
        return None
    (within,) = node.children
    return within.children[0] if within.name == "With" and len(within.children) == 2 else None


def _compare(column: CastColumn, op: Op, literal: Literal) -> Bound:
    if literal.value is None:
        return BoundConstant(value=None)
    if (always := beyond_longs(column.column, op, literal.value)) is not None:
        return BoundConstant(value=always)
    return compare_as(column.column, op, _value(literal), column.type, column.zone)


def _any_of(column: CastColumn, literals: list[Literal]) -> Bound:
    values = [_value(item) for item in literals if item.value is not None]
    with_null = len(values) < len(literals)
    return compare_any(column.column, values, column.type, column.zone, with_null=with_null)


def _value(literal: Literal) -> Value:
    return cast_literal(literal, literal.type, zone_of("UTC"))


def _all_of(kind: type[BoundAnd | BoundOr], operands: Any) -> Bound | None:
    found = tuple(operands)
    return None if None in found else kind(operands=found)
