# pjdfstest and fsx: sourced by ../suites.sh.

# A file system to compare with: ext4 on a loop device (root), else tmpfs.
other_kind=
make_other() {
    mkdir -p "$place/other"
    if is_root && truncate -s 1G "$place/ext4" && mkfs.ext4 -q "$place/ext4" 2>/dev/null &&
        mount -o loop "$place/ext4" "$place/other" 2>/dev/null; then
        other_kind=ext4
    else
        other_kind="the file system under the pool"
    fi
}

# pjd DIR OUTPUT PATTERN...: one line a case: its name and ok, FAILED or skipped.
pjd() {
    local dir=$1 into=$2
    shift 2
    mkdir -p "$dir/pjd" && chmod 755 "$dir" "$dir/pjd"
    local below=("${below[@]}")
    [ "$dir" = "$mnt" ] || below=()
    (cd "$place" && "${below[@]}" pjdfstest -c "$place/pjd.toml" -p "$dir/pjd" "$@" 2>&1) |
        sed 's/\x1b\[[0-9;]*m//g' | grep -aE '^[a-z_]+::.* (ok|FAILED|skipped)$' | awk '{ print $1, $NF }' |
        sort >"$into"
}

# Each case that the other file system passes has to pass, and none may be left out that the other runs. The
# cases on a read-only file system are run one by one as well: in one process files that an earlier case left
# open keep ext4 from being remounted.
pjdfstest_compared() {
    local cases name theirs ours bad=0 remounts=false second
    # Another file system; cases leave files there.
    second=$(mktemp -d /dev/shm/pmfs-suites.XXXXXX) && chmod 777 "$second"
    # A program below `pmfs run` does not follow a remount (docs/SEMANTICS.md).
    is_root && [ "$face" != run ] && remounts=true
    {
        printf '[features]\nsecondary_fs = "%s"\n' "$second"
        printf '%s = {}\n' posix_fallocate rename_ctime utime_now utimensat
        printf '[settings]\nnaptime = 0.01\nallow_remount = %s\n' "$remounts"
        echo '[dummy_auth]'
        echo 'entries = [["nobody","nogroup"],["daemon","daemon"],["bin","bin"]]'
    } >"$place/pjd.toml"
    for side in mnt other; do
        pjd "$place/$side" "$out/pjd.$side"
        cases=$(awk '/erofs/ { print $1 }' "$out/pjd.$side")
        grep -v erofs "$out/pjd.$side" >"$out/pjd.$side.all"
        for name in $cases; do
            pjd "$place/$side" "$out/pjd.one" "$name"
            grep "^$name " "$out/pjd.one" >>"$out/pjd.$side.all"
        done
        sort -o "$out/pjd.$side.all" "$out/pjd.$side.all"
    done
    rm -rf "$second"
    if [ ! -s "$out/pjd.mnt.all" ]; then
        result FAIL "pjdfstest: printed nothing"
        return
    fi
    join -a 1 -a 2 -e none -o 0,1.2,2.2 "$out/pjd.other.all" "$out/pjd.mnt.all" >"$out/pjd.both"
    while read -r name theirs ours; do
        # Whether something is mounted on a directory is not followed below `pmfs run`.
        [ "$face:$name" != run:rmdir::ebusy ] || ours=skipped
        case $theirs,$ours in
        ok,skipped) result skip "pjdfstest $name: runs on $other_kind" ;;
        ok,ok | FAILED,* | skipped,* | none,ok) ;;
        *)
            bad=1
            result FAIL "pjdfstest $name: $theirs on $other_kind, $ours here"
            ;;
        esac
    done <"$out/pjd.both"
    [ "$bad" = 1 ] || result ok "pjdfstest beside $other_kind: here $(tally 3), there $(tally 2)"
}

tally() { awk -v at="$1" '{ n[$at]++ } END { printf "%d ok, %d failed, %d skipped", n["ok"], n["FAILED"], n["skipped"] }' "$out/pjd.both"; }

# fsx_with WEIGHT OF MAPPED [ALIGNMENT MOST COPIES]: random calls on one file, each read compared. With an
# alignment fsx asks for allocations of 0 bytes, which it takes for a lack where they are refused.
fsx_with() {
    local mapped=$1 align=${2:-1} most=${3:-65536} copies=${4:-2} count=5000
    [ "$mode" = long ] && count=100000
    cat >"$out/fsx.toml" <<END
flen = 1048576
[opsize]
max = $most
min = 0
align = $align
[weights]
read = 10
write = 10
mapread = $mapped
mapwrite = $mapped
truncate = 2
close_open = 1
invalidate = $((mapped > 0))
fsync = 1
fdatasync = 1
posix_fallocate = $((align > 1 ? 0 : 2))
punch_hole = 2
sendfile = 2
posix_fadvise = 1
copy_file_range = $copies
END
    "${below[@]}" fsx -q -N "$count" -S "${PMFS_FSX_SEED:-1}" -f "$out/fsx.toml" file
}

posix_suites() {
    if command -v pjdfstest >/dev/null; then
        make_other
        pjdfstest_compared
    else
        result skip "pjdfstest: pjdfstest is missing"
    fi
    check "fsx, with mmap" fsx fsx_with 10
    check "fsx, without mmap" fsx fsx_with 0
    # Copies of 64 KiB and more share their blocks.
    check "fsx, whole blocks that are shared" fsx fsx_with 0 4096 262144 12
}
