"""A snapshot's rows as a `pyarrow.dataset.Dataset`, whose readers choose columns and rows.

A block that was written with the snapshot's schema is a file of the dataset. Any other block (of an
older schema, or with rows that are deleted or that the predicate rules out) is read as a scan reads
it when the dataset opens its file, and given to the dataset as an Arrow file in memory. So the rows
are those of the scan, whatever the schemas of the blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from fuse_stream.errors import UnsupportedStorageError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import stored_form
from fuse_stream.objects.blocks import open_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import expiry_reported
from fuse_stream.reading.scan import Selection, prune, read_block, stats_must_match

_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_ARROW = ds.IpcFileFormat()


def dataset_of(metadata: Metadata, snapshot: Snapshot, selection: Selection) -> ds.Dataset:
    """Return the wanted rows of a snapshot as a dataset; reads the segments, but no block.

    Reading it raises the errors of a scan.

    Raises:
        SnapshotExpiredError: the snapshot has expired.
    """
    with expiry_reported(metadata, (snapshot.branch_id, snapshot.version)):
        blocks = {block.id: block for block in prune(metadata, snapshot, selection)}
    files = fs.PyFileSystem(_Files(metadata, snapshot, selection, blocks.values()))
    fragments = [
        (_PARQUET if _is_whole(block, snapshot, selection) else _ARROW).make_fragment(name, files)
        for name, block in blocks.items()
    ]
    return ds.FileSystemDataset(fragments, arrow_schema(selection.schema), _PARQUET, files)


def _is_whole(block: Block, snapshot: Snapshot, selection: Selection) -> bool:
    """True if a block has the columns of the snapshot's schema, and only wanted rows."""
    return (
        stored_form(snapshot.schema) is snapshot.schema  # a dataset finds columns by name
        and block.schema_id == snapshot.schema.id
        and block.hidden is None
        and stats_must_match(selection, block.col_stats, block.row_count)
    )


class _Owned:
    """A file that is closed when its last reader drops it: the readers of datasets close none."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __del__(self) -> None:
        self._file.close()


class _Files(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The blocks of a scan as files that can only be read."""

    def __init__(
        self,
        metadata: Metadata,
        snapshot: Snapshot,
        selection: Selection,
        blocks: Iterable[Block],
    ) -> None:
        self._metadata = metadata
        self._snapshot = snapshot
        self._selection = selection
        self._blocks = {block.id: block for block in blocks}
        # Arrow opens files in several threads.
        self._turn: Any = nullcontext() if metadata.store.overlaps else threading.Lock()

    def get_type_name(self) -> str:
        return "fuse_stream"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a block, or its rows as an Arrow file; raises the errors of a scan."""
        block, place = self._blocks[path], (self._snapshot.branch_id, self._snapshot.version)
        with self._turn, expiry_reported(self._metadata, place):
            store = self._metadata.store
            if _is_whole(block, self._snapshot, self._selection):
                file = open_block(store, block, whole=not store.overlaps)
                is_arrows = isinstance(file, pa.NativeFile)
                return file if is_arrows else pa.PythonFile(_Owned(file), mode="r")
            rows = read_block(store, block, self._selection)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return pa.BufferReader(sink.getvalue())

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refuse(self, *_: object) -> NoReturn:
        raise UnsupportedStorageError(
            "a table's dataset can only be read; write with Table.append, or to another folder"
        )

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    get_file_info_selector = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse
