#!/bin/bash
# `make miri`: Miri on those tests of the heap that touch no mapping: the derive and its fingerprints, the format's
# places, and unit tests of the library. The others map memory, copy it by assembly and flush it by instructions, none
# of which Miri knows: `Heap::private` is such memory too.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "miri is missing: rustup toolchain install nightly -c miri,rust-src" >&2
    exit 1
fi
export MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/miri
bad=0
cargo +nightly miri test -p pmlib --test safe || bad=1
cargo +nightly miri test -p pmlib-format --lib -- places_fit || bad=1
parts=(copies:: layout:: packed:: record:: space:: containers::text:: containers::vec::)
# Of the check, hashes of whole blocks take Miri many minutes.
cargo +nightly miri test -p pmlib --lib -- "${parts[@]}" place_length_order || bad=1
exit "$bad"
