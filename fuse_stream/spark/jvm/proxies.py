"""Python objects that implement interfaces of Java; Spark calls them in the driver's process.

Rules:
- A proxy inherits no default method of Java: it has every method of its interfaces.
- No proxy reaches an executor: what is sent to tasks is made of Spark's own classes.
- Two proxies are equal if they are one object, unless their class says otherwise. With another
  rule, Spark took two streams for one. The other one in `equals` is always an object of Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from py4j.java_collections import JavaArray
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


class Proxy:
    """The methods of `java.lang.Object`."""

    def toString(self) -> str:  # noqa: N802 - Java's name
        return type(self).__name__

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        return id(self) & 0x7FFF_FFFF

    def equals(self, other: object) -> bool:
        return other is self


def jvm_of(spark: SparkSession) -> Any:
    """Return the JVM of a classic session, which can now call Python objects."""
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
    return spark._jvm  # noqa: SLF001 - the same


def java_class(jvm: Any, name: str) -> Any:
    """Return a class of Java by its full name, with one call; `jvm.a.b.C` takes one a part."""
    return getattr(jvm, name)


def scala_object(jvm: Any, name: str) -> Any:
    """Return the single instance of a Scala `object`, by its full name."""
    return getattr(java_class(jvm, f"{name}$"), "MODULE$")


def scala_seq(jvm: Any, items: Iterable[Any]) -> Any:
    """Return a Scala `Seq`; of an array of the JVM, in three calls."""
    if isinstance(items, JavaArray):
        return jvm.PythonUtils.toSeq(java_class(jvm, "java.util.Arrays").asList(items))
    found = java_class(jvm, "java.util.ArrayList")()
    for item in items:
        found.add(item)
    return jvm.PythonUtils.toSeq(found)


def java_array(jvm: Any, of: str, items: Iterable[Any]) -> Any:
    """Return a Java array of the class named `of`; its items may be proxies."""
    kept = list(items)
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    kind = java_class(jvm, "java.lang.Class").forName(of, False, loader)  # noqa: FBT003 - Java's
    arrays = java_class(jvm, "java.lang.reflect.Array")
    found = arrays.newInstance(kind, len(kept))
    for at, item in enumerate(kept):
        arrays.set(found, at, item)  # the array's own item assignment takes no proxy
    return found


def java_strings(jvm: Any, items: Iterable[str]) -> Any:
    """Return a Java array of strings."""
    return java_array(jvm, "java.lang.String", items)


def java_longs(jvm: Any, numbers: np.ndarray) -> Any:
    """Return a Java array of `long`, which is sent in one piece."""
    array = java_class(jvm, "java.lang.reflect.Array")
    found = array.newInstance(java_class(jvm, "java.lang.Long").TYPE, len(numbers))
    buffer = java_class(jvm, "java.nio.ByteBuffer").wrap(numbers.astype(">i8").tobytes())
    buffer.asLongBuffer().get(found)
    return found


def java_set(jvm: Any, items: Iterable[Any]) -> Any:
    """Return a Java set."""
    found = java_class(jvm, "java.util.HashSet")()
    for item in items:
        found.add(item)
    return found


def is_called_by(jvm: Any, caller: str) -> bool:
    """True if `caller` is on the stack of the thread in which Spark makes the current call.

    Args:
        jvm: the JVM of a classic session.
        caller: part of the text of a stack trace, such as a class and its method.
    """
    text = java_class(jvm, "java.io.StringWriter")()
    stack = java_class(jvm, "java.lang.Throwable")()
    stack.printStackTrace(java_class(jvm, "java.io.PrintWriter")(text))
    # The whole text would take py4j 40 ms.
    return int(text.getBuffer().indexOf(caller)) >= 0


def options_of(options: Any) -> dict[str, str]:
    """Return the options of Spark's `CaseInsensitiveStringMap`, as the user spelt them."""
    given = options.asCaseSensitiveMap()
    # The iterator of Java's map ends with an error, which takes pyspark 80 ms.
    return {name: given.get(name) for name in given.keySet().toArray()}


def java_map(jvm: Any, items: Mapping[str, str]) -> Any:
    """Return a Java map of strings."""
    found = java_class(jvm, "java.util.LinkedHashMap")()
    for name, value in items.items():
        found.put(name, value)
    return found
