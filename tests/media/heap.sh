# In the guest of heap-media.sh, as root: heap.sh GROW PMKV MIB. One line a check.

set -uo pipefail
export PATH=$PATH:/usr/sbin:/sbin
cd /tmp || exit 1
grow=$1 pmkv=$2 mib=$3 bad=0

result() {
    printf '%-4s heap media, %s\n' "$1" "$2"
    [ "$1" = ok ] || bad=1
}

as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }

[ -e /dev/pmem0 ] && ndctl create-namespace -f -e namespace0.0 -m devdax -M mem -a 2M >/dev/null &&
    ndctl create-namespace -f -e namespace1.0 -m fsdax -M mem >/dev/null || exit 1
mkfs.ext4 -q -F -b 4096 /dev/pmem1 && mkdir ext4 && mount -o dax /dev/pmem1 ext4 && chmod 777 ext4 || exit 1
chown 65534 /dev/dax0.0

said=$(as_nobody "$grow" /dev/dax0.0 "$mib" 2>&1)
case $said in
*"no room"*) result ok "a DAX device is not filled beyond the heap untold" ;;
*) result FAIL "a DAX device, untold: $said" ;;
esac
if said=$(as_nobody "$pmkv" grow /dev/dax0.0 96M 2>&1); then
    result ok "a DAX device, by pmkv grow: $said"
else
    result FAIL "a DAX device, by pmkv grow: $said"
fi
# So that another heap can be made there.
python3 -c '
import mmap, os
device = os.open("/dev/dax0.0", os.O_RDWR)
mmap.mmap(device, 2 << 20)[:8192] = bytes(8192)' || exit 1
if said=$(as_nobody "$grow" /dev/dax0.0 "$mib" "$((mib * 2))" 2>&1); then
    result ok "a DAX device, told: $said"
else
    result FAIL "a DAX device, told: $said"
fi
if said=$(as_nobody "$grow" ext4/heap "$mib" 2>&1); then
    result ok "a file on ext4 with DAX: $said"
else
    result FAIL "a file on ext4 with DAX: $said"
fi
exit "$bad"
