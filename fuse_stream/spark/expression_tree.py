"""Spark's expressions as trees, and the columns and literals in them.

Rules:
- A tree is read from its JSON, in one call of the JVM; what that lacks is asked for by position.
- A literal is cast as in ANSI mode. If that fails, other modes may give another value, and nothing
  is known of it; if it succeeds, all modes agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import orjson

from fuse_stream.format.schema import NESTED, STRUCT, Column, Schema, decimal_of
from fuse_stream.predicate.bound import BoundColumn
from fuse_stream.predicate.casts import cast_literal, common_type, digits_of
from fuse_stream.predicate.times import zone_of
from fuse_stream.predicate.tree import Literal

_PACKAGE = "org.apache.spark.sql.catalyst.expressions."
_REPLACEMENT = "\ufffd"
_ASKED = frozenset({"timestamp", "binary"})
"""Types of literals that must be read from the JVM: the tree shows times without zone, no bytes."""
_IN_TREE = frozenset({"boolean", "string", "date", "float", "double"})
_NO_ZONE = "UTC"
_INTEGERS = frozenset({"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"})
"""Types whose values are integers in the JVM."""
_SEPARATOR = "\0"


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
        path, column, _ = named
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

    def _named(self, node: Node) -> tuple[tuple[str, ...], Column, Any] | None:
        """Return the path and the column of a node, and its type in the tree."""
        if node.name == "AttributeReference":
            column = self.top_column(node.fields["name"])
            return None if column is None else ((column.name,), column, node.fields["dataType"])
        if node.name != "GetStructField":
            return None
        parent = self._named(node.children[0])
        if parent is None or parent[1].type != STRUCT:
            return None
        path, struct, type_in_tree = parent
        # Spark's optimizer leaves fields out that a query does not use, so positions differ.
        field = type_in_tree["fields"][node.fields["ordinal"]]
        for child in struct.children:
            if child.name == field["name"]:
                return (*path, child.name), child, field["type"]
        return None


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


def literals_of(values: Any, type_name: str) -> list[Literal] | None:
    """Return the values of a Scala `Set` as literals of a type; None if they cannot be read.

    Spark's optimizer makes such a set of a long list of literals.
    """
    if type_name not in _INTEGERS and type_name != "string":
        return None
    with_null = values.contains(None)
    texts = str(values.mkString(_SEPARATOR)).split(_SEPARATOR)
    if len(texts) != values.size() or any(_REPLACEMENT in text for text in texts):
        return None
    if with_null:
        texts.remove("null")
    found = [
        Literal(value=text if type_name == "string" else int(text), type=type_name)
        for text in texts
    ]
    return [*found, Literal(value=None, type=type_name)] if with_null else found
