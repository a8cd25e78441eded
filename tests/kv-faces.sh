#!/bin/bash
# Processes that use one store through Rust, C, Python and libpmemkv at once, and are killed: a line for each test.
# PMKV_FACES_SECONDS (10), PMKV_FACES_SEED; --release: optimised.

set -u
cd "$(dirname "$0")/.." || exit 1
target=${CARGO_TARGET_DIR:-$PWD/target}
profile=debug
[ "${1:-}" = --release ] && profile=release

faces=$(mktemp -d "${TMPDIR:-/tmp}/pmkv-faces.XXXXXX") || exit 1
trap 'rm -rf "$faces"' EXIT
trap 'exit 130' INT TERM HUP

crates=(-p pmkv-capi -p pmemkv-capi)
if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    crates+=(-p pmkv-python)
else
    echo "skip every face, Python: there is no Python of 3.11 or later"
fi
cargo build "$@" "${crates[@]}" || exit 1
case ${crates[*]} in *python*) cp "$target/$profile/libpmkv_python.so" "$faces/pmkv.abi3.so" || exit 1 ;; esac

tests=crates/pmkv/tests/faces
compile=(cc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror)
"${compile[@]}" -I crates/pmkv-capi/include "$tests/c.c" "$target/$profile/libpmkv_c.a" -lpthread -ldl -lm \
    -o "$faces/c" || exit 1
crates/pmemkv-capi/link.sh "$target/$profile/libpmemkv_c.a" "$faces/libpmemkv.so.1" || exit 1
"${compile[@]}" -I crates/pmemkv-capi/tests "$tests/pmemkv.c" "$faces/libpmemkv.so.1" -Wl,-rpath,"$faces" \
    -o "$faces/pmemkv" || exit 1

PMKV_FACES=$faces PMKV_FACES_SECONDS=${PMKV_FACES_SECONDS:-10} cargo test "$@" -p pmkv --test faces -- --show-output
