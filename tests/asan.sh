#!/bin/bash
# The C programs of the library's tests under AddressSanitizer: their own accesses, those that the library makes by
# libc, and all memory that either allocates. The library's own code is not instrumented, and neither are mappings.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
PMKV_SANITIZER=address cargo test -p pmkv-capi --test c
