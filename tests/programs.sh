#!/bin/bash
# Real programs on a mount: each check runs once on PMFS and once on tmpfs, and has to print the same and
# leave the same files. One line a check. `programs.sh run`: under `pmfs run` instead, without system calls.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_COMMITTER_NAME=a
export GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
umask 022

passed=0 failed=0 skipped=0
python=$(command -v /usr/bin/python3 || command -v python3 || true)

seconds_since() {
    local us=$((${EPOCHREALTIME/./} - $1))
    printf '%d.%02d s' $((us / 1000000)) $((us % 1000000 / 10000))
}

result() { printf '%-4s %s: %s\n' "$1" "$face" "$2"; }

# check NAME FUNCTION TOOLS [EXCLUDE]: the function runs in an empty directory. Files that a pattern (of find
# -path) excludes are not compared: those that hold inode numbers or times of day.
check() {
    local name=$1 function=$2 tools=$3 exclude=${4:-} since code tool side times=
    for tool in $tools; do
        if ! command -v "$tool" >/dev/null; then
            skipped=$((skipped + 1))
            result skip "$name: $tool is missing"
            return
        fi
    done
    for side in "$mnt" "$ref"; do
        mkdir "$side/$function"
        since=${EPOCHREALTIME/./}
        # Not as a condition, in which `set -e` would mean nothing.
        (
            set -e
            cd "$side/$function"
            if [ "$side" = "$mnt" ]; then $how "$function"; else "$function"; fi
        ) >"$out/$function.${side##*/}" 2>&1
        code=$?
        times="${times:+$times, tmpfs }$(seconds_since "$since")"
        if [ "$code" != 0 ]; then
            failed=$((failed + 1))
            result FAIL "$name: exit code $code on ${side##*/}"
            tail -n 20 "$out/$function.${side##*/}"
            return
        fi
    done
    if alike "$function" "$exclude" >"$out/difference" 2>&1; then
        passed=$((passed + 1))
        result ok "$name ($times)"
    else
        failed=$((failed + 1))
        result FAIL "$name: not as on tmpfs"
        head -n 20 "$out/difference"
    fi
}

# The function in a shell of its own, under `pmfs run`.
intercepted() {
    # shellcheck disable=SC2016
    src=$src python=$python "$pmfs" run --pool "$place/pool" --at "$mnt" -- bash -c \
        '. "$1/programs/data.sh" && . "$1/programs/builds.sh" && umask 022 && set -e && "$2"' \
        bash "$root/tests" "$1"
}

# alike FUNCTION EXCLUDE: the same words, names, metadata and contents on both sides.
alike() {
    local function=$1 exclude=$2 side
    for side in mnt ref; do
        sed "s|$place/$side|PLACE|g" "$out/$function.$side" >"$out/words.$side"
        (cd "$place/$side/$function" && listing | grep -vE -- "${exclude:-^$}") >"$out/listing.$side"
        (cd "$place/$side/$function" && find . -type f | grep -vE -- "${exclude:-^$}" | sort |
            tr '\n' '\0' | xargs -0r sha256sum) >"$out/content.$side"
    done
    diff "$out/words.ref" "$out/words.mnt" && diff "$out/listing.ref" "$out/listing.mnt" &&
        diff "$out/content.ref" "$out/content.mnt"
}

# shellcheck source=tests/programs/data.sh
. "$(dirname "$0")/programs/data.sh"
# shellcheck source=tests/programs/builds.sh
. "$(dirname "$0")/programs/builds.sh"

how='' face=programs
[ "${1:-}" = run ] && how=intercepted face='programs under pmfs run'
make_place programs 70%
mnt=$place/mnt ref=$place/ref out=$place/out src=$place/ref/.src
why=$(why_no_mount)
if [ -n "$why" ]; then
    result skip "all: $why"
    exit 0
fi
plain_tmpfs "$ref" 70%
mkdir "$mnt" "$out" "$src"
"$pmfs" mkfs --size 1G "$place/pool" >/dev/null || exit 1
"$pmfs" mount "$place/pool" "$mnt" >/dev/null || exit 1
real_tree "$src"

check "git: add, commit, branch, merge, fsck, gc, clone, pull" git_history "git" '\.git/(index|logs|FETCH_HEAD|config|objects/info/packs|worktrees)|three/\.git|\.(pack|idx|rev)'
check "sqlite3: rollback journal" sqlite_rollback "sqlite3"
check "sqlite3: WAL, a reader beside a writer" sqlite_wal "sqlite3" 'db-shm|db-wal'
check "tar: extract and create" tar_both_ways "tar"
check "cp -a: links, holes, attributes, times" cp_archive "cp setfattr getfattr"
check "rsync -aHX: twice, then with changes" rsync_archive "rsync setfattr getfattr"
check "sh: redirections, appends, pipes, find, grep, mv, rm" shell_files "sh"
check "gcc, make: a library, a program, run from the mount" c_build "gcc make ar" '\.o |\.o$|lib.*\.a'
check "cargo: build, test and run without network" cargo_build "cargo" 'target/'
check "python3: shutil, tempfile, sqlite3, mmap" python_files "${python:-python3}"
check "python3: compileall of a tree" python_compile "${python:-python3}" '\.pyc'

# What was written is there after the mount went and came back, and the pool is in order.
(cd "$mnt" && listing && find . -type f -print0 | sort -z | xargs -0r sha256sum) >"$out/before"
"$pmfs" umount "$mnt" >/dev/null
if "$pmfs" fsck "$place/pool" >"$out/fsck"; then
    passed=$((passed + 1)) && result ok "fsck afterwards: $(tail -n 1 "$out/fsck" | sed 's/^.*: //')"
else
    failed=$((failed + 1)) && result FAIL "fsck afterwards: $(head -n 5 "$out/fsck")"
fi
"$pmfs" mount "$place/pool" "$mnt" >/dev/null
(cd "$mnt" && listing && find . -type f -print0 | sort -z | xargs -0r sha256sum) >"$out/after"
if diff "$out/before" "$out/after" >"$out/difference"; then
    passed=$((passed + 1)) && result ok "all $(grep -c . "$out/before") lines of names and sums after a new mount"
else
    failed=$((failed + 1)) && result FAIL "after a new mount: $(head -n 5 "$out/difference")"
fi
echo "$face: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
