# The work of the demo, the same on each file system, and how long each part took. Sourced by demo.sh.

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=demo GIT_COMMITTER_NAME=demo
export GIT_AUTHOR_EMAIL=demo@example.org GIT_COMMITTER_EMAIL=demo@example.org

ROLLBACK_TRANSACTIONS=1000
WAL_TRANSACTIONS=4000

declare -A took_ms
steps=(unpack commit clone fsck gc rollback wal)
declare -A step_names=(
    [unpack]="tar x: unpack the tree"
    [commit]="git init, add, commit"
    [clone]="git clone"
    [fsck]="git fsck"
    [gc]="git gc"
    [rollback]="SQLite, rollback journal, $ROLLBACK_TRANSACTIONS commits"
    [wal]="SQLite, WAL, $WAL_TRANSACTIONS commits"
)

declare -A step_places=(
    [pmfs]="on the mount"
    [run]="below pmfs run"
    [tmpfs]="on tmpfs"
    [ext4]="on ext4"
)

# real_tree FILE: a tar of the sources of the crates in Cargo.lock, or of the headers of this machine.
real_tree() {
    local from list=$logs/tree.list
    for from in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        [ -d "$from" ] || continue
        # winapi is there for its import libraries, which are no sources.
        awk -F '"' '/^name/ { name = $2 } /^version/ { print name "-" $2 }' "$root/Cargo.lock" |
            grep -v '^win' | while read -r crate; do
            [ -d "$from/$crate" ] && echo "$crate"
        done >"$list"
        [ -s "$list" ] && break
    done
    tree_what="the sources of the crates that PMFS is built from"
    if [ ! -s "$list" ]; then
        from=/usr/include tree_what="the headers of this machine"
        ls "$from" >"$list"
    fi
    tar cf "$1" -C "$from" -T "$list" || return
    tree_files=$(tar tf "$1" | grep -vc '/$')
    tree_mib=$(($(stat -c %s "$1") >> 20))
}

step_unpack() { mkdir tree && tar xf "$place/tree.tar" -C tree; }

step_commit() {
    cd tree && git init -q -b main && git add -A && git commit -q -m "The tree"
}

step_clone() { git clone -q --no-local tree clone; }
step_fsck() { git -C clone fsck --full --no-progress; }
step_gc() { git -C tree gc -q --prune=now; }
step_rollback() { sqlite_commits delete rollback.db "$ROLLBACK_TRANSACTIONS"; }
step_wal() { sqlite_commits wal wal.db "$WAL_TRANSACTIONS"; }

# sqlite_commits JOURNAL FILE COUNT: each row is a transaction of its own.
sqlite_commits() {
    {
        echo "PRAGMA journal_mode=$1; CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT);"
        seq "$3" | sed "s/.*/INSERT INTO t VALUES(&, printf('%0200d', &));/"
        echo "SELECT count(*) FROM t; PRAGMA integrity_check;"
    } | sqlite3 "$2" >"$logs/sqlite" && [ "$(tail -n 2 "$logs/sqlite" | paste -sd ' ')" = "$3 ok" ]
}

# below_run STEP: in a shell of its own, which has the pool.
below_run() {
    # shellcheck disable=SC2016
    place=$place logs=$logs "$pmfs" run --pool "$place/pool" --at "$mnt" -- bash -c \
        '. "$1/demo/steps.sh" && "$2"' bash "$root/tests" "$1"
}

# run_steps COLUMN DIR [HOW]: everything, in DIR; each step is an argument of HOW, if that is given.
run_steps() {
    local column=$1 dir=$2 how=${3:-} step since
    mkdir "$dir" || return
    say "${step_places[$column]}:"
    for step in "${steps[@]}"; do
        since=${EPOCHREALTIME/./}
        if ! (cd "$dir" && $how "step_$step") >"$logs/step" 2>&1; then
            say "${step_names[$step]}: failed"
            tail -n 20 "$logs/step"
            return 1
        fi
        took_ms[$column.$step]=$(((${EPOCHREALTIME/./} - since) / 1000))
        say "$(printf '%-40s %7s s' "${step_names[$step]}" "$(seconds "${took_ms[$column.$step]}")")"
    done
}

seconds() {
    [ -n "${1:-}" ] || { echo "-" && return; }
    printf '%d.%02d' $(($1 / 1000)) $(($1 % 1000 / 10))
}

print_table() {
    local step
    printf '  %-40s %8s %8s %8s %8s\n' "" "pmfs run" mount tmpfs ext4
    for step in "${steps[@]}"; do
        printf '  %-40s %8s %8s %8s %8s\n' "${step_names[$step]}" "$(seconds "${took_ms[run.$step]:-}")" \
            "$(seconds "${took_ms[pmfs.$step]:-}")" "$(seconds "${took_ms[tmpfs.$step]:-}")" \
            "$(seconds "${took_ms[ext4.$step]:-}")"
    done
    say "pmfs run: the programs have the pool in their own process. mount: PMFS through FUSE, where each call goes"
    say "to a daemon and back. In both, each call is atomic and durable when it returns. tmpfs: in the kernel, with"
    say "pages of 4 KiB (huge=never), as it is mounted everywhere; nothing survives. ext4: in the kernel, on a loop"
    say "device in the tmpfs of the pool; durable at fsync. One run each, on a machine as it is: no benchmark."
}
