"""What brings versions together by name stops before a name shows another column's values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError, SchemaChangedError, SchemaMismatchError
from fuse_stream.feed.views import Request
from tests.feed.test_follow import Row, Scene, rows


def keys(batch: list[Row]) -> list[int]:
    return sorted(row[0] for row in batch if isinstance(row[0], int))


def rename(scene: Scene, old: str, new: str) -> None:
    scene.clock.advance(1)
    with scene.table.update_schema() as change:
        change.rename_column(old, new)


def give_again(scene: Scene, name: str) -> None:
    """Drop a column, and add one with its name and type."""
    scene.clock.advance(1)
    with scene.table.update_schema() as change:
        change.delete_column(name)
    with scene.table.update_schema() as change:
        change.add_column(name, "string")


def test_a_stream_stops_at_a_rename_and_goes_on_when_it_is_loaded_again() -> None:
    scene = Scene()
    scene.append(1)
    stream = scene.load()
    stream.run()
    scene.append(2)
    rename(scene, "name", "label")
    assert keys(stream.run()) == [2]

    with pytest.raises(SchemaChangedError, match="schema changed"):
        stream.run()
    scene.table.append(pa.table({"k": [3], "label": ["three"]}))
    again = scene.load()
    again.start = stream.start

    assert keys(again.run()) == [3]


def test_a_stream_with_commits_under_the_old_name_is_not_loaded_with_the_new_one() -> None:
    scene = Scene()
    scene.append(1)
    stream = scene.load()
    stream.run()
    scene.append(2)
    rename(scene, "name", "label")
    again = scene.load()
    again.start = stream.start

    with pytest.raises(SchemaChangedError, match="columns or types that this read does not"):
        again.run()


@pytest.mark.parametrize("loads", [1, 2])
def test_a_column_that_came_back_under_its_name_is_a_change(loads: int) -> None:
    scene = Scene()
    scene.append(1)
    stream = scene.load()
    stream.run()
    give_again(scene, "name")
    scene.append(2)
    if loads > 1:
        again = scene.load()
        again.start = stream.start
        stream = again

    with pytest.raises(SchemaChangedError, match="another column"):
        stream.run()


def test_a_new_stream_reads_a_table_whose_column_came_back() -> None:
    scene = Scene()
    scene.append(1)
    give_again(scene, "name")
    scene.append(2)

    assert keys(scene.load().run()) == [1, 2]


def test_columns_that_a_stream_does_not_read_may_change() -> None:
    scene = Scene()
    scene.append(1)
    stream = scene.load(request=Request(columns=("k",)))
    stream.run()
    scene.append(2)
    rename(scene, "name", "label")
    scene.table.append(pa.table({"k": [3], "label": ["three"]}))

    assert keys(stream.drain()) == [2, 3]


def test_changes_and_diff_refuse_a_name_of_two_columns() -> None:
    scene = Scene()
    scene.append(1)
    rename(scene, "name", "label")
    scene.table.append(pa.table({"k": [2], "label": ["two"]}))
    table = scene.table

    assert table.changes(3).read_all().num_rows == 1
    assert table.changes(1, columns=["k"]).read_all().num_rows == 2
    with pytest.raises(SchemaChangedError, match="label"):
        table.changes(1).read_all()
    with pytest.raises(SchemaChangedError, match="label"):
        table.diff(1, 3)
    assert table.diff(1, 3, columns=["k"]).read_all().num_rows == 1


def test_a_search_refuses_a_name_of_two_columns_and_an_erasure_every_name() -> None:
    scene = Scene()
    scene.append(1)
    give_again(scene, "name")
    scene.table.append(rows(2))

    assert [found.version for found in scene.table.blame("name IS NOT NULL")] == [4]
    with pytest.raises(InvalidInputError, match="another column"):
        scene.table.bisect("name = 'n1'", first=1)
    with pytest.raises(SchemaMismatchError, match="renamed or dropped"):
        scene.table.erase("k = 1")
