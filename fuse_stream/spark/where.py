"""A predicate that Spark's analyser has resolved, and the bound of it that statistics can answer.

Settings decide what a text means: ANSI mode, escapes, quotes, the type of TIMESTAMP, case, `${…}`.
Spark resolves the text under all of them; this module reads the resolved tree, never the text.

Rules:
- The bound is loose: every row that Spark's filter keeps satisfies it.
- The text is parsed once, for pruning and for Spark's filter: `TIMESTAMP 'now'` is one time.
- Other expressions (functions, arithmetic, subqueries) prune nothing. Spark filters by them.
- A literal is cast as in ANSI mode. If that fails, other modes may give another value, and the
  comparison prunes nothing; if it succeeds, all modes agree.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.format.schema import NESTED, STRUCT, Column, Schema, decimal_of
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
    digits_of,
)
from fuse_stream.predicate.times import zone_of
from fuse_stream.predicate.tree import Literal, Op
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.types import spark_schema

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_PACKAGE = "org.apache.spark.sql.catalyst.expressions."
_REPLACEMENT = "\ufffd"
_ASKED = frozenset({"timestamp", "binary"})
"""Types of literals that must be read from the JVM: the tree shows times without zone, no bytes."""
_IN_TREE = frozenset({"boolean", "string", "date", "float", "double"})
_NO_ZONE = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One of Spark's expressions."""

    name: str
    """The name of its class."""
    fields: dict[str, Any]
    children: tuple[Node, ...]
    position: int
    """Its index in the tree, depth first, from 0."""
    height: int


def parse_tree(tree: str) -> tuple[Node, list[Node]]:
    """Return the root and all nodes of a tree in the form of Spark's `toJSON`."""
    pending: list[Node] = []
    nodes: list[Node] = []
    listed = orjson.loads(tree)
    for position in range(len(listed) - 1, -1, -1):  # a parent precedes its children
        fields = listed[position]
        children = tuple(pending.pop() for _ in range(fields["num-children"]))
        node = Node(
            name=fields["class"].removeprefix(_PACKAGE),
            fields=fields,
            children=children,
            position=position,
            height=1 + max((child.height for child in children), default=0),
        )
        pending.append(node)
        nodes.append(node)
    return pending[0], nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class CastColumn:
    """A column, and the type that it is cast to; its own type if it is not cast."""

    column: BoundColumn
    type: str
    zone: tzinfo
    """The zone of the cast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Reads the columns and literals of one tree."""

    schema: Schema
    literal_at: Callable[[int], object]
    """Returns the value of the literal at a position; None if it is not known."""
    common: Node | None = None
    """The expression that a `CommonExpressionRef` refers to."""

    def top_column(self, name: str) -> Column | None:
        """Return the table's column for an attribute's name; None if it is not the table's."""
        # The name has the case of the predicate's text; Spark found exactly one column for it.
        folded = name.lower()
        for is_same in (lambda item: item.name == name, lambda item: item.name.lower() == folded):
            if found := next(filter(is_same, self.schema.columns), None):
                return found
        return None

    def column(self, node: Node, *, nested: bool = False) -> CastColumn | None:
        """Return a node's column; None unless it is a column or a cast of one that keeps order.

        Lists, maps and structs are returned only if `nested`.
        """
        casts, node = _uncast(node)
        if node.name == "CommonExpressionRef" and self.common is not None:
            inner, node = _uncast(self.common)
            casts += inner
        named = self._named(node)
        if named is None or (named[1].type in NESTED and not nested):
            return None
        path, column = named
        found: CastColumn | None = CastColumn(
            column=BoundColumn(path=path, type=column.type),
            type=column.type,
            zone=zone_of(_NO_ZONE),
        )
        for cast in reversed(casts):
            found = found and _cast_column(found, cast)
        return found

    def literal(self, node: Node) -> Literal | None:
        """Return a node's literal, with its casts done; None for other expressions.

        Raises:
            InvalidInputError: ANSI mode refuses the cast, or it is not supported here.
        """
        if node.name == "Cast":
            inner = self.literal(node.children[0])
            return inner and _cast_literal(inner, node)
        if node.name != "Literal":
            return None
        type_name, value = _type_of(node), node.fields["value"]
        if value is None:
            return Literal(value=None, type=type_name)
        if type_name in _ASKED:
            exact = self.literal_at(node.position)
            return Literal(value=exact, type=type_name) if isinstance(exact, int | bytes) else None
        if type_name == "timestamp_ntz":
            return Literal(value=int(value), type=type_name)
        if (type_name in _IN_TREE or digits_of(type_name)) and _REPLACEMENT not in value:
            text = Literal(value=value, type="string")
            return Literal(value=cast_literal(text, type_name, zone_of(_NO_ZONE)), type=type_name)
        return None

    def _named(self, node: Node) -> tuple[tuple[str, ...], Column] | None:
        if node.name == "AttributeReference":
            column = self.top_column(node.fields["name"])
            return None if column is None else ((column.name,), column)
        if node.name != "GetStructField":
            return None
        parent = self._named(node.children[0])
        if parent is None or parent[1].type != STRUCT:
            return None
        child = parent[1].children[node.fields["ordinal"]]
        return (*parent[0], child.name), child


def _uncast(node: Node) -> tuple[list[Node], Node]:
    """Return the casts around an expression, outermost first, and the expression itself."""
    casts = []
    while node.name == "Cast":
        casts.append(node)
        node = node.children[0]
    return casts, node


def _cast_column(found: CastColumn, cast: Node) -> CastColumn | None:
    """Return the column with one more cast; None if the casts may not keep order."""
    own, to = found.column.type, _type_of(cast)
    if found.type == own:
        in_order = common_type([own, to]) == to or bool(digits_of(own) and decimal_of(to))
    else:  # a second cast: the first one must have kept every value
        exact = decimal_of(found.type) and common_type([own, found.type]) == found.type
        in_order = bool(exact and decimal_of(to))
    return CastColumn(column=found.column, type=to, zone=_zone_of(cast)) if in_order else None


def _cast_literal(inner: Literal, cast: Node) -> Literal:
    type_name = _type_of(cast)
    if inner.value is None or inner.type == type_name:
        return Literal(value=inner.value, type=type_name)
    return Literal(value=cast_literal(inner, type_name, _zone_of(cast)), type=type_name)


def _zone_of(cast: Node) -> tzinfo:
    return zone_of(cast.fields.get("timeZoneId") or _NO_ZONE)


def _type_of(node: Node) -> str:
    data_type = node.fields["dataType"]
    return data_type if isinstance(data_type, str) else ""  # lists, maps and structs are objects


MAX_HEIGHT = 64
"""The greatest height of a node that is read; Spark balances long chains of AND and OR."""
MAX_ASKED = 256
"""The most nodes that are read from the JVM: each takes several calls."""

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


def bound_of(expression: Any, schema: Schema) -> Bound:
    """Return the bound of one of Spark's expressions, on rows of a table with `schema`."""
    return read_condition(expression.toJSON(), schema, expression.apply).bound


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


def _value(literal: Literal) -> Value:
    return cast_literal(literal, literal.type, zone_of("UTC"))


def _all_of(kind: type[BoundAnd | BoundOr], operands: Any) -> Bound | None:
    found = tuple(operands)
    return None if None in found else kind(operands=found)
