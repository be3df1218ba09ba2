"""The verbs of a table's handle that keep it in good shape.

What they do is loaded when they are called: every worker of Spark's loads a table's handle.
"""

from __future__ import annotations

from fuse_stream.reading.branch import BranchReader


class BranchMaintenance(BranchReader):
    """What a handle does to keep its branch fast and its garbage away."""
