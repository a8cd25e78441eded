# Three writers on a mount, each noting outside the pool what had returned; a SIGKILL; and whether it is all
# there. Sourced by demo.sh.

# Each transaction is a sqlite3 of its own, so that its end says that it is committed.
insert_until_dead() {
    local db=$1 log=$2 id
    id=$(sqlite3 "$db" "SELECT ifnull(max(id), 0) FROM t;")
    while id=$((id + 1)); sqlite3 "$db" "INSERT INTO t VALUES($id, printf('%0300d', $id));" 2>/dev/null; do
        echo "$id" >>"$log"
    done
}

commit_until_dead() {
    local repository=$1 log=$2 id
    id=$(grep -c . "$log")
    while id=$((id + 1)); echo "$id" 2>/dev/null >"$repository/file$((id % 20))" &&
        git -C "$repository" add -A 2>/dev/null && git -C "$repository" commit -q --allow-empty -m "Number $id" 2>/dev/null; do
        # Without --verify it prints "HEAD" where the daemon died meanwhile.
        git -C "$repository" rev-parse --quiet --verify HEAD 2>/dev/null >>"$log"
    done
}

# One reader stays connected, or each sqlite3 would end by moving the log into the database.
hold_open() {
    { echo "SELECT count(*) FROM t;" && exec sleep 600; } | sqlite3 "$1" >/dev/null 2>&1
}

# Two kills: one from outside, one that the daemon does itself in the middle of a call, where a kill from
# outside seldom falls, since the daemon mostly waits.
crash_and_verify() {
    local dir=$mnt/crash
    say "three loops write: SQLite with a rollback journal, SQLite with WAL, git commit"
    mount_for_crash || return
    mkdir "$dir"
    sqlite3 "$dir/rollback.db" "PRAGMA journal_mode=delete; CREATE TABLE t(id INTEGER PRIMARY KEY, body);" >/dev/null
    sqlite3 "$dir/wal.db" "PRAGMA journal_mode=wal; CREATE TABLE t(id INTEGER PRIMARY KEY, body);" >/dev/null
    git init -q -b main "$dir/repository"
    : >"$logs/rollback" && : >"$logs/wal" && : >"$logs/git"
    write_until_dead "$dir" outside && verify "$dir" || return
    show "$pmfs" umount "$mnt" && show "$pmfs" fsck "$place/pool" || return
    echo
    PMFS_CRASH_AFTER_BARRIERS=$((15000 + RANDOM % 1000)) mount_for_crash || return
    write_until_dead "$dir" inside && verify "$dir"
}

mount_for_crash() {
    local report
    report=$("$pmfs" mount --json "$place/pool" "$mnt") || return
    daemon=$(sed 's/.*"pid":\([0-9]*\).*/\1/' <<<"$report")
}

# write_until_dead DIR WHENCE: the daemon is killed from outside after 4 s, or kills itself.
write_until_dead() {
    local dir=$1 whence=$2 writers=() writer reader
    hold_open "$dir/wal.db" &
    reader=$!
    sleep 0.3
    insert_until_dead "$dir/rollback.db" "$logs/rollback" & writers+=("$!")
    insert_until_dead "$dir/wal.db" "$logs/wal" & writers+=("$!")
    commit_until_dead "$dir/repository" "$logs/git" & writers+=("$!")
    started=("$reader" "${writers[@]}")
    if [ "$whence" = outside ]; then
        sleep 4
        say "\$ kill -9 $daemon     (the daemon, with all three at work)"
        kill -9 "$daemon"
    else
        say "(the daemon, process $daemon, was told to kill itself in the middle of a call)"
    fi
    for writer in "${writers[@]}"; do wait "$writer"; done
    end_reader "$reader"
    started=()
    show "$pmfs" umount --lazy "$mnt" && show "$pmfs" mount "$place/pool" "$mnt"
}

verify() {
    verify_sqlite rollback "$1/rollback.db" && verify_sqlite wal "$1/wal.db" && verify_git "$1/repository"
}

# The subshell of hold_open, the sleep and the sqlite3 in it.
end_reader() {
    local child
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do kill "$child" 2>/dev/null; done
    wait "$1" 2>/dev/null
}

# verify_sqlite NAME DB: no row that had been committed is missing, none but the one in flight is added.
verify_sqlite() {
    local name=$1 db=$2 returned found integrity
    returned=$(tail -n 1 "$logs/$name")
    [ -e "$db-wal" ] && say "$(basename "$db")-wal was left with $(stat -c %s "$db-wal") bytes, for SQLite to recover"
    integrity=$(sqlite3 "$db" "PRAGMA integrity_check;")
    found=$(sqlite3 "$db" "SELECT count(*) || ' ' || max(id) FROM t;")
    say "$(printf '%-24s %5s commits returned, %5s are there; integrity_check: %s' \
        "SQLite, $name" "$returned" "${found% *}" "$integrity")"
    [ "$integrity" = ok ] && [ "${returned:-0}" -gt 0 ] && [ "${found% *}" = "${found#* }" ] &&
        [ "${found% *}" -ge "$returned" ] && [ "${found% *}" -le "$((returned + 1))" ]
}

verify_git() {
    local repository=$1 lost checked=failed
    # As git itself says after a crash: a lock file whose owner is gone is to be removed.
    find "$repository/.git" -name '*.lock' -delete
    git -C "$repository" rev-list HEAD | sort >"$logs/reachable"
    sort "$logs/git" | comm -23 - "$logs/reachable" >"$logs/lost"
    lost=$(grep -c . "$logs/lost")
    git -C "$repository" fsck --full --no-progress >"$logs/fsck" 2>&1 && checked=ok
    say "$(printf '%-24s %5s commits returned, %5s are lost; git fsck: %s' \
        git "$(grep -c . "$logs/git")" "$lost" "$checked")"
    [ "$lost" = 0 ] || say "lost: $(paste -sd ' ' "$logs/lost")"
    echo after >"$repository/after" && git -C "$repository" add -A &&
        git -C "$repository" commit -q --allow-empty -m "After the crash" && [ -s "$logs/git" ] &&
        [ "$lost" = 0 ] && [ "$checked" = ok ]
}
