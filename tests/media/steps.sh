# In the guest of media.sh, as root: `fill` makes pools and works in them until the power is cut; `check NAME=N...`
# looks at them afterwards. Each pool is on another medium: ext4, xfs, dax, virtio.

set -uo pipefail
pmfs=${PMFS:-${CARGO_TARGET_DIR:-$PWD/target}/release/pmfs}
export PATH=$PATH:/usr/sbin:/sbin
cd /tmp || exit 1

fail() {
    echo "FAILED: $*"
    exit 1
}

# Which namespace is which: in the order of the files, whatever order the kernel found them in.
namespaces() {
    [ -e /dev/pmem0 ] || fail "no persistent memory here"
    ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem >/dev/null || fail "namespace 0"
    ndctl create-namespace -f -e namespace1.0 -m fsdax -M mem >/dev/null || fail "namespace 1"
    ndctl create-namespace -f -e namespace2.0 -m devdax -M mem -a 2M >/dev/null || fail "namespace 2"
}

virtio_device() {
    local device
    for device in /sys/block/pmem*; do
        case $(readlink -f "$device") in
        */virtio*) echo "/dev/$(basename "$device")" && return ;;
        esac
    done
    return 1
}

mounts() {
    local virtio
    virtio=$(virtio_device) || fail "no virtio-pmem here"
    mkdir -p ext4 xfs virtio
    mount -o dax /dev/pmem0 ext4 && mount -o dax=always /dev/pmem1 xfs && mount "$virtio" virtio ||
        fail "mount of what stands on them"
}

# Without MAP_SYNC what is stored is durable once msync has said so, at each barrier.
options_of() { [ "$1" = virtio ] && echo "-o durable"; }

pool_of() { [ "$1" = dax ] && echo /dev/dax2.0 || echo "$1/pool"; }

# Reads of the pool's own words: medium and durability as `pmfs info` says them.
says() {
    "$pmfs" info --json "$(pool_of "$1")" | python3 -c '
import json, sys
said = json.load(sys.stdin)
print(said["medium"], "/", said["durability"])'
}

fill() {
    local name want
    namespaces
    mkfs.ext4 -q -F /dev/pmem0 && mkfs.xfs -q -f -m reflink=0 /dev/pmem1 &&
        mkfs.ext4 -q -F "$(virtio_device)" || fail mkfs
    mounts
    for name in ext4 xfs dax virtio; do
        "$pmfs" mkfs "$(pool_of "$name")" $([ "$name" = dax ] || echo --size 256M) >/dev/null || fail "mkfs on $name"
        # A pool is not overwritten by mistake.
        "$pmfs" mkfs "$(pool_of "$name")" 2>/dev/null && fail "mkfs over a pool on $name"
        echo "$name: $(says "$name")"
    done
    for name in ext4 xfs dax virtio; do
        mkdir "on-$name" || exit 1
        # shellcheck disable=SC2046
        "$pmfs" mount $(options_of "$name") "$(pool_of "$name")" "on-$name" >/dev/null || fail "mount of $name"
        # Through the mount, and in the process with a mapping.
        cp -r "$here/crates/pmem/src" "on-$name/tree" || fail "work on $name"
        "$pmfs" run $(options_of "$name") --pool "$(pool_of "$name")" --at "on-$name" -- python3 "$here/tests/media/mapped.py" "on-$name/mapped" | tee mapped || fail "mapping on $name"
        # Not by way of the mount: the pool's own pages, of the device as large as they are.
        grep -q "mapped: .*$([ "$name" = dax ] && echo '/dev/dax2.0 by pages of 2048' || echo "/$name/pool by") " mapped || fail "pages of $name"
        diff -r "$here/crates/pmem/src" "on-$name/tree" || fail "another tree on $name"
    done
    for name in ext4 xfs dax virtio; do
        python3 "$here/tests/media/writer.py" "$name" "on-$name" &
    done
    echo "cut the power"
    wait
}

check() {
    local pair name bad=0
    mounts
    for pair in "$@"; do
        name=${pair%%=*}
        "$pmfs" fsck "$(pool_of "$name")" >"fsck-$name" 2>&1
        case $? in
        0) ;;
        *)
            cat "fsck-$name"
            bad=1
            continue
            ;;
        esac
        # shellcheck disable=SC2046
        mkdir -p "on-$name" && "$pmfs" mount $(options_of "$name") "$(pool_of "$name")" "on-$name" ||
            fail "mount of $name"
        diff -r "$here/crates/pmem/src" "on-$name/tree" || bad=1
        python3 "$here/tests/media/writer.py" "$name" "on-$name" "${pair#*=}" || bad=1
        "$pmfs" run $(options_of "$name") --pool "$(pool_of "$name")" --at "on-$name" -- python3 "$here/tests/media/mapped.py" "on-$name/mapped" again || bad=1
        "$pmfs" umount "on-$name" && "$pmfs" fsck "$(pool_of "$name")" >/dev/null || bad=1
        echo "$name: sound"
    done
    [ $# = 4 ] || fail "not all writers had said anything: $*"
    mkdir bad && (cd bad && python3 "$here/tests/media/badblocks.py" "$pmfs") || bad=1
    return "$bad"
}

here=$(cd "$(dirname "$0")/../.." && pwd)
step=$1
shift
"$step" "$@"
