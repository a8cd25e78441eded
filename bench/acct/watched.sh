#!/bin/bash
# What pmmon tells of writers whose bytes are known: watched.sh PMBENCH DIR THREADS. Prints bytes by those written, the largest
# deviation of a thread from the mean, and the hits of a thread.
set -eu
. "$(dirname "$0")/built.sh"
built "$1"
dir=$2 threads=$3
# A debug trap without a cause ends a program that is watched on some virtual machines; pmm-writer goes on.
"$bin/pmmon" record --backend watch --as-pm "$dir/load" -o "$dir/recording" -- \
    "$bin/pmm-writer" "$dir/load" --size 4M --total "${ACCT_TOTAL:-12G}" --access 256 --store nt --threads "$threads" --json \
    >"$dir/truth" 2>"$dir/said" || {
    code=$?
    cat "$dir/said"
    exit "$code"
}
"$bin/pmmon" report "$dir/recording" --by thread --json >"$dir/told"
python3 - "$dir/truth" "$dir/told" <<'PYTHON'
import json, sys
truth = {one["tid"]: one["written_bytes"] for one in json.loads(open(sys.argv[1]).readlines()[-1])["threads"]}
process = json.load(open(sys.argv[2]))["processes"][0]
told = {one["tid"]: one["written"] for one in process["threads"] if one["tid"] in truth}
ratios = [told[tid]["bytes"] / truth[tid] for tid in truth]
print(json.dumps({
    "kind": "real",
    "detections": sum(one["hits"] for one in told.values()) / len(told),
    "ratio": sum(one["bytes"] for one in told.values()) / sum(truth.values()),
    "deviation": max(abs(ratio * len(ratios) / sum(ratios) - 1) for ratio in ratios),
    "held": sum(told[tid]["low"] <= truth[tid] <= told[tid]["high"] for tid in truth),
}))
PYTHON
