#!/bin/bash
# `make miri`: Miri on those unit tests of the heap that touch no mapping. The others map memory, copy it by assembly
# and flush it by instructions, none of which Miri knows: `Heap::private` is such memory too.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "miri is missing: rustup toolchain install nightly -c miri,rust-src" >&2
    exit 1
fi
target=${CARGO_TARGET_DIR:-$PWD/target}/miri
parts=(copies:: layout:: packed:: record:: space:: containers::text:: containers::vec::)
# Of the check, hashes of whole blocks take Miri many minutes.
MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$target \
    cargo +nightly miri test -p pmlib --lib -- "${parts[@]}" place_length_order
