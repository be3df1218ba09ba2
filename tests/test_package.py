"""What `import fuse_stream` does where a package is missing."""

from __future__ import annotations

import subprocess
import sys

import fuse_stream


def test_a_missing_package_is_named_with_the_python_that_lacks_it() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import fuse_stream"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: pyarrow is missing in {sys.executable}")
    assert "PYSPARK_PYTHON" in last


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    assert dir(fuse_stream) == sorted(fuse_stream.__all__)
    assert all(getattr(fuse_stream, name) is not None for name in dir(fuse_stream))
