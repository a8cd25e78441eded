# Checks that move files about: git, sqlite3, tar, cp, rsync, the shell. Each runs in an empty directory.
# Sourced by programs.sh.

# standing_in DIR COMMAND...
standing_in() {
    mkdir -p "$1" && cd "$1" || exit 1
    shift
    "$@"
}

# Names, kinds, modes, owners, sizes of files, links and targets below the current directory.
listing() {
    find . -mindepth 1 \( -type d -printf '%P %y %m %U:%G %n\n' \) -o \
        -printf '%P %y %m %U:%G %n %s %l\n' | sort
}

# Checksums of files there; not of names that a pattern excludes.
sums() {
    find . -type f | grep -vE -- "$1" | sort | tr '\n' '\0' | xargs -0r sha256sum
}

# A tree of real files in $1: headers, a few scripts, links, holes.
real_tree() {
    local dir=$1
    mkdir -p "$dir/tree/deep/er/still"
    find /usr/include /usr/share/perl /usr/lib/python3* -xdev -maxdepth 3 -type f -size -200k 2>/dev/null |
        sort | head -n 600 | tar cf - -T - 2>/dev/null | tar xf - -C "$dir/tree"
    (
        cd "$dir/tree" || exit 1
        find . -type f -newermt 2024-01-01 -exec touch -d '2024-01-01 12:34:56.789' {} +
        echo deep >deep/er/still/file
        ln -s er/still/file deep/link
        ln -s /nowhere dangling
        ln deep/er/still/file deep/hard
        truncate -s 3M holes && printf x | dd of=holes bs=1 seek=1500000 conv=notrunc status=none
        printf 'a name with spaces\n' >'a name with spaces'
        chmod 750 deep/er && chmod 4711 deep/hard && : >empty
        touch -d '2001-02-03 04:05:06.789012345' empty deep
    )
    tar cf "$dir/tree.tar" -C "$dir" tree
}

git_history() {
    git init -q -b main one
    cp -r "$src/tree/." one/ && cd one
    git add -A && git commit -qm first
    git checkout -qb side && echo side >side && git add -A && git commit -qm side
    git checkout -q main && echo main >main && git add -A && git commit -qm main
    git merge -q side -m merge
    git mv main moved && git commit -qm move && git rm -q side && git commit -qm remove
    git fsck --full --strict --no-progress && git gc -q --prune=now && git fsck --full --no-progress
    git status --porcelain && git log --format=%H
    cd .. && git clone -q --no-local one two
    echo more >one/more && git -C one add -A && git -C one commit -qm more
    git -C two pull -q && git -C two fsck --no-progress && git -C two log -1 --format=%H
    git -C two worktree add -q ../three HEAD~1 && git -C three rev-parse HEAD && git -C three status --porcelain
}

sqlite_load() {
    local mode=$1
    sqlite3 db "PRAGMA journal_mode=$mode; CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB);"
    for batch in 1 2 3 4 5; do
        sqlite3 db "PRAGMA cache_size=20; BEGIN;
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000)
            INSERT INTO t(body) SELECT printf('%0*d', 200 + i % 300, i * $batch) FROM n; COMMIT;"
    done
    sqlite3 db "BEGIN; DELETE FROM t WHERE id % 3 = 0; ROLLBACK;"
    sqlite3 db "BEGIN; DELETE FROM t WHERE id % 7 = 0; UPDATE t SET body = 'short' WHERE id % 5 = 0; COMMIT;"
    sqlite3 db "CREATE INDEX by_body ON t(body); VACUUM; PRAGMA integrity_check;"
    sqlite3 db "SELECT count(*), sum(id), sum(length(body)), max(body) FROM t;"
}

sqlite_rollback() {
    sqlite_load delete
    sqlite3 db "PRAGMA journal_mode=truncate; INSERT INTO t(body) VALUES('x'); PRAGMA journal_mode=persist;
        INSERT INTO t(body) VALUES('y'); PRAGMA journal_mode=delete; SELECT count(*) FROM t;"
    ! ls ./*-journal 2>/dev/null
}

# Read by a mapping, which others make longer and shorter beside it.
sqlite_mapped() {
    local mode
    for mode in delete wal; do
        sqlite3 "$mode" "PRAGMA mmap_size=268435456; PRAGMA journal_mode=$mode; CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            INSERT INTO t SELECT i, printf('%0*d', i % 200 + 1, i) FROM n;"
        sqlite3 "$mode" "PRAGMA mmap_size=268435456; SELECT sum(length(body)) FROM t; UPDATE t SET body = body || 'more' WHERE id % 3 = 0;
            SELECT sum(length(body)), max(body) FROM t; DELETE FROM t WHERE id > 5000; VACUUM; SELECT count(*) FROM t;
            PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check;"
        (for i in $(seq 20); do
            sqlite3 -cmd ".timeout 20000" "$mode" "PRAGMA mmap_size=268435456; INSERT INTO t(body) VALUES('beside');" >/dev/null
        done) &
        for i in $(seq 10); do
            sqlite3 -cmd ".timeout 20000" "$mode" "PRAGMA mmap_size=268435456; SELECT count(*) >= 5000 FROM t; PRAGMA quick_check;"
        done
        wait
        sqlite3 "$mode" "PRAGMA wal_checkpoint(TRUNCATE); SELECT count(*), sum(id) FROM t;"
    done
}

sqlite_wal() {
    sqlite_load wal
    # A reader keeps the state that it began with while a writer goes on.
    # Not here: where there is no mount no FIFO can be opened.
    local ask
    ask=$(mktemp -d) && mkfifo "$ask/ask"
    sqlite3 db <"$ask/ask" >answers &
    local reader=$!
    exec 9>"$ask/ask"
    echo "BEGIN; SELECT 'before', count(*) FROM t;" >&9
    until [ -s answers ]; do sleep 0.02; done
    for i in 1 2 3 4 5 6 7 8 9 10; do sqlite3 db "INSERT INTO t(body) VALUES('row $i');"; done
    ls db-wal db-shm
    echo "SELECT 'during', count(*) FROM t; COMMIT; SELECT 'after', count(*) FROM t;" >&9
    exec 9>&-
    wait "$reader" && cat answers && rm -r answers "$ask"
    # Two writers that wait for each other.
    for who in a b; do
        (for i in 1 2 3 4 5 6 7 8 9 10; do
            sqlite3 -cmd ".timeout 20000" db "INSERT INTO t(body) VALUES('$who$i');"
        done) &
    done
    wait
    sqlite3 db "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check; SELECT count(*) FROM t WHERE body GLOB '[ab][0-9]*';"
    # In which order the two wrote is chance.
    rm db
}

tar_both_ways() {
    tar xf "$src/tree.tar"
    diff -r --no-dereference "$src/tree" tree
    tar cf again.tar --sort=name tree && tar tvf again.tar
    tar cf - --sparse tree/holes | tar tvf -
    tar czf again.tar.gz tree && mkdir unpacked && tar xzf again.tar.gz -C unpacked
    diff -r --no-dereference tree unpacked/tree
    rm again.tar again.tar.gz
}

cp_archive() {
    cp -a "$src/tree" one
    setfattr -n user.note -v 'some words' one/empty
    cp -a one two && diff -r --no-dereference one two
    getfattr --absolute-names -d two/empty
    (cd one && find . -type f -printf '%P %T@ %m %n\n' | sort) >one.list
    (cd two && find . -type f -printf '%P %T@ %m %n\n' | sort) >two.list
    diff one.list two.list
    [ "$(stat -c %i two/deep/hard)" = "$(stat -c %i two/deep/er/still/file)" ]
    cp --sparse=always two/holes sparse && cmp sparse two/holes
    [ "$(stat -c %b sparse)" -lt 100 ]
    mv two/deep renamed && cp -a --reflink=auto renamed/. two/ && rm -r one
}

rsync_archive() {
    cp -a "$src/tree" one && setfattr -n user.note -v 'some words' one/empty
    rsync -aHX one/ two/ && diff -r --no-dereference one two && getfattr --absolute-names -d two/empty
    echo "second time:" && rsync -aHXi one/ two/
    echo change >one/deep/er/still/file && rm one/empty && mkdir one/new && echo new >one/new/file
    echo "third time:" && rsync -aHX --delete --itemize-changes one/ two/ | sort | cut -c1-2,12-
    diff -r --no-dereference one two && rsync -aHXnc --delete one/ two/
}

shell_fifo() {
    [ -n "${mountless:-}" ] || { mkfifo pipe && (echo through >pipe &) && cat pipe && rm pipe; }
}

shell_files() {
    { echo a; echo b; } >f && echo c >>f && cat <<END >>f
here
END
    sort f | uniq -c | tr a-z A-Z >g && cat f g && wc -c <f
    exec 8<>both && echo one >&8 && echo two >&8 && exec 8>&- && cat both
    set -C && ! (echo no >f) 2>/dev/null && set +C
    (echo kept >&8; rm unlinked; echo more >&8; cat <&7) 8>unlinked 7<unlinked
    mkdir -p d/e && cp -r "$src/tree" d/e/tree && grep -rl 'define' d | sort | wc -l
    find d -name '*.h' -size +4k | sort | head -n 50
    mv d/e moved && ls moved && rm -r moved/tree && rmdir moved d
    split -b 1000 g part. && cat part.* | cmp - g
    shell_fifo
    ln -s g sym && readlink sym && test -L sym && touch -r f sym && stat -c '%s %F' sym
    (for i in $(seq 200); do echo "$i" >>log & done; wait) && sort -n log | cksum && rm log
}
