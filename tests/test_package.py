"""What `import fuse_stream` does where a package is missing."""

from __future__ import annotations

import subprocess
import sys


def test_a_missing_package_is_named_with_the_python_that_lacks_it() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import fuse_stream"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: pyarrow is missing in {sys.executable}")
    assert "PYSPARK_PYTHON" in last
