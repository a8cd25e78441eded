#!/bin/bash
# The Python module, built and used: a line for each test. Needs Python 3.11 or later.

set -u
cd "$(dirname "$0")/.." || exit 1
target=${CARGO_TARGET_DIR:-$PWD/target}

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "skip Python, every method: there is no Python of 3.11 or later"
    exit 0
fi
cargo build -p pmkv-python || exit 1
place=$(mktemp -d /dev/shm/pmkv-python.XXXXXX) || exit 1
trap 'rm -rf "$place"' EXIT
mkdir "$place/data"
cp "$target/debug/libpmkv_python.so" "$place/pmkv.abi3.so" || exit 1
failed=0
if ! PYTHONPATH=$place python3 crates/pmkv-python/tests/calls.py "$place/data"; then
    echo "FAIL Python, every method"
    failed=1
fi
if ! PYTHONPATH=$place python3 crates/pmkv-python/tests/views.py "$place/data"; then
    echo "FAIL Python, views and snapshots"
    failed=1
fi
if ! PYTHONPATH=$place python3 crates/pmkv-python/tests/processes.py "$place/data"; then
    echo "FAIL Python, fork and multiprocessing"
    failed=1
fi
exit "$failed"
