#!/bin/sh
# The driver `pmbench calls` beside fio, which makes the same calls: drivers.sh DIR [RUN...], with RUN what stands before commands that work in
# DIR (`pmfs run ... --`). What is timed is the write and its fsync, or the read, of a file that is held open. fio's own work for each, which
# takes longer than such a call of memory, is what it takes with its engine null, and is taken off. Each figure is the least of ROUNDS: noise
# only adds. Needs fio, jq, and pmbench in PATH or in PMBENCH.
set -eu
dir=$1
shift
pmbench=${PMBENCH:-pmbench} count=${COUNT:-50000} rounds=${ROUNDS:-5}
work=$(mktemp -d)
trap 'rm -rf "$work" "$dir/fio"' EXIT

# The block in the middle again and again, or one behind the other.
asked() {
    case $1 in
    write4k) echo "--rw=randwrite:$count --bs=4k" ;;
    write512) echo "--rw=randwrite:$count --bs=512" ;;
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
    (cd / && "$@" fio --name=same --filename="$dir/fio" --ioengine="$engine" --thread --fsync=1 --size=256m --rw_sequencer=identical \
        --number_ios="$count" --gtod_reduce=1 $(asked "$call") --output-format=json) >"$work/said"
    jq -e '.jobs[0] | .job_runtime * 1000 / (.read.total_ios + .write.total_ios)' "$work/said"
}

# least NAME FIGURE: keeps it if it is the least.
least() {
    printf '%s\n' "$2" >>"$work/$1"
    sort -g "$work/$1" | head -n 1
}

printf '%-10s %12s %12s %8s   %s\n' call 'pmbench, us' 'fio, us' ratio "fio's own, us"
for call in write4k write512 append4k read4k; do
    # fio tells milliseconds.
    [ "$call" != read4k ] || [ "$count" -ge 60000 ] || count=60000
    for _ in $(seq "$rounds"); do
        "$@" "$pmbench" calls --dir "$dir" --call "$call" --count "$count" --held >"$work/said"
        ours=$(least "$call.ours" "$(jq -e .us "$work/said")")
        rm -f "$dir/fio"
        [ "$call" = append4k ] || "$@" dd if=/dev/zero of="$dir/fio" bs=1M count=256 conv=fsync status=none
        whole=$(least "$call.whole" "$(fio_us "$call" psync "$@")")
        own=$(least "$call.own" "$(fio_us "$call" null)")
    done
    echo "$call $ours $whole $own" | awk '{ printf "%-10s %12.2f %12.2f %8.2f   %.2f\n", $1, $2, $3 - $4, $2 / ($3 - $4), $4 }'
done
