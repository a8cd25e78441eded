#!/bin/sh
# link.sh ARCHIVE LIBRARY: the shared library of the static one, with its name and the versions of its
# symbols. Rust gives a cdylib a version script of its own, without names.
set -eu
here=$(dirname "$0")
exec "${CC:-cc}" -shared -o "$2" -Wl,-soname,libpmemkv.so.1 -Wl,--version-script="$here/pmemkv.map" \
    -Wl,--gc-sections -Wl,--undefined-version $(sed -n 's/^    \(pmemkv_[a-z0-9_]*\);/-Wl,-u,\1/p' "$here/pmemkv.map") \
    "$1" -lpthread -ldl -lm -lgcc_s
