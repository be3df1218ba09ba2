#!/bin/sh
# Print the Python to make virtual environments with: $PYTHON if set, else the newest one on the
# PATH that is 3.11 or later and has venv and ensurepip. Debian ships ensurepip apart, in
# python3-venv, so that `import venv` alone proves nothing.
set -eu

usable() {
    # A name on the PATH may be a shim that only says that the version is not installed: run it.
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    if usable "$PYTHON"; then
        printf '%s\n' "$PYTHON"
        exit 0
    fi
    echo "PYTHON=$PYTHON does not run, is older than 3.11, or lacks venv and ensurepip" >&2
    exit 1
fi

for candidate in python3.14 python3.13 python3.12 python3.11 python3 python; do
    if usable "$candidate"; then
        printf '%s\n' "$candidate"
        exit 0
    fi
done

echo "no Python 3.11 or later with venv and ensurepip was found; on Debian or Ubuntu run:" >&2
echo "    sudo apt-get install -y python3-venv" >&2
echo "or name one: make test PYTHON=/path/to/python3" >&2
exit 1
