#!/bin/bash
# `make fuzz`: libFuzzer on damaged pools for $PMFS_FUZZ_SECONDS (an hour). It starts from crates/yat/corpus.txt and
# keeps what it finds in target/fuzz; a crash is written there too, and its name printed. Needs a C++ compiler;
# the coverage that guides it comes from stable rustc's own flags.
#
# `fuzz.sh corpus`: writes crates/yat/corpus.txt anew, with the fewest inputs that cover what was found.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
target=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
seconds=${PMFS_FUZZ_SECONDS:-3600}
host=$(rustc -vV | awk '/^host:/ { print $2 }')
if ! command -v c++ >/dev/null; then
    echo "skip fuzz: c++ is missing (sh tests/bootstrap.sh fuzz)"
    exit 0
fi
mkdir -p "$target/corpus" "$target/crashes"
grep -v '^#' crates/yat/corpus.txt | while read -r line; do
    base64 -d <<<"$line" >"$target/corpus/$(sha1sum <<<"$line" | cut -c 1-40)"
done

counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
counters+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
counters+=" -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
# The versions that the workspace is tested with; cargo adds libfuzzer's.
cp Cargo.lock fuzz/Cargo.lock
RUSTFLAGS=$counters CARGO_TARGET_DIR=$target/build \
    cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target "$host" || exit 1
if [ "${1:-}" = corpus ]; then
    rm -rf "$target/fewest" && mkdir "$target/fewest"
    "$target/build/$host/release/pool" -merge=1 "$target/fewest" "$target/corpus" >"$target/log" 2>&1 || exit 1
    {
        echo "# Inputs of the fuzzer (tests/fuzz.sh), one a line, base64; see crates/yat/src/files/damage.rs."
        for input in "$target/fewest"/*; do
            base64 -w 0 "$input"
            echo
        done | LC_ALL=C sort -u
    } >crates/yat/corpus.txt
    exit 0
fi
since=$SECONDS
"$target/build/$host/release/pool" -max_total_time="$seconds" -timeout=60 -max_len=512 -print_final_stats=1 \
    -artifact_prefix="$target/crashes/" "$target/corpus" 2>&1 | tee "$target/log" |
    grep -aE 'panicked|ERROR|SUMMARY|BINGO|^stat::|Test unit|pulse' || true
if ls "$target/crashes" | grep -q .; then
    echo "FAIL fuzz: inputs that crash are in $target/crashes"
    exit 1
fi
grep -q 'stat::number_of_executed_units' "$target/log" || exit 1
echo "fuzz: $((SECONDS - since)) s, $(awk '/number_of_executed_units/ { print $2 }' "$target/log") inputs, none crashed"
