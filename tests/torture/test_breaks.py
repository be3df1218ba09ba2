"""Each campaign finds what it is for: the package is broken on purpose, and a trial must say so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest import mock

import pytest

from fuse_stream.commit import committer
from fuse_stream.commit.ledger import Verdict
from fuse_stream.expiry import keepers
from fuse_stream.objects import blocks
from fuse_stream.storage import local
from torture import damage, every_io, model, power_loss
from torture.campaign import PromiseBrokenError, Trial

Patch = pytest.MonkeyPatch


def without_fsync(path: Path, data: bytes) -> None:
    """Write a file as `write_through` does, and do not sync it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def no_fsync_of_files(patch: Patch) -> None:
    patch.setattr(local, "write_through", without_fsync)


def no_sync_of_names(patch: Patch) -> None:
    patch.setattr(local.LocalStore, "_sync", lambda _store, _key: None)


def no_sync_of_folders(patch: Patch) -> None:
    patch.setattr(local.LocalStore, "_enter", lambda _store, _folder: None)
    patch.setattr(local, "make_folder", lambda folder: folder.mkdir(parents=True, exist_ok=True))


def no_ledger(patch: Patch) -> None:
    patch.setattr(committer, "judge", lambda _ledger, _batch: Verdict.NEW)


def no_hash_of_blocks(patch: Patch) -> None:
    """Let the bytes of a block have the hash in its record, whatever they are."""
    patch.setattr(blocks, "sha256_hex", lambda _data: mock.ANY)


def no_tags(patch: Patch) -> None:
    """Let vacuum see no tag."""
    patch.setattr(keepers, "iter_tags", lambda *_arguments, **_options: iter(()))


def broken_by(trial: Trial, folder: Path, seeds: Iterable[int]) -> PromiseBrokenError | None:
    """Return what the first seed tells that breaks a promise."""
    for seed in seeds:
        own = folder / f"{seed}"
        own.mkdir()
        try:
            trial(seed, own)
        except PromiseBrokenError as error:
            return error
    return None


@pytest.mark.parametrize(
    ("trial", "harm", "promise"),
    [
        (power_loss.trial, no_fsync_of_files, "1|3|6"),
        (power_loss.trial, no_sync_of_names, "1"),
        (power_loss.trial, no_sync_of_folders, "1"),
        (every_io.trial, no_ledger, "2"),
        (damage.trial, no_hash_of_blocks, "7"),
        (model.trial, no_ledger, "1|2|a"),  # or an error of an invariant
        pytest.param(model.trial, no_tags, "5", marks=pytest.mark.long),
    ],
)
def test_a_broken_package_breaks_a_promise(
    monkeypatch: Patch,
    tmp_path: Path,
    trial: Trial,
    harm: Callable[[Patch], None],
    promise: str,
) -> None:
    # A short history is wanted here, not the shortest.
    monkeypatch.setattr("hypothesis.internal.conjecture.engine.MAX_SHRINKING_SECONDS", 3)
    harm(monkeypatch)
    found = broken_by(trial, tmp_path, range(12))

    assert found is not None
    assert found.history
    assert found.promise[0] in promise.split("|"), found.promise


@pytest.mark.parametrize("trial", [every_io.trial, power_loss.trial, damage.trial])
def test_a_seed_repeats_its_trial(tmp_path: Path, trial: Trial) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = trial(2, tmp_path / "first")

    assert first.total() > 0
    assert trial(2, tmp_path / "second") == first
