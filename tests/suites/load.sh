# Benchmarks as tests: they have to run to their end without an error. Sourced by ../suites.sh.

more() { if [ "$mode" = long ]; then echo "$2"; else echo "$1"; fi; }

postmark_run() {
    printf 'set location %s\nset number %s\nset transactions %s\nrun\nquit\n' \
        "$PWD" "$(more 500 5000)" "$(more 1000 20000)" | postmark >"$out/postmark" 2>&1
    cat "$out/postmark"
    ! grep -qi error "$out/postmark" && grep -q 'Transactions:\|transactions' "$out/postmark"
}

bonnie_run() {
    local user=()
    is_root && user=(-u root)
    bonnie++ "${user[@]}" -d "$PWD" -f -s "$(more 64M 512M)" -r "$(more 32M 256M)" -n "$(more 1 8)" -q
}

fio_verify() {
    fio --name=verify --directory="$PWD" --ioengine="$1" --rw=randwrite --bs=4k --size="$(more 8M 64M)" \
        --numjobs=2 --verify=crc32c --verify_fatal=1 --fsync=32 --minimal
}

db_bench_run() {
    local count
    count=$(more 2000 20000)
    db_bench --db="$PWD/db" --num="$count" --benchmarks=fillseq,readrandom,overwrite,fillsync \
        >"$out/db_bench" 2>&1 || return
    cat "$out/db_bench"
    ! grep -qi 'corruption\|IO error' "$out/db_bench"
}

# stress-ng's file system class, stressor by stressor. It ends with 3 where it left one out that this kernel
# doesn't have (binderfs, verity).
stress_run() {
    stress-ng --class filesystem --sequential 1 --timeout "$(more 1 5)s" --temp-path "$PWD" 2>&1 | tee "$out/stress"
    local code=${PIPESTATUS[0]}
    grep -E 'stress-ng: (fail|error)' "$out/stress" && return 1
    [ "$code" = 0 ] || [ "$code" = 3 ]
}

load_suites() {
    check "fs_mark" fs_mark fs_mark -n "$(more 500 5000)" -s 4096 -t 2 -S 1 -d "$mnt/at"
    check "dbench" dbench dbench -D "$mnt/at" -t "$(more 2 20)" 2
    check "postmark" postmark postmark_run
    check "bonnie++" bonnie++ bonnie_run
    for engine in psync libaio mmap; do
        check "fio verify, $engine" fio fio_verify "$engine"
    done
    check "RocksDB db_bench" db_bench db_bench_run
    check "stress-ng, class filesystem" stress-ng stress_run
}
