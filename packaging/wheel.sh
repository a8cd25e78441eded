#!/bin/bash
# `make wheel`: a wheel of the Python module, for Python 3.11 and later, in target/wheels; its path is the last line.
# maturin builds it, from PyPI, in an environment of its own. Arguments go to `maturin build` (--release if none).

set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
[ "$#" != 0 ] || set -- --release

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "wheel: Python 3.11 or later is needed (apt-get install python3 python3-venv)" >&2
    exit 1
fi
builder=$target/wheel-builder
if ! "$builder/bin/maturin" --version >/dev/null 2>&1; then
    rm -rf "$builder"
    python3 -m venv "$builder"
    "$builder/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1,<2' || {
        echo "wheel: maturin can't be installed from PyPI" >&2
        exit 3
    }
fi
rm -rf "$target/wheels"
"$builder/bin/maturin" build "$@" --manifest-path crates/pmkv-python/Cargo.toml --target-dir "$target" \
    --out "$target/wheels" >&2
echo "$target"/wheels/*.whl
