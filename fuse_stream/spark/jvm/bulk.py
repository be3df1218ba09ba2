"""Objects of the JVM, many at a time: each call from Python takes 60 us or more.

Java itself calls a method handle, once for each index. Handles are put together from others: one
takes an item out of an array, one makes an object, one calls a method with what others return.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuse_stream.spark.jvm.proxies import java_array, java_class, java_longs

_INVOKE = "java.lang.invoke"
MANY = 64
"""So many objects take longer one by one than by handles, which some 100 calls put together."""


class Handles:
    """Makes method handles that take an index, and calls them."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._combine = java_class(jvm, f"{_INVOKE}.MethodHandles")
        self._type = java_class(jvm, f"{_INVOKE}.MethodType").methodType
        self._lookup = self._combine.publicLookup()
        self._arrays = java_class(jvm, "java.lang.reflect.Array")
        self._int = java_class(jvm, "java.lang.Integer").TYPE
        self._long = java_class(jvm, "java.lang.Long").TYPE
        self._nothing = java_class(jvm, "java.lang.Void").TYPE
        self._object = self.kind("java.lang.Object")

    def kind(self, name: str) -> Any:
        """Return a class as an object of the JVM; the name of an array begins with `[L`."""
        loader = java_class(self._jvm, "java.lang.Thread").currentThread().getContextClassLoader()
        return java_class(self._jvm, "java.lang.Class").forName(name, False, loader)  # noqa: FBT003 - Java's

    def item_of(self, array: Any) -> Any:
        """Return the handle that takes an item out of an array of the JVM."""
        return self._combine.arrayElementGetter(array.getClass()).bindTo(array)

    def result_of(self, receiver: Any, name: str, returns: Any, *arguments: tuple[Any, Any]) -> Any:
        """Return the handle that calls a public method of an object.

        `returns` is the method's type. Each argument is its type, and the handle that makes it.
        """
        types = self._classes([kind for kind, _ in arguments])
        method = self._lookup.findVirtual(receiver.getClass(), name, self._type(returns, types))
        made = [self._as(handle, kind) for kind, handle in arguments]
        called = self._combine.filterArguments(method.bindTo(receiver), 0, self._handles(made))
        return self._of_one_index(called, returns)

    def unsafe_rows(self, width: int, rows: Sequence[bytes]) -> Any:
        """Return the handle that makes Spark's `UnsafeRow`, of `width` columns, from its bytes."""
        row = self.kind("org.apache.spark.sql.catalyst.expressions.UnsafeRow")
        sizes = np.array([len(each) for each in rows])
        starts = java_class(self._jvm, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET + (
            np.cumsum(sizes) - sizes
        )
        new = self._lookup.findConstructor(
            row, self._type(self._nothing, self._classes([self._int]))
        )
        new = self._combine.insertArguments(new, 0, self._objects([width]))
        types = self._classes([self._object, self._long, self._int])
        fill = self._lookup.findVirtual(row, "pointTo", self._type(self._nothing, types))
        fill = self._combine.insertArguments(fill, 1, self._objects([b"".join(rows)]))
        places = [
            self.item_of(java_longs(self._jvm, starts)),
            self._as(self.item_of(java_longs(self._jvm, sizes)), self._int),
        ]
        fill = self._combine.filterArguments(fill, 1, self._handles(places))
        fill = self._permuted(fill, self._nothing, [row, self._int], [0, 1, 1])
        same = self._combine.dropArguments(
            self._combine.identity(row), 1, self._classes([self._int])
        )
        return self._combine.collectArguments(self._combine.foldArguments(same, fill), 0, new)

    def call(self, handle: Any, count: int) -> Any:
        """Return an array of the JVM with what a handle returns for each index below `count`."""
        found = self._arrays.newInstance(self._object, count)
        by_index = java_class(self._jvm, f"{_INVOKE}.MethodHandleProxies").asInterfaceInstance(
            self.kind("java.util.function.IntFunction"), self._as(handle, self._object)
        )
        java_class(self._jvm, "java.util.Arrays").setAll(found, by_index)
        return found

    def _as(self, handle: Any, returns: Any) -> Any:
        """Return a handle of one index whose result has a type."""
        if returns.equals(self._int):
            return self._combine.explicitCastArguments(handle, self._one_index(returns))
        return handle.asType(self._one_index(returns))

    def _one_index(self, returns: Any) -> Any:
        return self._type(returns, self._classes([self._int]))

    def _of_one_index(self, handle: Any, returns: Any) -> Any:
        """Return a handle that passes its one index for each parameter of another."""
        count = handle.type().parameterCount()
        return self._permuted(handle, returns, [self._int], [0] * count)

    def _permuted(
        self, handle: Any, returns: Any, types: Sequence[Any], order: Sequence[int]
    ) -> Any:
        positions = self._arrays.newInstance(self._int, len(order))
        for at, position in enumerate(order):
            positions[at] = position
        return self._combine.permuteArguments(
            handle, self._type(returns, self._classes(types)), positions
        )

    def _classes(self, kinds: Sequence[Any]) -> Any:
        return java_array(self._jvm, "java.lang.Class", kinds)

    def _handles(self, handles: Sequence[Any]) -> Any:
        return java_array(self._jvm, f"{_INVOKE}.MethodHandle", handles)

    def _objects(self, values: Sequence[Any]) -> Any:
        return java_array(self._jvm, "java.lang.Object", values)


def writables(jvm: Any, of: str, runs: Sequence[Sequence[bytes]]) -> Any:
    """Return a two-dimensional array of a class of Hadoop that reads itself from bytes.

    `runs` has the bytes of each object; `of` is the class's full name.
    """
    data = [struct.pack(f">{len(runs) + 1}i", len(runs), *map(len, runs))]
    data += [item for run in runs for item in run]
    kind = java_class(jvm, "java.lang.Class").forName(of)
    made = java_class(jvm, "org.apache.hadoop.io.TwoDArrayWritable")(kind)
    stream = java_class(jvm, "java.io.ByteArrayInputStream")(b"".join(data))
    made.readFields(java_class(jvm, "java.io.DataInputStream")(stream))
    return made.toArray()
