"""Proxies inherit no default method: each has every method of its interfaces, in this Spark."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fuse_stream.spark.jvm
from fuse_stream.spark.jvm.proxies import Proxy, jvm_of

for module in pkgutil.iter_modules(fuse_stream.spark.jvm.__path__):
    importlib.import_module(f"{fuse_stream.spark.jvm.__name__}.{module.name}")


def proxies(of: type[Proxy] = Proxy) -> Iterator[type[Proxy]]:
    """Yield the proxies of the package, which name their interfaces."""
    for found in of.__subclasses__():
        if found.__module__.startswith("fuse_stream.") and hasattr(found, "Java"):
            yield found
        yield from proxies(found)


ALL = sorted(set(proxies()), key=lambda proxy: f"{proxy.__module__}.{proxy.__name__}")


def methods_of(spark: SparkSession, interface: str) -> Iterator[Any]:
    jvm = jvm_of(spark)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    static = jvm.java.lang.reflect.Modifier.isStatic
    for method in jvm.java.lang.Class.forName(interface, False, loader).getMethods():  # noqa: FBT003 - Java's
        if not static(method.getModifiers()):
            yield method


def test_there_are_proxies() -> None:
    names = {proxy.__name__ for proxy in ALL}

    assert {"FuseCatalog", "FuseTable", "TableScan", "StreamSource"} <= names


@pytest.mark.parametrize("proxy", ALL, ids=lambda proxy: proxy.__name__)
def test_a_proxy_has_every_method_of_its_interfaces(
    proxy: type[Proxy], spark: SparkSession
) -> None:
    interfaces: Any = proxy.Java  # type: ignore[attr-defined]
    wanted = {
        str(method.getName()): int(method.getParameterCount())
        for interface in interfaces.implements
        for method in methods_of(spark, interface)
    }
    missing = {name for name in wanted if not callable(getattr(proxy, name, None))}

    assert wanted
    assert missing == set()
    assert callable(proxy.toString)
    assert callable(proxy.hashCode)
    assert callable(proxy.equals)
