"""The handle's methods that change rows: delete, update, upsert, erase, and the key.

Their modules are loaded at the first call, because every worker of Spark's loads the handle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fuse_stream.commit.committer import may_replan
from fuse_stream.commit.plan import Intent
from fuse_stream.format.names import flag_in, names_in
from fuse_stream.format.properties import Duration
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.arriving import Data, api_batch, rows_in
from fuse_stream.table.reads import BranchReader

if TYPE_CHECKING:
    from fuse_stream.dml import delete, event_rules, replicate, retry, sequenced, update, upsert
    from fuse_stream.dml.find import Progress as ChangeProgress
    from fuse_stream.dml.result import ChangeResult
    from fuse_stream.erasure import erase
    from fuse_stream.erasure.erase import ErasureReport
    from fuse_stream.erasure.holders import SearchProgress
else:
    delete = OnDemand("fuse_stream.dml.delete")
    erase = OnDemand("fuse_stream.erasure.erase")
    event_rules = OnDemand("fuse_stream.dml.event_rules")
    retry = OnDemand("fuse_stream.dml.retry")
    sequenced = OnDemand("fuse_stream.dml.sequenced")
    replicate = OnDemand("fuse_stream.dml.replicate")
    update = OnDemand("fuse_stream.dml.update")
    upsert = OnDemand("fuse_stream.dml.upsert")


class BranchChanges(BranchReader):
    """The methods of a handle that delete, update and upsert rows."""

    def delete(
        self,
        where: str,
        *,
        time_zone: str = "UTC",
        dry_run: bool = False,
        message: str = "",
        author: str = "",
        progress: ChangeProgress | None = None,
    ) -> ChangeResult:
        """Delete the rows for which `where` holds, as one snapshot; no block is rewritten.

        The commit has the effect of a delete that runs alone on the newest snapshot, also beside
        other writers. Blocks are read that may hold a matching row and another one. The next
        compaction of a block removes the rows from its file. Rows that come from events with
        sequences stay away until a later event of their key comes.

        Args:
            where: a SQL predicate, as of `scan`; "true" for all rows.
            time_zone: of times in the predicate without a zone.
            dry_run: count the rows, and write nothing.
            message: shown by the log.
            author: shown by the log; never taken from the system.
            progress: called with the number of blocks searched, and of all to search.

        Returns:
            The commit, and the number of rows; no commit if no row matches.

        Raises:
            InvalidInputError: an unknown column or a broken predicate; or `origins` lacks an origin
                of the clone. Nothing was written.
            CorruptObjectError: a block is missing or damaged; nothing was committed.
            ConflictError: other writers won every attempt; nothing was committed.
            CommitStateUnknownError: the store failed; the commit may have landed. A second call is
                safe.
        """
        return delete.delete(
            self.committer,
            where,
            time_zone=time_zone,
            dry_run=flag_in("dry_run", dry_run),
            message=message,
            author=author,
            progress=progress,
        )

    def update(
        self,
        where: str,
        values: Mapping[str, object],
        *,
        time_zone: str = "UTC",
        dry_run: bool = False,
        message: str = "",
        author: str = "",
        progress: ChangeProgress | None = None,
    ) -> ChangeResult:
        """Set columns of the rows for which `where` holds, as one snapshot.

        Rows that have these values already are left alone. The others are hidden where they are and
        written to new blocks. The change feed shows them as `update_preimage` and
        `update_postimage`.

        Args:
            where: a SQL predicate, as of `scan`; "true" for all rows.
            values: the new value of each column to set, as Python or Arrow values.
            time_zone: of times in the predicate without a zone.
            dry_run: count the rows, and write nothing.
            message: shown by the log.
            author: shown by the log; never taken from the system.
            progress: called with the number of blocks searched, and of all to search.

        Returns:
            The commit, and the number of rows; no commit if no row has to change.

        Raises:
            InvalidInputError: an unknown column, a value that does not fit its column, or a broken
                predicate; or `origins` lacks an origin of the clone. Nothing was written.
            CorruptObjectError, ConflictError, CommitStateUnknownError: as `delete`.
        """
        return update.update(
            self.committer,
            where,
            values,
            time_zone=time_zone,
            dry_run=flag_in("dry_run", dry_run),
            message=message,
            author=author,
            progress=progress,
        )

    def erase(
        self,
        where: str,
        *,
        verify: bool = False,
        time_zone: str = "UTC",
        dry_run: bool = False,
        message: str = "",
        author: str = "",
        progress: SearchProgress | None = None,
    ) -> ErasureReport:
        """Erase the rows for which `where` holds, and say what still holds them.

        One commit on the head of each branch rewrites every block that holds such a row, also one
        that was deleted, and computes all bounds anew, since they are values. Older versions still
        hold the rows: the report names them, and each tag, clone and consumer that keeps them, with
        the command that releases them. After `expire` and two `vacuum`s, call it with `verify`.

        Safe beside other writers; a second call finishes what a dead one began. The change feed
        shows the rows as deletes, except those that were deleted before.

        Args:
            where: a SQL predicate, as of `scan`, for the rows of every version.
            verify: write nothing; instead read every object under the table's folder, reachable or
                not, and report what it holds of the rows.
            time_zone: of times in the predicate without a zone.
            dry_run: count the rows and say what holds them, and write nothing.
            message: shown by the log, and kept: name no value in it. By default the counts.
            author: shown by the log; never taken from the system.
            progress: called with the present task, how much of it is done, and its total.

        Raises:
            InvalidInputError: an unknown column or a broken predicate; or `origins` lacks an origin
                of the clone. Nothing was written.
            CorruptObjectError: a block of a head is damaged or missing, or a ref or lease; the
                commits of branches before it remain.
            ConflictError: other writers won every attempt; call it again.
            CommitStateUnknownError: the store failed; the commit may have landed. A second call is
                safe.
        """
        return erase.erase(
            self.committer,
            where,
            verify=flag_in("verify", verify),
            dry_run=flag_in("dry_run", dry_run),
            time_zone=time_zone,
            message=message,
            author=author,
            progress=progress,
        )

    def upsert(
        self,
        data: Data,
        *,
        keys: Sequence[str] | None = None,
        app_id: str | None = None,
        batch_id: int | None = None,
        writer: str = "",
        merge_schema: bool = False,
        message: str = "",
        author: str = "",
        sequence_by: str | Sequence[str] | None = None,
        apply_as_deletes: str | None = None,
        apply_as_truncates: str | None = None,
        except_column_list: Sequence[str] = (),
        ignore_null_updates: bool = False,
        stored_as_scd_type: int = 1,
        track_history_column_list: Sequence[str] | None = None,
        tombstones: Duration | None = None,
        on_bad: str = "quarantine",
    ) -> ChangeResult:
        """Replace the rows that have the keys of `data`, and add the others, as one snapshot.

        The change feed shows the replaced rows as `update_preimage`, and what replaces them as
        `update_postimage`. All of `data` is in memory. Otherwise like `append`: with `app_id` and
        `batch_id` the call is safe to repeat.

        Args:
            data: the rows, one for each key; their columns are the table's, in any order.
            keys: the columns by which rows are unique. The first upsert sets them as the table's
                key; later ones need not name them.
            app_id: the application that delivers the batch.
            batch_id: the batch's number; it grows.
            writer: a name for each stream of batches, if one application has several.
            merge_schema: let the data add columns and widen types.
            message: shown by the log.
            author: shown by the log; never taken from the system.
            sequence_by: the column, or the columns, by which the events of a key are ordered. The
                rows of `data` are events then, in any order, several of a key among them; an event
                that is older than what the table has of its key changes nothing.
            apply_as_deletes: a SQL predicate: which events delete their key.
            apply_as_truncates: a SQL predicate: which events delete every key.
            except_column_list: columns that the table does not get.
            ignore_null_updates: a null gives no value: the column stays as it is.
            stored_as_scd_type: 1: a row is the latest state of its key; 2: each state is a row,
                with the sequences `__START_AT` and `__END_AT`.
            track_history_column_list: the columns of which a change begins a new row, for 2.
            tombstones: how long deleted keys are remembered; for ever if not given. An older event
                of a key that is forgotten goes to the quarantine.
            on_bad: "quarantine" keeps events that cannot be applied in the side `quarantine`;
                "error" raises.

        Returns:
            The commit, and how many rows were new and how many replaced others.

        Raises:
            AmbiguousMergeError: several rows of `data` have one key; nothing was written.
            InvalidInputError: a null in a key; or the table has another key, or none and `keys` is
                not given; or its rows are not unique by the new key. Nothing was written.
            SchemaMismatchError, StreamIdentityError, ConflictError, CommitStateUnknownError: as
                `append`.
        """
        rules = event_rules.event_rules(
            "upsert",
            sequence_by=sequence_by,
            apply_as_deletes=apply_as_deletes,
            apply_as_truncates=apply_as_truncates,
            except_column_list=except_column_list,
            ignore_null_updates=ignore_null_updates,
            stored_as_scd_type=stored_as_scd_type,
            track_history_column_list=track_history_column_list,
            tombstones=tombstones,
            on_bad=on_bad,
        )
        given = rows_in(data)
        rows = given if isinstance(given, pa.Table) else given.read_all()
        names = None if keys is None else names_in("keys", keys)
        if rules.take_events(rows.column_names):
            return sequenced.upsert_events(
                self.committer,
                rows,
                rules,
                keys=names,
                merge_schema=flag_in("merge_schema", merge_schema),
                intent=Intent(
                    operation=Operation.UPSERT,
                    batch=api_batch(app_id, batch_id, writer),
                    author=author,
                    message=message,
                ),
            )
        return upsert.upsert_rows(
            self.committer,
            rows,
            keys=names,
            merge_schema=flag_in("merge_schema", merge_schema),
            batch=api_batch(app_id, batch_id, writer),
            author=author,
            message=message,
        )

    def retry(
        self,
        where: str | None = None,
        *,
        too_late: bool = False,
        dry_run: bool = False,
        message: str = "",
        author: str = "",
    ) -> ChangeResult:
        """Apply events of the side `quarantine` again, as one snapshot.

        Safe at any time: an event that the table has already changes nothing, and one that still
        cannot be applied goes back. Events of which only the text was kept, because their reader
        could not read them, stay, and `unread` of the result counts them: `fuse.retry` reads the
        text again.

        Args:
            where: a SQL predicate over the columns of the quarantine, such as "reason = 'tie'"; all
                events if not given.
            too_late: apply events that came after their key was forgotten, too. They may bring back
                a row that was deleted.
            dry_run: count the events, and write nothing.
            message: shown by the log.
            author: shown by the log; never taken from the system.

        Returns:
            The commit, and the numbers of rows and events; no commit if there is no such event.

        Raises:
            InvalidInputError: an unknown column or a broken predicate; nothing was written.
            CorruptObjectError, ConflictError, CommitStateUnknownError: as `delete`.
        """
        return retry.retry(
            self.committer,
            where,
            too_late=flag_in("too_late", too_late),
            dry_run=flag_in("dry_run", dry_run),
            author=author,
            message=message,
        )

    def replicate(
        self, changes: Data, *, merge_schema: bool = False, message: str = "", author: str = ""
    ) -> ChangeResult:
        """Apply the rows of a change feed, as one snapshot, to a table without a key.

        The table then has the rows of the table that is fed: inserts come, and as many rows as the
        feed deletes go. What the changes both delete and insert cancels out.

        Args:
            changes: rows of a feed, with its column `_change_type`, such as those of `changes` of
                another table. All of them are in memory.
            merge_schema: let the changes add columns and widen types.
            message: shown by the log.
            author: shown by the log; never taken from the system.

        Returns:
            The commit, and the numbers of rows; no commit if there is nothing to change.

        Raises:
            InvalidInputError: the rows are not those of a feed; nothing was written.
            SchemaMismatchError: the columns are not the table's, or the table has a key.
            ConflictError: the changes delete a row that the table does not have; nothing was
                committed.
            CommitStateUnknownError: the store failed; the commit may have landed.
        """
        rows = rows_in(changes)
        return replicate.replicate_rows(
            self.committer,
            rows if isinstance(rows, pa.Table) else rows.read_all(),
            merge_schema=flag_in("merge_schema", merge_schema),
            author=author,
            message=message,
        )

    def set_key(self, columns: Sequence[str], *, on_conflict: str = "error") -> Snapshot:
        """Set the columns by which rows are unique, and return the new snapshot.

        From then on rows come by `upsert`, and `append` is refused. Reads the columns once.

        Args:
            columns: names of columns that are not nested; none remove the key.
            on_conflict: "error", or "replan" to plan again if another writer is faster.

        Raises:
            InvalidInputError: a column does not exist, is named twice or is nested; or several rows
                have one key, or a null in it.
            SchemaMismatchError: the rows of the table come from events with sequences.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        return upsert.set_key(
            self.committer, names_in("keys", columns), replan=may_replan(on_conflict)
        )
