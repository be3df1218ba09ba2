"""A WHERE text as the session's own analyser resolves it, and what of it statistics can answer.

Settings decide what a text means: ANSI mode, escapes, quotes, the type of TIMESTAMP, case, `${…}`.
Spark resolves the text under all of them; here its resolved tree is read, never the text.

Rules:
- The bound is loose: every row that Spark's filter keeps satisfies it.
- The text is parsed once, for what prunes and for Spark's filter: `TIMESTAMP 'now'` is one time.
- What is not read here (functions, arithmetic, subqueries) rules out nothing. Spark filters by it.
- A cast of a literal is done as ANSI mode does it. Where that fails, other modes differ, and the
  comparison rules out nothing; where it succeeds, they agree.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.bound import (
    Bound,
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIsNull,
    BoundLike,
    BoundNot,
    BoundOr,
)
from fuse_stream.format.coercion import beyond_longs, compare_any, compare_as
from fuse_stream.format.like import translate_like
from fuse_stream.format.literals import cast_literal
from fuse_stream.format.predicate import Literal, Op
from fuse_stream.format.records import Value
from fuse_stream.format.schema import Schema
from fuse_stream.format.times import zone_of
from fuse_stream.spark.expression import CastColumn, Leaves, Node, parse_tree
from fuse_stream.spark.guard import SPARK_ERRORS
from fuse_stream.spark.types import spark_schema

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

MAX_HEIGHT = 64
"""Of what is read; Spark balances long chains of AND and OR."""
MAX_ASKED = 256
"""Each takes calls into the JVM."""

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
"""Expressions that hold no plan, so that all of their columns are in the tree."""
_BOOLEANS = {None: None, "true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What statistics can answer of a predicate, and which columns it looks at."""

    bound: Bound
    columns: frozenset[str] | None
    """Top columns by name; None if not all are known."""


def analyse(spark: SparkSession, schema: Schema, where: str) -> tuple[Condition, JavaObject]:
    """Return what `where` asks of rows of `schema`, in this session, and the Column to filter by.

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
        # A function that is written in SQL becomes a plan around the filter.
        if plan.nodeName() != "Filter" or not plan.child().children().isEmpty():
            return nothing, condition
        expression = plan.condition()
        tree = expression.toJSON()
    except SPARK_ERRORS as error:
        raise refused(error) from error
    return read_condition(tree, schema, expression.apply), condition


def refused(error: Exception) -> InvalidInputError:
    """Return the error for a predicate that Spark has no meaning for."""
    reason = str(error).partition("\n")[0]
    return InvalidInputError(
        "Spark refuses the predicate; correct it, or write it on the DataFrame", reason=reason[:300]
    )


def read_condition(tree: str, schema: Schema, node_at: Callable[[int], Any]) -> Condition:
    """Return what `tree` says, the JSON of an expression of Spark's.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    leaves: Leaves
    ask: Callable[[int], Any]
    """Returns the JVM's expression at a position of the tree; None once many were asked for."""

    def loose(self, node: Node) -> Bound | None:
        """Return a bound that is true wherever `node` is; None if nothing is known."""
        if node.height > MAX_HEIGHT:
            return None
        if node.name == "And":
            found = [bound for bound in map(self.loose, node.children) if bound is not None]
            return BoundAnd(operands=tuple(found)) if found else None
        if node.name == "Or":
            return _all_of(BoundOr, map(self.loose, node.children))
        if (body := _between(node)) and self.leaves.common is None:
            return self._within(node).loose(body)
        return self.exact(node)

    def exact(self, node: Node) -> Bound | None:
        """Return a bound with the outcome of `node`; None if there is none.

        Where a cast of a column overflows it is true or false, and Spark's outcome null or an
        error: so its negation is loose as well.
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
                except InvalidInputError:  # Spark may do what is refused here, or refuse it itself
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
            case "In":
                return self._in(node)
            case "Like":
                return self._like(node)
            case "EqualNullSafe":
                return self._null_safe(node)
            case _ if node.name in _OPS:
                return self._comparison(node)
            case _:
                return None

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
        # A cast may make nulls of values.
        if column is None or column.type != column.column.type:
            return None
        return BoundIsNull(column=column.column)

    def _in(self, node: Node) -> Bound | None:
        column = self.leaves.column(node.children[0])
        literals = [self.leaves.literal(item) for item in node.children[1:]]
        known = [item for item in literals if item is not None]
        if column is None or len(known) < len(literals):
            return None
        if any(item.type != column.type for item in known):
            return None
        values = [_value(item) for item in known if item.value is not None]
        with_null = len(values) < len(known)
        return compare_any(column.column, values, column.type, column.zone, with_null=with_null)

    def _like(self, node: Node) -> Bound | None:
        sides = self._sides(*node.children)
        if sides is None:
            return None
        column, literal = sides
        if column.column.type != "string" or column.type != "string":
            return None
        if literal.value is None:
            return BoundConstant(value=None)
        like = self.ask(node.position)  # a tree does not have the escape
        if like is None:
            return None
        pattern = translate_like(str(literal.value), like.escapeChar())
        if pattern.is_literal:
            return BoundCompare(column=column.column, op=Op.EQ, value=pattern.prefix)
        return BoundLike(column=column.column, pattern=pattern)


def _between(node: Node) -> Node | None:
    """Return what a BETWEEN stands for, over a reference to what is tested; None for others."""
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


def _value(literal: Literal) -> Value:
    return cast_literal(literal, literal.type, zone_of("UTC"))


def _all_of(kind: type[BoundAnd | BoundOr], operands: Any) -> Bound | None:
    found = tuple(operands)
    return None if None in found else kind(operands=found)
