"""A procedure of Spark's SQL: what it is made of, and the object that Spark calls."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.metadata_tables import LocalRows
from fuse_stream.spark.jvm.proxies import java_array, java_class, jvm_of
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation
from fuse_stream.table.metadata_tables import Row

_PROCEDURES = "org.apache.spark.sql.connector.catalog.procedures"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Locate = Callable[[str], TableLocation]
"""Returns the location of a table by its name in the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a procedure; one with a default may be left out."""

    name: str
    type: str
    """Of Spark's SQL."""
    comment: str
    default: str | None = None
    """The text of a SQL expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a procedure: its arguments, by name, and where the tables are."""

    spark: SparkSession
    locate: Locate
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def only(self, *names: str) -> dict[str, Any]:
        """Return arguments to pass on; those that are null are left out."""
        return {name: self.values[name] for name in names if self.values[name] is not None}

    def location(self) -> TableLocation:
        found = self.locate(self["table"])
        return dataclasses.replace(found, branch=self.values.get("branch") or MAIN)

    def open(self) -> Table:
        return open_at(self.location())

    def time_zone(self) -> str:
        """Return the zone of the session, for times without one."""
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    def place(self) -> dict[str, Any]:
        """Return where the table is, as arguments of a public function."""
        found = self.location()
        return {
            "path": found.path,
            "branch": found.branch,
            "storage_options": found.storage_options,
            "origins": found.origins,
            "unsafe_single_writer": found.unsafe_single_writer,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure: what it takes, the columns of its result, and what it does."""

    description: str
    parameters: tuple[Parameter, ...]
    columns: str
    """Of the result, as in CREATE TABLE."""
    run: Callable[[Call], Iterable[Row]]


def columns_of(procedure: Procedure) -> StructType:
    """Return the columns of a procedure's result."""
    found = StructType.fromDDL(procedure.columns)
    assert isinstance(found, StructType)
    return found


class UnboundProcedure(SpeakingProxy):
    """A procedure of a catalog, as Spark finds it."""

    def __init__(self, bound: BoundProcedure) -> None:
        self.jvm = bound.jvm
        self._bound = bound

    def name(self) -> str:
        return self._bound.name()

    def description(self) -> str:
        return self._bound.description()

    def bind(self, _input_type: Any) -> BoundProcedure:
        return self._bound

    class Java:
        implements = (f"{_PROCEDURES}.UnboundProcedure",)


class BoundProcedure(SpeakingProxy):
    """A procedure of a catalog, as Spark calls it.

    It must not be an `UnboundProcedure` too: Spark would bind it again in each round of analysis.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        procedure: Procedure,
        locate: Locate,
        refresh: Callable[[str], None],
    ) -> None:
        """Make the procedure; `refresh` gets the name of a table that it may have changed."""
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._name = name
        self._procedure = procedure
        self._locate = locate
        self._refresh = refresh

    def name(self) -> str:
        return self._name

    def description(self) -> str:
        return self._procedure.description

    def parameters(self) -> Any:
        start = getattr(java_class(self.jvm, f"{_PROCEDURES}.ProcedureParameter"), "in")
        made = []
        for each in self._procedure.parameters:
            builder = start(each.name, self._type(each.type)).comment(each.comment)
            if each.default is not None:
                builder = builder.defaultValue(each.default)
            made.append(builder.build())
        return java_array(self.jvm, f"{_PROCEDURES}.ProcedureParameter", made)

    def isDeterministic(self) -> bool:  # noqa: N802 - Spark's name
        return False

    def call(self, arguments: Any) -> Any:
        procedure = self._procedure
        values = {
            parameter.name: _value(arguments, at, parameter)
            for at, parameter in enumerate(procedure.parameters)
        }
        rows = list(procedure.run(Call(spark=self._spark, locate=self._locate, values=values)))
        if table := values.get("table"):
            self._refresh(table)
        schema = columns_of(procedure)
        found = self.jvm.java.util.ArrayList()
        found.add(LocalRows(self._spark, schema, iter(rows)))
        return found.iterator()

    def toString(self) -> str:  # noqa: N802 - Java's name
        return f"fuse procedure {self._name}"

    class Java:
        implements = (f"{_PROCEDURES}.BoundProcedure",)

    def _type(self, text: str) -> Any:
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        return session.sessionState().sqlParser().parseDataType(text)


def _value(arguments: Any, at: int, parameter: Parameter) -> Any:
    """Return an argument of a row of Spark's as a value of Python.

    Raises:
        InvalidInputError: it is null, and the parameter has no default.
    """
    if arguments.isNullAt(at):
        if parameter.default is None:
            raise InvalidInputError("this argument must not be null", argument=parameter.name)
        return None
    match parameter.type:
        case "string":
            return str(arguments.getUTF8String(at).toString())
        case "bigint":
            return int(arguments.getLong(at))
        case "boolean":
            return bool(arguments.getBoolean(at))
        case "timestamp":
            return _EPOCH + dt.timedelta(microseconds=int(arguments.getLong(at)))
        case "array<string>":
            return _texts(arguments.getArray(at))
        case _:
            pairs = arguments.getMap(at)
            return dict(zip(_texts(pairs.keyArray()), _texts(pairs.valueArray()), strict=True))


def _texts(array: Any) -> list[str]:
    """Return an array of Spark's as texts.

    Raises:
        InvalidInputError: one of them is null.
    """
    count = array.numElements()
    if any(array.isNullAt(at) for at in range(count)):
        raise InvalidInputError("a text in this array or map is null")
    return [str(array.getUTF8String(at).toString()) for at in range(count)]
