# Checks of databases, language runtimes and larger builds. Each runs in an empty directory. Sourced by programs.sh.

redis_always() {
    # A socket in the directory would have too long a name in some places.
    local dir port=$((20000 + RANDOM % 20000)) pid i
    dir=$PWD
    start_redis() {
        redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --appendonly yes --appendfsync always --daemonize no \
            --save '' --logfile "$dir/log" --auto-aof-rewrite-percentage 0 >/dev/null &
        pid=$!
        for i in $(seq 200); do
            [ "$(redis-cli -p "$port" ping 2>/dev/null)" = PONG ] && return
            sleep 0.05
        done
        return 1
    }
    start_redis
    for i in $(seq 300); do echo "SET key:$i $(printf '%0*d' $((i % 90 + 1)) "$i")"; done | redis-cli -p "$port" | sort | uniq -c
    (seq 300 | sed 's/^/INCR n /; s/ [0-9]*$//' | redis-cli -p "$port" | tail -n 1)
    kill -9 "$pid"; wait "$pid" 2>/dev/null || true
    start_redis
    redis-cli -p "$port" dbsize && redis-cli -p "$port" get n && redis-cli -p "$port" get key:123
    redis-cli -p "$port" bgrewriteaof >/dev/null
    for i in $(seq 100); do
        redis-cli -p "$port" info persistence | grep -q 'aof_rewrite_in_progress:0' && break
        sleep 0.05
    done
    redis-cli -p "$port" set after rewrite && redis-cli -p "$port" save
    kill -9 "$pid"; wait "$pid" 2>/dev/null || true
    start_redis
    redis-cli -p "$port" dbsize && redis-cli -p "$port" get after && redis-cli -p "$port" get key:299
    redis-cli -p "$port" shutdown nosave || true
    wait "$pid" 2>/dev/null || true
    redis-check-rdb dump.rdb | grep -c 'RDB looks OK'
    rm -rf log dump.rdb appendonlydir
}

# Names a header that is missing.
has_header() { [ -e "/usr/include/$1" ] || echo "$1"; }

# LMDB, with its pages stored by write(2) and read by a mapping, and with all of it in a writable mapping. Its pages have bytes that
# nobody set: compared is what mdb_dump tells.
lmdb_both() {
    local flags dir
    cat >program.c <<'E2'
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int code, const char *what) {
    if (code) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(code));
        exit(1);
    }
}

static MDB_env *opened(const char *dir, unsigned flags) {
    MDB_env *env;
    need(mdb_env_create(&env), "create");
    need(mdb_env_set_mapsize(env, 64 << 20), "size");
    need(mdb_env_open(env, dir, flags, 0644), "open");
    return env;
}

static long sum(MDB_env *env, long *count) {
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val key, data;
    long all = 0;
    *count = 0;
    need(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin");
    need(mdb_dbi_open(txn, NULL, 0, &dbi), "dbi");
    need(mdb_cursor_open(txn, dbi, &cursor), "cursor");
    while (mdb_cursor_get(cursor, &key, &data, MDB_NEXT) == 0)
        all += *(int *)key.mv_data + data.mv_size, ++*count;
    mdb_txn_abort(txn);
    return all;
}

int main(int count, char **arguments) {
    unsigned flags = atoi(arguments[2]);
    MDB_env *env = opened(arguments[1], flags);
    pid_t reader = fork();
    if (reader == 0) {
        /* An environment of its own: one must not be used across fork. */
        MDB_env *own = opened(arguments[1], flags);
        long before = 0, now;
        for (int turn = 0; turn < 200; turn++) {
            sum(own, &now);
            if (now < before)
                _exit(2);
            before = now;
        }
        _exit(0);
    }
    char body[700] = "body";
    for (int turn = 0; turn < 60; turn++) {
        MDB_txn *txn;
        MDB_dbi dbi;
        need(mdb_txn_begin(env, NULL, 0, &txn), "begin");
        need(mdb_dbi_open(txn, NULL, MDB_CREATE, &dbi), "dbi");
        for (int i = 0; i < 100; i++) {
            int number = turn * 100 + i;
            MDB_val key = {sizeof number, &number}, data = {1 + number % sizeof body, body};
            need(mdb_put(txn, dbi, &key, &data, 0), "put");
        }
        if (turn % 7 == 6)
            mdb_txn_abort(txn);
        else
            need(mdb_txn_commit(txn), "commit");
    }
    need(mdb_env_sync(env, 1), "sync");
    int status;
    waitpid(reader, &status, 0);
    long entries, all = sum(env, &entries);
    printf("reader %d, %ld entries, sum %ld\n", status, entries, all);
    mdb_env_close(env);
    return 0;
}
E2
    gcc -O1 -o program program.c -llmdb
    for flags in 0 524288 1572864; do # as it is; MDB_WRITEMAP; and MDB_MAPASYNC
        dir=db$flags
        mkdir "$dir" && ./program "$dir" "$flags"
        mdb_stat -e "$dir" | grep -E 'Map size|Last transaction|Entries|Tree depth'
        mdb_dump "$dir" | sha256sum
        mkdir "copy$flags" && mdb_copy -c "$dir" "copy$flags" && mdb_dump "copy$flags" | sha256sum
        mdb_dump "$dir" | sed 's/mapsize=.*/mapsize=67108864/' | (mkdir "loaded$flags" && mdb_load "loaded$flags") && mdb_dump "loaded$flags" | sha256sum
    done
    rm -f program
}

rocksdb_bench() {
    local all='--num=5000 --value_size=400 --db=db --verify_checksum=true --compression_type=none --disable_wal=false'
    # shellcheck disable=SC2086
    db_bench $all --benchmarks=fillseq,readrandom,overwrite,readseq --sync=1 2>&1 |
        grep -oaE '^(fillseq|readrandom|overwrite|readseq) |\(.* of .* found\)'
    # shellcheck disable=SC2086
    db_bench $all --use_existing_db=1 --benchmarks=readseq,readreverse,compact,verifychecksum --mmap_read=1 2>&1 |
        grep -oaE '^(readseq|readreverse|compact|verifychecksum) '
    # shellcheck disable=SC2086
    db_bench $all --benchmarks=fillrandom,readrandom --mmap_write=1 --threads=2 2>&1 | grep -oaE '^(fillrandom|readrandom) '
    rm -rf db
}

fio_verify() {
    local engine
    for engine in psync libaio mmap sync vsync; do
        fio --name="$engine" --ioengine="$engine" --rw=randwrite --bs=4k --size=8M --numjobs=2 --iodepth=8 --verify=crc32c \
            --verify_fatal=1 --do_verify=1 --fsync=32 --randseed=7 --minimal --fallocate=none --directory=. |
            awk -F ';' -v e="$engine" '{ print e, $3, $5, $6, $47 }' | sed 's/ [0-9]*$//'
    done
    fio --name=mixed --ioengine=psync --rw=randrw --bsrange=512-16k --bs_unaligned=1 --size=4M --verify=md5 --verify_fatal=1 \
        --do_verify=1 --minimal --thread --numjobs=2 --directory=. | awk -F ';' '{ print $3, $5 }'
    rm -f -- *.[01].0 *.verify.state
}

sqlite_two() {
    local mode who
    for mode in wal delete truncate; do
        sqlite3 "$mode" "PRAGMA journal_mode=$mode; CREATE TABLE t(who, n); CREATE TABLE total(n); INSERT INTO total VALUES(0);"
        for who in a b c; do
            for i in $(seq 40); do
                echo "BEGIN IMMEDIATE; INSERT INTO t VALUES('$who', $i); UPDATE total SET n = n + 1; COMMIT;"
            done | sqlite3 -cmd ".timeout 60000" "$mode" &
        done
        # Readers see whole transactions.
        for i in $(seq 20); do
            sqlite3 -cmd ".timeout 60000" "$mode" "BEGIN; SELECT (SELECT count(*) FROM t) = (SELECT n FROM total); COMMIT;"
        done | sort -u
        wait
        sqlite3 "$mode" "SELECT who, count(*), sum(n) FROM t GROUP BY who; SELECT n FROM total; PRAGMA integrity_check;"
        rm "$mode"*
    done
}

node_files() {
    node - <<'END'
const fs = require("fs"), path = require("path"), cp = require("child_process"), crypto = require("crypto");
const fsp = fs.promises;
(async () => {
    fs.mkdirSync("a/b/c", { recursive: true });
    await Promise.all(Array.from({ length: 60 }, (_, i) => fsp.writeFile(`a/b/f${i}`, Buffer.alloc(i * 100, i))));
    const names = await fsp.readdir("a/b", { withFileTypes: true });
    console.log(names.filter((d) => d.isFile()).length, names.filter((d) => d.isDirectory()).length);
    const sizes = await Promise.all(names.filter((d) => d.isFile()).map((d) => fsp.stat(path.join("a/b", d.name)).then((s) => s.size)));
    console.log(sizes.reduce((a, b) => a + b));
    await new Promise((done) => {
        const out = fs.createWriteStream("stream");
        for (let i = 0; i < 2000; i++) out.write(`line ${i}\n`);
        out.end(done);
    });
    const hash = crypto.createHash("sha256");
    for await (const chunk of fs.createReadStream("stream", { highWaterMark: 1000 })) hash.update(chunk);
    console.log(hash.digest("hex"));
    const fd = fs.openSync("random", "w+");
    fs.writeSync(fd, "0123456789"); fs.writeSync(fd, "AB", 3); fs.ftruncateSync(fd, 8); fs.fsyncSync(fd);
    const buffer = Buffer.alloc(20); console.log(fs.readSync(fd, buffer, 0, 20, 0), buffer.toString("utf8", 0, 8)); fs.closeSync(fd);
    await fsp.copyFile("stream", "copy"); await fsp.rename("copy", "a/moved"); await fsp.symlink("moved", "a/link");
    console.log(await fsp.readlink("a/link"), (await fsp.realpath("a/link")).endsWith("a/moved"), fs.existsSync("copy"));
    await fsp.cp("a", "d", { recursive: true }); console.log(fs.readdirSync("d/b").length);
    await fsp.appendFile("random", "+"); await fsp.utimes("random", 1e9, 1e9); await fsp.chmod("random", 0o600);
    console.log(fs.statSync("random").mtimeMs, fs.statSync("random").size);
    fs.writeFileSync("worker.js", "const fs = require('fs'); fs.writeSync(1, 'child\\n'); fs.writeFileSync(process.argv[2], 'made')");
    const out = fs.openSync("out", "a");
    const child = cp.spawn(process.execPath, ["worker.js", "made"], { stdio: ["ignore", out, out] });
    await new Promise((done) => child.on("exit", done));
    console.log(fs.readFileSync("out", "utf8"), fs.readFileSync("made", "utf8"), cp.execSync("cat out | wc -l").toString());
    fs.rmSync("d", { recursive: true }); console.log(fs.existsSync("d"));
    fs.writeFileSync("package.json", '{"name": "p", "version": "1.0.0", "main": "main.js"}');
    fs.mkdirSync("node_modules/q", { recursive: true }); fs.writeFileSync("node_modules/q/index.js", "module.exports = __filename");
    fs.writeFileSync("main.js", "console.log(require('q').endsWith('node_modules/q/index.js'))");
    console.log(cp.execFileSync(process.execPath, ["main.js"]).toString());
})().catch((e) => { console.log(e); process.exitCode = 1; });
END
}

java_files() {
    cat >Files1.java <<'END'
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*; import java.nio.charset.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Files1 {
    public static void main(String[] a) throws Exception {
        Path dir = Files.createDirectories(Path.of("x/y/z"));
        for (int i = 0; i < 100; i++) Files.writeString(dir.resolve("f" + i), "text " + i + "\n");
        try (Stream<Path> all = Files.walk(Path.of("x"))) { System.out.println(all.filter(Files::isRegularFile).mapToLong(p -> p.toFile().length()).sum()); }
        try (FileChannel c = FileChannel.open(Path.of("channel"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            c.write(ByteBuffer.wrap("0123456789".getBytes())); c.write(ByteBuffer.wrap("X".getBytes()), 20); c.force(true);
            try (FileLock lock = c.lock()) { System.out.println(lock.isValid() + " " + c.size()); }
            MappedByteBuffer m = c.map(FileChannel.MapMode.READ_WRITE, 0, 4096); m.put(100, (byte) 'm'); m.force(); System.out.println(c.size() + " " + (char) m.get(20));
            try (FileChannel d = FileChannel.open(Path.of("copied"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) { System.out.println(c.transferTo(0, 1000, d)); }
        }
        try (RandomAccessFile f = new RandomAccessFile("random", "rwd")) { f.setLength(1000); f.seek(500); f.writeUTF("middle"); f.seek(500); System.out.println(f.readUTF() + " " + f.length()); }
        Files.copy(Path.of("x/y/z/f7"), Path.of("seven")); Files.move(Path.of("seven"), Path.of("7"), StandardCopyOption.ATOMIC_MOVE); Files.createSymbolicLink(Path.of("link"), Path.of("7"));
        System.out.println(Files.readString(Path.of("link")).trim() + " " + Files.readSymbolicLink(Path.of("link")) + " " + Files.getPosixFilePermissions(Path.of("7")));
        ExecutorService pool = Executors.newFixedThreadPool(4); List<Future<Integer>> done = new ArrayList<>();
        for (int t = 0; t < 4; t++) { int who = t; done.add(pool.submit(() -> { int n = 0; for (int i = 0; i < 200; i++) { Path p = Path.of("t" + who); Files.write(p, new byte[i], StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING); n += Files.readAllBytes(p).length; } return n; })); }
        int sum = 0; for (Future<Integer> f : done) sum += f.get(); pool.shutdown(); System.out.println(sum);
        Process p = new ProcessBuilder("sh", "-c", "echo from the child; cat").redirectInput(new File("7")).redirectOutput(new File("child")).start(); System.out.println(p.waitFor() + " " + Files.readString(Path.of("child")));
        try (BufferedWriter w = Files.newBufferedWriter(Path.of("lines"))) { for (int i = 0; i < 3000; i++) w.write("line " + i + "\n"); } System.out.println(Files.lines(Path.of("lines")).count());
        Path t = Files.createTempFile(Path.of("."), "tmp", ".x"); Files.delete(t); System.out.println(Files.exists(t));
    }
}
END
    if command -v javac >/dev/null; then javac -d classes Files1.java && java -Xint -Xmx128m -cp classes Files1 && rm -r classes; else java -Xmx128m Files1.java; fi
}

# Static programs at the same paths, while a program below `pmfs run` works there: Go's do not use libc.
go_beside() {
    mkdir -p tool && cd tool
    printf 'module beside\n\ngo 1.19\n' >go.mod
    cat >main.go <<'END'
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
)

func main() {
	in, _ := io.ReadAll(bufio.NewReader(os.Stdin))
	fmt.Printf("stdin: %d bytes\n", len(in))
	var names []string
	filepath.Walk(os.Args[1], func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			names = append(names, fmt.Sprint(path, " ", info.Size()))
		}
		return err
	})
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(name)
	}
	os.MkdirAll("made/by", 0o755)
	for i := 0; i < 50; i++ {
		os.WriteFile(fmt.Sprintf("made/by/go%d", i), make([]byte, i*10), 0o644)
	}
	file, _ := os.OpenFile("log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	fmt.Fprintln(file, "go was here")
	file.Close()
}
END
    export GOCACHE=$PWD/../cache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOTELEMETRY=off HOME=$PWD CGO_ENABLED=0
    (for i in $(seq 200); do echo "$i" >>../beside; done; echo done >>../beside) &
    go build -o ../built . && go vet . && wait && cd ..
    tail -n 1 beside && wc -l <beside
    mkdir data && for i in 1 2 3; do echo "data $i" >"data/$i"; done
    { echo first; ./built data <data/2; echo last; } >out && cat out && find made -type f -printf '%f %s\n' | sort && cat log
    echo "sh was here" >>log && ./built data <log >out2 && cat log && head -n 1 out2
    chmod -R u+w cache; rm -rf cache built
}

# A real project as its users build it.
autotools_build() {
    tar xf "$tarball" && cd "$(basename "$tarball" | sed 's/[_-].*//')"*
    ./configure -q --disable-nls >../configured 2>&1 || { tail ../configured; return 1; }
    make -s -j2 >../made 2>&1 || { tail ../made; return 1; }
    make -s check >../checked 2>&1 || { tail -n 30 ../checked; return 1; }
    grep -E '^# (TOTAL|PASS|FAIL|ERROR)|tests? passed' ../checked || true
    make -s DESTDIR="$PWD/../root" install >../installed 2>&1 && cd ..
    find root -type f | sort
    rm -rf -- */ configured made checked installed
}
