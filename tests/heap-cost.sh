#!/usr/bin/env bash
# Instructions of the heap's transactions, counted by callgrind: heap-cost.sh [PMBENCH], the program that `cargo build --release -p
# pmbench` makes. Two runs that differ in the number of transactions alone: what they differ by is theirs. Seconds are noise on a busy
# machine, and these are not. Fails where a row is more than its bound, a tenth above what docs/HEAP.md has.
set -eu
cd "$(dirname "$0")/.."
pmbench=${1:-${CARGO_TARGET_DIR:-target}/release/pmbench}
command -v valgrind >/dev/null || {
    echo "skipped: valgrind is missing (apt-get install valgrind)"
    exit 77
}
work=$(mktemp -d /dev/shm/heap-cost.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
# Rounds of a measurement: one, and two that warm up.
rounds=3 few=200 many=1200

# collected OPERATION COUNT: instructions of a run.
collected() {
    rm -rf "$work/heap"
    mkdir "$work/heap"
    # callgrind can't keep as much address space as a heap asks for where there is no limit.
    (ulimit -v 33554432 && exec valgrind --tool=callgrind --callgrind-out-file="$work/out" "$pmbench" heap --dir "$work/heap" --candidate pmlib --mib 1 \
        --operation "$1" --count "$2" --rounds 1 --json) >"$work/said" 2>"$work/log" || {
        cat "$work/log" >&2
        exit 1
    }
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/log"
}

late=0
# row BOUND OPERATION [TITLE]
row() {
    local base more each
    base=$(collected "$2" "$few")
    more=$(collected "$2" "$many")
    each=$(((more - base) / (rounds * (many - few))))
    printf '| %s | %d |\n' "${3:-$2}" "$each"
    if [ "$each" -gt "$1" ]; then
        echo "heap-cost: more than $1" >&2
        late=1
    fi
}

echo '| transaction | instructions |'
echo '|---|---|'
row 2140 '1 range of 64 B'
row 9550 '10 ranges of 64 B'
row 2460 '1 range, read before'
row 12830 '10 ranges, read before'
row 6910 'free 64 B' 'free 64 B, and alloc and publish 64 B'
exit "$late"
