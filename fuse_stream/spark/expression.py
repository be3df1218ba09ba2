"""Expressions as Spark's analyser resolved them: their tree, and the columns and literals in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import orjson

from fuse_stream.format.bound import BoundColumn
from fuse_stream.format.coercion import common_type, digits_of
from fuse_stream.format.literals import cast_literal
from fuse_stream.format.predicate import Literal
from fuse_stream.format.schema import NESTED, STRUCT, Column, Schema, decimal_of
from fuse_stream.format.times import zone_of

_PACKAGE = "org.apache.spark.sql.catalyst.expressions."
_REPLACEMENT = "\ufffd"
_ASKED = frozenset({"timestamp", "binary"})
"""Types whose literals a tree does not hold: it shows a time in some zone, and bytes not at all."""
_TOLD = frozenset({"boolean", "string", "date", "float", "double"})
_NO_ZONE = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An expression of Spark's."""

    name: str
    """Its class."""
    fields: dict[str, Any]
    children: tuple[Node, ...]
    position: int
    """In the tree, depth first, from 0."""
    height: int


def parse_tree(tree: str) -> tuple[Node, list[Node]]:
    """Return the root of a tree as Spark's `toJSON` writes it, and all of its nodes."""
    pending: list[Node] = []
    nodes: list[Node] = []
    listed = orjson.loads(tree)
    for position in range(len(listed) - 1, -1, -1):  # a parent stands before its children
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
    """A column, and the type that it is cast to: its own if it is not cast."""

    column: BoundColumn
    type: str
    zone: tzinfo
    """Of the cast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Reads the columns and literals of one tree."""

    schema: Schema
    literal_at: Callable[[int], object]
    """Returns the value of the literal at a position; None if it cannot be told."""
    common: Node | None = None
    """What a reference to a common expression stands for."""

    def top_column(self, name: str) -> Column | None:
        """Return the column that an attribute of this name is; None for one from elsewhere."""
        # An attribute keeps the case that it was written in, and Spark found one column only.
        folded = name.lower()
        for is_same in (lambda item: item.name == name, lambda item: item.name.lower() == folded):
            if found := next(filter(is_same, self.schema.columns), None):
                return found
        return None

    def column(self, node: Node, *, nested: bool = False) -> CastColumn | None:
        """Return the column that `node` is, or is a cast of that keeps order; None for others.

        Lists, maps and structs only if `nested`.
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
        """Return the literal that `node` is, or is a cast of; None for other expressions.

        Raises:
            InvalidInputError: it is cast in a way that ANSI mode refuses, or that is not done here.
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
        if (type_name in _TOLD or digits_of(type_name)) and _REPLACEMENT not in value:
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
    """Return the casts around an expression, the outermost first, and the expression."""
    casts = []
    while node.name == "Cast":
        casts.append(node)
        node = node.children[0]
    return casts, node


def _cast_column(found: CastColumn, cast: Node) -> CastColumn | None:
    """Return a column that is cast once more; None where the casts may not keep order."""
    own, to = found.column.type, _type_of(cast)
    if found.type == own:
        in_order = common_type([own, to]) == to or bool(digits_of(own) and decimal_of(to))
    else:  # twice: the first must have kept every value
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
