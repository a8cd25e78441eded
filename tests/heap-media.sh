#!/bin/bash
# A persistent heap on emulated persistent memory, in a virtual machine with Debian's 6.1 kernel: a DAX device, and a
# file on ext4 with DAX. As an ordinary user, from two processes at once, PMKV_MIB of objects (128) go into a heap that
# was made at 64 MiB: untold in the file; on the device when `max` says so, and otherwise not. It shows that this works,
# and not how fast.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
cd "$root" || exit 1
mib=${PMKV_MIB:-128}

for tool in qemu-system-x86_64 ndctl mkfs.ext4; do
    if ! command -v "$tool" >/dev/null; then
        echo "skip heap media: $tool is missing (sh tests/bootstrap.sh media)"
        exit 0
    fi
done
make_place heap-media "$((mib * 5))M"
built=$(mktemp -d "$target/pmfs-heaps.XXXXXX") || exit 1
# The function `leave` of place.sh ends the script with the code that it finds.
trap 'code=$?; rm -rf "$built"; (exit "$code"); leave' EXIT
chmod 755 "$built"
cc -std=c11 -O2 -I crates/pmkv-capi/include crates/pmkv-capi/tests/grow.c "${pmfs%/*}/libpmkv_c.a" -lpthread -ldl -lm -o "$built/grow" &&
    cp "${pmfs%/*}/pmkv" "$built/" || exit 1

export PMFS_GUEST_NVDIMM=$place/memory PMFS_GUEST_MEMORY=2G PMFS_GUEST_SECONDS=1200
mkdir "$PMFS_GUEST_NVDIMM" || exit 1
# Twice what goes in, in steps of 16 MiB, and 2 MiB for the labels.
for name in nvdimm0 nvdimm1; do
    truncate -s "$(((mib * 2 + 15) / 16 * 16 + 2))M" "$PMFS_GUEST_NVDIMM/$name"
done
truncate -s 16M "$PMFS_GUEST_NVDIMM/virtio0"
bash "$root/tests/guest.sh" bash "$root/tests/media/heap.sh" "$built/grow" "$built/pmkv" "$mib" | tee "$place/said" | sed 's/^skip guest:/skip heap media:/'
grep -q '^skip guest:' "$place/said" && exit 0
grep -q '^guest: exit code 0$' "$place/said" && echo "heap media of $mib MiB, $(grep -c '^ok  ' "$place/said") of 4 passed"
