"""Rewinds over history that cannot be read: expired, lost, or in the origin of a clone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.check.audit import AuditKind, audit_stores
from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.layout import MAIN, slot_key
from fuse_stream.recovery.publish import publish
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, raise_floor, rewind, rows
from tests.recovery.streams import Fanout, Query
from tests.refs.test_clone import made, of

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"
OTHER = "22222222-2222-3333-4444-555555555555"


def opened_again(table: Table) -> Table:
    return opened(table.metadata.store)


def back(table: Table, goal: Goal, *pairs: tuple[Store, Store], **options: object) -> Rewind:
    return rewind(table.committer, goal, checkpoints=pairs, **options)


def cloned(table: Table, version: int | str | None = None) -> Table:
    """Clone a table, and open the clone as a new process does."""
    origin, place = table.metadata.store, MemoryStore()
    made(origin, place, version=version)
    return of(place, origin)


def together(query: Fanout, first: Table, second: Table, goal: Goal) -> MemoryStore:
    """Rewind two tables, and return the fork of their query's checkpoint."""
    fork = MemoryStore()
    committers = [table.committer for table in (first, second)]
    rewind_tables(committers, goal, checkpoints=((query.checkpoint, fork),))
    return fork


# ---- clones


@pytest.fixture
def query(create: Create) -> Query:
    """Six batches of one row, 0 to 5."""
    query = Query(create()).begin(OLD)
    query.run(6)
    return query


def test_a_clone_is_not_rewound_to_a_batch_before_those_it_came_with(query: Query) -> None:
    clone, new = cloned(query.table), MemoryStore()

    for dry_run in (False, True):
        with pytest.raises(InvalidInputError, match="came with the clone") as caught:
            back(clone, Goal(after_batch=3), (query.checkpoint, new), dry_run=dry_run)
        assert caught.value.context == {"after_batch": 3, "came_with": 5}
        with pytest.raises(InvalidInputError, match="came with the clone"):
            back(clone, Goal(after_batch=3), retire=["default"], dry_run=dry_run)
    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 4, 5]
    assert not list(new.list(""))


def test_a_query_continues_earlier_on_a_clone_of_an_older_version(query: Query) -> None:
    clone, copy, fork = cloned(query.table), MemoryStore(), MemoryStore()
    with pytest.raises(InvalidInputError, match="clone the version of the origin") as caught:
        back(clone, Goal(after_batch=3), (query.checkpoint, MemoryStore()))
    assert "rewind that clone to this batch with the checkpoint" in caught.value.message

    earlier = cloned(query.table, 4)
    back(earlier, Goal(after_batch=3), (query.checkpoint, fork))
    Query(earlier, fork, plus=100).run(3)
    for info in query.checkpoint.list(""):
        copy.put(info.key, query.checkpoint.get(info.key))
    with pytest.raises(StreamIdentityError, match="retired"):
        Query(earlier, copy).run(1)
    query.run(1)

    assert keys(earlier.to_arrow()) == [0, 1, 2, 3, 104, 105, 106]
    assert keys(query.table.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]
    back(earlier, Goal(after_batch=4), (fork, MemoryStore()))
    assert keys(earlier.to_arrow()) == [0, 1, 2, 3, 104]


def test_a_query_continues_earlier_on_clones_of_older_versions_of_its_tables(
    create: Create,
) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(4)
    clones, fork = tuple(cloned(table, 2) for table in query.tables), MemoryStore()

    rewind_tables(
        [clone.committer for clone in clones],
        Goal(after_batch=1),
        checkpoints=((query.checkpoint, fork),),
    )
    Fanout(clones, fork, plus=100).run(2)

    assert [keys(clone.to_arrow()) for clone in clones] == [[0, 1, 102, 103]] * 2


def test_clones_that_end_with_different_batches_are_rewound_only_if_none_lacks_rows(
    create: Create,
) -> None:
    """The second table got no row of batch 4; its first clone lacks batch 3, which had a row."""
    tables = create(at=MemoryStore()), create(at=MemoryStore())
    query = Fanout(tables).begin(OLD)
    query.run(4)
    query.run(1, writes=(0,))
    query.run(2)
    first, second = cloned(tables[0], 5), cloned(tables[1], 3)
    with pytest.raises(StreamIdentityError, match="origin that this version lacks") as caught:
        together(query, first, second, Goal(after_batch=4))
    assert caught.value.context["committed_there"] == 3
    assert caught.value.context["committed_here"] == 2

    whole = cloned(tables[1], 4)
    fork = together(query, first, whole, Goal(after_batch=4))
    Fanout((first, whole), fork, plus=100).run(2)

    assert keys(first.to_arrow()) == [0, 1, 2, 3, 4, 105, 106]
    assert keys(whole.to_arrow()) == [0, 1, 2, 3, 105, 106]


def test_a_fork_that_was_made_in_the_origin_does_not_hide_what_a_clone_lacks(query: Query) -> None:
    clone, fork, newer = cloned(query.table, 4), MemoryStore(), MemoryStore()
    back(query.table, Goal(after_batch=4), (query.checkpoint, fork))

    with pytest.raises(StreamIdentityError, match="in the origin only") as caught:
        Query(clone, fork, application="renamed").run(1)
    assert caught.value.context["committed_here"] == 3
    back(clone, Goal(after_batch=3), (fork, newer))
    Query(clone, newer, application="renamed").run(3)

    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]


def test_a_clone_that_was_rewound_for_its_query_needs_no_origin(create: Create) -> None:
    tables = create(at=MemoryStore()), create(at=MemoryStore())
    query = Fanout(tables).begin(OLD)
    query.run(3)
    clones = cloned(tables[0]), cloned(tables[1])
    fork = together(query, clones[0], clones[1], Goal(after_batch=2))
    Fanout(clones, fork).run(1)
    Fanout(clones, fork).run(2, writes=(0,))
    one, other = (of(clone.metadata.store.store) for clone in clones)  # type: ignore[attr-defined]

    newer = together(Fanout((one, other), fork), one, other, Goal(after_batch=4))

    assert load_checkpoint(newer).commits[-1] == 4


def test_clones_lack_what_is_in_the_origins_origin_or_on_its_branches(create: Create) -> None:
    tables = create(at=MemoryStore()), create(at=MemoryStore())
    query = Fanout(tables).begin(OLD)
    query.run(3)
    between = cloned(tables[1])
    origins = between.metadata.store, tables[1].metadata.store
    place = MemoryStore()
    made(origins[0], place, origins[1])
    tables[1].create_branch("fix")
    moved = tables[0], opened(tables[1].metadata.store, "fix")
    Fanout(moved, query.checkpoint).run(2)

    for clone in (of(place, *origins), between):
        with pytest.raises(StreamIdentityError, match="origin that this version lacks") as caught:
            together(query, cloned(tables[0]), clone, Goal(after_batch=4))
        assert caught.value.context["branch"] == "fix"
    with pytest.raises(InvalidInputError, match="origins="):
        together(query, cloned(tables[0]), of(place, origins[0]), Goal(after_batch=4))


def test_a_checkpoint_that_was_copied_after_the_clone_is_set_back_to_it(query: Query) -> None:
    clone, fork = cloned(query.table), MemoryStore()
    query.run(3)

    back(clone, Goal(after_batch=5), (query.checkpoint, fork))
    Query(clone, fork, plus=100).run(2)

    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 4, 5, 106, 107]


def test_a_clone_from_before_a_rewind_is_made_again_for_the_fork(
    query: Query, store: MemoryStore
) -> None:
    before, fork = cloned(query.table), MemoryStore()
    back(query.table, Goal(after_batch=3), (query.checkpoint, fork))

    with pytest.raises(StreamIdentityError, match="clone that again"):
        Query(before, fork).run(1)
    again = cloned(opened(store))
    Query(again, fork, plus=100).run(2)

    assert keys(again.to_arrow()) == [0, 1, 2, 3, 104, 105]


def test_a_checkpoint_that_is_ahead_of_a_clone_does_not_continue_there(query: Query) -> None:
    clone, fork = cloned(query.table, 4), MemoryStore()

    with pytest.raises(StreamIdentityError, match="in the origin only") as caught:
        Query(clone, query.checkpoint).run(1)
    assert caught.value.context["committed_here"] == 3
    back(clone, Goal(after_batch=3), (query.checkpoint, fork))
    forked = Query(clone, fork, plus=100)
    forked.run_batch(4, empty=True)
    Query(opened_again(clone), fork, plus=100).run(2)

    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 105, 106]


@pytest.mark.parametrize("has_first_version", [True, False])
def test_a_fresh_copy_of_the_origins_checkpoint_does_not_continue_where_an_older_one_did(
    query: Query,
    has_first_version: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """Batches 7 and 8 are in the origin only; the clone has its own batch 6, of equal offsets."""
    clone, fork, copy = cloned(query.table), MemoryStore(), MemoryStore()
    query.plan(6)
    for info in query.checkpoint.list(""):
        copy.put(info.key, query.checkpoint.get(info.key))
    Query(clone, copy).run(1)
    query.run(3)
    if not has_first_version:
        raise_floor(clone, 2)

    with pytest.raises(StreamIdentityError, match="in the origin only") as caught:
        Query(opened_again(clone), query.checkpoint).run(1)
    assert caught.value.context["committed_here"] == 6
    back(opened_again(clone), Goal(after_batch=6), (query.checkpoint, fork))
    Query(opened_again(clone), fork).run(3)

    assert keys(clone.to_arrow()) == [*range(10)]


def test_that_a_checkpoint_is_ahead_of_a_clone_is_found_before_it_runs(query: Query) -> None:
    clone = cloned(query.table, 4)

    found = audit_stores(clone.metadata.store, query.checkpoint).findings

    assert [(one.kind, one.batches) for one in found] == [(AuditKind.MISSING, (4, 5))]


def test_numbered_batches_of_a_clone_are_not_rewound_to_before_it(create: Create) -> None:
    table = create()
    for number in range(6):
        table.append(rows(number), app_id="job", batch_id=number)
    clone = cloned(table)

    with pytest.raises(InvalidInputError, match="Numbered batches need only"):
        back(clone, Goal(application="job", after_batch=3), retire=["job"])
    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 4, 5]
    earlier = cloned(table, 4)
    for number in range(3, 6):  # the last one may come again
        earlier.append(rows(number), app_id="job", batch_id=number)
    assert keys(earlier.to_arrow()) == [0, 1, 2, 3, 4, 5]


def test_a_clone_is_rewound_to_the_last_batch_it_came_with_and_later_ones(query: Query) -> None:
    clone = cloned(query.table)
    on_clone = Query(clone, query.checkpoint)
    on_clone.run(3)
    new, newer = MemoryStore(), MemoryStore()

    back(clone, Goal(after_batch=7), (query.checkpoint, new))
    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 4, 5, 6, 7]
    back(clone, Goal(after_batch=5), (new, newer))
    Query(clone, newer, plus=100).run(1)

    assert keys(clone.to_arrow()) == [0, 1, 2, 3, 4, 5, 106]


@pytest.mark.parametrize("is_first", [True, False])
def test_clones_of_several_tables_are_not_rewound_to_before_them(
    create: Create,
    is_first: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(4)
    one, two = query.tables
    clones = (cloned(one), cloned(two)) if is_first else (one, cloned(two))

    with pytest.raises(InvalidInputError, match="came with the clone"):
        rewind_tables(
            [table.committer for table in clones],
            Goal(after_batch=1),
            checkpoints=((query.checkpoint, MemoryStore()),),
        )
    assert [keys(table.to_arrow()) for table in clones] == [[0, 1, 2, 3]] * 2


def test_a_clone_that_may_hold_a_query_missing_from_its_ledger_is_refused(
    create: Create,
) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(4)
    one, two = query.tables
    two.forget("default")
    clone = cloned(two)
    later = Fanout((one, clone), query.checkpoint)
    later.run(1)

    for tables, goal in (((one, clone), Goal(after_batch=1)), ((clone,), Goal(after_batch=2))):
        with pytest.raises((SnapshotExpiredError, InvalidInputError), match="clone"):
            rewind_tables(
                [table.committer for table in tables],
                goal,
                checkpoints=((query.checkpoint, MemoryStore()),),
            )
    with pytest.raises(SnapshotExpiredError, match=r"may (hold|have held) batches"):
        back(clone, Goal(version=1), (query.checkpoint, MemoryStore()))


def test_in_a_clone_a_query_is_not_rewound_to_before_the_query_it_adopted(
    create: Create,
) -> None:
    table = create()
    Query(table).begin(OLD).run(3)
    heir = Query(table, plus=100, adopt=OLD).begin(OTHER)
    heir.run(3)
    clone = cloned(table)

    with pytest.raises(StreamIdentityError, match="replaced later"):
        back(clone, Goal(version=0), (heir.checkpoint, MemoryStore()))
    with pytest.raises(SnapshotExpiredError, match="in retire"):
        back(clone, Goal(version=0), (heir.checkpoint, MemoryStore()), retire=["default"])
    assert keys(clone.to_arrow()) == [0, 1, 2, 100, 101, 102]
    back(clone, Goal(version=0), (heir.checkpoint, MemoryStore()), retire=["*", "default"])
    assert keys(clone.to_arrow()) == []


def test_a_clone_is_emptied_only_if_all_its_writers_are_retired(query: Query) -> None:
    query.table.forget("default")
    clone = cloned(query.table)

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        back(clone, Goal(version=0))
    back(clone, Goal(version=0), retire=["*"])
    assert keys(clone.to_arrow()) == []


def test_a_branch_rewound_to_before_a_clones_content_is_not_published(
    query: Query,
) -> None:
    query.table.forget("default")
    clone = cloned(query.table)
    clone.create_branch("fix")
    fix = of(clone.metadata.store, branch="fix")
    back(fix, Goal(version=0), retire=["*"])

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        publish(clone.committer, "fix", expected_head=1)
    publish(clone.committer, "fix", expected_head=1, retire=["*"])
    assert keys(clone.to_arrow()) == []


# ---- expired


@pytest.fixture
def expired(create: Create) -> Table:
    """A tag, then a query that has left the ledger; both of its commits have expired."""
    table = create()
    table.append(rows(70))
    table.create_tag("good")
    Query(table, application="night").begin(OLD).run(2)
    table.forget("night")
    table.append(rows(80))
    raise_floor(table, 5)
    return table


def test_expired_commits_of_a_query_that_no_ledger_names_prevent_a_rewind(expired: Table) -> None:
    other = Query(expired, plus=100).begin(OTHER)
    other.run(2)

    for pairs in ((), ((other.checkpoint, MemoryStore()),)):
        for retire in ([], ["default"]):
            with pytest.raises(SnapshotExpiredError, match="in retire") as caught:
                back(expired, Goal(version="good"), *pairs, retire=retire)
            assert caught.value.context == {"version": 1, "seen_from": 5}
    found = back(expired, Goal(version="good"), retire=["default"], dry_run=True)
    assert [type(error) for error in found.obstacles] == [SnapshotExpiredError]
    assert keys(expired.to_arrow()) == [0, 1, 70, 80, 100, 101]


def test_retire_star_retires_all_but_the_forks(expired: Table) -> None:
    other = Query(expired, plus=100).begin(OTHER)
    other.run(2)
    expired.append(rows(90), app_id="job", batch_id=0)
    new = MemoryStore()

    done = back(expired, Goal(version="good"), (other.checkpoint, new), retire=["*"])

    Query(expired, new, plus=200).begin(Query(expired, new).query_id).run(2)
    assert keys(expired.to_arrow()) == [70, 200, 201]
    assert done.retired == ("job",)
    with pytest.raises(StreamIdentityError, match="retired"):
        other.run(1)


def test_retire_star_retires_the_queries_in_the_ledger(query: Query) -> None:
    done = back(query.table, Goal(after_batch=3), retire=["*"])

    assert keys(query.table.to_arrow()) == [0, 1, 2, 3]
    assert done.retired == ("default",)
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


def test_several_tables_are_rewound_with_retire_star(create: Create) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(2)
    query.tables[0].append(rows(90), app_id="job", batch_id=0)
    query.run(1)
    new = MemoryStore()

    rewind_tables(
        [table.committer for table in query.tables],
        Goal(after_batch=1),
        checkpoints=((query.checkpoint, new),),
        retire=["*"],
    )
    Fanout(query.tables, new, plus=100).run(1)

    assert [keys(table.to_arrow()) for table in query.tables][1] == [0, 1, 102]


def test_a_branch_rewound_to_before_expired_commits_is_published_with_retire_star(
    expired: Table,
) -> None:
    expired.create_branch("fix")
    fix = opened(expired.metadata.store, "fix")
    head = expired.head().version
    back(fix, Goal(version="good"), retire=["*"])

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        publish(expired.committer, "fix", expected_head=head)
    publish(expired.committer, "fix", expected_head=head, retire=["*"])
    assert keys(expired.to_arrow()) == [70]


def test_a_single_expired_commit_is_known_from_the_ledger_after_it(query: Query) -> None:
    query.table.create_tag("good", 2)
    raise_floor(query.table, 4)  # version 3 alone cannot be seen; its writer is in the ledger of 4

    back(query.table, Goal(version="good"), retire=["default"])

    assert keys(query.table.to_arrow()) == [0, 1]


def test_the_newest_expired_version_is_known_from_the_next_one(create: Create) -> None:
    table = create()
    table.append(rows(70))
    table.create_tag("good")
    table.append(rows(80))
    raise_floor(table, 2)

    back(table, Goal(version="good"))

    assert keys(table.to_arrow()) == [70]


def test_an_entry_that_the_oldest_readable_commit_dropped_prevents_a_rewind(create: Create) -> None:
    table = create()
    table.append(rows(70))
    table.create_tag("good")
    Query(table, application="night").begin(OLD).run(1)
    table.forget("night")
    raise_floor(table, 3)

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        back(table, Goal(version="good"))


def test_expired_commits_without_rows_do_not_prevent_a_rewind(create: Create) -> None:
    table = create()
    table.append(rows(70))
    table.create_tag("good")
    for floor in (0, 0, 4):
        raise_floor(table, floor)
    query = Query(table).begin(OLD)
    query.run(2)
    new = MemoryStore()

    back(table, Goal(version="good"), (query.checkpoint, new))

    assert keys(table.to_arrow()) == [70]


# ---- lost


@pytest.fixture
def lossy(create: Create) -> Query:
    """Versions 1 to 3 of a query that another one has replaced, or that was forgotten."""
    table = create()
    Query(table).begin(OLD).run(3)
    return Query(table, plus=100).begin(OTHER)


def lose(table: Table, version: int) -> Table:
    """Lose a slot, and open the table as a new process does."""
    table.metadata.store.delete(slot_key(MAIN, version))
    return opened(table.metadata.store)


@pytest.mark.parametrize("how", ["adopt", "forget"])
def test_a_rewind_over_a_lost_version_is_refused(lossy: Query, how: str) -> None:
    if how == "forget":
        lossy.table.forget("default")
    else:
        lossy.adopt = OLD
    lossy.run(4)
    table, new = lose(lossy.table, 5), MemoryStore()

    for goal in (Goal(version=0), Goal(version=2)):
        with pytest.raises(CorruptObjectError, match="missing from the table's history") as caught:
            back(table, goal, (lossy.checkpoint, new))
        assert caught.value.context["version"] == 5
    assert not list(new.list(""))


def test_a_batch_in_a_lost_version_is_not_reported_as_expired(lossy: Query) -> None:
    lossy.table.forget("default")
    lossy.application = "b"
    lossy.run(3)
    table = lose(lossy.table, 5)

    for goal in (Goal(application="b", after_batch=0), Goal(application="night", after_batch=0)):
        with pytest.raises(CorruptObjectError, match="restore the slot") as caught:
            back(table, goal, (lossy.checkpoint, MemoryStore()))
        assert caught.value.context["version"] == 5


def test_a_rewind_to_a_version_after_a_lost_one_succeeds(lossy: Query) -> None:
    lossy.table.forget("default")
    lossy.application = "b"
    lossy.run(3)
    table, new = lose(lossy.table, 1), MemoryStore()

    back(table, Goal(version=4), (lossy.checkpoint, new))  # its first batch was seen after it
    Query(table, new, application="b", plus=200).begin(Query(table, new).query_id).run(1)

    assert keys(table.to_arrow()) == [0, 1, 2, 200]


def test_a_query_whose_batch_may_be_in_a_lost_version_is_refused(create: Create) -> None:
    query = Query(create()).begin(OLD)
    query.run(3)
    query.table.forget("default")
    query.run(2)
    table = lose(query.table, 3)

    with pytest.raises(CorruptObjectError, match="restore the slot"):
        back(table, Goal(version=4), (query.checkpoint, MemoryStore()))


def test_a_rewind_over_a_lost_version_succeeds_with_retire_star(lossy: Query) -> None:
    lossy.table.forget("default")
    lossy.run(2)
    table = lose(lossy.table, 5)

    back(table, Goal(version=1), retire=["*"])

    assert keys(table.to_arrow()) == [0]
    with pytest.raises(StreamIdentityError, match="retired"):
        lossy.run(1)


def test_retire_star_does_not_cover_queries_with_a_fork(create: Create) -> None:
    former = Query(create()).begin(OLD)
    former.run(3)
    heir = Query(former.table, plus=100, adopt=OLD).begin(OTHER)
    heir.run(4)
    pair = ((heir.checkpoint, MemoryStore()),)

    with pytest.raises(StreamIdentityError, match="replaced later"):
        rewind(former.table.committer, Goal(version=0), checkpoints=pair, retire=["*"])
    assert len(former.table.to_arrow()) == 7
    rewind(former.table.committer, Goal(version=0), checkpoints=pair, retire=["*", "default"])
    assert len(former.table.to_arrow()) == 0
