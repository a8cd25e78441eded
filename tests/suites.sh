#!/bin/bash
# Other people's test suites and benchmarks on a mount, as root and as an ordinary user: `suites.sh quick` in
# `make test`, `suites.sh long` in `make check-long`. One line a check: ok, FAIL, or skip with the reason.
#
# As root all of it runs in a mount namespace of its own, in which /usr/local/sbin/pmfs is the program under
# test: mount(8) looks for it there to remount.
#
# `suites.sh quick root run`: pjdfstest and fsx below `pmfs run`, served in their own processes.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"

mode=${1:-quick} who=${2:-root} face=${3:-mount}
tools=${PMFS_SUITES:-$target/suites}
script=$root/tests/suites.sh
passed=0 failed=0 skipped=0

result() {
    printf '%-4s %s, %s\n' "$1" "$who${below:+ below pmfs run}" "$2"
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; skip) skipped=$((skipped + 1)) ;; esac
}

# check NAME TOOL COMMAND...: the command runs in an empty directory on the mount, and has to end well.
check() {
    local name=$1 tool=$2 since=$SECONDS
    shift 2
    if ! command -v "$tool" >/dev/null; then
        result skip "$name: $tool is missing"
        return
    fi
    rm -rf "${mnt:?}/at" && mkdir "$mnt/at"
    if (cd "$mnt/at" && "$@") >"$out/log" 2>&1 </dev/null; then
        result ok "$name ($((SECONDS - since)) s)"
    else
        result FAIL "$name: exit code $?"
        tail -n 30 "$out/log"
    fi
    rm -rf "${mnt:?}/at"
}

# shellcheck source=tests/suites/posix.sh
. "$root/tests/suites/posix.sh"
# shellcheck source=tests/suites/load.sh
. "$root/tests/suites/load.sh"

# In a namespace of its own, as root; there it starts the ordinary user's part too.
enter() {
    # shellcheck disable=SC2016
    exec unshare -m bash -c '
        mount -t tmpfs tmpfs /usr/local/sbin && ln -s "$1" /usr/local/sbin/pmfs
        if [ -e /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
            mknod -m 666 /usr/local/sbin/fuse c 10 229 && mount --bind /usr/local/sbin/fuse /dev/fuse
        fi
        export PMFS_SUITES_INSIDE=1
        shift && exec bash "$@"' bash "$(realpath "$pmfs")" "$script" "$mode" "$who" "$face"
}

# The same as an ordinary user, who has a copy of what is needed where he may read it.
as_a_user() {
    local home=$place/user
    mkdir -p "$home/tests" && cp -r "$root/tests/." "$home/tests"
    mkdir -p "$home/bin" && cp "$pmfs" "${pmfs%/*}"/libpmfs_shim.so "$tools"/bin/* "$home/bin" 2>/dev/null
    chown -R nobody:nogroup "$home" && chmod 755 "$place" "$home"
    setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$home" PATH="$home/bin:$PATH" \
        PMFS="$home/bin/pmfs" PMFS_SUITES="$home" bash "$home/tests/suites.sh" "$mode" user "$face"
    local code=$?
    [ "$code" = 0 ] || failed=$((failed + 1))
}

if is_root && [ -z "${PMFS_SUITES_INSIDE:-}" ]; then
    if unshare -m true 2>/dev/null; then
        enter
    fi
    result skip "all: no mount namespace can be made here"
    exit 0
fi
is_root || who=user
make_place "suites-$who" 60%
export PATH="$tools/bin:$PATH"
mnt=$place/mnt out=$place/out
mkdir "$mnt" "$out"
why=$(why_no_mount)
if [ -n "$why" ]; then
    result skip "all: $why"
    exit 0
fi
options=default_permissions
is_root && options=dev,suid,allow_other,default_permissions
"$pmfs" mkfs --size "${PMFS_SUITES_POOL:-3G}" "$place/pool" >/dev/null || exit 1
"$pmfs" mount -o "$options" "$place/pool" "$mnt" >/dev/null || exit 1

# What stands before a program that is to run below `pmfs run`.
below=()
[ "$face" = run ] && below=("$pmfs" run --pool "$place/pool" --at "$mnt" --)

posix_suites
[ "$face" = run ] || load_suites

"$pmfs" umount "$mnt" >/dev/null
if "$pmfs" fsck "$place/pool" >"$out/log"; then
    result ok "fsck afterwards: $(tail -n 1 "$out/log" | sed 's/^.*: //')"
else
    result FAIL "fsck afterwards: $(head -n 5 "$out/log")"
fi
is_root && as_a_user
echo "suites, $who: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
