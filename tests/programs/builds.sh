# Checks that build and run: gcc and make, cargo, python3. Each runs in an empty directory. Sourced by
# programs.sh.

c_build() {
    local i
    for i in $(seq 20); do
        printf '#include <math.h>\n#include <stdio.h>\ndouble part%s(double x) { return sqrt(x) * %s + sin(x); }\n' \
            "$i" "$i" >"part$i.c"
    done
    {
        echo '#include <stdio.h>'
        for i in $(seq 20); do echo "double part$i(double);"; done
        echo 'int main(void) { double sum = 0;'
        for i in $(seq 20); do echo "sum += part$i($i.0);"; done
        echo 'printf("%.6f\n", sum); return 0; }'
    } >main.c
    cat >Makefile <<'END'
parts := $(filter-out main.o,$(patsubst %.c,%.o,$(sort $(wildcard *.c))))
all: static shared
static: main.o libparts.a
	gcc -o $@ main.o -L. -l:libparts.a -lm
shared: main.o libparts.so
	gcc -o $@ main.o -L. -Wl,-rpath,'$$ORIGIN' -l:libparts.so -lm
libparts.a: $(parts)
	ar rcsD $@ $^
libparts.so: $(parts)
	gcc -shared -o $@ $^ -lm
%.o: %.c
	gcc -O2 -fPIC -c -o $@ $<
END
    make -s -j2 && ./static && c_shared
    touch -d '1 hour ago' ./*.c && make -q all && echo "nothing to do"
    touch part3.c && make -s -j2 && c_shared
}

# Its library is beside it, where without a mount the kernel's loader does not find it.
c_shared() {
    [ -n "${mountless:-}" ] || ./shared
}

cargo_build() {
    cargo new -q --vcs none --lib tiny && cd tiny
    cat >src/lib.rs <<'END'
//! Words, counted.
use std::collections::BTreeMap;

/// How often each word is there.
pub fn count(text: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

#[test]
fn counts() {
    assert_eq!(count("a b a")["a"], 2);
}
END
    mkdir src/bin
    echo 'fn main() { println!("{:?}", tiny::count("x y x z x")); }' >src/bin/words.rs
    export CARGO_TARGET_DIR=$PWD/target CARGO_NET_OFFLINE=true
    cargo build -q --offline && target/debug/words
    cargo test -q --offline --lib 2>&1 | grep 'test result' | sed 's/; finished.*//'
    echo 'fn main() { println!("{:?}", tiny::count("again")); }' >src/bin/words.rs
    cargo run -q --offline --bin words
    rm -r target
}

# A file that has grown is mapped in large pages, where it is the pool's own blocks that are mapped, and these lie in large pages.
python_large() {
    "$python" - "$place_kind" <<'END'
import ctypes, mmap, os, re, sys

LARGE_MIB = 24


def large_kib(start, end):
    here, kib = False, 0
    for line in open("/proc/self/smaps"):
        if span := re.match("([0-9a-f]+)-([0-9a-f]+) ", line):
            here = start <= int(span[1], 16) and int(span[2], 16) <= end
        elif here and line.startswith("ShmemPmdMapped"):
            kib += int(line.split()[1])
    return kib


# So that the next one does not begin with a large page.
with open("odd", "wb") as file:
    file.write(os.urandom(3 << 12))
with open("grown", "wb", buffering=0) as file:
    for _ in range(48):
        file.write(os.urandom(1 << 12) * 256)
with open("grown", "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
    touched = sum(mapped[at] for at in range(0, len(mapped), 4096))
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    large = large_kib(start, start + len(mapped))
    wanted = "libpmfs_shim" in open("/proc/self/maps").read() and "2 MiB" in sys.argv[1]
    assert not wanted or large >= LARGE_MIB << 10, f"{large} KiB in large pages"
    mapped[:4] = b"here"
    mapped.flush()
    print(len(mapped), os.pread(file.fileno(), 4, 0))
END
    rm grown odd
}

python_files() {
    cp -r "$src/tree" tree
    "$python" - <<'END'
import hashlib, mmap, os, pathlib, shutil, sqlite3, tempfile

shutil.copytree("tree", "copy", symlinks=True)
shutil.make_archive("packed", "gztar", "copy")
shutil.unpack_archive("packed.tar.gz", "unpacked")
os.remove("packed.tar.gz")
same = lambda a, b: pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes()
files = sorted(p for p in pathlib.Path("tree").rglob("*") if p.is_file() and not p.is_symlink())
print(len(files), all(same(p, "unpacked" / p.relative_to("tree")) for p in files))
shutil.move("copy", "moved")
print(sorted(os.listdir("moved"))[:5])
shutil.rmtree("unpacked")

with tempfile.TemporaryDirectory(dir=".") as d, tempfile.NamedTemporaryFile(dir=d) as f:
    f.write(b"x" * 100_000)
    f.flush()
    print(os.stat(f.name).st_size)
with tempfile.TemporaryFile(dir=".") as f:
    f.write(b"nameless")
    f.seek(0)
    print(f.read())

db = sqlite3.connect("db")
db.execute("create table t(a, b)")
with db:
    db.executemany("insert into t values(?, ?)", ((i, "b" * (i % 50)) for i in range(5000)))
print(db.execute("select count(*), sum(length(b)) from t").fetchone())
print(db.execute("pragma integrity_check").fetchone())
db.close()

with open("mapped", "wb+") as f:
    f.write(bytes(range(256)) * 64)
    f.flush()
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        print(m[255], m.find(b"\x10\x11"), hashlib.sha256(m).hexdigest())
    with mmap.mmap(f.fileno(), 0) as m:
        m[0:5] = b"hello"
        m.flush()
    f.seek(0)
    print(f.read(6))
    os.pwrite(f.fileno(), b"J", 0)
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        print(m[:5])
END
}

python_compile() {
    cp -r "$("$python" -c 'import json; print(json.__path__[0])')" json
    rm -rf json/__pycache__
    PYTHONDONTWRITEBYTECODE= "$python" -m compileall -q json
    find json -name '*.pyc' | sort | sed 's/.*__pycache__.//'
    mkdir use && mv json use/ && cd use
    "$python" -c 'import json; print(json.dumps({"a": [1, 2]}), json.__file__)'
}
