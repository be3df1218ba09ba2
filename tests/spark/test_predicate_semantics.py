"""Our mask is Spark's own answer, for any predicate on any row."""

from __future__ import annotations

from datetime import datetime
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.bind import bind
from fuse_stream.format.bound import Bound
from fuse_stream.format.evaluate import filter_mask
from fuse_stream.format.where import parse_where
from fuse_stream.testing.predicates import SCHEMA, random_table, random_where

ROW_COUNT = 200
PREDICATE_COUNT = 200
LOCAL = datetime(1970, 1, 2)  # noqa: DTZ001 - a TIMESTAMP_NTZ
ZONES = ["UTC", "America/New_York", "Asia/Kathmandu"]


def bindable(random: Random, zone: str) -> dict[str, Bound]:
    """Return predicates of one or a few tests that we take, by their text."""
    bounds: dict[str, Bound] = {}
    while len(bounds) < PREDICATE_COUNT:
        text = random_where(random, depth=random.choice([0, 0, 1, 2]))
        try:
            bounds[text] = bind(parse_where(text), SCHEMA, time_zone=zone)
        except InvalidInputError as error:
            # Of what the generator writes, this alone is refused: there is no such local time.
            if "skip an hour" not in error.message:
                raise
    return bounds


@pytest.mark.parametrize("zone", ZONES)
def test_our_mask_is_sparks_answer(spark: SparkSession, zone: str) -> None:
    random = Random(f"predicates {zone}")
    table = pa.concat_tables([random_table(random, ROW_COUNT // 4) for _ in range(4)])
    bounds = bindable(random, zone)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    frame = session.createDataFrame(table).coalesce(1)

    answers = frame.selectExpr(*(f"coalesce(({text}), false)" for text in bounds)).toArrow()

    masks = {text: filter_mask(bound, table) for text, bound in bounds.items()}
    differing = {
        text: table.filter(pc.xor(mask, answer)).slice(0, 2).to_pylist()
        for (text, mask), answer in zip(masks.items(), answers.columns, strict=True)
        if not mask.equals(answer)
    }
    assert differing == {}
