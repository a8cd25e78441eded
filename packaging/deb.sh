#!/bin/bash
# `make deb`: a Debian package of what `make build` has built, in the target directory.

set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

version=$(awk -F '"' '/^version/ { print $2; exit }' Cargo.toml)
# A tilde sorts before the release itself.
version=${version/-/\~}
architecture=amd64
root=$(mktemp -d "${TMPDIR:-/tmp}/pmfs-deb.XXXXXX")
trap 'rm -rf "$root"' EXIT
tree=$root/tree
umask 022

PREFIX=/usr HELPERDIR=/usr/sbin ZSHDIR=/usr/share/zsh/vendor-completions DESTDIR=$tree \
    bash packaging/install.sh install >/dev/null
doc=$tree/usr/share/doc/pmfs
# dpkg keeps that list.
rm "$doc/installed"
strip --strip-unneeded "$tree"/usr/bin/*
for library in "$tree"/usr/lib/lib*.so.0; do
    [ ! -e "$library" ] || strip --strip-unneeded "$library"
done
{
    printf 'PMFS\n\nMIT or Apache-2.0, as you like.\n\n'
    cat LICENSE-MIT
    printf '\nApache-2.0: /usr/share/common-licenses/Apache-2.0\n'
} >"$doc/copyright"
rm "$doc/LICENSE-MIT" "$doc/LICENSE-APACHE"
gzip -9n "$tree"/usr/share/man/man?/*.[0-9] "$doc/CHANGELOG.md"

# The C library that the program was linked with, or a later one: the highest version of its symbols.
libc=$(objdump -T "$tree/usr/bin/pmfs" | grep -o 'GLIBC_2\.[0-9.]*' | sort -uV | tail -n 1)

mkdir "$tree/DEBIAN"
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
cat >"$tree/DEBIAN/control" <<END
Package: pmfs
Version: $version
Architecture: $architecture
Maintainer: the PMFS developers <pmfs@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f 1)
Depends: fuse3, libc6 (>= ${libc#GLIBC_}), libgcc-s1
Section: admin
Priority: optional
Description: crash-consistent file system on persistent memory, in user space
 A pool is one file that holds a whole file system: on a DAX file system or device, on
 tmpfs, on huge pages, or a plain file. Each call happens wholly or not at all, and is
 durable when it returns, as far as the medium lasts. Mounted through FUSE.
END
mkdir -p "$target/debian"
package=$target/debian/pmfs_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$tree" "$package" >/dev/null
echo "$package"
