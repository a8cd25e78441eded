# A place to work in: sourced by the scripts beside it.
#
# Everything stands below one directory, $place, on a tmpfs of its own (as root, with 2 MiB pages) or in
# /dev/shm. When the script ends, however it ends, what is mounted below it is taken away, what was started
# is killed, and the directory is deleted. What a script that was itself killed left behind is cleared away
# by the next one: its name ends in its process id.

set -u
shopt -s lastpipe 2>/dev/null || true
export LC_ALL=C TZ=UTC
PATH="$PATH:/usr/sbin:/sbin"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
pmfs=${PMFS:-$target/release/pmfs}
place=
place_kind=
started=()

is_root() { [ "$(id -u)" = 0 ]; }

# What is mounted at or below $1, innermost first.
mounts_below() {
    awk -v dir="$1" '{ at = $5; gsub(/\\040/, " ", at)
        if (at == dir || index(at, dir "/") == 1) print at }' /proc/self/mountinfo | sort -r
}

take_away() {
    local dir=$1 at
    mounts_below "$dir" | while read -r at; do
        umount "$at" 2>/dev/null || fusermount3 -u "$at" 2>/dev/null ||
            umount -l "$at" 2>/dev/null || fusermount3 -uz "$at" 2>/dev/null
    done
    rm -rf "$dir" 2>/dev/null || { sleep 0.5; rm -rf "$dir"; }
}

# What scripts of this kind left that are no more.
sweep() {
    local dir pid
    for dir in "$1".*; do
        [ -d "$dir" ] || continue
        pid=${dir##*.}
        if ! grep -q "$2" "/proc/$pid/cmdline" 2>/dev/null; then
            echo "clearing away $dir, left by an earlier run"
            take_away "$dir"
        fi
    done
}

leave() {
    local code=$? pid
    trap - EXIT
    trap '' INT TERM HUP
    for pid in "${started[@]}"; do
        kill -9 "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    cd / || true
    [ -n "$place" ] && take_away "$place"
    exit "$code"
}

# make_place NAME SIZE: sets $place and $place_kind.
make_place() {
    local name=$1 size=$2 script
    script=$(basename "$0")
    sweep "/tmp/pmfs-$name" "$script"
    sweep "/dev/shm/pmfs-$name" "$script"
    trap leave EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if is_root; then
        place=/tmp/pmfs-$name.$$
        mkdir "$place" || exit 1
        if mount -t tmpfs -o "huge=always,size=$size,mode=755" "pmfs-$name" "$place" 2>/dev/null; then
            place_kind="a tmpfs of its own with 2 MiB pages"
            return
        elif mount -t tmpfs -o "size=$size,mode=755" "pmfs-$name" "$place" 2>/dev/null; then
            place_kind="a tmpfs of its own"
            return
        fi
        rmdir "$place"
    fi
    place=/dev/shm/pmfs-$name.$$
    mkdir -m 755 "$place" || exit 1
    place_kind="/dev/shm"
}

# A tmpfs with pages of 4 KiB, as everybody has it, on the directory $1. With 2 MiB pages tmpfs gives each small
# file one, and clearing that takes longer than writing the file. Without root: whatever $place is on.
plain_tmpfs() {
    mkdir -p "$1"
    ! is_root || mount -t tmpfs -o "huge=never,mode=755,size=$2" pmfs-plain "$1" 2>/dev/null || true
}

# Why this machine can't mount; nothing if it can.
why_no_mount() {
    if [ ! -e /dev/fuse ]; then
        echo "there is no /dev/fuse"
    elif [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
        echo "/dev/fuse is closed to this user ($(stat -c %A /dev/fuse))"
    elif ! is_root && ! command -v fusermount3 >/dev/null; then
        echo "fusermount3 is missing (apt-get install fuse3)"
    fi
}
