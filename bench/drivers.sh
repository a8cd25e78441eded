#!/bin/sh
# The driver `pmbench calls` beside fio, and beside a loop in C (calls.c), which make the same calls: drivers.sh DIR [RUN...], with RUN what
# stands before commands that work in DIR (`pmfs run ... --`, `taskset -c 1`). What is timed is the write and its fsync, or the read, of a
# file that is held open. fio times each call by itself: what that finds with its engine null, where nothing is called, is taken off. A job
# of its is a process of its own, because a descriptor costs more to look up in a process of several threads. Each figure is the least of
# ROUNDS, in turn: noise only adds. Needs fio, jq, cc, and pmbench in PATH or in PMBENCH.
set -eu
dir=$1
shift
pmbench=${PMBENCH:-pmbench} count=${COUNT:-5000} rounds=${ROUNDS:-25}
work=$(mktemp -d)
trap 'rm -rf "$work" "$dir/fio"' EXIT
cc -O2 -o "$work/calls" "${0%/*}/calls.c"

# The block in the middle again and again, or one behind the other. In a file as it was written, which `invalidate` would have thrown out of
# the cache and back in by single blocks, of which ext4 writes one back sooner than out of a large folio.
asked() {
    case $1 in
    write4k) echo "--rw=randwrite:$count --bs=4k --invalidate=0" ;;
    write512) echo "--rw=randwrite:$count --bs=512 --invalidate=0" ;;
    append4k) echo "--rw=write --bs=4k --size=$((count * 4))k --fallocate=none" ;;
    read4k) echo "--rw=randread:$count --bs=4k --invalidate=0" ;;
    esac
}

# us for each of fio's: fio_us CALL ENGINE RUN...
fio_us() {
    call=$1 engine=$2
    shift 2
    # Options are words.
    # shellcheck disable=SC2046
    (cd / && "$@" fio --name=same --filename="$dir/fio" --ioengine="$engine" --fsync=1 --size=256m --rw_sequencer=identical \
        --number_ios="$count" $(asked "$call") --output-format=json) >"$work/said"
    jq -e '.jobs[0] | (.read.clat_ns.mean + .write.clat_ns.mean + .sync.lat_ns.mean) / 1000' "$work/said"
}

# least NAME FIGURE: keeps it if it is the least.
least() {
    printf '%s\n' "$2" >>"$work/$1"
    sort -g "$work/$1" | head -n 1
}

printf '%-10s %12s %12s %8s %12s %8s   %s\n' call 'pmbench, us' 'fio, us' ratio 'C, us' ratio "fio's own, us"
for call in write4k write512 append4k read4k; do
    for _ in $(seq "$rounds"); do
        "$@" "$pmbench" calls --dir "$dir" --call "$call" --count "$count" --held >"$work/said"
        ours=$(least "$call.ours" "$(jq -e .us "$work/said")")
        rm -f "$dir/fio"
        [ "$call" = append4k ] || "$@" dd if=/dev/zero of="$dir/fio" bs=1M count=256 conv=fsync status=none
        [ "$call" != append4k ] || : >"$dir/fio"
        loop=$(least "$call.loop" "$("$@" "$work/calls" "$dir/fio" "$call" "$count")")
        [ "$call" != append4k ] || rm "$dir/fio"
        theirs=$(least "$call.theirs" "$(fio_us "$call" psync "$@")")
        own=$(least "$call.own" "$(fio_us "$call" null)")
    done
    echo "$call $ours $theirs $own $loop" |
        awk '{ printf "%-10s %12.2f %12.2f %8.2f %12.2f %8.2f   %.2f\n", $1, $2, $3 - $4, $2 / ($3 - $4), $5, $2 / $5, $4 }'
done
