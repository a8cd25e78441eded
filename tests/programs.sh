#!/bin/bash
# Real programs on a mount: each check runs once on PMFS and once on tmpfs, and has to print the same and
# leave the same files. One line a check. `programs.sh run`: under `pmfs run` instead, without system calls.
# `long` after it: those as well that take longer, or need what not every machine has. `few`: some that a slow
# machine can do, of each kind one. `only=FUNCTION`: that check alone.
# `programs.sh run mountless`: where FUSE can't be had; /dev/fuse is covered if it is there. `user` after it: as nobody.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_COMMITTER_NAME=a
export GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
case " $* " in
*" mountless "*)
    # In a mount namespace of its own, so that the machine stays as it is.
    if [ "$(stat -c %t:%T /dev/fuse 2>/dev/null)" = a:e5 ] && is_root && unshare -m true 2>/dev/null; then
        # shellcheck disable=SC2016
        exec unshare -m bash -c 'mount --bind /dev/null /dev/fuse && exec bash "$@"' bash "$0" "$@"
    fi
    ;;
esac
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
    [ "${only:-$function}" = "$function" ] || return 0
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
        [ -n "$mountless" ] || mkdir "$side/$function"
        since=${EPOCHREALTIME/./}
        # Not as a condition, in which `set -e` would mean nothing.
        (
            set -e
            if [ -n "$mountless" ]; then
                apart "${side##*/}" standing_in "$side/$function" "$function"
                exit
            fi
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
    src=$src python=$python place_kind=$place_kind tarball=${tarball:-} "$pmfs" run --pool "$place/pool" --at "$mnt" -- bash -c \
        'for part in "$1"/programs/*.sh; do . "$part"; done; umask 022; set -e; "$2"' \
        bash "$root/tests" "$1"
}

# apart SIDE COMMAND...: in a shell of its own, as the user; on the side that is the pool under `pmfs run`, which has to see for itself that
# there is no FUSE.
apart() {
    local run=()
    [ "$1" != mnt ] || run=("$pmfs" run ${is_asked:+--no-mount} --pool "$place/pool" --at "$mnt" --)
    shift
    # shellcheck disable=SC2016
    (cd "$place" && "${as[@]}" env mountless=yes src="$src" python="$python" "${run[@]}" bash -c \
        'for part in "$1"/*.sh; do . "$part"; done; umask 022; set -e; shift; "$@"' bash "$place/programs" "$@")
}

# on SIDE DIR COMMAND...
on() {
    if [ -n "$mountless" ]; then
        apart "$1" standing_in "$place/$1/$2" "${@:3}"
    else
        (cd "$place/$1/$2" && "${@:3}")
    fi
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
        on "$side" "$function" listing | grep -vE -- "${exclude:-^$}" >"$out/listing.$side"
        on "$side" "$function" sums "${exclude:-^$}" >"$out/content.$side"
    done
    diff "$out/words.ref" "$out/words.mnt" && diff "$out/listing.ref" "$out/listing.mnt" &&
        diff "$out/content.ref" "$out/content.mnt"
}

# What nobody else can reach elsewhere: the program, its library, and these functions.
prepare_apart() {
    mkdir "$place/bin" "$place/home" && cp "$pmfs" "${pmfs%/*}/libpmfs_shim.so" "$place/bin/" || exit 1
    cp -r "$root/tests/programs" "$place/programs"
    [ "${#as[@]}" = 0 ] || chown 65534:65534 "$place/home"
    pmfs=$place/bin/pmfs
    # Who can't cover the device asks for it.
    is_asked=$([ "$(stat -c %t:%T /dev/fuse 2>/dev/null)" != a:e5 ] || echo yes)
    # Nobody has no cache: programs inherit their images.
    [ "${#as[@]}" = 0 ] || export XDG_CACHE_HOME=/proc/none
    export HOME=$place/home PMFS_LOG=$place/home/log
}

# Those that docs/adr/0043-always-a-mount.md names have to work without a mount; most others do too.
checks_apart() {
    check "git: add, commit, branch, merge, fsck, gc, clone, pull" git_history "git" '\.git/(index|logs|FETCH_HEAD|config|objects/info/packs|worktrees)|three/\.git|\.(pack|idx|rev)'
    check "sqlite3: rollback journal" sqlite_rollback "sqlite3"
    check "sqlite3: WAL, a reader beside a writer" sqlite_wal "sqlite3" 'db-shm|db-wal'
    check "sqlite3: three writers and a reader at once" sqlite_two "sqlite3"
    check "tar: extract and create" tar_both_ways "tar"
    check "cp -a: links, holes, attributes, times" cp_archive "cp setfattr getfattr"
    check "rsync -aHX: twice, then with changes" rsync_archive "rsync setfattr getfattr"
    check "sh: redirections, appends, pipes, find, grep, mv, rm" shell_files "sh"
    check "sh: cd, names that lead in and out, programs and scripts there" names_apart "sh" '\./(nested|numbered)$'
    check "find, grep, sed, gzip, xz, sort, dd, shred" search_and_change "find grep sed gzip xz bzip2 awk"
    check "bash: groups, subshells, coprocesses, limits" bash_itself "bash"
    check "gcc, make: a library, a program, run from there" c_build "gcc make ar" '\.o |\.o$|lib.*\.a'
    check "python3: shutil, tempfile, sqlite3, mmap" python_files "${python:-python3}"
    check "python3: compileall of a tree" python_compile "${python:-python3}" '\.pyc'
    check "python3: multiprocessing, subprocess, mmap, threads" python_processes "${python:-python3}"
    check "perl: files, links, locks, children" perl_files "perl" 'lock$'
}

finish_apart() {
    # In the way of all of them: nothing may have gone to the directory that stands for the pool.
    if [ -z "$(ls -A "$mnt")" ] && grep -q 'without a mount: ' "$PMFS_LOG" && ! mounts_below "$place" | grep -q "$mnt"; then
        passed=$((passed + 1)) && result ok "no mount was made, and the kernel's directory is empty"
    else
        failed=$((failed + 1)) && result FAIL "no mount was made, and the kernel's directory is empty: $(ls -A "$mnt"; tail -n 3 "$PMFS_LOG")"
    fi
    if "$pmfs" fsck "$place/pool" >"$out/fsck"; then
        passed=$((passed + 1)) && result ok "fsck afterwards: $(tail -n 1 "$out/fsck" | sed 's/^.*: //')"
    else
        failed=$((failed + 1)) && result FAIL "fsck afterwards: $(head -n 5 "$out/fsck")"
    fi
    # As seen from within, and as it is copied out.
    on mnt . sums '^$' >"$out/within"
    "$pmfs" get -r "$place/pool" . "$ref/.copied" >/dev/null 2>&1 && on ref .copied sums '^$' >"$out/without"
    if diff "$out/within" "$out/without" >"$out/difference" && [ -s "$out/within" ]; then
        passed=$((passed + 1)) && result ok "all $(grep -c . "$out/within") sums of files copied out of the pool"
    else
        failed=$((failed + 1)) && result FAIL "copied out of the pool: $(head -n 5 "$out/difference")"
    fi
    echo "$face: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}

for part in "$root"/tests/programs/*.sh; do
    # shellcheck source=/dev/null
    . "$part"
done

how='' face=programs long='' few='' only='' mountless='' as=()
for word in "$@"; do
    case $word in
    run) how=intercepted face='programs under pmfs run' ;;
    long) long=yes ;;
    only=*) only=${word#only=} ;;
    mountless) mountless=yes face='programs without a mount' ;;
    user) as=(setpriv --reuid=65534 --regid=65534 --clear-groups --) face="$face, as nobody" ;;
    few) few=yes ;;
    esac
done
make_place programs 70%
mnt=$place/mnt ref=$place/ref out=$place/out src=$place/ref/.src
why=$(why_no_mount)
if [ -n "$mountless" ] && [ "${#as[@]}" != 0 ] && ! is_root; then
    result skip "all: this is not root, and can't be nobody"
    exit 0
elif [ -n "$mountless" ]; then
    prepare_apart
elif [ -n "$why" ]; then
    result skip "all: $why"
    exit 0
fi
plain_tmpfs "$ref" 70%
mkdir "$mnt" "$out" "$src"
: >"$place/pool"
[ "${#as[@]}" = 0 ] || chown 65534:65534 "$ref" "$mnt" "$src" "$place/pool"
"${as[@]}" "$pmfs" mkfs --size 1G "$place/pool" >/dev/null || exit 1
if [ -n "$mountless" ]; then
    apart ref real_tree "$src" || exit 1
else
    "$pmfs" mount "$place/pool" "$mnt" >/dev/null || exit 1
    real_tree "$src"
fi

if [ -n "$mountless" ]; then
    checks_apart
    finish_apart
fi
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
check "python3: a mapping of a file that has grown" python_large "${python:-python3}"
check "sqlite3: read by mappings" sqlite_mapped "sqlite3" 'db-shm|db-wal'
if [ -n "$long" ]; then
    why=$(python_lacks)
    check "lmdb: stores by mapping and by write, a reader beside" lmdb_both "gcc mdb_dump $(has_header lmdb.h)" '(lock|data).mdb|/program'
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
