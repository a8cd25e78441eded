#!/bin/sh
# The driver `pmbench calls` beside a loop in C (calls.c) and beside fio, which make the same calls: drivers.sh DIR [RUN...], with RUN what
# stands before commands that work in DIR (`pmfs run ... --`, `taskset -c 1`). What is timed is the write and its fsync, or the read, of a
# file that is held open. fio times each call by itself: what that finds with its engine null, where nothing is called, is taken off. A job
# of its is a process of its own, because a descriptor costs more to look up in a process of several threads. The three take turns, each
# round another first; a ratio is the median of the rounds' ratios, with their quartiles, for what an fsync takes on a file system with a
# device changes from second to second, and from file to file. Needs fio, jq, cc, and pmbench in PATH or in PMBENCH.
set -eu
dir=$1
shift
pmbench=${PMBENCH:-pmbench} count=${COUNT:-5000} rounds=${ROUNDS:-45}
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

# ours, loop, theirs CALL RUN...: us for each call, on a file of its own that is new.
ours() {
    call=$1
    shift
    "$@" "$pmbench" calls --dir "$dir" --call "$call" --count "$count" --held >"$work/said"
    jq -e .us "$work/said"
}
loop() {
    call=$1
    shift
    "$@" "$work/calls" "$dir/fio" "$call" "$count"
}
theirs() {
    call=$1
    shift
    if [ "$call" = append4k ]; then
        "$@" touch "$dir/fio"
    else
        "$@" dd if=/dev/zero of="$dir/fio" bs=1M count=256 conv=fsync status=none
    fi
    echo "$(fio_us "$call" psync "$@") $(fio_us "$call" null)" | awk '{ print $1 - $2 }'
    "$@" rm "$dir/fio"
}

# quartile NUMBER: of the numbers that come in.
quartile() {
    sort -g | awk -v of="$1" '{ at[NR] = $1 } END { print at[int((NR - 1) * of / 4 + 1.5)] }'
}

# ratios A B: the rounds' ratios, as "median (quartile to quartile)".
ratios() {
    paste "$work/$1" "$work/$2" | awk '{ print $1 / $2 }' >"$work/each"
    printf '%.2f (%.2f to %.2f)' "$(quartile 2 <"$work/each")" "$(quartile 1 <"$work/each")" "$(quartile 3 <"$work/each")"
}

printf '%-10s %12s %12s %12s   %-22s %s\n' call 'pmbench, us' 'C, us' 'fio, us' 'times C' 'times fio'
for call in write4k write512 append4k read4k; do
    rm -f "$work/ours" "$work/loop" "$work/theirs"
    order='ours loop theirs'
    for _ in $(seq "$rounds"); do
        for one in $order; do
            "$one" "$call" "$@" >>"$work/$one"
        done
        order="${order#* } ${order%% *}"
    done
    printf '%-10s %12.2f %12.2f %12.2f   %-22s %s\n' "$call" "$(quartile 2 <"$work/ours")" "$(quartile 2 <"$work/loop")" \
        "$(quartile 2 <"$work/theirs")" "$(ratios ours loop)" "$(ratios ours theirs)"
done
