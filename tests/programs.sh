#!/bin/bash
# Real programs on a mount: each check runs once on PMFS and once on tmpfs, and has to print the same and
# leave the same files. One line a check. `programs.sh run`: under `pmfs run` instead, without system calls.
# `long` after it: those as well that take longer, or need what not every machine has. `few`: some that a slow
# machine can do, of each kind one.

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
    case ${few:+$function} in
    '' | sqlite_wal | tar_both_ways | shell_files | python_files | perl_files | bash_itself) ;;
    *) return ;;
    esac
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
    src=$src python=$python tarball=${tarball:-} "$pmfs" run --pool "$place/pool" --at "$mnt" -- bash -c \
        'for part in "$1"/programs/*.sh; do . "$part"; done; umask 022; set -e; "$2"' \
        bash "$root/tests" "$1"
}

# fetch NAME: of Debian's pool, into $place. Prints a tool that is missing if it can't be had.
fetch() {
    curl -fsSL --max-time 60 -o "$place/${1##*/}" "https://deb.debian.org/debian/pool/main/${1:0:1}/$1" 2>/dev/null || echo "${1##*/}"
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

for part in "$root"/tests/programs/*.sh; do
    # shellcheck source=/dev/null
    . "$part"
done

how='' face=programs long='' few=''
for word in "$@"; do
    case $word in
    run) how=intercepted face='programs under pmfs run' ;;
    long) long=yes ;;
    few) few=yes ;;
    esac
done
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
check "perl: files, links, locks, children" perl_files "perl" 'lock$'
check "find, grep, sed, gzip, xz, sort, dd, shred" search_and_change "find grep sed gzip xz bzip2 awk"
check "bash: groups, subshells, coprocesses, limits" bash_itself "bash"
check "python3: multiprocessing, subprocess, mmap, threads" python_processes "${python:-python3}"
check "sqlite3: three writers and a reader at once" sqlite_two "sqlite3"
if [ -n "$long" ]; then
    why=$(python_lacks)
    check "python3: venv with a module in C" python_module "${why:-gcc}" 'env/'
    check "node: files, streams, children" node_files "node"
    check "java: channels, locks, mappings, threads" java_files "java"
    check "redis: appendfsync always, killed and started" redis_always "redis-server redis-cli"
    check "rocksdb: db_bench, synced, mapped" rocksdb_bench "db_bench"
    check "fio: psync, libaio, mmap with checksums" fio_verify "fio"
    check "go: a static tool beside a shell" go_beside "go" 'tool/'
    tarball=$place/hello_2.10.orig.tar.gz
    check "autotools: configure, make, check, install" autotools_build "make gcc $(fetch hello/hello_2.10.orig.tar.gz)" 'root/.*(info|gz)'
fi

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
