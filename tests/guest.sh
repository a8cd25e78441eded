#!/bin/bash
# `make test-guest`: the suites on Debian's 6.1 kernel, the oldest that PMFS promises to work on, in a virtual
# machine without acceleration. The guest's root is this machine's, read-only by 9p, under an overlay in its
# memory: the same programs, another kernel. Nothing of it stays but the kernel package in target/guest.
#
#   guest.sh [COMMAND...]   the command runs in the guest as root, in this directory; default: what closes a pool by
#                           protection keys, the suites, on the mount and below `pmfs run`, and some programs below it
#
# PMFS (the program, target/release/pmfs) and PMFS_SUITES (where the suites are) hold in the guest too. The files
# PMFS_GUEST_NVDIMM/nvdimm* and /virtio* are persistent memory there, in the order of their names; the machine's
# process is named in PMFS_GUEST_NVDIMM/pid.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
here=$PWD
target=${CARGO_TARGET_DIR:-$here/target}
work=$target/guest
limit=${PMFS_GUEST_SECONDS:-5400}
if [ "$#" = 0 ]; then
    # The guest's CPU has protection keys, and its memory pages of 1 GiB. Whether a pool is closed by the ones and mapped by the others is
    # tested here, and none of it may be skipped; and what is written past the pages that this kernel needs for mappings.
    closed=
    for of in "pmem windows" "pmfs-cli run" "pmfs-cli paged"; do
        built=$(cargo test --no-run -p "${of% *}" --test "${of#* }" 2>&1) || { echo "$built" && exit 1; }
        closed="$closed $(sed -n 's/.*Executable.*(\(.*\))$/\1/p' <<<"$built")"
    done
    # All of it runs, whatever fails.
    set -- env PMFS_SUITES_POOL=1G PMFS_RUN_SECONDS=600 closed="$closed" bash -c 'bad=0
        for program in $closed; do
            said=$($program --show-output --test-threads=1 keys stray:: handlers_in faults_of alternate large_pages are_whole past_pages 2>&1) || bad=1
            echo "$said" | grep -E "^test |^skipped|panicked|^strays|keys: "
            case $said in *skipped:*) bad=1 ;; esac
        done
        bash tests/suites.sh quick || bad=1
        bash tests/suites.sh quick root run || bad=1
        bash tests/programs.sh run few || bad=1
        exit $bad'
fi
for name in PMFS PMFS_SUITES; do
    [ -z "${!name:-}" ] || set -- env "$name=${!name}" "$@"
done

needed="qemu-system-x86_64 busybox cpio depmod apt-get dpkg-deb"
for tool in $needed; do
    if ! PATH="$PATH:/sbin:/usr/sbin" command -v "$tool" >/dev/null; then
        echo "skip guest: $tool is missing (sh tests/bootstrap.sh guest)"
        exit 0
    fi
done
PATH="$PATH:/sbin:/usr/sbin"

# The kernel: Debian 12's own package, unpacked, not installed.
mkdir -p "$work" || exit 1
kernel=$work/kernel
if [ ! -e "$kernel/done" ]; then
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-6\.1/ { print $2; exit }')
    if [ -z "$package" ] || ! (cd "$work" && apt-get download -qq "$package" 2>/dev/null); then
        echo "skip guest: Debian's 6.1 kernel can't be had here"
        exit 0
    fi
    rm -rf "$kernel" && dpkg-deb -x "$work/$package"_*.deb "$kernel" && rm "$work/$package"_*.deb || exit 1
    depmod -b "$kernel" "$(ls "$kernel/lib/modules")" && touch "$kernel/done"
fi
version=$(ls "$kernel/lib/modules")

# The first file system: busybox, the modules in the order in which they need each other, and what to do.
first=$(mktemp -d "${TMPDIR:-/tmp}/pmfs-guest.XXXXXX") || exit 1
trap 'rm -rf "$first" "$first.img"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$first"/{none,bin,proc,sys,dev,modules,lower,memory,root}
cp "$(command -v busybox)" "$first/bin/busybox"
for module in virtio_pci 9pnet_virtio 9p overlay fuse loop crc32c_generic ext4 \
    ${PMFS_GUEST_NVDIMM:+libnvdimm nfit nd_pmem dax_pmem device_dax virtio_pmem xfs}; do
    # This machine's own rules for modules (ndctl has one) are not the guest's.
    modprobe -C "$first/none" -d "$kernel" -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++' | while read -r path; do
    name=$(basename "$path" .xz)
    case $path in *.xz) xz -dc "$path" >"$first/modules/$name" ;; *) cp "$path" "$first/modules/$name" ;; esac
    echo "$name"
done >"$first/modules/order"
printf '%q ' "$@" >"$first/command"
cat >"$first/init" <<E2
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in \$(cat /modules/order); do insmod /modules/\$module 2>/dev/null; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /lower || echo "no root"
mount -t tmpfs -o size=40% memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work root /root
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount --move /dev /root/dev
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs -o mode=1777 tmp /root/tmp
mount -t tmpfs -o mode=755 run /root/run
# What of the two stands below these is hidden by them now.
for dir in $(printf '%q %q' "$here" "$target"); do
    case \$dir in
    /tmp/* | /run/* | /dev/shm/*) mkdir -p "/root\$dir" && mount --bind "/lower\$dir" "/root\$dir" ;;
    esac
done
cp /command /root/run/command
ip link set lo up 2>/dev/null
chroot /root /bin/bash -c 'cd $(printf %q "$here") && export HOME=/root CARGO_TARGET_DIR=$(printf %q "$target")
    export PATH=$(printf %q "$PATH") && echo "guest: Linux \$(uname -r)" && . /run/command 2>&1 | cat; echo "guest: exit code \${PIPESTATUS[0]}"'
sync
poweroff -f
E2
chmod +x "$first/init"
(cd "$first" && find . | cpio -o -H newc 2>/dev/null) | gzip -1 >"$first.img" || exit 1

memory=${PMFS_GUEST_MEMORY:-8G} machine=q35 devices=()
if [ -n "${PMFS_GUEST_NVDIMM:-}" ]; then
    # The last 128 KiB of each are its labels.
    memory+=,slots=8,maxmem=64G machine+=,nvdimm=on
    devices=(-pidfile "$PMFS_GUEST_NVDIMM/pid")
    for file in "$PMFS_GUEST_NVDIMM"/nvdimm*; do
        id=$(basename "$file")
        devices+=(-object "memory-backend-file,id=$id,share=on,mem-path=$file,size=$(stat -c %s "$file"),align=2M"
            -device "nvdimm,memdev=$id,label-size=128K")
    done
    for file in "$PMFS_GUEST_NVDIMM"/virtio*; do
        id=$(basename "$file")
        devices+=(-object "memory-backend-file,id=$id,share=on,mem-path=$file,size=$(stat -c %s "$file")"
            -device "virtio-pmem-pci,memdev=$id")
    done
fi
timeout --foreground "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m "$memory" \
    -machine "$machine" "${devices[@]}" -nodefaults -display none -serial stdio -no-reboot -device virtio-rng-pci \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=host \
    -kernel "$(ls "$kernel"/boot/vmlinuz-*)" -initrd "$first.img" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check" </dev/null |
    tr -d '\r' | tee "$work/log"
grep -q '^guest: exit code 0$' "$work/log"
