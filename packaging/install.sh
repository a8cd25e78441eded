#!/bin/bash
# `make install` and `make uninstall`: what `make build` has built, under PREFIX (/usr/local), below DESTDIR.
#
# The links mount.pmfs, umount.pmfs, mount.fuse.pmfs, fsck.pmfs and mkfs.pmfs go into HELPERDIR. mount(8) looks
# for them in /sbin and nowhere else, so for a PREFIX of /usr or /usr/local that is /sbin; for any other PREFIX it
# is PREFIX/sbin, and `mount -t pmfs` doesn't work, while `pmfs mount` does.
#
# What was installed, and which directories had to be made for it, is kept in PREFIX/share/doc/pmfs/installed;
# uninstalling reads that, so it takes away all of it and nothing else. Installing over an older version
# uninstalls that first.

set -eu
cd "$(dirname "$0")/.."

PREFIX=${PREFIX:-/usr/local}
PREFIX=${PREFIX%/}
DESTDIR=${DESTDIR:-}
DESTDIR=${DESTDIR%/}
case $PREFIX in /usr | /usr/local) helpers=/sbin ;; *) helpers=$PREFIX/sbin ;; esac
HELPERDIR=${HELPERDIR:-$helpers}
ZSHDIR=${ZSHDIR:-$PREFIX/share/zsh/site-functions}
built=${BUILT:-${CARGO_TARGET_DIR:-target}/release}
doc=$PREFIX/share/doc/pmfs
list=$DESTDIR$doc/installed

stop() {
    echo "install: $*" >&2
    exit 1
}

# into DIR: makes it, and notes which directories were not there.
into() {
    local dir=$1 made=
    while [ ! -d "$DESTDIR$dir" ]; do
        made="directory $dir"$'\n'$made
        dir=$(dirname "$dir")
    done
    install -d -m 755 "$DESTDIR$1"
    noted+=$made
}

# What is not ours is not written over.
free() {
    if [ -e "$DESTDIR$1" ] || [ -L "$DESTDIR$1" ]; then
        keep
        stop "$DESTDIR$1 is there already and was not installed by this (another package?); remove it first"
    fi
}

# file MODE SOURCE DESTINATION
file() {
    into "$(dirname "$3")"
    free "$3"
    install -m "$1" "$2" "$DESTDIR$3"
    noted+="file $3"$'\n'
}

# link TARGET DESTINATION
link() {
    into "$(dirname "$2")"
    free "$2"
    ln -s "$1" "$DESTDIR$2"
    noted+="file $2"$'\n'
}

# package_config LIBRARY WORDS: what pkg-config says of it.
package_config() {
    local place
    place=$(mktemp)
    cat >"$place" <<END
prefix=$PREFIX
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $1
Description: $2
Version: $(awk -F '"' '/^version/ { print $2; exit }' Cargo.toml)
Libs: -L\${libdir} -l$1
Cflags: -I\${includedir}
END
    file 644 "$place" "$PREFIX/lib/pkgconfig/$1.pc"
    rm "$place"
}

keep() {
    into "$doc"
    printf '%s' "$noted" >"$list"
}

install_all() {
    local page name
    [ -x "$built/pmfs" ] && [ -d "$built/man" ] && [ -d "$built/completions" ] ||
        stop "nothing is built yet; run \`make build\` first"
    [ ! -e "$list" ] || uninstall_all
    noted=
    mkdir -p "$DESTDIR/"
    file 755 "$built/pmfs" "$PREFIX/bin/pmfs"
    [ ! -e "$built/pmkv" ] || file 755 "$built/pmkv" "$PREFIX/bin/pmkv"
    [ ! -e "$built/pmep" ] || file 755 "$built/pmep" "$PREFIX/bin/pmep"
    # The monitor is not part of `make build`.
    [ ! -e "$built/pmmon" ] || file 755 "$built/pmmon" "$PREFIX/bin/pmmon"
    [ ! -e "$built/pmm-writer" ] || file 755 "$built/pmm-writer" "$PREFIX/bin/pmm-writer"
    if [ -e "$built/libpmfs_c.so" ]; then
        file 755 "$built/libpmfs_c.so" "$PREFIX/lib/libpmfs.so.0"
        link libpmfs.so.0 "$PREFIX/lib/libpmfs.so"
        file 644 crates/pmfs-capi/include/pmfs.h "$PREFIX/include/pmfs.h"
        package_config pmfs "A file system in user space, on persistent memory"
    fi
    if [ -e "$built/libpmfs_shim.so" ]; then
        file 644 "$built/libpmfs_shim.so" "$PREFIX/lib/pmfs/libpmfs_shim.so"
    fi
    if [ -e "$built/libpmkv_c.so" ]; then
        file 755 "$built/libpmkv_c.so" "$PREFIX/lib/libpmkv.so.0"
        link libpmkv.so.0 "$PREFIX/lib/libpmkv.so"
        file 644 crates/pmkv-capi/include/pmkv.h "$PREFIX/include/pmkv.h"
        package_config pmkv "A persistent heap: objects, transactions, keys and values in mapped files"
    fi
    # By LD_LIBRARY_PATH alone: it must not stand before the original unasked.
    if [ -e "$built/libpmemkv.so.1" ]; then
        file 755 "$built/libpmemkv.so.1" "$PREFIX/lib/pmkv/libpmemkv.so.1"
    fi
    for name in mount.pmfs mount.fuse.pmfs umount.pmfs fsck.pmfs mkfs.pmfs; do
        link "$PREFIX/bin/pmfs" "$HELPERDIR/$name"
    done
    for page in "$built"/man/man?/*; do
        case ${page##*/} in
        pmmon[.-]*) [ -e "$built/pmmon" ] || continue ;;
        pmm-writer.*) [ -e "$built/pmm-writer" ] || continue ;;
        esac
        file 644 "$page" "$PREFIX/share/man/${page#"$built/man/"}"
    done
    for name in pmfs pmkv pmep pmmon pmm-writer; do
        case $name in pmm*) [ -e "$built/$name" ] || continue ;; esac
        file 644 "$built/completions/$name" "$PREFIX/share/bash-completion/completions/$name"
        file 644 "$built/completions/_$name" "$ZSHDIR/_$name"
        file 644 "$built/completions/$name.fish" "$PREFIX/share/fish/vendor_completions.d/$name.fish"
    done
    for page in README.md ARCHITECTURE.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT docs/*.md docs/*/*.md; do
        file 644 "$page" "$doc/${page}"
    done
    keep
    echo "installed $PREFIX/bin/pmfs, and for mount(8) $HELPERDIR/mount.pmfs${DESTDIR:+, below $DESTDIR}"
    if [ "$(dirname "$HELPERDIR/x")" != /sbin ] && [ "$HELPERDIR" != /usr/sbin ]; then
        echo "mount(8) looks in /sbin alone: \`pmfs mount\` works, \`mount -t pmfs\` doesn't"
    fi
}

uninstall_all() {
    local kind path
    [ -e "$list" ] || stop "nothing is installed under $DESTDIR$PREFIX (there is no $list)"
    while read -r kind path; do
        [ "$kind" != file ] || rm -f "$DESTDIR$path"
    done <"$list"
    tac "$list" >"$list.reversed"
    mapfile -t lines <"$list.reversed"
    rm -f "$list" "$list.reversed"
    for path in "${lines[@]}"; do
        case $path in
        directory*) rmdir --ignore-fail-on-non-empty "$DESTDIR${path#directory }" 2>/dev/null || true ;;
        esac
    done
}

case ${1:-} in
install) install_all ;;
uninstall)
    uninstall_all
    echo "uninstalled $PREFIX/bin/pmfs and all that came with it${DESTDIR:+, below $DESTDIR}"
    ;;
*) stop "usage: install.sh install|uninstall" ;;
esac
