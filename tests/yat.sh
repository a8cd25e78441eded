#!/bin/bash
# `make yat`: the crash-state checker's campaigns in full, each with a table line at the end. PMFS_YAT_MINUTES: how long
# workloads of three calls are tried (120; 0: not at all). docs/YAT.md says what each of them is.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
target=${CARGO_TARGET_DIR:-$PWD/target}
minutes=${PMFS_YAT_MINUTES:-120}
cargo build --release -p yat || exit 1

rows=() bad=0
log=$(mktemp "${TMPDIR:-/tmp}/pmfs-yat.XXXXXX") || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

# campaign NAME COMMAND...: its last line says what was done.
campaign() {
    local name=$1 since=$SECONDS result=ok
    shift
    echo "== $name"
    if ! "$@" </dev/null 2>&1 | tee "$log"; then
        result=FAILED
        bad=1
    fi
    rows+=("$name|$result|$((SECONDS - since)) s|$(tail -n 1 "$log")")
}

yat=$target/release/yat
campaign "power: kinds" "$yat" power --set kinds
campaign "power: trees" "$yat" power --set trees
campaign "power: one call" "$yat" power --set ace1
campaign "power: two calls" "$yat" power --set ace2
campaign "power: more calls" "$yat" power --set wide2 --one-in 3
campaign "crashes in recovery" "$yat" power --set ace1 --depth 2
campaign "pairs in two lanes" "$yat" pairs
campaign "at random" "$yat" fuzz --workloads 2000 --seed "$(date +%s)"
campaign "pairs at random" "$yat" fuzz --pairs --workloads 1000 --seed "$(date +%s)"
campaign "kill: kinds" "$yat" kill --set kinds
campaign "kill: trees" "$yat" kill --set trees
campaign "kill: one call" "$yat" kill --set ace1
campaign "kill: two calls" "$yat" kill --set ace2
mkdir -p "$target/yat"
campaign "mutants" "$yat" mutants --one-in 61 --write "$target/yat/MUTANTS.md"
[ "$minutes" = 0 ] || campaign "power: three calls" "$yat" power --set ace3 --beyond ace2 --minutes "$minutes" --seed "$(date +%s)"
# Last: its build replaces the binary.
campaign "planted bugs" cargo run --release -p yat --features planted-bugs -- bugs --write "$target/yat/PLANTED.md"

echo
printf '%-20s %-7s %8s  %s\n' campaign result time figure
for row in "${rows[@]}"; do
    IFS='|' read -r name result time figure <<<"$row"
    printf '%-20s %-7s %8s  %s\n' "$name" "$result" "$time" "$figure"
done
exit "$bad"
