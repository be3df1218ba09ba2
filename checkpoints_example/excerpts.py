"""The excerpts in README.md, drawn from sample/: what the page shows is what the files hold.

An excerpt stands in a fenced block below the comment `<!-- excerpt: NAME -->`; `refresh` fills all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

LAST_BATCH = 3
SETTING = "spark.sql.shuffle.partitions"
LONGEST_TEXT = 60
_BLOCK = re.compile(
    r"""
    (<!--\ excerpt:\ (?P<name>[\w-]+)\ -->\n```\w*\n)
    (?:(?!```).*\n)*
    (```\n)
    """,
    re.VERBOSE,
)


def refresh(page: str, sample: Path) -> str:
    """Return `page` with every excerpt as `sample` has it."""
    return _BLOCK.sub(
        lambda found: f"{found[1]}{_EXCERPTS[found['name']](sample)}\n{found[3]}", page
    )


def load_segment(file: Path) -> Any:
    """Return a segment as JSON values."""
    return json.loads(pa.CompressedInputStream(str(file), "zstd").read())


def _tree(part: str) -> Callable[[Path], str]:
    def lines(sample: Path) -> str:
        folder = sample / part
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        shown = [file for file in files if file.suffix != ".crc"]
        return "\n".join(f"{file.relative_to(sample)}" for file in shown)

    return lines


def _text(name: str) -> Callable[[Path], str]:
    return lambda sample: (sample / name).read_text().rstrip("\n")


def _offsets(sample: Path) -> str:
    header, first, *sources = (sample / f"checkpoint/offsets/{LAST_BATCH}").read_text().split("\n")
    fields = json.loads(first)
    setting = f'"{SETTING}": "{fields["conf"][SETTING]}"'
    shown = json.dumps({**fields, "conf": "*"}).replace('"*"', f"{{{setting}, ...}}")
    return "\n".join([header, shown, *sources])


def _offsets_hash(sample: Path) -> str:
    name = f"checkpoint/offsets/{LAST_BATCH}"
    digest = hashlib.sha256((sample / name).read_bytes()).hexdigest()
    return f"$ sha256sum {name}\n{digest}  {name}"


def _table_file(sample: Path) -> str:
    fields = json.loads((sample / "table/_fuse.json").read_bytes())
    fields["schema"]["columns"] = [_shortened(column) for column in fields["schema"]["columns"]]
    return _pretty(fields)


def _snapshot(sample: Path) -> str:
    fields = _head(sample)
    fields["ledger"] = "see below"
    fields["schema"] = "as in _fuse.json"
    fields["segments"] = ["... three older ones", fields["segments"][-1]]
    fields["summary"]["col_stats"] = {"1": fields["summary"]["col_stats"]["1"], "...": "..."}
    return _pretty(fields)


def _ledger(sample: Path) -> str:
    return _pretty(_head(sample)["ledger"])


def _segment(sample: Path) -> str:
    (added,) = _head(sample)["added"]
    fields = load_segment(sample / f"table/_sg/{added}_v1.json.zst")
    (block,) = fields["blocks"]
    for name in ("col_stats", "col_metas"):
        block[name] = {"3": block[name]["3"], "...": "..."}
    fields["summary"] = "the same, over all blocks"
    return _pretty(fields)


def _head(sample: Path) -> Any:
    return json.loads(max((sample / "table/_ss/main").iterdir()).read_bytes())


def _pretty(item: Any, indent: int = 0) -> str:
    """Return JSON a field a line, short values whole, long texts cut."""
    item = _shortened(item)
    whole = json.dumps(item)
    if len(whole) + indent <= 98 - len('"ledger": ') or not item:
        return whole
    pad = "  " * (indent + 1)
    if isinstance(item, Mapping):
        lines = [f'{pad}"{name}": {_pretty(value, indent + 1)}' for name, value in item.items()]
        return "{\n" + ",\n".join(lines) + "\n" + pad[2:] + "}"
    if isinstance(item, list):
        lines = [pad + _pretty(value, indent + 1) for value in item]
        return "[\n" + ",\n".join(lines) + "\n" + pad[2:] + "]"
    return whole


def _shortened(item: Any) -> Any:
    if isinstance(item, str) and len(item) > LONGEST_TEXT + 4:
        return item[: LONGEST_TEXT // 2] + " ... " + item[-LONGEST_TEXT // 3 :]
    return item


_EXCERPTS: Mapping[str, Callable[[Path], str]] = {
    "checkpoint-tree": _tree("checkpoint"),
    "metadata": _text("checkpoint/metadata"),
    "offsets": _offsets,
    "source": _text(f"checkpoint/sources/0/{LAST_BATCH}"),
    "commit": _text(f"checkpoint/commits/{LAST_BATCH}"),
    "table-tree": _tree("table"),
    "table-file": _table_file,
    "snapshot": _snapshot,
    "ledger": _ledger,
    "segment": _segment,
    "offsets-hash": _offsets_hash,
}
