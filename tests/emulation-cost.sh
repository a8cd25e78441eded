#!/usr/bin/env bash
# Instructions of reads and writes where no medium is emulated, counted by callgrind: emulation-cost.sh [REVISION].
#
# The same accesses run with this tree's `pmem` and with that of REVISION, the last one before devices were emulated. A row
# with more instructions than there fails. Beside them stands this tree without the question whether something observes
# accesses: the rest is the price of emulation that is off. Copies of instructions by the microcode count once.
set -euo pipefail
cd "$(dirname "$0")/.."
# "Emulate modelled devices" came behind it.
revision=${1:-4c2017fa961f51f61d0b6d851170189120e29f98^}
few=1000 many=3000
# A question is a load, a comparison and a branch, and the registers that the compiler keeps for the other way.
question_max=10

skip() {
    echo "skipped: $*"
    exit 77
}
command -v valgrind >/dev/null || skip "valgrind is missing (apt-get install valgrind)"
git rev-parse --verify --quiet "$revision^{commit}" >/dev/null || skip "there is no revision $revision here"

work=$(mktemp -d "${TMPDIR:-/tmp}/emulation-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# build NAME: a program that has the `pmem` of the tree at $work/NAME.
build() {
    mkdir -p "$work/$1-program"
    cp tests/cost/accesses.rs "$work/$1-program/main.rs"
    cp "$work/$1/Cargo.lock" "$work/$1-program/"
    cat >"$work/$1-program/Cargo.toml" <<TOML
[package]
name = "accesses"
version = "0.0.0"
edition = "2024"
[workspace]
[[bin]]
name = "accesses"
path = "main.rs"
[dependencies]
pmem = { path = "../$1/crates/pmem" }
TOML
    (cd "$work/$1-program" && CARGO_TARGET_DIR=$work/$1-target cargo build --quiet --release) || exit 1
}

# of NAME KIND COUNT: instructions of a run.
of() {
    # callgrind can't keep as much address space as a mapping asks for where there is no limit.
    (ulimit -v 33554432 && exec valgrind --tool=callgrind --callgrind-out-file="$work/out" \
        "$work/$1-target/release/accesses" "$2" "$3") >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/log"
}

# each NAME KIND: thousandths of an instruction for an access.
each() {
    local base more
    base=$(of "$1" "$2" $few)
    more=$(of "$1" "$2" $many)
    echo $(((more - base) * 1000 / (many - few)))
}

mkdir "$work/before" "$work/now" "$work/unasked"
git archive "$revision" | tar -x -C "$work/before"
git ls-files -z | xargs -0 cp --parents -t "$work/now"
cp -r "$work/now/." "$work/unasked/"
active=$work/unasked/crates/pmem/src/processes/active.rs
sed -i 's/^    ACTIVE.load(Ordering::Relaxed)$/    0/' "$active"
if cmp -s "$active" crates/pmem/src/processes/active.rs; then
    echo "emulation-cost: the question is not where it was: $active" >&2
    exit 1
fi
for tree in before now unasked; do
    build $tree
done

late=0
printf '| %-42s | before devices | now | unasked |\n|---|---|---|---|\n' "access, no medium emulated"
row() {
    local before now unasked
    before=$(each before "$1") now=$(each now "$1") unasked=$(each unasked "$1")
    awk -v title="$2" -v before="$before" -v now="$now" -v unasked="$unasked" \
        'BEGIN { printf "| %-42s | %.1f | %.1f | %.1f |\n", title, before / 1000, now / 1000, unasked / 1000 }'
    # A tenth of an instruction is the allocator's.
    if [ $((now - before)) -gt 100 ] || [ $((now - unasked)) -gt $((question_max * 1000)) ]; then
        echo "emulation-cost: $1: too many" >&2
        late=1
    fi
}
row load 'load of a word'
row read 'load of eight words'
row copy-64 'copy of 64 B out'
row copy-4096 'copy of 4 KiB out'
row store 'store of a word'
row stream-64 'store of 64 B past the caches'
row stream-4096 'store of 4 KiB past the caches'
row stream-100 'store of 100 B, ends not in whole lines'
row zero-4096 'zeros of 4 KiB'
row flush-64 'store of 64 B and flush'
row flush-1024 'store of 1 KiB and flush'
row fence 'fence'
exit "$late"
