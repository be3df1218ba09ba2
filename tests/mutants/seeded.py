"""Seeded bugs: each is a small patch of the package that one test file must notice.

A mutant is here because the rule that it breaks stops a loss. Its test file notices it by what the
table does: golden files, lint and the shape of the source do not count.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug."""

    name: str
    path: str
    """The module, from the package's folder."""
    text: str
    """The text that is replaced; it is in the module once."""
    replacement: str
    killed_by: str
    """The test file, or the test, that must fail: as pytest names it, from the folder `tests`."""


LEDGER = "commit/ledger.py"
COMMITTER = "commit/committer.py"
SLOT_PUT = "commit/slot_put.py"
SLOTS = "objects/slots.py"
SEARCH = "objects/head_search.py"
REPLACE = "commit/replace.py"
STATS = "format/stats.py"
VACUUM = "expiry/vacuum.py"
KEEPERS = "expiry/keepers.py"
OFFSETS = "feed/offsets.py"

MUTANTS = (
    # ---- exactly once
    Mutant(
        name="the ledger is not asked",
        path=COMMITTER,
        text="        if batch is None:\n            return Examined(",
        replacement="        if True:\n            return Examined(",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="the ledger of an older head is asked",
        path=COMMITTER,
        text="            verdict, head = self._judged(batch, head)\n        raise",
        replacement="            verdict = self._judged(batch, base).verdict\n        raise",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="any lower batch is a replay",
        path=LEDGER,
        text="    if batch.batch_id < entry.batch_id:\n        raise refused(\n",
        replacement="    if batch.batch_id < entry.batch_id:\n        return Verdict.REPLAY\n"
        "        raise refused(\n",
        killed_by="commit/test_ledger.py",
    ),
    Mutant(
        name="another query's batch is a replay",
        path=LEDGER,
        text="    if entry.query_id != batch.query_id:\n        return _judge_adoption(",
        replacement="    if False:\n        return _judge_adoption(",
        killed_by="commit/test_ledger.py",
    ),
    Mutant(
        name="a batch with other source offsets is a replay",
        path=LEDGER,
        text="    if _same_offsets(entry, batch) is False:",
        replacement="    if False:",
        killed_by="commit/test_ledger.py",
    ),
    Mutant(
        name="a numbered batch with other rows is a replay",
        path=LEDGER,
        text="    if sums.fingerprint != entry.fingerprint:",
        replacement="    if False:",
        killed_by="table/test_handle.py",
    ),
    Mutant(
        name="a copied checkpoint continues",
        path=LEDGER,
        text="    if batch.checkpoint is not None and is_planned_otherwise(",
        replacement="    if False and is_planned_otherwise(",
        killed_by="commit/test_ledger.py",
    ),
    Mutant(
        name="a retired query may write",
        path=LEDGER,
        text="    if batch.query_id is not None and batch.query_id in ledger.retired:",
        replacement="    if False:",
        killed_by="commit/test_ledger.py",
    ),
    # ---- the slot
    Mutant(
        name="each attempt has a new snapshot id",
        path=SLOT_PUT,
        text="                self._metadata.store.put_if_absent(key, data)\n",
        replacement="                again = dataclasses.replace(\n"
        "                    candidate, snapshot_id=self._clock.new_id()\n"
        "                )\n"
        "                sent = data if attempt == 1 else encode_snapshot(again)\n"
        "                self._metadata.store.put_if_absent(key, sent)\n",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="a second attempt sends other bytes",
        path=SLOT_PUT,
        text="                self._metadata.store.put_if_absent(key, data)\n",
        replacement="                again = dataclasses.replace(candidate, message='again')\n"
        "                sent = data if attempt == 1 else encode_snapshot(again)\n"
        "                self._metadata.store.put_if_absent(key, sent)\n",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="an error means that nothing landed",
        path=SLOT_PUT,
        text="                found = self._retry(self._find_slot)",
        replacement="                found = None",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="an unknown outcome deletes the slot",
        path=SLOT_PUT,
        text='        raise CommitStateUnknownError(\n            "the store failed after the '
        "snapshot was sent",
        replacement="        self._metadata.store.delete(\n"
        "            slot_key(self._candidate.branch_id, self._candidate.version)\n"
        "        )\n"
        '        raise CommitStateUnknownError(\n            "the store failed after the '
        "snapshot was sent",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="a freed slot is used again",
        path=SLOT_PUT,
        text="        return self._metadata.has_expired("
        "self._candidate.branch_id, self._candidate.version)",
        replacement="        return False",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="a version in a freed chunk is not taken",
        path=SEARCH,
        text="            is_expired=not expired.isdisjoint(markers),",
        replacement="            is_expired=False,",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="the head is where the hint says",
        path=SLOTS,
        text="            first = max(hint, start)\n",
        replacement="            first = max(hint, start)\n"
        "            if hint:\n"
        "                search.newest = hint\n"
        "                return search\n",
        killed_by="objects/test_slots.py",
    ),
    Mutant(
        name="a missing slot is the end, although it may have been freed",
        path=SEARCH,
        text="        if version in self._not_taken or version > LAST_VERSION or self.is_fresh():",
        replacement="        if True:",
        killed_by="objects/test_head_search.py",
    ),
    Mutant(
        name="markers that were missing before a chunk expired are not asked for again",
        path=SEARCH,
        text="            self._not_taken.clear()\n",
        replacement="",
        killed_by="objects/test_head_search.py",
    ),
    Mutant(
        name="a parent that was replaced is not noticed",
        path="reading/history.py",
        text="    if stored.sha256 != snapshot.parent.sha256:",
        replacement="    if False:",
        killed_by="reading/test_history.py",
    ),
    Mutant(
        name="a local create looks first, then writes",
        path="storage/local.py",
        text="            os.link(staged, target)  #",
        replacement="            if target.exists():\n"
        "                raise FileExistsError\n"
        "            staged.rename(target)  #",
        killed_by="storage/test_local.py",
    ),
    Mutant(
        name="a remote create looks first, then writes",
        path="storage/remote.py",
        text='            fs.pipe_file(path, bytes(data), mode="create", ',
        replacement="            if fs.exists(path):\n"
        "                raise FileExistsError(path)\n"
        "            fs.pipe_file(path, bytes(data), ",
        killed_by="storage/test_remote.py",
    ),
    Mutant(
        name="bytes are not on disk before their name",
        path="storage/local.py",
        text="        os.fsync(descriptor)\n    finally:\n        os.close(descriptor)\n\n\n"
        "def sync_folder",
        replacement="    finally:\n        os.close(descriptor)\n\n\ndef sync_folder",
        killed_by="storage/test_local.py",
    ),
    # ---- planning again on another writer's head
    Mutant(
        name="rows that were put for another schema are kept",
        path="commit/plan.py",
        text="        base.schema != head.schema\n        or may_be_gone",
        replacement="        False\n        or may_be_gone",
        killed_by="commit/test_interleaving.py",
    ),
    Mutant(
        name="objects are believed after two vacuums",
        path="commit/plan.py",
        text="    return head.epoch - epoch >= 2",
        replacement="    return head.epoch - epoch >= 1000",
        killed_by="commit/test_committer.py",
    ),
    Mutant(
        name="a roll-up takes the place of other segments",
        path="commit/plan.py",
        text="        if tuple(ids[first:last]) == rollup.inputs:",
        replacement="        if True:",
        killed_by="commit/test_rollup.py",
    ),
    Mutant(
        name="an overwrite keeps the rows",
        path="commit/plan.py",
        text="    is_kept = intent.operation is not Operation.OVERWRITE",
        replacement="    is_kept = True",
        killed_by="commit/test_interleaving.py",
    ),
    # ---- statistics
    Mutant(
        name="a cut maximum is not rounded up",
        path=STATS,
        text="        return _next_string(value[:MAX_BOUND_LENGTH])",
        replacement="        return value[:MAX_BOUND_LENGTH]",
        killed_by="format/test_stats.py",
    ),
    Mutant(
        name="NaN is a bound",
        path=STATS,
        text='        low, high = _lower(bounds["min"]), _upper(bounds["max"])',
        replacement='        low, high = _lower(bounds["min"]), _upper(bounds["max"])\n'
        '        high = float("nan") if nan_count else high',
        killed_by="format/test_stats.py",
    ),
    Mutant(
        name="NaN is not above the upper bound",
        path="predicate/prune.py",
        text="        nan=found.nan_count > 0,",
        replacement="        nan=False,",
        killed_by="predicate/test_prune.py",
    ),
    Mutant(
        name="a bound that a child lacks is made up",
        path=STATS,
        text="    return None if None in values or not values else choose(values)",
        replacement="    known = [value for value in values if value is not None]\n"
        "    return choose(known) if known else None",
        killed_by="format/test_stats.py",
    ),
    # ---- deleted rows
    Mutant(
        name="hidden rows are those of the next block",
        path="objects/snapshot_blocks.py",
        text="        _hiding(block, rows) if (rows := hidden.get(block.id)) else block for block "
        "in blocks\n",
        replacement="        _hiding(block, rows) if (rows := hidden.get(other.id)) else block\n"
        "        for block, other in zip(blocks, (*blocks[1:], blocks[0]), strict=True)\n",
        killed_by="objects/test_deletions.py",
    ),
    Mutant(
        name="a reader shows hidden rows",
        path="objects/blocks.py",
        text="    return without_hidden(rows, block.hidden)",
        replacement="    return rows",
        killed_by="dml/test_rules.py",
    ),
    Mutant(
        name="a compaction shows rows that were deleted meanwhile",
        path=REPLACE,
        text="        block.id: hidden[block.id] - (block.hidden or Positions())",
        replacement="        block.id: Positions()",
        killed_by="dml/test_two_writers.py",
    ),
    Mutant(
        name="a compaction keeps the old places of deleted rows",
        path="commit/moved_rows.py",
        text="        at = _inverse(_order(store, schema, group, key))[at]",
        replacement="        pass",
        killed_by="dml/test_two_writers.py",
    ),
    Mutant(
        name="a compaction replaces blocks that are gone",
        path=REPLACE,
        text="        if len(found) < len(at):\n            return False",
        replacement="        if False:\n            return False",
        killed_by="commit/test_replace.py",
    ),
    Mutant(
        name="an upsert accepts a key without a value",
        path="dml/keys.py",
        text="    columns = rows.select(list(keys.names()))\n    _check_no_null(columns)\n",
        replacement="    columns = rows.select(list(keys.names()))\n",
        killed_by="dml/test_upsert.py",
    ),
    Mutant(
        name="a row that is hidden already is deleted again",
        path="dml/find.py",
        text="            rows = matching if block.hidden is None else matching - block.hidden",
        replacement="            rows = matching",
        killed_by="dml/test_two_writers.py",
    ),
    # ---- the feed
    Mutant(
        name="an offset forgets its index",
        path=OFFSETS,
        text="        index=0 if not left else -left if unit.is_table else count,",
        replacement="        index=0,",
        killed_by="feed/test_offsets.py",
    ),
    Mutant(
        name="the feed skips a version",
        path=OFFSETS,
        text="    if offset.is_undecided or offset.version < unit.version:",
        replacement="    if offset.is_undecided or offset.version < unit.version - 1:",
        killed_by="feed/test_offsets.py",
    ),
    Mutant(
        name="a compaction is in the feed",
        path="feed/diff.py",
        text="    if snapshot.operation in KEEPS_ROWS or not snapshot.data_change:\n"
        "        return BlockDiff()",
        replacement="    if False:\n        return BlockDiff()",
        killed_by="feed/test_changes.py",
    ),
    # ---- expiry and vacuum
    Mutant(
        name="a vacuum does not wait for commits in flight",
        path=VACUUM,
        text="                continue\n            (old if info.modified_us < kept.before_us else "
        "young).add(",
        replacement="                continue\n            old.add(",
        killed_by="expiry/test_vacuum.py::test_nothing_is_deleted_by_age_before_the_second_epoch_raise",
    ),
    Mutant(
        name="an expiry does not wait for the grace",
        path="expiry/expire.py",
        text="    least_us = max(grace_us, retention.older_than_us or 0)",
        replacement="    least_us = retention.older_than_us or 0",
        killed_by="expiry/test_expire.py",
    ),
    Mutant(
        name="a vacuum does not ask the leases",
        path=KEEPERS,
        text="        leases=tuple(item for item in leases if item.is_live(store_time.store_us)),",
        replacement="        leases=(),",
        killed_by="expiry/test_consumers.py",
    ),
    Mutant(
        name="a vacuum does not ask the tags",
        path=KEEPERS,
        text="        *iter_tags(metadata, now_us=over_us),\n",
        replacement="",
        killed_by="expiry/test_vacuum.py::test_a_tag_keeps_its_snapshot_through_expiry",
    ),
    Mutant(
        name="a vacuum does not ask the pins of clones",
        path=KEEPERS,
        text="        *iter_pins(metadata),\n",
        replacement="",
        killed_by="refs/test_clone_deleted_rows.py",
    ),
    Mutant(
        name="slots are freed before their marker",
        path=VACUUM,
        text="            _put_marker(metadata, branch_id, chunk)",
        replacement="            pass",
        killed_by="expiry/test_vacuum.py::test_slots_are_deleted_by_chunk_after_the_marker_is_written",
    ),
    # ---- going back
    Mutant(
        name="a rewind forgets the checkpoint",
        path="recovery/rewind.py",
        text="    _finish(committers, checkpoints)\n    tables = (",
        replacement="    tables = (",
        killed_by="recovery/test_rewind.py",
    ),
    Mutant(
        name="a rewind keeps the ledger of the head",
        path="recovery/rewind_plan.py",
        text="        ledger = self._with_moved(ledger, member)\n",
        replacement="        ledger = on.head.snapshot.ledger\n",
        killed_by="recovery/test_rewind.py",
    ),
    Mutant(
        name="a fork has commits of later batches",
        path="checkpoint/fork.py",
        text="        return batch_id > (planned if log == OFFSETS else done)",
        replacement="        return batch_id > planned",
        killed_by="checkpoint/test_fork.py",
    ),
    # ---- damage
    Mutant(
        name="the hash of a block is not checked",
        path="objects/blocks.py",
        text="    if sha256_hex(data) != block.sha256:",
        replacement="    if False:",
        killed_by="reading/test_scan.py::test_a_block_with_another_blocks_bytes_is_damage",
    ),
    Mutant(
        name="the hash of a segment is not checked",
        path="format/codec.py",
        text="    if sha256_hex(stored) != sha256:",
        replacement="    if False:",
        killed_by="format/test_codec.py",
    ),
    Mutant(
        name="the hash of a deletion file is not checked",
        path="objects/deletions.py",
        text="    if sha256_hex(data) != ref.sha256:",
        replacement="    if False:",
        killed_by="objects/test_deletions.py",
    ),
    # ---- Bloom filters
    Mutant(
        name="a value is hashed with the width that the column has today",
        path="reading/filters.py",
        text="hash_of(value, bloom.type)",
        replacement='hash_of(value, "long" if bloom.type == "integer" else bloom.type)',
        killed_by="reading/test_filters.py",
    ),
    Mutant(
        name="one absent value rules a block out",
        path="predicate/absent.py",
        text="left = tuple(value for value in values if not is_absent(column, value))",
        replacement="left = () if any(is_absent(column, one) for one in values) else values",
        killed_by="reading/test_filters.py",
    ),
    Mutant(
        name="one absent key rules a block out",
        path="dml/keys.py",
        text="len(absent.get(column, ())) < len(set(values)) for",
        replacement="not absent.get(column) for",
        killed_by="reading/test_filters.py",
    ),
)
