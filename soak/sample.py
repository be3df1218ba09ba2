"""A sample at one time: files by kind, live blocks, and every process's memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

import fuse_stream as fuse
from soak.places import Places

KINDS = {"_b": "blocks", "_sg": "segments", "_ss": "snapshots"}
OTHER = "other"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample, `seconds` after the start."""

    seconds: float
    rows: int
    version: int
    floor: int
    epoch: int
    live_blocks: int
    files: Mapping[str, int]
    """Number of files, by kind."""
    file_bytes: Mapping[str, int]
    memory: Mapping[str, float]
    """MiB by process: resident memory, or a JVM's heap after a collection."""

    @property
    def beyond(self) -> int:
        """Files that hold no row of the newest snapshot."""
        return sum(self.files.values()) - self.live_blocks

    @property
    def metadata_bytes_per_block(self) -> float:
        metadata = sum(size for kind, size in self.file_bytes.items() if kind != "blocks")
        return metadata / max(self.live_blocks, 1)


def take_sample(
    places: Places, table: fuse.Table, pids: Mapping[str, int], seconds: float
) -> Sample:
    """Take a sample; `pids` are the started processes, by name."""
    head = table.head()
    files, sizes = _count_files(places.table)
    return Sample(
        seconds=seconds,
        rows=head.summary.row_count,
        version=head.version,
        floor=head.floor,
        epoch=head.epoch,
        live_blocks=head.summary.block_count,
        files=files,
        file_bytes=sizes,
        memory={
            part: size
            for name, pid in pids.items()
            for part, size in memory_of(name, pid, places).items()
        },
    )


def _count_files(root: Path) -> tuple[dict[str, int], dict[str, int]]:
    files, sizes = (dict.fromkeys((*KINDS.values(), OTHER), 0) for _ in range(2))
    for folder, _, names in os.walk(root):
        kind = (
            KINDS.get(Path(folder).relative_to(root).parts[:1][0], OTHER)
            if (Path(folder) != root)
            else OTHER
        )
        for name in names:
            try:
                size = (Path(folder) / name).stat().st_size
            except FileNotFoundError:  # vacuum runs meanwhile
                continue
            files[kind] += 1
            sizes[kind] += size
    return files, sizes


def _part_of(program: str) -> str | None:
    """Return the kind of a process below a driver; None for a fork of a JVM's thread.

    That one has the thread's name and all of the JVM's memory until it becomes another program.
    """
    if program == "java":
        return "jvm"
    return "workers" if program.startswith("python") else None


def memory_of(name: str, pid: int, places: Places) -> dict[str, float]:
    """Return the memory of a process, of its JVM and of the Python workers below that."""
    found: dict[str, float] = {}
    try:
        top = psutil.Process(pid)
        found[f"{name}: python"] = top.memory_info().rss / MIB
        for child in top.children(recursive=True):
            part = _part_of(child.name())
            if part is None:
                continue
            key = f"{name}: {part}"
            # Workers are forks of one process: shared memory must count once.
            memory = child.memory_full_info()
            found[key] = found.get(key, 0.0) + (memory.rss if part == "jvm" else memory.pss) / MIB
    except psutil.Error:
        pass  # it was killed, or a worker ended
    if places.heap(name).exists():
        found[f"{name}: heap"] = int(places.heap(name).read_text()) / MIB
    return found
