#!/bin/bash
# What a monitor costs: overhead.sh PMBENCH DIR BACKEND THREADS writer|monitor. Prints the CPU time of fixed work of a writer beside a
# monitor by that without, or the monitor's CPU time by the seconds of the work.
set -eu
. "$(dirname "$0")/built.sh"
built "$1"
dir=$2 backend=$3 threads=$4 what=$5
monitor=
trap '[ -z "$monitor" ] || kill "$monitor" 2>/dev/null || true' EXIT
TIMEFORMAT='%R %U %S'
work() {
    { time "$bin/pmm-writer" "$dir/load" --size 64M --total "${ACCT_TOTAL:-6G}" --access 256 --store nt --threads "$threads" >/dev/null; } 2>"$1"
}
work "$dir/alone"
# A monitor that is ended by its own time's end tells the CPU time that it took.
(
    trap 'kill -TERM "$inner" 2>/dev/null || true' TERM
    {
        time {
            "$bin/pmmon" record --backend "$backend" --as-pm "$dir/load" -o "$dir/recording" >"$dir/said" 2>&1 &
            inner=$!
            # The first end is that of the signal to this shell.
            wait "$inner" || wait "$inner" || true
        }
    } 2>"$dir/monitor"
) &
monitor=$!
sleep 2
kill -0 "$monitor" 2>/dev/null || {
    cat "$dir/said"
    exit 77
}
work "$dir/beside"
kill -TERM "$monitor"
wait "$monitor" || true
monitor=
awk -v what="$what" '
    FILENAME ~ /alone$/ { alone = $2 + $3 }
    FILENAME ~ /beside$/ { beside = $2 + $3; seconds = $1 }
    FILENAME ~ /monitor$/ { cost = $2 + $3 }
    END { printf "overhead: %.5f\n", what == "writer" ? beside / alone : cost / seconds }
' "$dir/alone" "$dir/beside" "$dir/monitor"
