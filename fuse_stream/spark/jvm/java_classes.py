"""Classes of Java that tasks run: compiled here, by the compiler that Spark has for its own code.

Where tasks must do what no class of Spark does, a proxy is no help, since it does not leave the
driver. So the package has the source of a few classes. They are compiled once in each application
and put into a jar that Spark sends to its executors, as it does for `ADD JAR`.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.proxies import java_array, java_class, jvm_of

_SOURCE = "RowChanges.java"
_CLASS = "fuse_stream.RowChanges"

_LOG = logging.getLogger(__name__)

_found: dict[str, str | Exception] = {}
"""By the id of the application: the jar, or why there is none."""


def find_classes_problem(spark: SparkSession) -> str | None:
    """Return why tasks cannot run the package's classes of Java; None if they can."""
    application = spark.sparkContext.applicationId
    if application not in _found:
        try:
            _found[application] = _compiled(spark)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is another way
            _LOG.warning("statements that change rows rewrite blocks, which is slower: %s", error)
            _found[application] = error
    found = _found[application]
    return None if isinstance(found, str) else str(found)[:500]


def new_instance(spark: SparkSession, name: str, *arguments: Any) -> Any:
    """Return a new object of one of the package's classes of Java; it may be sent to tasks."""
    jvm = jvm_of(spark)
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    loader = session.sharedState().jarClassLoader()
    (constructor,) = loader.loadClass(f"{_CLASS}${name}").getConstructors()
    return constructor.newInstance(java_array(jvm, "java.lang.Object", arguments))


def _compiled(spark: SparkSession) -> str:
    """Compile the classes, let Spark send them to executors, and return the path of the jar."""
    jvm = jvm_of(spark)
    compiler = java_class(jvm, "org.codehaus.janino.SimpleCompiler")()
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    compiler.setParentClassLoader(loader)
    compiler.cook(resources.files(__package__).joinpath("java", _SOURCE).read_text())
    codes = compiler.getBytecodes()
    folder = tempfile.mkdtemp(prefix="fuse_stream_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors may ask for it
    jar = Path(folder, "fuse_stream_row_changes.jar")
    with zipfile.ZipFile(jar, "w") as written:
        for name in codes:
            written.writestr(f"{name.replace('.', '/')}.class", bytes(codes[name]))
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    session.sessionState().resourceLoader().addJar(jar.as_uri())
    return str(jar)
