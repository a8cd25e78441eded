#!/bin/bash
# `make compare-cost BASE=REVISION`: what calls cost here, beside another revision of this tree.
#
# The same inputs run in both builds. Compared are:
#   - instructions of the thirteen rows of docs/PERFORMANCE.md, by single steps (tests/cost/steps.c), as calls of the
#     C library and below `pmfs run` with and without a mount; a row fails above BOUND (1.02) times the other revision;
#   - page faults of a program's start below `pmfs run`: one more is allowed;
#   - the table of logged bytes, barriers, lines and windows in the docs, which has to be identical, and true;
#   - pools: what either build makes, closes or leaves behind in a crash is the same files to the other one.
#
# BASE may also be the directory of a tree that is built. A revision is built in a worktree below the target directory,
# which is kept for the next time; `make clean` removes it.

set -euo pipefail
cd "$(dirname "$0")/.."
bound=${BOUND:-1.02}
here=$PWD/target
case ${CARGO_TARGET_DIR:-} in
/*) here=$CARGO_TARGET_DIR ;;
?*) here=$PWD/$CARGO_TARGET_DIR ;;
esac
kept=$here/compare-cost

if [ -z "${BASE:-}" ]; then
    echo "compare-cost: with which revision? make compare-cost BASE=main" >&2
    exit 2
fi
if [ -f "$BASE/Cargo.toml" ]; then
    base_tree=$BASE base=$BASE/target name=$BASE
else
    revision=$(git rev-parse --verify --quiet "$BASE^{commit}") || {
        echo "compare-cost: there is no revision $BASE" >&2
        exit 2
    }
    base_tree=$kept/tree base=$kept/target name=$BASE
    git worktree prune
    if [ -e "$base_tree/.git" ]; then
        git -C "$base_tree" checkout --quiet --force --detach "$revision"
    else
        mkdir -p "$kept"
        git worktree add --quiet --force --detach "$base_tree" "$revision"
    fi
    echo "building $BASE in $base_tree"
    MAKEFLAGS="" CARGO_TARGET_DIR=$base make --no-print-directory -C "$base_tree" build
fi

scratch=$(mktemp -d /dev/shm/pmfs-cost.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
steps=$scratch/steps
cc -std=gnu11 -O1 -Wall -Wextra -Werror -I crates/pmfs-capi/include tests/cost/steps.c -o "$steps" -ldl
failures=$scratch/failures
: >"$failures"

# Modes: each counts in a pool that is new. Both builds are run by the same names, as the length of a path moves what lies
# behind it in a program's memory, and so counts by a few instructions.
bin=$scratch/bin
library() { "$steps" library "$bin/libpmfs_c.so" "$scratch/pool"; }
below_run() { "$bin/pmfs" run --pool "$scratch/pool" --at "$scratch/at" -o flush=always,noatime "$@"; }
mounted() { below_run -- "$steps" system "$scratch/at"; }
mountless() { below_run --no-mount -- "$steps" system "$scratch/at"; }
# Of several runs too, as what a start finds mapped differs by a page or two from run to run.
start() { for _ in 1 2 3 4 5; do below_run -- "$steps" start /bin/true; done | sort -t $'\t' -k 2n | head -n 1; }

# least COMMAND...: each row's smallest count of three runs. On a busy machine a run at times counts some hundred
# instructions more in one row, in either build.
least() {
    local run
    for run in 1 2 3; do
        cp --sparse=always "$scratch/prepared" "$scratch/pool"
        "$@" || return
    done | awk -F '\t' '
        !($1 in count) { name[++rows] = $1; count[$1] = $2 }
        $2 < count[$1] { count[$1] = $2 }
        END { for (row = 1; row <= rows; row++) print name[row] "\t" count[name[row]] }'
}

# compare TITLE MODE ALLOWED MORE: each row of a mode in both builds; more than ALLOWED times as much and MORE fails.
compare() {
    local title=$1 mode=$2 build
    for build in base here; do
        mkdir -p "$bin" "$scratch/at"
        cp "${!build}"/release/{pmfs,libpmfs_c.so,libpmfs_shim.so} "$bin"
        least "$mode" >"$scratch/$build"
    done
    paste "$scratch/base" "$scratch/here" | awk -F '\t' -v title="$title" -v times="$3" -v more="$4" -v failures="$failures" '
        BEGIN { printf "%-34s %10s %10s %7s\n", title, "base", "now", "ratio" }
        {
            late = $4 > $2 * times + more
            printf "  %-32s %10.1f %10.1f %7.3f%s\n", $1, $2, $4, $4 / $2, late ? "  too many" : ""
            if (late || $1 != $3 || NF != 4)
                print title ": " $1 >>failures
        }'
}

# table TREE: what the docs say that each call logs, flushes and waits for.
table() { find "$1/docs" -name '*.md' -exec sed -n '/^<!-- costs: begin -->$/,/^<!-- costs: end -->$/p' {} +; }

# files TARGET POOL INTO: all that a build finds in a copy of a pool: names, attributes and bytes.
files() {
    local pmfs=$1/release/pmfs
    rm -rf "$scratch/copy" "$3"
    cp --sparse=always "$2" "$scratch/copy"
    mkdir "$3"
    "$pmfs" fsck "$scratch/copy" >"$scratch/fsck" || {
        cat "$scratch/fsck"
        return 1
    }
    "$pmfs" ls -lR "$scratch/copy" >"$3/list"
    "$pmfs" get -r "$scratch/copy" / "$3/files" >"$scratch/said"
}

# exchange WHAT POOL: both builds find the same in a pool.
exchange() {
    if files "$base" "$2" "$scratch/theirs" && files "$here" "$2" "$scratch/ours" &&
        diff -r "$scratch/theirs" "$scratch/ours"; then
        echo "  $1: the same to both builds"
    else
        echo "$1: not the same to both builds" | tee -a "$failures"
    fi
}

echo "$name is base; fails above ${bound} times as many instructions"
"$base/release/pmfs" mkfs --size 256M "$scratch/prepared" >"$scratch/mkfs"
"$steps" prepare "$base/release/libpmfs_c.so" "$scratch/prepared"
compare "instructions: library" library "$bound" 0
compare "instructions: pmfs run" mounted "$bound" 0
compare "instructions: pmfs run, no mount" mountless "$bound" 0
compare "a start below pmfs run" start 1 1

echo "pools"
for maker in base here; do
    case $maker in base) which=$name ;; here) which="this tree" ;; esac
    made=$scratch/made
    "${!maker}/release/pmfs" mkfs --force --size 256M "$made" >"$scratch/mkfs"
    "$steps" prepare "${!maker}/release/libpmfs_c.so" "$made"
    exchange "made by $which" "$made"
    code=0
    # By a shell of its own, whose word about the kill is not shown.
    bash -c '"$@"; exit $?' crash "$steps" crash "${!maker}/release/libpmfs_c.so" "$made" >"$scratch/said" 2>&1 || code=$?
    if [ "$code" != 137 ]; then
        cat "$scratch/said"
        echo "crash by $which: exit code $code" | tee -a "$failures"
    fi
    exchange "left by $which in a crash" "$made"
    rm "$made"
done

echo "the docs' table of costs"
table "$base_tree" >"$scratch/theirs.md"
table . >"$scratch/ours.md"
if [ -s "$scratch/ours.md" ] && diff "$scratch/theirs.md" "$scratch/ours.md"; then
    echo "  identical"
else
    echo "the docs' table of costs differs" | tee -a "$failures"
fi
if cargo test --quiet -p pmfs --test costs >"$scratch/costs" 2>&1; then
    echo "  true"
else
    cat "$scratch/costs"
    echo "the docs' table of costs is not true" | tee -a "$failures"
fi

if [ -s "$failures" ]; then
    sed 's/^/failed: /' "$failures"
    exit 1
fi
echo "no call costs more"
