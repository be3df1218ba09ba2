"""Errors in objects that Spark calls: the user of Spark gets their message.

py4j turns an error of a Python object into the text of its traceback, at the end of which is the
message. Only an error that carries an exception of Java is thrown as this exception, and only if
the server of callbacks says so. Here it says so for the errors of the classes below, and for no
other: what a user's own function for `foreachBatch` raises arrives as before.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from fuse_stream.errors import FuseError, UnsupportedEnvironmentError
from fuse_stream.spark.jvm.proxies import Proxy, jvm_of


class ThrownInJavaError(Py4JJavaError):  # type: ignore[misc]  # py4j has no hints
    """An error that Spark gets as the exception of Java that it carries."""

    def __init__(self, exception: Any) -> None:
        super().__init__("an error for Spark", exception)


class _IfThrownInJava:
    """True while py4j handles a `ThrownInJavaError`."""

    def __bool__(self) -> bool:
        return isinstance(sys.exc_info()[1], ThrownInJavaError)


def let_errors_through(spark: SparkSession) -> None:
    """Make the server of callbacks throw what a `ThrownInJavaError` carries.

    Raises:
        UnsupportedEnvironmentError: py4j has no such setting.
    """
    jvm_of(spark)  # starts the server
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark offers no public way
    parameters = gateway.callback_server_parameters
    now = getattr(parameters, "propagate_java_exceptions", None)
    if now is None:
        raise UnsupportedEnvironmentError("this py4j cannot pass exceptions on to Java")
    if now is False:
        parameters.propagate_java_exceptions = _IfThrownInJava()


class SpeakingProxy(Proxy):
    """A proxy whose errors, of this package and of Spark, reach the user with their own message."""

    jvm: Any

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if callable(method) and not name.startswith("_") and not isinstance(method, type):
                setattr(cls, name, _speaking(method))


def _speaking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: SpeakingProxy, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except CapturedException as error:  # Spark's own
            origin = error._origin  # noqa: SLF001 - pyspark offers no public way
            if origin is None:
                raise
            raise ThrownInJavaError(origin) from error
        except Py4JJavaError as error:  # Spark's own as well, such as that of a failed task
            raise ThrownInJavaError(error.java_exception) from error
        except FuseError as error:
            raise ThrownInJavaError(java_exception(self.jvm, error)) from error

    return call


class NamedProxy(SpeakingProxy):
    """One that equals those with the same text: for objects that Spark shares or caches."""

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        return hash(self.toString()) & 0x7FFF_FFFF

    def equals(self, other: Any) -> bool:
        # The other is Java's, also where it is a proxy; its text comes from its Python object.
        return other is not None and bool(other.toString() == self.toString())


def java_exception(jvm: Any, error: FuseError) -> Any:
    """Return an exception of Java with the class and the message of an error."""
    # pyspark shows the message of this class of Java's without a stack trace.
    return jvm.java.lang.IllegalArgumentException(f"{type(error).__name__}: {error}")
