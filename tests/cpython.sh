#!/bin/bash
# CPython's own tests of files, processes and what is made of them: on a tmpfs, through a mount, below `pmfs run`, and below it without a mount. What
# ends well on the tmpfs has to end well on each; tests/cpython/known names what does not, and why. One line a module and face.
#
# `cpython.sh [mount|run|apart]... [test_MODULE]...`: these faces, these modules. PMFS_PYTHON: which Python; PMFS_CPYTHON_SECONDS: the longest for a module.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
export PYTHONDONTWRITEBYTECODE=1

passed=0 failed=0 skipped=0 known=0 turn=0
result() {
    printf '%-4s CPython, %s\n' "$1" "$2"
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; skip) skipped=$((skipped + 1)) ;; esac
}

modules=(test_os test_posix test_io test_fileio test_file test_largefile test_shutil test_tempfile test_mmap test_fcntl test_stat test_glob
    test_pathlib test_zipfile test_tarfile test_sqlite3 test_pty test_selectors test_subprocess test_asyncio)
for method in fork spawn forkserver; do
    for part in processes threads manager misc; do
        modules+=("test_multiprocessing_${method}_$part")
    done
done

faces=() asked=()
for word in "$@"; do
    case $word in
    mount | run | apart) faces+=("$word") ;;
    *) asked+=("$word") ;;
    esac
done
[ "${#faces[@]}" != 0 ] || faces=(mount run apart)
[ "${#asked[@]}" = 0 ] || modules=("${asked[@]}")

# What a version manager has in its place would start another program for each.
python=$(for name in "${PMFS_PYTHON:-python3}" /usr/bin/python3; do
    "$name" -c 'import sys, test.libregrtest; print(sys.executable)' 2>/dev/null && break
done)
if [ -z "$python" ]; then
    result skip "all: its test package is missing (libpython3-testsuite)"
    exit 0
fi

# The modules of multiprocessing, which some installations leave out.
written_modules() {
    local method part type
    for method in fork spawn forkserver; do
        for part in processes threads manager misc; do
            type="only_type='$part'"
            [ "$part" != misc ] || type='exclude_types=True'
            printf 'import unittest\nfrom test._test_multiprocessing import install_tests_in_module_dict\n%s\n' \
                "install_tests_in_module_dict(globals(), '$method', $type)" >"$1/test_multiprocessing_${method}_$part.py"
        done
    done
}

# What tests have started and left.
end_left() {
    local file pid
    for file in $(grep -lsz "^PMFS_CPYTHON=$$\$" /proc/[0-9]*/environ); do
        pid=${file#/proc/} pid=${pid%/environ}
        [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
    done
}

# run_module FACE MODULE: in a directory of its own there; leaves what it said in $out. That one's name is short: sockets have room for 108 bytes.
run_module() {
    local face=$1 module=$2 below=() more=()
    turn=$((turn + 1))
    case $face in
    run) below=("$pmfs" run --pool "$place/pool" --at "$place/at" --) ;;
    apart) below=("$pmfs" run --no-mount --pool "$place/pool" --at "$place/at" --) ;;
    esac
    [[ $module != test_multiprocessing_*_* ]] || more=(--testdir "$place/modules")
    rm -f "$out/$module.$face.xml"
    # shellcheck disable=SC2016
    (cd "$place" && PMFS_CPYTHON=$$ timeout -k 10 "${PMFS_CPYTHON_SECONDS:-1200}" "${below[@]}" bash -c '
        at=$1/$2 && rm -rf "$at" && mkdir -p "$at/tmp" && cd "$at" && export TMPDIR=$at/tmp && shift 2 && exec "$@" --tempdir "$at"' \
        bash "$(directory_of "$face")" "$turn" "$python" -m test -v -j1 -u subprocess --timeout 600 \
        --junit-xml "$out/$module.$face.xml" "${more[@]}" "$module") >"$out/$module.$face.log" 2>&1 </dev/null
    end_left
}

directory_of() {
    case $1 in tmpfs) echo "$place/ref" ;; *) echo "$place/at" ;; esac
}

compare() {
    "$python" "$root/tests/cpython/ends.py" "$1" "$out/$2.tmpfs.xml" "$out/$2.$1.xml" "$root/tests/cpython/known" >"$out/ends"
    ! grep -q '^differs' "$out/ends"
}

# check FACE MODULE: once more if it differs, for many of these tests are about time.
check() {
    local face=$1 module=$2 since=$SECONDS name again=
    case $face in mount) name='through the mount' ;; run) name='below pmfs run' ;; *) name='without a mount' ;; esac
    run_module "$face" "$module"
    if ! compare "$face" "$module"; then
        again=$(awk '/^differs/ { sub(":$", "", $2); printf " %s", $2 }' "$out/ends")
        run_module "$face" "$module"
    fi
    if compare "$face" "$module"; then
        known=$((known + $(grep -c '^known' "$out/ends")))
        result ok "$name, $module ($((SECONDS - since)) s)${again:+, when run again for$again}"
    else
        result FAIL "$name, $module: $(grep -c '^differs' "$out/ends") tests"
        grep '^differs' "$out/ends" | head -n 20
        grep -aA 25 -E '^(FAIL|ERROR): ' "$out/$module.$face.log" | head -n 120
    fi
}

make_place cpython 60%
out=$place/out
mkdir "$out" "$place/at" "$place/modules"
written_modules "$place/modules"
plain_tmpfs "$place/ref" 60%
why=$(why_no_mount)
export PMFS_LOG=$out/log
for module in "${modules[@]}"; do
    run_module tmpfs "$module"
done
for face in "${faces[@]}"; do
    if [ -n "$why" ] && [ "$face" != apart ]; then
        result skip "$face: $why"
        continue
    fi
    rm -f "$place/pool" && "$pmfs" mkfs --size 2G "$place/pool" >/dev/null || exit 1
    if [ "$face" != apart ]; then
        "$pmfs" mount -o "$(is_root && echo dev,suid,allow_other,)default_permissions" "$place/pool" "$place/at" >/dev/null || exit 1
    fi
    for module in "${modules[@]}"; do
        check "$face" "$module"
    done
    [ "$face" = apart ] || "$pmfs" umount "$place/at" >/dev/null
    if "$pmfs" fsck "$place/pool" >"$out/fsck"; then
        result ok "$face, fsck afterwards: $(tail -n 1 "$out/fsck" | sed 's/^.*: //')"
    else
        result FAIL "$face, fsck afterwards: $(head -n 5 "$out/fsck")"
    fi
done
echo "CPython's tests: $passed passed, $failed failed, $skipped skipped; $known known differences"
[ "$failed" = 0 ]
