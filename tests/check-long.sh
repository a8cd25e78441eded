#!/bin/bash
# `make check-long`: the long campaigns, each with a table line at the end. PMFS_LONG_ONLY=NAME,NAME: those alone.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

logs=$(mktemp -d "${TMPDIR:-/tmp}/pmfs-long.XXXXXX") || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM HUP

rows=() bad=0

# campaign NAME FIGURE COMMAND...: FIGURE is a pattern of the lines that say what was done.
campaign() {
    local name=$1 figure=$2 log="$logs/log" since=$SECONDS result=ok said
    shift 2
    [[ ,${PMFS_LONG_ONLY:-$name}, == *",$name,"* ]] || return 0
    echo "== $name"
    if ! "$@" </dev/null 2>&1 | tee "$log"; then
        result=FAILED
        bad=1
    fi
    said=$(grep -aE "$figure" "$log" | sed 's/^.*PMFS_/PMFS_/' | paste -sd ';' | sed 's/;\([^ ]\)/; \1/g')
    rows+=("$name|$result|$((SECONDS - since)) s|${said:-no figure}")
}

campaign "model" '^[0-9]+ operations in' \
    env PMFS_MODEL_OPS="${PMFS_MODEL_OPS:-10000000}" \
    PMFS_MODEL_SEED="${PMFS_MODEL_SEED:-$(date +%s)}" cargo test --release -p pmfs --test model -- --nocapture
campaign "ageing" '^ageing: ' \
    env PMFS_AGEING_ROUNDS="${PMFS_AGEING_ROUNDS:-100}" PMFS_AGEING_MIB="${PMFS_AGEING_MIB:-4096}" \
    cargo test --release -p pmfs --test ageing -- --nocapture --test-threads=1
campaign "kill -9" '^[0-9]+ kills, 0|PMFS_KILLS_SEED=' \
    env PMFS_KILLS="${PMFS_KILLS:-300}" cargo test --release -p pmfs-cli --test kills -- --nocapture
campaign "torture" '^[0-9]+ kills|^release |PMFS_TORTURE_SEED=' \
    env PMFS_TORTURE_SECONDS="${PMFS_TORTURE_SECONDS:-600}" \
    cargo test --release -p pmfs-cli --test torture -- --nocapture
campaign "heap torture" '^[0-9]+ kills|PMLIB_TORTURE_SEED=' \
    env PMLIB_TORTURE_SECONDS="${PMLIB_TORTURE_SECONDS:-600}" \
    cargo test --release -p pmlib --test processes -- --nocapture killed_processes
campaign "threads" '^[0-9]+ (threads cancelled|changes of user)' \
    env PMFS_CANCELS="${PMFS_CANCELS:-10000}" PMFS_SETUIDS="${PMFS_SETUIDS:-500}" PMFS_RUN_SECONDS=1800 \
    bash -c 'cargo build -p pmfs-shim --release && cargo test --release -p pmfs-cli --test run -- --nocapture threads_that_are_cancelled users_that_come_and_go'
campaign "heap model" '^(test result|PMLIB_MODEL_SEED=)' \
    env PMLIB_MODEL_OPS="${PMLIB_MODEL_OPS:-1000000}" PMLIB_MODEL_SEED="${PMLIB_MODEL_SEED:-$(date +%s)}" \
    cargo test --release -p pmlib --test model -- --nocapture
campaign "containers" '^([0-9]+ calls on|PMLIB_MODEL_SEED=)' \
    env PMLIB_MODEL_OPS="${PMLIB_MODEL_OPS:-10000000}" PMLIB_MODEL_SEED="${PMLIB_MODEL_SEED:-$(date +%s)}" \
    cargo test --release -p pmlib --test container_model -- --nocapture
campaign "kv model" '^([0-9]+ calls on|PMKV_MODEL_SEED=)' \
    env PMKV_MODEL_OPS="${PMKV_MODEL_OPS:-10000000}" PMKV_MODEL_SEED="${PMKV_MODEL_SEED:-$(date +%s)}" \
    cargo test --release -p pmkv --test hash -- --nocapture
campaign "kv faces" '^[0-9]+ (kills|bits)|PMKV_FACES_SEED=' \
    env PMKV_FACES_SECONDS="${PMKV_FACES_SECONDS:-600}" bash tests/kv-faces.sh --release
campaign "crafted engines" '^([0-9]+ heaps crafted|PMKV_CRAFTED_SEED=)' \
    env PMKV_CRAFTED="${PMKV_CRAFTED:-100000}" PMKV_CRAFTED_SEED="${PMKV_CRAFTED_SEED:-$(date +%s)}" \
    cargo test --release -p pmkv --test crafted -- --nocapture
campaign "heap cost" '^[|] .*[0-9]' \
    bash -c 'sh tests/bootstrap.sh costs && cargo build --release -p pmbench && bash tests/heap-cost.sh'
campaign "emulation that is off" '^[|] .*[0-9]' \
    bash -c 'sh tests/bootstrap.sh costs && bash tests/emulation-cost.sh'
campaign "kv cost" '^[|] .*[0-9]' \
    bash -c 'sh tests/bootstrap.sh costs && cargo build --release -p pmkv --example calls && bash tests/kv-cost.sh "${CARGO_TARGET_DIR:-target}/release/examples/calls"'
campaign "histories" '^([0-9]+ histories|YAT_HISTORY_SEED=)' \
    env YAT_HISTORIES="${YAT_HISTORIES:-100000}" YAT_HISTORY_SEED="${YAT_HISTORY_SEED:-$(date +%s)}" \
    cargo test --release -p yat --test heap_histories -- --nocapture some_order
campaign "refused types" '^test result' \
    cargo test -p pmlib --test refused -- --ignored
campaign "heap flips" '^[0-9]+ flips' \
    env PMLIB_FLIPS_ONE_IN="${PMLIB_FLIPS_ONE_IN:-1}" cargo test --release -p pmlib --test every_byte -- --nocapture
campaign "ASan" '^test result' bash tests/asan.sh
campaign "Miri" '^test result' bash tests/miri.sh
campaign "crash states" '^(Atomic|Ordered|Looking|Waiting): ' \
    env YAT_HEAP_ONE_IN=1 YAT_TABLES_ONE_IN=1 YAT_TREES_ONE_IN=1 cargo test --release -p yat -- --nocapture --test-threads=1
campaign "yat" '^[0-9]+ (workloads|mutants)' env PMFS_YAT_MINUTES="${PMFS_YAT_MINUTES:-0}" bash tests/yat.sh
campaign "planted bugs" '^test result' \
    env YAT_BUGS_ONE_IN=1 cargo test --release -p yat --features planted-bugs --test heap_planted --test kv_planted -- --nocapture
campaign "bit flips" '^[0-9]+ bits flipped' \
    env PMFS_FLIPS="${PMFS_FLIPS:-30000}" PMFS_FLIPS_SEED="${PMFS_FLIPS_SEED:-$(date +%s)}" \
    cargo test --release -p yat --test flips -- --nocapture
campaign "crafted pools" '^[0-9]+ pools crafted|PMFS_CRAFTED_SEED=' \
    env PMFS_CRAFTED="${PMFS_CRAFTED:-20000}" PMFS_CRAFTED_SEED="${PMFS_CRAFTED_SEED:-$(date +%s)}" \
    cargo test --release -p yat --test crafted -- --nocapture
campaign "every face" '^[0-9]+ pools crafted|PMFS_CRAFTED_SEED=' \
    env PMFS_CRAFTED_FACES="${PMFS_CRAFTED_FACES:-300}" PMFS_CRAFTED_SEED="${PMFS_CRAFTED_SEED:-$(date +%s)}" \
    bash -c 'cargo build -p pmfs-shim --release && cargo test --release -p pmfs-cli --test crafted -- --nocapture'
campaign "fuzzing" '^fuzz: ' bash tests/fuzz.sh
campaign "10 M inodes" '^(mount|check) ' \
    cargo run --release -p pmbench -- recovery --files 10000000 --mib 39000 --sparse 100 --rounds 3
campaign "10 M shared leaves" '^(mount after a crash|check) ' \
    cargo run --release -p pmbench -- --rounds 5 recovery --files 4883 --mib 39064 --clones 488
campaign "clones" '^[|] .*[0-9]' bash -c 'sh tests/bootstrap.sh media && make build && bash tests/clone-cost.sh'
campaign "suites" '^suites, ' \
    bash -c 'sh tests/bootstrap.sh suites && make build && bash tests/suites.sh long'
campaign "programs" '^programs.*passed' \
    bash -c 'sh tests/bootstrap.sh programs && make build && bash tests/programs.sh long && bash tests/programs.sh run long'
campaign "CPython" '^CPython.s tests: ' bash -c 'make build && bash tests/cpython.sh'
campaign "damaged inputs of the model" '^test a_million_of_each_kind \.\.\. ok' \
    cargo test --release -p pmep-cli --test mutants -- --ignored a_million_of_each_kind
campaign "monitor" '^(seq|random|zipf:[0-9.]+): [0-9]+ of' \
    env TMPDIR=/dev/shm PMMON_MATRIX_SIZE="${PMMON_MATRIX_SIZE:-3M}" PMMON_MATRIX_SECONDS="${PMMON_MATRIX_SECONDS:-20}" \
    cargo test --release -p pmmon-cli --test monitor -- --ignored --nocapture the_whole_matrix
campaign "intervals" '^[|] .* %' \
    env PMMON_COVERAGE_RUNS="${PMMON_COVERAGE_RUNS:-1000}" cargo test --release -p pmmon --test coverage -- --nocapture
campaign "two decoders" '^([0-9]+ encodings by|PMMON_SEED=)' \
    env PMMON_ENCODINGS="${PMMON_ENCODINGS:-1000000}" PMMON_SEED="${PMMON_SEED:-$(date +%s)}" \
    cargo test --release -p pmmon --test sizes -- --nocapture
campaign "monitor cost" '^[|] .*[0-9]' \
    bash -c 'cargo build --release -p pmfs-cli -p pmfs-shim -p pmmon-cli && bash tests/monitor-cost.sh'
campaign "postgres" '^(ok|FAIL|skip) postgres' \
    bash -c 'sh tests/bootstrap.sh programs && make build && bash tests/postgres.sh'
campaign "6.1 kernel" '^(guest: Linux|suites, |programs under)' \
    bash -c 'sh tests/bootstrap.sh suites guest && bash tests/guest.sh'
campaign "cpusets" '^(guest: Linux|test result: )' \
    bash -c 'sh tests/bootstrap.sh guest
        built=$(cargo test --no-run -p pmmon-cli --test monitor 2>&1) || { echo "$built" && exit 1; }
        program=$(sed -n "s/.*Executable.*(\(.*\))$/\1/p" <<<"$built")
        bash tests/guest.sh env PMMON_PIN_BACKEND=watch "$program" threaded:: pages:: --test-threads=1 --show-output'
campaign "heaps" '^heap(s| media) of ' \
    bash -c 'sh tests/bootstrap.sh media && make build && export PMKV_MIB=1024 && bash tests/heaps.sh && bash tests/heap-media.sh'
campaign "real media" '^(media, |guest: Linux)' \
    bash -c 'sh tests/bootstrap.sh media && make build && bash tests/media.sh'

echo
printf '%-14s %-7s %8s  %s\n' campaign result time figure
for row in "${rows[@]}"; do
    IFS='|' read -r name result time figure <<<"$row"
    printf '%-14s %-7s %8s  %s\n' "$name" "$result" "$time" "$figure"
done
exit "$bad"
