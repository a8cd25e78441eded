#!/usr/bin/env bash
# CPU time of fixed work while pmmon looks at all processes, by the same work without it: monitor-cost.sh [DIR], with pmmon, pmm-writer,
# pmfs and the preloaded library in DIR. Both take turns, and the order changes each round; a row is the median of the rounds' ratios.
# Fails where a median is more than its bound. Other programs on the machine disturb it: half a percent, which programs without persistent
# memory are to lose at most, is less than what two equal runs differ by in a virtual machine.
set -eu
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release}")
rounds=${PMMON_COST_ROUNDS:-15}
work=$(mktemp -d /dev/shm/monitor-cost.XXXXXX)
monitor=
stop() {
    [ -z "$monitor" ] || kill "$monitor" 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP

mapped() { "$bin/pmm-writer" --size 64M --total "${PMMON_COST_TOTAL:-4G}" "$work/mapped"; }
other() { awk 'BEGIN { for (i = 0; i < 80000000; i++) x += i }'; }
calls() {
    "$bin/pmfs" run --pool "$work/pool" --at "$work/at" -- \
        "$bin/pmm-writer" --calls pwrite --access 64 --size 16M --total "${PMMON_COST_CALLS:-128M}" "$work/at/file"
}

# seconds WORK: its CPU time.
seconds() {
    local TIMEFORMAT='%U %S'
    { time "$1" >"$work/said" 2>&1; } 2>"$work/time" || {
        cat "$work/said" >&2
        return 1
    }
    awk '{ printf "%.3f\n", $1 + $2 }' "$work/time"
}

# watched BACKEND WORK: its CPU time beside a monitor.
watched() {
    "$bin/pmmon" record --backend "$1" -o "$work/recording" >"$work/log" 2>&1 &
    monitor=$!
    sleep 0.7
    seconds "$2"
    kill -TERM "$monitor" || {
        cat "$work/log" >&2
        return 1
    }
    wait "$monitor" || true
    monitor=
    rm -f "$work/recording"
}

late=0
# row BOUND BACKEND WORK TITLE
row() {
    local round alone beside ratios=
    for round in $(seq "$rounds"); do
        if [ $((round % 2)) = 0 ]; then
            alone=$(seconds "$3")
            watched "$2" "$3" >"$work/beside"
        else
            watched "$2" "$3" >"$work/beside"
            alone=$(seconds "$3")
        fi
        beside=$(cat "$work/beside")
        ratios+=$(awk -v a="$alone" -v b="$beside" 'BEGIN { printf "%.4f", b / a }')$'\n'
    done
    sort -n <<<"${ratios%$'\n'}" >"$work/ratios"
    awk -v title="$4" -v backend="$2" '{ all[NR] = $1 } END {
        printf "| %s | %s | %.3f (%.3f-%.3f) |\n", title, backend, all[int((NR + 1) / 2)], all[1], all[NR]
    }' "$work/ratios"
    if awk -v most="$1" '{ all[NR] = $1 } END { exit !(all[int((NR + 1) / 2)] > most) }' "$work/ratios"; then
        echo "monitor-cost: more than $1" >&2
        late=1
    fi
}

"$bin/pmfs" mkfs --size 128M "$work/pool" >/dev/null
mkdir "$work/at"
echo '| work | backend | CPU time by that without a monitor |'
echo '|---|---|---|'
row 1.02 auto mapped 'stores to a mapped file'
row 1.05 auto other 'a program without persistent memory'
row 1.10 engine calls 'writes of 64 bytes by calls'
row 1.05 engine other 'a program without persistent memory'
exit "$late"
