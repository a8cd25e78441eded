#!/bin/bash
# `make demo`: PMFS at work. A pool is made and mounted; a source tree, git and SQLite use it; its daemon is
# killed in the middle of that; and everything that had returned is there. Then the same work below `pmfs run`,
# on tmpfs and on ext4, and how long it all took. A few minutes; leaves nothing behind.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
# shellcheck source=tests/demo/steps.sh
. "$(dirname "$0")/demo/steps.sh"
# shellcheck source=tests/demo/crash.sh
. "$(dirname "$0")/demo/crash.sh"

POOL_MIB=1024
bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi

title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
say() { printf '  %s\n' "$*"; }

# Shows a command and runs it, its output indented.
show() {
    say "\$ ${*//$place\//}" | sed "s|$pmfs|pmfs|"
    "$@" 2>&1 | sed "s|$place/||g; s/^/    /"
    return "${PIPESTATUS[0]}"
}

stop() {
    printf '\n%sThe demo stopped: %s%s\n' "$bold" "$*" "$plain" >&2
    exit 1
}

prepare() {
    local why free_mib
    for tool in git sqlite3 tar; do
        command -v "$tool" >/dev/null || stop "$tool is missing; make bootstrap installs it"
    done
    [ -x "$pmfs" ] || stop "there is no $pmfs; make build makes it"
    why=$(why_no_mount)
    [ -z "$why" ] || stop "this machine can't mount: $why"
    free_mib=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    [ "$free_mib" -gt 3000 ] || stop "it needs 3 GiB of free memory; there are $free_mib MiB"
    make_place demo 2600m
    mnt=$place/mnt ram=$place/tmpfs ext4=$place/ext4 logs=$place/logs
    mkdir "$mnt" "$logs"
    plain_tmpfs "$ram" 2g
    say "everything stands in $place_kind, and is deleted at the end"
}

make_ext4() {
    if ! is_root; then
        ext4_skip="ext4 needs a loop device, which only root can set up"
    elif ! truncate -s 1G "$place/ext4.img" || ! mkfs.ext4 -q -F "$place/ext4.img" 2>"$logs/ext4"; then
        ext4_skip="mkfs.ext4 is not there (apt-get install e2fsprogs)"
    elif ! { mkdir "$ext4" && mount -o loop "$place/ext4.img" "$ext4" 2>"$logs/ext4"; }; then
        ext4_skip="no loop device here: $(head -n 1 "$logs/ext4")"
    else
        ext4_skip=
    fi
}

title "1. A pool, and a mount"
prepare
show "$pmfs" mkfs --size "${POOL_MIB}M" "$place/pool" || stop "mkfs failed"
show "$pmfs" mount "$place/pool" "$mnt" || stop "mount failed"

title "2. Work: a source tree, git, SQLite"
real_tree "$place/tree.tar"
say "the tree: $tree_files files, $tree_mib MiB, $tree_what"
run_steps pmfs "$mnt/work" || stop "the work on PMFS failed"
show df -h "$mnt"
show "$pmfs" umount "$mnt" || stop "umount failed"
show "$pmfs" fsck "$place/pool" || stop "fsck found something"

title "3. The daemon is killed in the middle of it, twice"
crash_and_verify || stop "something that had returned was lost"
show "$pmfs" umount "$mnt" || stop "umount failed"
show "$pmfs" fsck "$place/pool" || stop "fsck found something"
rm "$place/pool"

title "4. The same work below \`pmfs run\`"
[ -e "${pmfs%/*}/libpmfs_shim.so" ] || stop "there is no ${pmfs%/*}/libpmfs_shim.so; make build makes it"
show "$pmfs" mkfs --size "${POOL_MIB}M" "$place/pool" || stop "mkfs failed"
show "$pmfs" mount "$place/pool" "$mnt" || stop "mount failed"
run_steps run "$mnt/work" below_run || stop "the work below pmfs run failed"
show "$pmfs" umount "$mnt" || stop "umount failed"
show "$pmfs" fsck "$place/pool" || stop "fsck found something"
rm "$place/pool"

title "5. The same work elsewhere"
run_steps tmpfs "$ram/work" || stop "the work on tmpfs failed"
rm -rf "$ram/work"
make_ext4
if [ -n "$ext4_skip" ]; then
    say "ext4 skipped: $ext4_skip"
else
    run_steps ext4 "$ext4/work" || stop "the work on ext4 failed"
fi

title "How long it took, in seconds"
print_table
title "Nothing was lost."
