"""Messages of the systems' own documentation; messages/SOURCES.md says where each is from."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from pyspark.sql import SparkSession

import fuse_stream as fuse
from tests.spark.cdc.recorded import ops, replay, rows, sequence

CUSTOMERS = "id int, first_name string, last_name string, email string"


def test_postgresql(spark: SparkSession) -> None:
    events = fuse.from_debezium(replay(spark, "postgresql"), CUSTOMERS, keys=["id"])

    create, update, delete, truncate = rows(events)
    names = ("id", "first_name", "last_name", "email")
    assert create[:4] == (1, "Anne", "Kretchmar", "annek@noanswer.org")
    assert update[:4] == (1, "Anne Marie", "Kretchmar", "annek@noanswer.org")
    assert delete[:4] == (1, None, None, None)
    assert truncate[:4] == (None, None, None, None)
    assert [row["_op"] for row in (create, update, delete, truncate)] == ["u", "u", "d", "t"]
    assert [row["_unset"] for row in (create, update, delete, truncate)] == [[], [], None, None]
    assert [row["_error"] for row in (create, update, delete, truncate)] == [None] * 4
    # The page gives its update the position of the create; Kafka's offset orders them.
    assert sequence(create) == (24023119, 24023128, 0, 0, 0)
    assert sequence(update) == (24023128, 24023128, 0, 0, 1)
    assert sequence(delete) == (46523128, 46523128, 0, 0, 2)
    assert events.columns == [*names, "_op", "_seq", "_unset", "_error", "_raw", "_source"]
    assert create["_source"] == ("topic", 0, 0)
    assert create["_raw"].startswith('{"schema"')


def test_mysql(spark: SparkSession) -> None:
    events = rows(fuse.from_debezium(replay(spark, "mysql"), CUSTOMERS))

    assert [(row.id, row.first_name, row["_op"]) for row in events] == [
        (1003, "Edward", "u"),
        (1004, "Anne", "u"),
        (1004, "Anne Marie", "u"),
        (1004, "Anne Marie", "d"),
    ]
    assert [sequence(row) for row in events] == [
        (3, 154, 0, 0, 0),  # these two name no connector
        (3, 154, 0, 0, 1),
        (3, 484, 0, 0, 2),
        (10, 4, 1, 0, 3),
    ]


def test_sql_server(spark: SparkSession) -> None:
    create, update = rows(fuse.from_debezium(replay(spark, "sqlserver"), CUSTOMERS))

    assert (create.email, update.email) == ("john.doe@example.org", "noreply@example.org")
    file = 0x27 << 32
    assert sequence(create) == (file | 0x758, 5, file | 0x758, 3 << 32 | 1, 0)
    assert sequence(update) == (file | 0xAC0, 7, file | 0xAC0, 2 << 32 | 2, 1)
    assert create["_seq"] < update["_seq"]


def test_oracle(spark: SparkSession) -> None:
    events = rows(fuse.from_debezium(replay(spark, "oracle"), CUSTOMERS.upper()))

    assert [(row.ID, row.EMAIL, row["_op"]) for row in events] == [
        (1004, "annek@noanswer.org", "u"),
        (1004, "anne@example.com", "u"),
        (1004, "anne@example.com", "d"),
    ]
    assert [sequence(row)[:2] for row in events] == [
        (2122185, 2122185),
        (2125544, 2125544),
        (2122184, 2122184),
    ]


def test_mongodb(spark: SparkSession) -> None:
    documents = "_id bigint, first_name string, last_name string, email string"
    whole, partial, delete, bare = rows(
        fuse.from_debezium(replay(spark, "mongodb"), documents, keys=["_id"])
    )

    assert whole[:4] == (1004, "Anne Marie", "Kretchmar", "annek@noanswer.org")
    assert partial[:4] == (1004, "Anne Marie", None, None)
    assert (whole["_unset"], partial["_unset"]) == ([], ["last_name"])
    assert (delete[0], delete["_op"], bare[0], bare["_op"]) == (1004, "d", 1004, "d")
    assert [sequence(row)[:2] for row in (whole, partial, delete, bare)] == [
        (1558965508000, 1),
        (1558965508000, 2),
        (1558965508000, 6),
        (1558965508000, 7),
    ]


def test_maxwell(spark: SparkSession) -> None:
    columns = "id int, m double, c timestamp, comment string"
    events = rows(
        fuse.from_maxwell(
            replay(spark, "maxwell"),
            columns,
            keys=["id"],
            table="test.e",
            time_zone="America/Los_Angeles",
        )
    )

    insert, update, delete = events
    assert [row["_op"] for row in events] == ["u", "u", "d"]
    assert (insert.m, update.m, delete.id) == (4.2341, 5.444, 1)
    # `ts` of the message is 1477053217, so the server was seven hours behind UTC.
    assert insert.c.astimezone(UTC) == datetime(2016, 10, 21, 12, 33, 37, 523000, UTC)
    assert sequence(insert) == (6, 800911, 2**62, 0, 0)
    assert insert["_seq"] < update["_seq"] < delete["_seq"]


def test_canal(spark: SparkSession) -> None:
    columns = "id bigint, name string, description string, weight decimal(10,2)"
    (update,) = rows(fuse.from_canal(replay(spark, "canal"), columns, keys=["id"]))

    assert update[:4] == (111, "scooter", "Big 2-wheel scooter", Decimal("5.18"))
    assert (update["_op"], update["_unset"], sequence(update)) == ("u", [], (0, 0, 0, 0, 0))


def test_dms(spark: SparkSession) -> None:
    columns = "id int, name string, age int, attributes string"
    events = fuse.from_dms(replay(spark, "dms"), columns, keys=["id"], table="public.foo")

    assert ops(events) == [
        (42, "u", None),
        (46, "u", None),
        (42, "u", None),
        (46, "d", None),
        (45, "u", None),
        (45, "d", None),
    ]
    assert rows(events)[1]["attributes"] == '{"baz": "qux"}'
