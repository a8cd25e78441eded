#!/bin/sh
# Installs what building and testing need, and only what is missing; says what it leaves out.
# `bootstrap.sh costs`: what counts instructions; `bootstrap.sh bench`: an engine to be measured beside; `bootstrap.sh suites`: other people's test suites as well (into target/suites, what comes from crates.io);
# `bootstrap.sh guest`: what runs a virtual machine; `bootstrap.sh media`: and one with persistent memory; `bootstrap.sh programs`: those of `programs.sh long`.
set -eu

RUST_MIN=1.95

# Debian's name of a package, and a file or command that shows that it is there.
packages='
fuse3 fusermount3
git git
sqlite3 sqlite3
rsync rsync
gcc gcc
g++ c++
musl-tools musl-gcc
perl perl
bzip2 bzip2
xz-utils xz
make make
tar tar
python3 python3
python3-venv /usr/lib/python3.11/ensurepip
e2fsprogs mkfs.ext4
attr setfattr
acl setfacl
pkgconf pkg-config
man-db man
groff groff
binutils strip
strace strace
tmux tmux
liburing-dev /usr/include/liburing.h
libpmem-dev /usr/include/libpmem.h
libpmemobj-dev /usr/include/libpmemobj.h
pmdk-tools /usr/bin/pmempool
'
suites= guest= media= programs= costs= bench=
for part in "$@"; do
    case $part in
    costs) costs=yes ;;
    bench) bench=yes ;;
    suites) suites=yes ;;
    guest) guest=yes ;;
    media) guest=yes media=yes ;;
    programs) programs=yes ;;
    esac
done
if [ -n "$costs" ]; then
    packages="$packages
valgrind valgrind
"
fi
if [ -n "$bench" ]; then
    packages="$packages
librocksdb7.8 /usr/lib/$(uname -m)-linux-gnu/librocksdb.so.7.8
"
fi
if [ -n "$guest" ]; then
    packages="$packages
qemu-system-x86 qemu-system-x86_64
busybox-static busybox
cpio cpio
kmod depmod
xz-utils xz
"
fi
if [ -n "$media" ]; then
    packages="$packages
ndctl ndctl
xfsprogs mkfs.xfs
"
fi
if [ -n "$programs" ]; then
    packages="$packages
python3-dev python3-config
nodejs node
default-jdk-headless javac
golang-go go
redis-server redis-server
rocksdb-tools db_bench
fio fio
curl curl
lmdb-utils mdb_dump
postgresql-15 /usr/lib/postgresql/15/bin/pg_amcheck
liblmdb-dev /usr/include/lmdb.h
"
fi
if [ -n "$suites" ]; then
    packages="$packages
fsmark fs_mark
dbench dbench
postmark postmark
bonnie++ bonnie++
fio fio
rocksdb-tools db_bench
stress-ng stress-ng
"
fi

missing=
while read -r package shown; do
    [ -n "$package" ] || continue
    [ -e "$shown" ] || PATH="$PATH:/usr/sbin:/sbin" command -v "$shown" >/dev/null 2>&1 || missing="$missing $package"
done <<EOF
$packages
EOF

install() {
    # shellcheck disable=SC2086
    "$@" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
}

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "bootstrap: please install:$missing (no apt-get here)"
    elif [ "$(id -u)" = 0 ]; then
        echo "bootstrap: installing$missing"
        apt-get update -qq </dev/null >/dev/null && install env
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        echo "bootstrap: installing$missing, with sudo"
        sudo apt-get update -qq </dev/null >/dev/null && install sudo
    else
        echo "bootstrap: not root, and sudo asks for a password; skipped:$missing"
        echo "           to have everything: sudo apt-get install$missing"
    fi
fi

# Prometheus' checker of metrics alone: Debian's package would start a server.
if ! command -v promtool >/dev/null 2>&1; then
    tool=$(mktemp -d)
    if [ "$(id -u)" = 0 ] && (cd "$tool" && apt-get download -qq prometheus >/dev/null 2>&1 &&
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
        cp usr/bin/promtool /usr/local/bin/promtool) 2>/dev/null; then
        echo "bootstrap: installed promtool of Debian's prometheus in /usr/local/bin"
    else
        echo "bootstrap: no promtool (it is of Debian's prometheus, and is installed by root); its test is skipped"
    fi
    rm -rf "$tool"
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "bootstrap: no Rust here; PMFS needs rustc $RUST_MIN or later: see https://rustup.rs" >&2
    exit 1
fi
have=$(rustc --version | awk '{ print $2 }')
oldest=$(printf '%s\n%s\n' "$RUST_MIN" "$have" | sort -V | head -n 1)
if [ "$oldest" != "$RUST_MIN" ]; then
    echo "bootstrap: rustc is $have; PMFS needs $RUST_MIN or later: rustup update stable" >&2
    exit 1
fi

# A machine whose fuse module nobody has asked for yet.
if [ ! -e /dev/fuse ] && [ "$(id -u)" = 0 ]; then
    modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229 2>/dev/null || true
fi
if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
    echo "bootstrap: /dev/fuse is not there for this user: pools can be made and checked, not mounted"
fi

# install_crate NAME VERSION: a program from crates.io.
install_crate() {
    root=${PMFS_SUITES:-${CARGO_TARGET_DIR:-target}/suites}
    if ! "$root/bin/$1" --version 2>/dev/null | grep -qF "$2"; then
        echo "bootstrap: building $1 $2"
        CARGO_TARGET_DIR=$root/build cargo install --quiet --root "$root" --version "$2" "$1" ||
            echo "bootstrap: $1 could not be built; its tests will be missing"
        rm -rf "$root/build"
    fi
}

if [ -n "$suites" ]; then
    install_crate pjdfstest 0.2.0
    install_crate fsx 0.3.0
fi
