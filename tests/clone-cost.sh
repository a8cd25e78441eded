#!/bin/bash
# What clones take, as a table: a file of 1 GiB by FICLONE below `pmfs run` beside XFS on a loop device, in turn, nine rounds; and
# a tree of 100,000 files of 100 KiB by `pmfs clone`. As root, with 14 GiB of memory.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
set -euo pipefail
if [ "$(id -u)" != 0 ]; then
    echo "skip clones: root mounts XFS"
    exit 0
fi
make_place clones 14G
mkdir "$place/xfs" "$place/files"

# in_pool PROGRAM...
in_pool() { "$pmfs" run --pool "$place/pool" --at "$place/files" --no-mount -- "$@"; }

cat >"$place/ficlone.py" <<'PYTHON'
import fcntl, os, sys, time
place = sys.argv[1]
source = os.open(place + "/source", os.O_RDONLY)
times = []
for number in range(9):
    name = f"{place}/clone-{number}"
    clone = os.open(name, os.O_RDWR | os.O_CREAT)
    since = time.perf_counter()
    fcntl.ioctl(clone, 0x40049409, source)
    times.append((time.perf_counter() - since) * 1e6)
    os.close(clone)
    os.unlink(name)
print(f"{sorted(times)[4]:.1f}")
PYTHON
cat >"$place/fill.py" <<'PYTHON'
import os, sys
for number in range(100_000):
    folder = f"{sys.argv[1]}/tree/{number // 1000}"
    if number % 1000 == 0:
        os.makedirs(folder)
    with open(f"{folder}/{number}", "wb", buffering=0) as file:
        file.write(b"x" * 104_858)
PYTHON
middle() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
free() { "$pmfs" info --json "$place/pool" | python3 -c 'import json, sys; print(json.load(sys.stdin)["blocks_free"] * 4096)'; }

truncate -s 2G "$place/image"
if mkfs.xfs -q "$place/image" && mount -o loop "$place/image" "$place/xfs"; then
    head -c 1G /dev/zero | tr '\0' x >"$place/xfs/source"
else
    echo "skip clones beside XFS: this kernel does not mount it"
fi
"$pmfs" mkfs --size 2G "$place/pool" >/dev/null 2>&1
in_pool bash -c "head -c 1G /dev/zero | tr '\\0' x >'$place/files/source'"
for _ in 1 2 3; do
    in_pool python3 "$place/ficlone.py" "$place/files" >>"$place/ours"
    [ ! -e "$place/xfs/source" ] || python3 "$place/ficlone.py" "$place/xfs" >>"$place/theirs"
done
echo "| FICLONE of 1 GiB | PMFS $(middle <"$place/ours") us | XFS $([ ! -e "$place/theirs" ] || middle <"$place/theirs") us |"
umount "$place/xfs" 2>/dev/null || true
rm "$place/image" "$place/pool"

"$pmfs" mkfs --size 11G --sparse "$place/pool" >/dev/null 2>&1
in_pool python3 "$place/fill.py" "$place/files"
before=$(free)
for round in 1 2 3; do
    since=$(date +%s%N)
    "$pmfs" clone "$place/pool" tree "clone-$round" >/dev/null
    echo "$((($(date +%s%N) - since) / 1000000))"
done | middle >"$place/took"
echo "| clone of 100,000 files, 10 GiB | $(cat "$place/took") ms | $((($(free) - before) / -300000)) bytes a file, names and inodes included |"
