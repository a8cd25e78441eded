#!/bin/bash
# A persistent heap on every medium of this machine: made at 64 MiB, it takes PMKV_MIB of objects (128) from two
# processes at once, untold. As an ordinary user where root can be one. One line a check: ok, FAIL, or skip with the
# reason. Devices, and files with DAX, are media.sh's.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
cd "$root" || exit 1
mib=${PMKV_MIB:-128}
passed=0 failed=0 skipped=0
make_place heaps "$((mib * 4 + 512))M"
plain=$(mktemp -d "$target/pmfs-heaps.XXXXXX") || exit 1
# The function `leave` of place.sh ends the script with the code that it finds.
trap 'code=$?; rm -rf "$plain"; (exit "$code"); leave' EXIT

result() {
    printf '%-4s heaps, %s\n' "$1" "$2"
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; skip) skipped=$((skipped + 1)) ;; esac
}

# The user "nobody" has no place but this one.
as=()
if is_root; then
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups --)
    chmod 755 "$place"
fi
mkdir "$place/bin" "$place/mnt" "$place/home" && cp "$pmfs" "${pmfs%/*}/libpmfs_shim.so" "$place/bin/" &&
    cc -std=c11 -O2 -I crates/pmkv-capi/include crates/pmkv-capi/tests/grow.c "${pmfs%/*}/libpmkv_c.a" -lpthread -ldl -lm -o "$place/bin/grow" || exit 1
is_root && chown 65534:65534 "$place/mnt" "$place/home" "$plain"

# check NAME HEAP COMMAND...: the command fills the heap.
check() {
    local name=$1 heap=$2 said
    shift 2
    if said=$(cd "$place/home" && HOME=$place/home "$@" "$place/bin/grow" "$heap" "$mib" 2>&1 </dev/null); then
        result ok "$name: $said"
    else
        result FAIL "$name"
        tail -n 20 <<<"$said"
    fi
    rm -f "$heap"
}

# A pool that has room, made anew. Its root directory belongs to its maker, who fills the heap.
pool() {
    rm -f "$place/home/pool"
    "${as[@]}" "$place/bin/pmfs" mkfs "$place/home/pool" --size "$((mib * 2 + 128))M" >/dev/null || exit 1
}

check "tmpfs" "$place/home/heap" "${as[@]}"
# Nobody may have no way to there.
"${as[@]}" test -w "$plain" && on=("${as[@]}") || on=()
check "a plain file ($(stat -f -c %T "$plain"))" "$plain/heap" "${on[@]}"
pool
check "a file of a pool, below pmfs run without a mount" "$place/mnt/heap" \
    "${as[@]}" "$place/bin/pmfs" run --no-mount --pool "$place/home/pool" --at "$place/mnt" --
why=$(why_no_mount)
if [ -z "$why" ]; then
    pool
    "$pmfs" mount "$place/home/pool" "$place/mnt" >/dev/null || exit 1
    # The mount is root's, and closed to others.
    check "a file of a pool, by a mount" "$place/mnt/heap"
    check "a file of a pool, below pmfs run" "$place/mnt/heap" "$place/bin/pmfs" run --pool "$place/home/pool" --at "$place/mnt" --
    "$pmfs" umount "$place/mnt" >/dev/null
    if "$pmfs" fsck "$place/home/pool" >"$place/fsck"; then
        result ok "fsck of the pool afterwards"
    else
        result FAIL "fsck of the pool afterwards: $(head -n 5 "$place/fsck")"
    fi
else
    result skip "a file of a pool, by a mount: $why"
fi
echo "heaps of $mib MiB: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
