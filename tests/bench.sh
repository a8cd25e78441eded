#!/bin/bash
# `make bench`: what the engine costs as a library, beside tmpfs and the memory itself; directories; recovery;
# and through a mount. Figures are medians; ratios are taken within a round. Takes root and some 12 GiB of memory.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
pmbench=$target/release/pmbench

section() { printf '\n== %s\n' "$1"; }

section "the engine as a library (flush=always), tmpfs by system calls, the memory's own limit"
"$pmbench" rows "$@" || exit 1
section "a directory of 10 k and of a million names"
"$pmbench" directory "$@" || exit 1
section "mounting, 100 k files in 10 GiB"
"$pmbench" recovery "$@" || exit 1
section "mounting and checking, 10 million files in a sparse pool of 100 GiB"
"$pmbench" recovery --files 10000000 --mib 39000 --sparse 100 --rounds 3 || exit 1

section "unmodified programs below pmfs run"
"$pmbench" intercepted "$target/release/pmfs" "$@" || exit 1

section "several processes on one pool"
"$pmbench" sharing "$@" || exit 1

section "stray stores kept away: none, protection keys, page permissions (figure 11 of PMFS)"
"$pmbench" windows "$@" || exit 1

section "mapped files, by page size, and beside tmpfs and ext4 on a block device (figure 9 of PMFS)"
"$pmbench" mapped "$@" || exit 1

for medium in pmep-2014 optane-100 cxl-nvcmm; do
    section "an emulated medium beside what it was asked to be: $medium"
    "$pmbench" emulate --emulate "$medium" "$@" || exit 1
done

make_place bench 50%

section "keys and values, beside lmdb, redb, rocksdb, and pmemkv where PMKV_PEERS names its directory"
"$target/release/pmkv-peers" --dir "$place" || exit 1

why=$(why_no_mount)
if [ -n "$why" ]; then
    echo "the mount was not measured: $why"
    exit 0
fi
mkdir "$place/mnt"
"$pmfs" mkfs --size 4G "$place/pool" >/dev/null || exit 1
through_mount() {
    section "through the mount, $1"
    shift
    local processor=$1 options=$2
    shift 2
    taskset -c "$processor" "$pmfs" mount -o "$options" "$place/pool" "$place/mnt" >/dev/null || exit 1
    taskset -c "$processor" "$pmbench" mount "$place/mnt" "$@"
    "$pmfs" umount "$place/mnt" >/dev/null
}
all=0-$(($(nproc) - 1))
through_mount "as it is by default, alone in its pool" "$all" rw "$@"
through_mount "nothing remembered" "$all" nocache "$@"
through_mount "nothing remembered, program and daemon on one processor" 0 nocache "$@"
through_mount "names and attributes remembered for a second" "$all" cache "$@"
