#!/bin/bash
# Installing and uninstalling, by `make install` and as a Debian package: what is there afterwards works, and
# what is taken away leaves the tree as it was. One line a check. Nothing outside of a scratch directory is
# touched: as root the real paths are tried in a mount namespace of its own.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
cd "$root" || exit 1
umask 022
failed=0
make_place install 400m
export BUILT=$place/built CARGO_TARGET_DIR=$place/target
log=$place/log

# check NAME COMMAND...
check() {
    local name=$1
    shift
    # Not as a condition, in which `set -e` would mean nothing.
    (
        set -eu
        "$@"
    ) >"$log" 2>&1 </dev/null
    if [ $? = 0 ]; then
        echo "ok   install: $name"
    else
        echo "FAIL install: $name"
        tail -n 20 "$log"
        failed=$((failed + 1))
    fi
}

tree() { (cd "$1" && find . -mindepth 1 -printf '%P %y %m %U:%G %l\n' | sort); }

# same DIR COMMAND...: the tree is afterwards what it was before.
same() {
    local dir=$1
    shift
    tree "$dir" >"$place/before"
    "$@"
    tree "$dir" >"$place/after"
    diff "$place/before" "$place/after"
}

in_an_empty_place() {
    local at=$place/empty
    mkdir "$at"
    make -s install DESTDIR="$at"
    [ -x "$at/usr/local/bin/pmfs" ]
    [ "$(readlink "$at/sbin/mount.pmfs")" = /usr/local/bin/pmfs ]
    [ -s "$at/usr/local/share/man/man1/pmfs-mount.1" ]
    sed 's|<pmfs.h>|"pmfs.h"|' crates/pmfs-capi/examples/hello.c >"$place/hello.c"
    cc -I "$at/usr/local/include" "$place/hello.c" -L "$at/usr/local/lib" -lpmfs -o "$place/hello"
    [ "$(LD_LIBRARY_PATH=$at/usr/local/lib "$place/hello" "$place/hello.pool")" = hello ]
    rm "$place/hello.pool"
    # The heap's library, found as pkg-config says, below DESTDIR.
    mapfile -t flags < <(pc pmkv | xargs -n 1)
    cc -Wall -Werror crates/pmkv-capi/examples/bank.c "${flags[@]}" -o "$place/bank"
    mapfile -t flags < <(pc pmfs | xargs -n 1)
    cc -Wall -Werror crates/pmfs-capi/examples/hello.c "${flags[@]}" -o "$place/hello"
    LD_LIBRARY_PATH=$at/usr/local/lib timeout -s KILL 1 "$place/bank" "$place/bank.heap" >"$place/said" || true
    LD_LIBRARY_PATH=$at/usr/local/lib timeout -s KILL 1 "$place/bank" "$place/bank.heap" >>"$place/said" || true
    [ "$(grep -c ' transfers so far, and every one is whole' "$place/said")" = 2 ] && ! tail -n 1 "$place/said" | grep -q '^0 '
    rm "$place/bank.heap"
    mapfile -t flags < <(pc pmkv | xargs -n 1)
    cc -Wall -Werror crates/pmkv-capi/examples/hello.c "${flags[@]}" -o "$place/keys"
    LD_LIBRARY_PATH=$at/usr/local/lib "$place/keys" "$place/keys.heap" | grep -qx 'starts: 1'
    rm "$place/keys.heap"
    man -M "$at/usr/local/share/man" 3 libpmkv | grep -q 'pmheap_tx_commit'
    [ -s "$at/usr/local/share/doc/pmfs/LICENSE-MIT" ]
    man -M "$at/usr/local/share/man" 8 mount.pmfs | grep -q 'mount -t pmfs'
    make -s uninstall DESTDIR="$at"
    [ -z "$(tree "$at")" ]
}

# pc LIBRARY: the flags that pkg-config has of it, below DESTDIR.
pc() {
    PKG_CONFIG_SYSROOT_DIR=$at PKG_CONFIG_PATH=$at/usr/local/lib/pkgconfig pkg-config --cflags --libs "$1"
}

twice() {
    make -s install DESTDIR="$place/used"
    make -s install DESTDIR="$place/used"
    make -s uninstall DESTDIR="$place/used"
}

beside_others() {
    local at=$place/used
    mkdir -p "$at"/usr/local/{bin,share/man/man8,share/doc} "$at/sbin"
    touch "$at/usr/local/bin/other" "$at/sbin/mount.other"
    same "$at" twice
    # Of an older version, something more: it goes with it.
    make -s install DESTDIR="$at"
    touch "$at/usr/local/bin/pmfs-old"
    echo "file /usr/local/bin/pmfs-old" >>"$at/usr/local/share/doc/pmfs/installed"
    make -s install DESTDIR="$at"
    [ ! -e "$at/usr/local/bin/pmfs-old" ]
    make -s uninstall DESTDIR="$at"
    diff "$place/before" <(tree "$at")
}

refused() {
    ! make -s install DESTDIR="$place/foreign" 2>"$place/said"
    grep -q 'mount.pmfs is there already' "$place/said"
    [ -f "$place/foreign/sbin/mount.pmfs" ] && [ ! -L "$place/foreign/sbin/mount.pmfs" ]
    make -s uninstall DESTDIR="$place/foreign"
}

over_nobody() {
    mkdir -p "$place/foreign/sbin"
    echo theirs >"$place/foreign/sbin/mount.pmfs"
    same "$place/foreign" refused
    ! make -s uninstall DESTDIR="$place/foreign" 2>"$place/said"
    grep -q 'nothing is installed' "$place/said"
}

elsewhere() {
    mkdir "$place/home"
    make -s install PREFIX="$place/home/.local" | grep -q 'looks in /sbin alone'
    "$place/home/.local/sbin/mkfs.pmfs" "$place/home/pool" 64M
    make -s uninstall PREFIX="$place/home/.local"
    rm "$place/home/pool"
    [ -z "$(tree "$place/home")" ]
}

not_built() {
    ! BUILT=$place/nothing make -s install DESTDIR="$place/none" 2>"$place/said"
    grep -q 'make build' "$place/said" && [ ! -e "$place/none" ]
}

package() {
    bash packaging/deb.sh
    dpkg-deb --info "$place"/target/debian/pmfs_*_amd64.deb >"$place/said"
    grep -q '^ Architecture: amd64' "$place/said"
    grep -q '^ Depends: fuse3, libc6 (>= 2\.[0-9]*), libgcc-s1' "$place/said"
    mkdir "$place/unpacked"
    dpkg-deb -x "$place"/target/debian/pmfs_*.deb "$place/unpacked"
    "$place/unpacked/usr/bin/pmfs" --version
    [ -x "$place/unpacked/usr/bin/pmfs" ] && [ -L "$place/unpacked/usr/sbin/mount.pmfs" ]
    man -M "$place/unpacked/usr/share/man" 8 fsck.pmfs | grep -q 'FSCK.PMFS'
    (cd "$place/unpacked" && dpkg-deb -I "$place"/target/debian/pmfs_*.deb md5sums | md5sum -c --quiet)
}

by_dpkg() {
    # What it depends on is not in that root.
    dpkg --root="$place/machine" --force-depends -i "$place"/target/debian/pmfs_*.deb
    [ "$(dpkg --root="$place/machine" -L pmfs | grep -c '/usr/bin/pmfs$')" = 1 ]
    [ -x "$place/machine/usr/bin/pmfs" ]
    dpkg --root="$place/machine" -P pmfs
}

installed_and_removed() {
    mkdir -p "$place/machine/var/lib/dpkg/"{info,updates} "$place/machine/var/log"
    touch "$place/machine/var/lib/dpkg/"{status,available}
    # dpkg's own books before and after are not the package's.
    by_dpkg
    [ -z "$(cd "$place/machine" && find . -mindepth 1 -not -path './var*')" ]
}

# The real paths, in a namespace of its own, in which what is written to them goes elsewhere.
real_paths() {
    # shellcheck disable=SC2016
    unshare -m bash -euc '
        at=$1 && cd "$2"
        over() {
            mkdir "$at/$2" "$at/$2.work"
            mount -t overlay overlay -o "lowerdir=$1,upperdir=$at/$2,workdir=$at/$2.work" "$1"
        }
        over /usr/sbin sbin
        [ /sbin -ef /usr/sbin ] || over /sbin own
        over /usr/local local
        mount -t tmpfs tmpfs /run
        look() { find /usr/local/ /usr/sbin/ -printf "%p %y %m %l\n" | sort; }
        look >"$at/before"
        make -s install
        cd / && mkdir "$at/m"
        mkfs -t pmfs "$at/pool" 64M
        mount -t pmfs "$at/pool" "$at/m" && echo hello >"$at/m/file"
        [ "$(PMFS_LOG=$at/log HOME=$at pmfs run --pool "$at/pool" --at "$at/m" -- cat "$at/m/file")" = hello ] && [ ! -e "$at/log" ]
        umount "$at/m" && fsck -t pmfs "$at/pool"
        man pmfs-mount | grep -q remount
        bash -c "source /usr/local/share/bash-completion/completions/pmfs; complete -p pmfs"
        cd "$2" && make -s uninstall
        look | diff "$at/before" -
    ' bash "$place/paths" "$root"
}

mkdir -p "$BUILT" "$place/paths"
cp "$pmfs" "$BUILT/pmfs" || exit 1
# What `make build` has, and `cargo test` may not: the libraries.
for library in libpmfs_c.so libpmkv_c.so libpmfs_shim.so; do
    for made in "$(dirname "$pmfs")"{,/deps}/$library; do
        [ ! -e "$made" ] || cp "$made" "$BUILT/$library"
    done
    [ -e "$BUILT/$library" ] || exit 1
done
xtask=$(dirname "$pmfs")/xtask
"$xtask" man "$BUILT/man" && "$xtask" completions "$BUILT/completions" || exit 1

check "into an empty place, and away" in_an_empty_place
check "beside others' files, twice, over an older version" beside_others
check "not over what another package owns" over_nobody
check "under a home directory" elsewhere
check "not before it is built" not_built
if command -v dpkg-deb >/dev/null; then
    check "the Debian package" package
    if is_root; then
        check "the package installed and removed" installed_and_removed
    else
        echo "skip install: the package installed and removed: needs root"
    fi
else
    echo "skip install: the Debian package: dpkg-deb is missing"
fi
why=$(why_no_mount)
if is_root && [ -z "$why" ] && unshare -m true 2>/dev/null; then
    check "mount, umount, fsck, mkfs, man and bash find what is installed" real_paths
else
    echo "skip install: mount and fsck find it: ${why:-needs root and a mount namespace}"
fi
[ "$failed" = 0 ]
