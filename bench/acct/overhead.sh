#!/bin/bash
# What a monitor costs: overhead.sh PMBENCH DIR BACKEND THREADS writer|monitor. Prints the CPU time of fixed work of a writer beside a
# monitor by the mean of that before and after, or the monitor's CPU time within the work by the work's seconds.
set -eu
. "$(dirname "$0")/built.sh"
built "$1"
dir=$2 backend=$3 threads=$4 what=$5
monitor=
trap '[ -z "$monitor" ] || kill "$monitor" 2>/dev/null || true' EXIT
TIMEFORMAT='%R %U %S'
# work FILE TOTAL
work() {
    { time "$bin/pmm-writer" "$dir/load" --size 64M --total "$2" --access 256 --store nt --threads "$threads" >/dev/null; } 2>"$1"
}
# Nanoseconds that all threads of the monitor have run. Its start, which calibrates, is not within the work.
ran() {
    cat /proc/"$monitor"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}
total=${ACCT_TOTAL:-6G}
# The file's pages are made by nobody's measured work.
work "$dir/made" 64M
work "$dir/before" "$total"
"$bin/pmmon" record --backend "$backend" --as-pm "$dir/load" -o "$dir/recording" >"$dir/said" 2>&1 &
monitor=$!
sleep 2
kill -0 "$monitor" 2>/dev/null || {
    cat "$dir/said"
    exit 77
}
begin=$(ran)
work "$dir/beside" "$total"
end=$(ran)
kill -TERM "$monitor"
wait "$monitor" || true
monitor=
work "$dir/after" "$total"
awk -v what="$what" -v ran="$((end - begin))" '
    FILENAME ~ /beside$/ { beside = $2 + $3; seconds = $1; next }
    { alone += ($2 + $3) / 2 }
    END { printf "overhead: %.5f\n", what == "writer" ? beside / alone : ran / 1e9 / seconds }
' "$dir/before" "$dir/after" "$dir/beside"
