#!/bin/bash
# `make test`: everything that must hold. Counts and correctness, no wall-clock thresholds.
#
# Each stage's output goes to a file, which is shown if the stage fails. What was skipped is listed with its
# reason; a skip that tests/allowed-skips does not name fails the run. The last line is the result.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TERM_COLOR=never

logs=$(mktemp -d "${TMPDIR:-/tmp}/pmfs-test.XXXXXX") || exit 1
media=
trap '[ -z "$media" ] || kill "$media"; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM HUP

passed=0 failed=0 skipped=0
skips=() failures=()

note() { printf '%-58s %s\n' "$1" "$2"; }

# stage NAME COMMAND...: passes if the command does.
stage() {
    local name=$1 log="$logs/log" since=$SECONDS
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        note "$name" "ok ($((SECONDS - since)) s)"
    else
        failed=$((failed + 1))
        failures+=("$name")
        note "$name" "FAILED"
        tail -n 100 "$log"
    fi
}

# counted NAME COMMAND...: the command prints a line for each test: cargo's, or ours (ok, FAIL, skip).
counted() {
    local name=$1 log="$logs/log" since=$SECONDS code=0 ok=0 bad=0 left=0 kind rest
    shift
    "$@" >"$log" 2>&1 </dev/null || code=$?
    awk -f tests/count.awk "$log" >"$logs/results"
    while read -r kind rest; do
        case $kind in
        pass) ok=$((ok + 1)) ;;
        fail) bad=$((bad + 1)) failures+=("$name: $rest") ;;
        skip) left=$((left + 1)) skips+=("$rest") ;;
        esac
    done <"$logs/results"
    if [ "$code" != 0 ] && [ "$bad" = 0 ]; then
        bad=1
        failures+=("$name: exit code $code")
    elif [ "$((ok + bad + left))" = 0 ]; then
        bad=1
        failures+=("$name: no test was run")
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
    note "$name" "$ok passed, $bad failed, $left skipped ($((SECONDS - since)) s)"
    # What campaigns say of themselves.
    grep -E '^[0-9]+ kills|^release |PM(FS|KV)_[A-Z_]*SEED=|^(Atomic|Ordered): [0-9]+|^[0-9]+ (operations in|workloads|mutants)|YAT_SEED=' "$log" | sed 's/^/    /'
    slow_in
    if [ "$bad" != 0 ]; then
        tail -n 60 "$log"
        for rest in "${failures[@]}"; do
            said_by "${rest#"$name: "}"
        done
    fi
}

# Cargo's tests that took 10 s or more: where the time goes.
slow_in() {
    awk '/^ +Running / { name = $2 == "unittests" ? $NF : $2 }
         /^ +Doc-tests / { name = "examples of " $2 }
         /^test result: .*finished in/ { sub(/s$/, "", $NF); if ($NF + 0 >= 10) printf "    %5.0f s  %s\n", $NF, name }' "$log"
}

# What a failed test of cargo's has said, wherever it stands in the log.
said_by() {
    awk -v head="---- $1 stdout ----" '/^---- .* stdout ----$/ { on = $0 == head } on' "$log" | head -n 80
}

# Runs a command with a /dev/fuse that is open to all, where the machine's is closed: in a mount namespace of
# its own, so that the machine stays as it is. Without it the tests that mount as nobody would be skipped.
with_open_fuse() {
    # The node stays there to the end: a mount of a file that is gone can't be mounted again.
    local open='d=$(mktemp -d) && mount -t tmpfs tmpfs "$d" && mknod -m 666 "$d/fuse" c 10 229 &&
        mount --bind "$d/fuse" /dev/fuse
        "$@"
        code=$?
        umount -l "$d"; rmdir "$d"; exit $code'
    if [ "$(id -u)" = 0 ] && [ "$(stat -c %a /dev/fuse 2>/dev/null)" != 666 ] && unshare -m true 2>/dev/null; then
        unshare -m bash -c "$open" bash "$@"
    else
        "$@"
    fi
}

# Virtual machines with emulated NVDIMMs, whose power is cut: beside stages that wait more than they work.
begin_media() {
    env PMFS="$target/debug/pmfs" bash -c 'sh tests/bootstrap.sh media && exec bash tests/media.sh' >"$logs/media" 2>&1 </dev/null &
    media=$!
}

media_said() {
    local code
    wait "$media"
    code=$?
    media=
    cat "$logs/media"
    return "$code"
}

is_allowed() {
    local name=$1 allowed
    while IFS='|' read -r allowed _; do
        allowed=${allowed%"${allowed##*[![:space:]]}"}
        case $allowed in '' | '#'*) continue ;; esac
        # A pattern, so not quoted.
        # shellcheck disable=SC2254
        case $name in $allowed) return 0 ;; esac
    done <tests/allowed-skips
    return 1
}

bash -c 'exec sh tests/bootstrap.sh suites' || exit 1
stage "format" cargo fmt --all --check
stage "lint" cargo clippy --all-targets -- -D warnings
stage "lint: outside the default members" cargo clippy -p yat -p pmbench -p pmkv-peers -p pmkv-peers-sys -p pmkv-python -p pmmon -p pmmon-cli -p pmmon-sys --all-targets -- -D warnings
stage "lint: planted bugs" cargo clippy -p yat --features planted-bugs --all-targets -- -D warnings
counted "tests" with_open_fuse cargo test --no-fail-fast -- --show-output
# What tests alone do not leave where programs look for it: the preloaded library.
stage "build" cargo build
counted "benchmarks, monitor" cargo test --no-fail-fast -p pmbench -p pmkv-peers -p pmkv-peers-sys -p pmmon -p pmmon-cli -p pmmon-sys -- --show-output
begin_media
counted "crash states" cargo test --no-fail-fast -p yat -- --show-output
counted "planted bugs" cargo test --no-fail-fast -p yat --features planted-bugs --test planted --test heap_planted --test kv_planted -- --show-output
counted "installing" env PMFS="$target/debug/pmfs" bash tests/install.sh
counted "Python" bash tests/python.sh
counted "Python's wheel" bash tests/wheel.sh
counted "every face of the engines" bash tests/kv-faces.sh
counted "heaps" env PMFS="$target/debug/pmfs" bash tests/heaps.sh
counted "the tutorial" env PMFS="$target/debug/pmfs" bash tests/tutorial.sh
counted "suites on the mount" env PMFS="$target/debug/pmfs" bash tests/suites.sh quick
counted "programs on the mount" env PMFS="$target/debug/pmfs" bash tests/programs.sh
counted "suites below pmfs run" env PMFS="$target/debug/pmfs" bash tests/suites.sh quick root run
counted "programs below pmfs run" env PMFS="$target/debug/pmfs" bash tests/programs.sh run
counted "programs without a mount" env PMFS="$target/debug/pmfs" bash tests/programs.sh run mountless
counted "programs without a mount, as nobody" env PMFS="$target/debug/pmfs" bash tests/programs.sh run mountless user
counted "media whose power is cut" media_said

for skip in "${skips[@]}"; do
    if is_allowed "${skip%%: *}"; then
        echo "skipped: $skip"
    else
        echo "skipped, and not in tests/allowed-skips: $skip"
        failed=$((failed + 1))
        failures+=("skip of ${skip%%: *}")
    fi
done
for failure in "${failures[@]}"; do
    echo "failed: $failure"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
