#!/bin/bash
# `make test-media`: pools on persistent memory as a kernel sees it: files on ext4 and xfs with DAX (MAP_SYNC), a
# DAX device, and virtio-pmem, which has no MAP_SYNC (so its pool is used with `-o durable`). A virtual machine without acceleration has emulated NVDIMMs;
# in the middle of work it is killed, as if its power had failed, and started again: everything that was said to be
# done has to be there. It shows that all this works, and not how fast. The NVDIMMs are files in /dev/shm: a store
# is in them at once, so what the processor's caches could lose is not tried here (that is yat's).

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
cd "$root" || exit 1
tests=$root/tests

for tool in qemu-system-x86_64 ndctl mkfs.xfs mkfs.ext4; do
    if ! command -v "$tool" >/dev/null; then
        echo "skip media: $tool is missing (sh tests/bootstrap.sh media)"
        exit 0
    fi
done
make_place media 4G
export PMFS_GUEST_NVDIMM=$place/memory PMFS_GUEST_MEMORY=4G PMFS_GUEST_SECONDS=1500
mkdir "$PMFS_GUEST_NVDIMM" || exit 1
for name in nvdimm0 nvdimm1 nvdimm2; do
    truncate -s 1026M "$PMFS_GUEST_NVDIMM/$name"
done
truncate -s 512M "$PMFS_GUEST_NVDIMM/virtio0"

# boot STEP [WORDS...]: the step of media/steps.sh in the guest; its output here and in a log.
boot() { bash "$tests/guest.sh" bash "$tests/media/steps.sh" "$@"; }

# The first life ends with its power.
boot fill >"$place/first" &
guest=$!
started+=("$guest")
until grep -q '^cut the power' "$place/first" || ! kill -0 "$guest" 2>/dev/null; do
    sleep 1
done
if ! grep -q '^cut the power' "$place/first"; then
    sed 's/^skip guest:/skip media:/' "$place/first"
    grep -q '^skip guest:' "$place/first" && exit 0
    echo "FAIL media: the first life ended by itself"
    exit 1
fi
# In the middle of everybody's work, however slow the machine is.
at_work() { awk '$1 == "done" && $3 >= 20 { by[$2] } END { for (name in by) count++; exit count < 4 }' "$place/first"; }
waited=0
until at_work || [ "$waited" = 600 ] || ! kill -0 "$guest" 2>/dev/null; do
    sleep 1
    waited=$((waited + 1))
done
kill -9 "$(cat "$PMFS_GUEST_NVDIMM/pid")"
wait "$guest"
grep -v '^done ' "$place/first"
# What each writer had said to be done last.
said=$(awk '$1 == "done" { last[$2] = $3 } END { for (name in last) printf "%s=%s ", name, last[name] }' "$place/first")
echo "power cut; said to be done: $said"

# shellcheck disable=SC2086
boot check $said | tee "$place/second"
if ! grep -q '^guest: exit code 0$' "$place/second"; then
    echo "FAIL media: what was found after the power cut"
    exit 1
fi
printf 'ok   media, %s\n' "a file on ext4 with DAX" "a file on xfs with DAX" "a DAX device" "virtio-pmem" "bad pages, found and mended"
echo "media, 5 of 5 passed"
