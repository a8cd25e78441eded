#!/bin/bash
# sysbench's prime numbers beside pmm-writers, whose threads pmmon gives a core of their own or does not: beside.sh PMBENCH DIR WRITERS
# yes|no NUMBERS. Prints the sum of its threads' times.
set -eu
. "$(dirname "$0")/built.sh"
built "$1"
dir=$2 writers=$3 managed=$4 numbers=$5
cores=$(nproc)
[ "$cores" -ge 2 ] || {
    echo "the machine has one core"
    exit 77
}
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
}
trap stop EXIT
if [ "$managed" = yes ]; then
    # As the thesis' 3 of 16 cores, as far as there are as many.
    own=$((cores * 3 / 16))
    [ "$own" -ge 1 ] || own=1
    printf '[group.general]\ncpus = "0-%d"\nexpiry = "60s"\n[group.pm]\ncpus = "0-%d"\nexpiry = "200ms"\nsticky = true\n' \
        $((cores - 1)) $((own - 1)) >"$dir/groups.toml"
    "$bin/pmmon" pin --config "$dir/groups.toml" --as-pm "$dir" --run-dir "$dir/run" >"$dir/pin" 2>&1 &
    pids+=($!)
    sleep 1
    kill -0 "${pids[0]}" 2>/dev/null || {
        cat "$dir/pin"
        exit 77
    }
fi
for number in $(seq "$writers"); do
    "$bin/pmm-writer" "$dir/load$number" --size 16M --total 3072T --access 256 --store nt >/dev/null &
    pids+=($!)
done
sleep 1
sysbench cpu --threads="$cores" --cpu-max-prime=10000 --events="$numbers" --time=0 run >"$dir/said"
awk -v threads="$cores" '/execution time/ { split($NF, both, "/"); printf "sum: %.4f s\n", both[1] * threads }' "$dir/said"
