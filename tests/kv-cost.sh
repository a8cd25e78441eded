#!/usr/bin/env bash
# Instructions of a key-value engine's calls: what a run of more calls has more, by callgrind.
# kv-cost.sh CALLS, the release build of the example `calls` of crates/pmkv. A bound that is passed
# is an error.
set -eu
calls=$1
command -v valgrind >/dev/null || {
    echo "skipped: valgrind is missing (apt-get install valgrind)" >&2
    exit 77
}
work=$(mktemp -d /dev/shm/kv-cost.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
few=1000 many=3000

# collected OPERATION COUNT: instructions of a run.
collected() {
    # callgrind can't keep as much address space as a heap asks for where there is no limit.
    (ulimit -v 33554432 && exec valgrind --tool=callgrind --callgrind-out-file="$work/out" "$calls" "$1" "$2") 2>"$work/log" || {
        cat "$work/log" >&2
        exit 1
    }
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/log"
}

late=0
# row BOUND OPERATION TITLE
row() {
    local base more each
    base=$(collected "$2" "$few")
    more=$(collected "$2" "$many")
    each=$(((more - base) / (many - few)))
    printf '| %s | %d |\n' "$3" "$each"
    if [ "$each" -gt "$1" ]; then
        echo "kv-cost: more than $1" >&2
        late=1
    fi
}

echo '| call, key of 16 and value of 64 bytes | instructions |'
echo '|---|---|'
row 2390 put-new 'put of a new key'
row 2690 put-over 'put over an old value'
row 950 get 'get'
row 780 get-missing 'get of a key that is not there'
row 1620 delete 'delete'
row 3850 tree-put-new 'tree: put of a new key, with splits'
row 3330 tree-put-over 'tree: put over an old value'
row 1500 tree-get 'tree: get'
row 1860 tree-get-missing 'tree: get of a key that is not there'
row 2230 tree-delete 'tree: delete'
row 56800 tree-scan-100 'tree: walk over 100 keys from one on'
exit "$late"
