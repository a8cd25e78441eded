#!/bin/bash
# docs/TUTORIAL.md as a newcomer types it: the ```console blocks, one command after the other in one shell, each
# with its output compared (`...` matches anything). Commands behind `#` are root's. One line a heading.
#
# As root it runs in a mount namespace, in which `make install` has installed the program under test, and what is
# written to /etc/fstab, /mnt, /run and /dev/shm goes elsewhere. As another user /dev/shm is a directory beside.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
cd "$root" || exit 1

why=$(why_no_mount)
if [ -n "$why" ]; then
    echo "skip tutorial: $why"
    exit 0
fi
if is_root && [ -z "${PMFS_TUTORIAL_INSIDE:-}" ]; then
    if ! unshare -m true 2>/dev/null; then
        echo "skip tutorial: no mount namespace can be made here"
        exit 0
    fi
    PMFS_TUTORIAL_INSIDE=1 exec unshare -m bash "$root/tests/tutorial.sh" "$@"
fi

make_place tutorial 1g
export HOME=$place/home
mkdir -p "$HOME" "$place/bin"
shm=/dev/shm
xtask=$(dirname "$pmfs")/xtask
prepare_as_root() {
    local dir
    mkdir "$place/shm" && mount --bind "$place/shm" /dev/shm
    for dir in /usr/sbin /sbin /usr/local /etc; do
        [ "$dir" != /sbin ] || [ ! -L /sbin ] || continue
        mkdir -p "$place/over$dir" "$place/work$dir"
        mount -t overlay overlay \
            -o "lowerdir=$dir,upperdir=$place/over$dir,workdir=$place/work$dir" "$dir" || return 1
    done
    mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /mnt || return 1
    mkdir "$place/built" && cp "$pmfs" "${pmfs%/*}/libpmfs_shim.so" "$place/built/" || return 1
    "$xtask" man "$place/built/man" && "$xtask" completions "$place/built/completions" || return 1
    BUILT=$place/built make -s install >/dev/null
}
if is_root; then
    prepare_as_root || exit 1
else
    cp "$pmfs" "${pmfs%/*}/libpmfs_shim.so" "$place/bin/" && mkdir "$place/shm" && shm=$place/shm
    PATH=$place/bin:$PATH
fi
cd "$HOME" || exit 1

failed=0 heading= commands=0 bad=0 command='' expected=''

# matches TEXT PATTERN: `...` stands for anything.
matches() {
    local pattern=$2
    pattern=${pattern//\\/\\\\}
    pattern=${pattern//\*/\\*}
    pattern=${pattern//\?/\\?}
    pattern=${pattern//\[/\\[}
    pattern=${pattern//.../*}
    # A pattern, so not quoted.
    # shellcheck disable=SC2053
    [[ $1 == $pattern ]]
}

run() {
    local said
    [ -n "$command" ] || return 0
    commands=$((commands + 1))
    eval "$command" >"$place/said" 2>&1 </dev/null
    # What says how far something long is comes as time goes by.
    said=$(grep -Ev '^pmfs: [a-z]+: [0-9]+ %, [0-9]+ s$' "$place/said")
    if ! matches "$said" "${expected%$'\n'}"; then
        bad=$((bad + 1))
        printf -- '--- %s\n%s\n--- expected:\n%s\n' "$command" "$said" "$expected"
    fi
    command='' expected=''
}

report() {
    [ "$commands" != 0 ] || return 0
    if [ "$bad" = 0 ]; then
        echo "ok   tutorial: $heading ($commands commands)"
    else
        echo "FAIL tutorial: $heading"
        failed=$((failed + 1))
    fi
    commands=0 bad=0
}

is_console='' is_left_out=''
while IFS= read -r -u 3 line; do
    case $line in
    '```console') is_console=yes ;;
    '```'*)
        run
        is_console='' is_left_out=''
        ;;
    '## '*)
        report
        heading=${line#\#\# }
        ;;
    *)
        [ -n "$is_console" ] || continue
        line=${line//\/dev\/shm/$shm}
        case $line in
        '$ '* | '# '*)
            run
            is_left_out=
            if [ "${line:0:1}" = '#' ] && ! is_root; then
                is_left_out=yes
            else
                command=${line:2}
            fi
            ;;
        *) [ -n "$is_left_out" ] || expected+=$line$'\n' ;;
        esac
        ;;
    esac
done 3<"$root/docs/TUTORIAL.md"
report
[ "$failed" = 0 ]
