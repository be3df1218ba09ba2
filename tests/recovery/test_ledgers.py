"""Ledgers after a rewind or a publish: which queries may continue, and which must not."""

from __future__ import annotations

import pytest

from fuse_stream.errors import NotFoundError, StreamIdentityError
from fuse_stream.format.records import Ledger, LedgerEntry, Retirement
from fuse_stream.recovery.ledgers import (
    Cut,
    cut_of,
    keys_of,
    set_back,
    take_over,
)


def entry(batch: int, query: str | None = "q0") -> LedgerEntry:
    return LedgerEntry(query_id=query, batch_id=batch, rows=1, version=batch, timestamp_us=batch)


def ledger(retired: dict[str, Retirement] | None = None, /, **entries: LedgerEntry) -> Ledger:
    """Return a ledger; an application `a__w` is the writer w of a."""
    keyed = {(*name.split("__"), "")[:2]: found for name, found in entries.items()}
    return Ledger(entries=keyed, retired=retired or {})  # type: ignore[arg-type]


def gone(fork: str | None = None, application: str = "a", version: int = 9) -> Retirement:
    return Retirement(application=application, version=version, fork=fork)


def test_a_query_without_commits_since_the_target_keeps_its_entry() -> None:
    both = ledger(a=entry(4))

    assert set_back(both, both, version=9) == both


def test_the_refusal_names_the_queries_that_would_go_back() -> None:
    head = ledger(a=entry(9), b=entry(5), c__one=entry(7, "qc"), c__two=entry(3, "qc"))
    target = ledger(a=entry(4), b=entry(5), c__two=entry(3, "qc"))

    with pytest.raises(StreamIdentityError, match="would go back") as caught:
        set_back(head, target, version=9)

    assert caught.value.context["applications"] == ["a", "c"]
    assert caught.value.context["queries"] == ["q0", "qc"]


def test_a_fork_takes_over_the_entry_of_its_query() -> None:
    after = set_back(ledger(a=entry(9)), ledger(a=entry(4)), version=9, forks={"q0": "n"})

    assert (after.entries["a", ""].query_id, after.entries["a", ""].batch_id) == ("n", 4)
    assert after.retired == {"q0": gone("n")}


def test_a_fork_from_before_the_first_batch_has_no_entry() -> None:
    after = set_back(ledger(a=entry(9)), ledger(), version=9, forks={"q0": "n"})

    assert after.entries == {}
    assert after.retired == {"q0": gone("n")}


def test_all_writers_of_a_forked_query_pass_to_the_fork() -> None:
    head = ledger(a__one=entry(9), a__two=entry(4))
    after = set_back(head, ledger(a__one=entry(4), a__two=entry(4)), version=9, forks={"q0": "n"})

    assert {key: found.query_id for key, found in after.entries.items()} == {
        ("a", "one"): "n",
        ("a", "two"): "n",
    }


def test_applications_named_with_retire_are_retired() -> None:
    head = ledger(a=entry(9), b=entry(3, "qb"))
    after = set_back(head, ledger(a=entry(4)), version=9, retire=["a", "b"])

    assert after.entries == {("a", ""): entry(4)}
    assert after.retired == {"q0": gone(), "qb": gone(application="b")}


def test_numbered_batches_are_retired_without_a_query_id() -> None:
    head, target = ledger(a=entry(9, None)), ledger(a=entry(4, None))

    assert set_back(head, target, version=9, retire=["a"]) == target


def test_a_rewind_can_be_rewound_from_either_checkpoint() -> None:
    was = ledger(a=entry(9))  # before the first rewind
    head = ledger({"q0": gone("n")}, a=entry(6, "n"))

    with pytest.raises(StreamIdentityError):
        set_back(head, was, version=12)
    after = set_back(head, was, version=12, forks={"q0": "m"})
    assert after.entries["a", ""].query_id == "m"
    assert after.retired == {"q0": gone("m", version=12), "n": gone("m", version=12)}
    earlier = set_back(head, ledger(a=entry(2)), version=12, forks={"n": "m"})
    assert earlier.entries["a", ""].query_id == "m"
    assert set(earlier.retired) == {"q0", "n"}


def test_a_retired_query_remains_retired() -> None:
    head = ledger({"old": gone("q0", version=3)}, a=entry(9))
    after = set_back(head, ledger(a=entry(1)), version=9, retire=["a"])

    assert after.retired["old"] == gone("q0", version=3)


def test_a_fork_of_a_query_that_does_not_go_back_is_refused() -> None:
    both = ledger(a=entry(4), b=entry(4, "qb"))

    with pytest.raises(StreamIdentityError, match="does not go back") as caught:
        set_back(both, both, version=9, forks={"qb": "n"})
    assert caught.value.context["queries"] == ["qb"]


def test_an_unknown_application_cannot_be_retired() -> None:
    both = ledger(a=entry(4))

    for call in (set_back, take_over):
        with pytest.raises(NotFoundError, match="committed nothing"):
            call(both, both, version=9, retire=["nobody"])


def test_an_entry_that_was_forgotten_comes_back_with_its_snapshot() -> None:
    target = ledger(a=entry(4))

    assert set_back(ledger(), target, version=9) == target


# ---- cuts


@pytest.mark.parametrize(
    ("batches", "cut"),
    [
        ({"a": 4}, Cut(offsets_through=4, commits_through=4)),
        ({"a__one": 4, "a__two": 4}, Cut(offsets_through=4, commits_through=4)),
        ({"a__one": 4, "a__two": 3}, Cut(offsets_through=4, commits_through=3)),
        ({"a__one": 4, "a__two": None}, Cut(offsets_through=4, commits_through=3)),
        ({"a__one": 0, "a__two": None}, Cut(offsets_through=0, commits_through=None)),
        ({"a": None}, Cut(offsets_through=None, commits_through=None)),
    ],
    ids=str,
)
def test_a_batch_that_may_be_incomplete_runs_again(
    batches: dict[str, int | None], cut: Cut
) -> None:
    target = ledger(**{name: entry(batch) for name, batch in batches.items() if batch is not None})
    head = ledger(**dict.fromkeys(batches, entry(9)))

    assert cut_of(target, keys_of("q0", head, target)) == cut


# ---- publish


def test_publish_takes_over_the_newer_entries_of_a_branch() -> None:
    source = ledger({"x": gone()}, a=entry(9), b=entry(1, "qb"), c=entry(2))
    after = take_over(ledger({"x": gone()}, a=entry(4), c=entry(2)), source, version=12)

    assert after.retired == source.retired
    assert {key: (found.batch_id, found.version) for key, found in after.entries.items()} == {
        ("a", ""): (9, 12),
        ("b", ""): (1, 12),
        ("c", ""): (2, 2),
    }


def test_publish_replaces_a_query_by_its_fork_on_the_branch() -> None:
    source = ledger({"q0": gone("n"), "n": gone("m")}, a=entry(6, "m"))

    after = take_over(ledger(a=entry(9)), source, version=12)
    assert after.retired == {"q0": gone("n", version=12), "n": gone("m", version=12)}
    assert after.entries["a", ""].query_id == "m"


@pytest.mark.parametrize(
    "source",
    [
        ledger(),
        ledger(a=entry(8)),
        ledger(a=entry(20, "stranger")),
        ledger({"q0": gone()}, a=entry(20, "stranger")),
        ledger({"q0": gone("q0")}, a=entry(20, "stranger")),
    ],
    ids=["missing", "behind", "another query", "retired without a fork", "a circle"],
)
def test_a_publish_that_sets_a_query_back_is_refused_or_retires_it(source: Ledger) -> None:
    head = ledger(a=entry(9))

    with pytest.raises(StreamIdentityError, match="would go back"):
        take_over(head, source, version=12)
    after = take_over(head, source, version=12, retire=["a"])
    assert after.entries.keys() == source.entries.keys()
    assert "q0" in after.retired
