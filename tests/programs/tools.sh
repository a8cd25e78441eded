# Checks of the tools that everybody has: perl, find and its kin, bash's own redirections, python's libraries.
# Each runs in an empty directory. Sourced by programs.sh.

perl_files() {
    perl -MFile::Find -MFile::Copy -MFile::Path=make_path,remove_tree -MFile::Temp=tempfile -MFcntl=:DEFAULT,:flock,:seek,:mode -e '
        use strict; use warnings;
        make_path("deep/er/still"); 
        open(my $out, ">", "deep/text") or die "open: $!";
        printf $out "%05d %s\n", $_, "word" x ($_ % 7) for 1 .. 2000;
        close $out or die;
        # In place, and line by line.
        { local ($^I, @ARGV) = (".bak", "deep/text"); while (<>) { s/word/WORD/; print } }
        print -s "deep/text", " ", -s "deep/text.bak", "\n";
        open(my $both, "+<", "deep/text") or die; seek($both, -12, SEEK_END); print scalar <$both>;
        seek($both, 0, SEEK_SET); truncate($both, 100) or die; print join("", <$both>); close $both;
        sysopen(my $new, "lock", O_RDWR | O_CREAT | O_EXCL, 0600) or die; flock($new, LOCK_EX | LOCK_NB) or die;
        open(my $second, "<", "lock") or die; print "locked\n" unless flock($second, LOCK_SH | LOCK_NB);
        syswrite($new, "abc"); sysseek($new, 1, SEEK_SET); sysread($new, my $got, 10); print "$got\n";
        copy("deep/text", "deep/er/copy") or die; move("deep/er/copy", "moved") or die;
        rename("moved", "deep/er/moved") or die; link("deep/er/moved", "hard") or die; symlink("deep/er", "soft") or die;
        print join(" ", (stat "hard")[2, 3, 7]), " ", readlink("soft"), "\n"; utime(1e9, 1e9 + 5, "hard"); print +(stat _)[9] ? "" : "?";
        chmod 0640, "hard"; printf "%o %s\n", S_IMODE((stat "soft/moved")[2]), (stat "hard")[9];
        my ($t, $name) = tempfile(DIR => "."); print $t "x" x 5000; close $t; print -s $name, "\n"; unlink $name;
        my @all; find(sub { push @all, $File::Find::name }, "."); print join("\n", sort @all), "\n";
        opendir(my $dir, "deep") or die; my @names = sort readdir $dir; my $at = telldir $dir; rewinddir $dir; print "@names\n";
        open(my $pipe, "-|", "cat deep/text | wc -l") or die; print <$pipe>; close $pipe;
        open(my $kept, ">&", \*STDOUT); open(STDOUT, ">", "said"); system("echo from a child"); print "and itself\n"; close STDOUT; open(STDOUT, ">&", $kept);
        open(my $said, "<", "said"); print sort <$said>;
        my $pid = fork; if (!$pid) { print {$both = undef; $new} "child"; close $new; exit 0 } waitpid $pid, 0; seek($new, 0, SEEK_SET); print <$new>, "\n";
        remove_tree("deep/er"); print -e "deep/er" ? "there" : "gone", "\n"; -l "soft" or die; unlink "soft" or die;
    '
    for i in 1 2 3; do perl -i -pe 's/WORD/<$&>/g; $_ .= "$.\n"' deep/text; done
    cksum deep/text deep/text.bak
}

search_and_change() {
    cp -a "$src/tree" tree
    find tree -type f -name '*.h' -size +8k | sort | head -n 20
    find tree ! -type d \( -perm -4000 -o -empty -o -links +1 -o -type l \) -printf '%P %y %m %s %l\n' | sort
    find tree -type f -newer tree/a* | wc -l
    grep -rIl 'include' tree | sort | cksum
    grep -rn --include='*.h' 'define.*MAX' tree | sort | head -n 50 | cksum
    find tree -type f -name '*.h' -print0 | sort -z | head -zn 60 | xargs -0 sed -i.orig 's/define/DEFINE/g'
    find tree -name '*.orig' | wc -l && grep -rc DEFINE tree | sort | cksum
    find tree -name '*.orig' -delete
    find tree -type f -size +2k -size -20k -print0 | sort -z | head -zn 80 | xargs -0 -n 8 gzip -9n
    find tree -name '*.gz' -print0 | sort -z | xargs -0 gzip -lv --quiet | awk '{ print $(NF-3), $(NF-2) }' | cksum
    find tree -name '*.gz' -print0 | xargs -0 -P 2 -n 10 gunzip
    tar cf - tree | gzip -n | gzip -dc | tar df - && tar cf - tree | xz -T1 -0 | xz -dc | tar tf - | sort | cksum
    bzip2 -k tree/deep/er/still/file && bzcat tree/deep/er/still/file.bz2 && rm tree/deep/er/still/file.bz2
    find tree -depth -type f -exec sh -c 'for f; do mv "$f" "$f.x"; done' sh {} +
    find tree -type f | wc -l && du -s --apparent-size tree/deep | cut -f2 && ls -lR tree | wc -l
    awk '{ n[length($0) % 10]++ } END { for (i = 0; i < 10; i++) print i, n[i] > "counts" }' tree/*.x 2>/dev/null
    sort -S 64k -T . counts tree/*.x 2>/dev/null | uniq | cksum
    dd if=/dev/zero of=zeros bs=64k count=20 status=none && dd if=zeros of=some bs=1000 skip=3 seek=7 count=50 conv=notrunc status=none
    stat -c '%n %s' zeros some && cmp zeros some || true
    head -c 5000 tree/*.x 2>/dev/null | tail -n 3 | cksum && tac counts | paste - counts && shuf -i 1-100 -o shuffled && sort -n shuffled | cksum && rm shuffled
    install -m 751 counts installed && stat -c %a installed && shred -u installed && test ! -e installed
    find tree -delete && test ! -e tree
}

bash_itself() {
    # Subshells, groups and functions write to one open file, each where the last one ended.
    { echo one; (echo two; { echo three; }); seq 3 | sed 's/^/n/'; printf 'four\n'; } >f && cat f
    exec 5>g 6<f && echo a >&5 && (echo b >&5) && cat >&5 <<<c && echo d | cat >&5 && exec 5>&-
    read -r -u 6 first && (read -r second <&6 && echo "$second") && cat <&6 && echo "$first" && exec 6<&- && cat g
    for i in $(seq 20); do { echo "$i"; } & done >>many; wait; sort -n many | cksum; rm many
    (trap 'echo trapped >>t' EXIT; trap 'echo usr1 >>t' USR1; kill -USR1 "$BASHPID"; sleep 0.01); cat t
    coproc { while read -r line; do echo "<$line>"; done; }
    # shellcheck disable=SC2153
    echo asked >&"${COPROC[1]}" && read -r answer <&"${COPROC[0]}" && echo "$answer" >coproc && cat coproc
    eval "exec ${COPROC[1]}>&-" && wait "$COPROC_PID" || true
    diff <(sort f) <(sort g) >difference || cat difference
    tee copy1 copy2 <f | tail -n 1 && cmp copy1 copy2
    cat <<'END' >script && chmod +x script && ./script x y && . ./script z
#!/bin/bash
echo "$# $1" | tee -a ran
END
    while read -r line; do echo "$line" >"file.$line"; done <f && ls file.* && rm file.*
    mapfile -t lines <f && echo "${#lines[@]}" && printf '%s\n' "${lines[@]:1:2}"
    exec 7<>rw && echo longer >&7 && exec 7<>rw && echo sh >&7 && cat rw && exec 7>&-
    echo x >&3 3>three && cat three && ls nothing 2>&1 >/dev/null | sed 's/.*: //'
    (cd /; cat) <f | head -n 1 && (mkdir sub && cd sub && pwd | grep -c sub && echo in >../from && cd .. && rmdir sub) && cat from
    : >empty && [ -s f ] && [ ! -s empty ] && [ f -nt /etc/passwd ] && [ -f f ] && [ -w f ] && [ f -ef ./f ] && echo tested
    sleep 10 >background & local pid=$!
    until [ -e background ]; do sleep 0.01; done
    kill "$pid" && ! wait "$pid" 2>/dev/null
    # Ended by the limit, however slow the machine is.
    (ulimit -f 4096 && trap '' XFSZ && timeout 60 cat /dev/zero >zeros 2>/dev/null) || stat -c %s zeros && rm zeros
    ulimit -f 8 && { ! (head -c 20000 /dev/zero >limited) 2>/dev/null; } 2>/dev/null; stat -c %s limited
}

python_processes() {
    "$python" - <<'END'
import mmap, multiprocessing as mp, os, pathlib, shutil, struct, subprocess, sys, tempfile, threading, fcntl, io, glob, time

tempfile.tempdir = os.getcwd()

def fill(part):
    with open("parts/%03d" % part, "wb") as f:
        f.write(bytes([part]) * (1000 * part))
    with open("log", "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write("%d\n" % part)
    return os.stat("parts/%03d" % part).st_size

def count(path, lock, times):
    for _ in range(times):
        with lock:
            n = int(pathlib.Path(path).read_text())
            pathlib.Path(path).write_text(str(n + 1))

def count_mapped(path, times):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        for _ in range(times):
            fcntl.lockf(f, fcntl.LOCK_EX)
            m[0:8] = struct.pack("<Q", struct.unpack("<Q", m[0:8])[0] + 1)
            fcntl.lockf(f, fcntl.LOCK_UN)

if __name__ == "__main__":
    os.mkdir("parts")
    for method in ("fork", ):
        with mp.get_context(method).Pool(3) as pool:
            print(sum(pool.map(fill, range(40))))
    print(len(open("log").read().split()))
    lock = mp.Lock()
    pathlib.Path("counter").write_text("0")
    all = [mp.Process(target=count, args=("counter", lock, 50)) for _ in range(3)]
    [p.start() for p in all]; [p.join() for p in all]
    print(open("counter").read(), [p.exitcode for p in all])
    pathlib.Path("mapped").write_bytes(bytes(4096))
    all = [mp.Process(target=count_mapped, args=("mapped", 100)) for _ in range(3)]
    [p.start() for p in all]; [p.join() for p in all]
    print(struct.unpack("<Q", open("mapped", "rb").read(8)), [p.exitcode for p in all])
    # Standard streams of children in files, by descriptor and by name.
    with open("said", "w+") as f:
        subprocess.run(["sh", "-c", "echo out; echo err >&2"], stdout=f, stderr=subprocess.STDOUT, check=True)
        subprocess.run([sys.executable, "-c", "print('python')"], stdout=f, check=True)
        print(f.tell()); f.seek(0); print(f.read())
    with open("said") as f:
        print(subprocess.run(["tr", "a-z", "A-Z"], stdin=f, capture_output=True).stdout)
    with open("passed", "w+b") as f:
        f.write(b"begin "); f.flush()
        subprocess.run([sys.executable, "-c", "import os,sys; os.write(int(sys.argv[1]), b'child ')", str(f.fileno())], pass_fds=[f.fileno()])
        f.write(b"end"); f.seek(0); print(f.read())
    # The rest of shutil and tempfile.
    shutil.copytree("parts", "copy"); shutil.copyfile("log", "log2"); shutil.copystat("log", "log2")
    print(len(os.listdir("copy")), shutil.disk_usage(".").total > 0, sorted(glob.glob("p*/00?"))[:3])
    with tempfile.SpooledTemporaryFile(max_size=100, dir=".") as f:
        f.write(b"s" * 1000); f.seek(990); print(f.read())
    fd, name = tempfile.mkstemp(dir="."); os.write(fd, b"m"); os.fsync(fd); os.close(fd); os.replace(name, "replaced")
    print(os.path.getsize("replaced"))
    with open("vectors", "w+b") as f:
        print(os.writev(f.fileno(), [b"ab", b"cde", b""]), os.pread(f.fileno(), 3, 1), os.preadv(f.fileno(), [bytearray(2), bytearray(2)], 0))
        os.posix_fallocate(f.fileno(), 0, 10000); print(os.fstat(f.fileno()).st_size)
        os.ftruncate(f.fileno(), 3); f.seek(0); print(f.read(), os.lseek(f.fileno(), 0, os.SEEK_HOLE))
    with open("copy/039", "rb") as a, open("sent", "wb") as b:
        print(os.sendfile(b.fileno(), a.fileno(), 0, 1 << 20), os.copy_file_range(a.fileno(), b.fileno(), 100, 0))
    dirfd = os.open("parts", os.O_RDONLY)
    print(sorted(os.listdir(dirfd))[:2], os.stat("005", dir_fd=dirfd).st_size, len(list(os.scandir(dirfd))))
    os.rename("005", "five", src_dir_fd=dirfd, dst_dir_fd=dirfd); os.unlink("five", dir_fd=dirfd); os.close(dirfd)
    os.setxattr("log", "user.k", b"v"); print(os.listxattr("log"), os.getxattr("log", "user.k"))
    def append(who):
        for _ in range(100):
            with open("threads", "a") as f: f.write(who)
    threads = [threading.Thread(target=append, args=(w,)) for w in "abcd"]
    [t.start() for t in threads]; [t.join() for t in threads]
    text = open("threads").read(); print([text.count(w) for w in "abcd"])
    [os.unlink(n) for n in ("threads", "log", "log2")]
    # Of a mapping that grows.
    with open("grows", "w+b") as f:
        f.write(b"\0" * 4096); f.flush()
        m = mmap.mmap(f.fileno(), 0); m[4095] = 7
        m.resize(12288); m[12287] = 9; print(len(m), m[4095], os.fstat(f.fileno()).st_size); m.close()
        f.seek(0); data = f.read(); print(data[4095], data[12287])
END
}

# A word for what this machine's python can't build with.
python_lacks() {
    [ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || echo Python.h
}

python_module() {
    "$python" -m venv --without-pip env
    cat >counted.c <<'END'
#include <Python.h>
static PyObject *count(PyObject *self, PyObject *text) {
    (void)self;
    Py_ssize_t len;
    const char *at = PyUnicode_AsUTF8AndSize(text, &len);
    long n = 0;
    for (Py_ssize_t i = 0; at && i < len; i++)
        n += at[i] == 'a';
    return PyLong_FromLong(n);
}
static PyMethodDef methods[] = {{"count", count, METH_O, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "counted", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_counted(void) { return PyModule_Create(&module); }
END
    local site
    site=$(env/bin/python -c 'import site; print(site.getsitepackages()[0])')
    gcc -shared -fPIC -O1 -I"$(env/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" counted.c -o "$site/counted.so"
    echo 'import counted; print(counted.count("banana"), counted.__file__.rsplit("/", 1)[1])' >use.py
    env/bin/python use.py && env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
    (. env/bin/activate && python use.py && command -v python | grep -o 'env/bin/python')
    mv env moved && moved/bin/python use.py && rm -r moved
}
