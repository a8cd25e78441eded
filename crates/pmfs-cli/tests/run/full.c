/* Every descriptor that the limit allows is taken: what needs none of its own goes on. */
#include "check.h"
#include <linux/aio_abi.h>
#include <spawn.h>
#include <stdint.h>

extern char **environ;
static char got[4096];
/* The last of those that were taken, and a plain file's. */
static int last, plain;

static void set_limit(void) {
    struct rlimit limit = {64, 64};
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Takes all, most of them by one file, which the next program does not get. */
static void fill(const char *path) {
    int fd;
    while ((fd = open(path, O_RDWR | O_CLOEXEC)) >= 0)
        last = fd;
    int why = errno;
    NEED(why == EMFILE && last > 55 && last < 64);
    FAILS(EMFILE, dup(0));
}

/* What a child finds: its parent's files, and as many numbers. */
static void in_child(void) {
    CHECK(pread(last, got, 20, 0) == 10 && !memcmp(got, "0123456789", 10));
    CHECK(pwrite(last, "0", 1, 0) == 1);
    FAILS(EMFILE, open(in("many"), O_RDONLY));
    CHECK(close(last) == 0 && open(in("many"), O_RDWR) == last);
    CHECK(read(last, got, 5) == 5 && !memcmp(got, "01234", 5));
    FAILS(EMFILE, open(in("many"), O_RDONLY));
    CHECK(chmod(in("many"), 0640) == 0);
    _exit(failures);
}

static void forked(void) {
    fill(in("many"));
    for (int round = 0; round < 3; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            pid = fork();
            if (pid == 0)
                in_child();
            CHECK(pread(last, got, 20, 0) == 10 && child_ends_with(pid, 0));
            in_child();
        }
        CHECK(pid > 0 && child_ends_with(pid, 0));
        CHECK(pread(last, got, 20, 0) == 10 && !memcmp(got, "0123456789", 10));
        FAILS(EMFILE, open(in("many"), O_RDONLY));
    }
    /* A child that dies at once, and one that can't be made. */
    pid_t pid = fork();
    if (pid == 0)
        raise(SIGKILL);
    CHECK(child_ends_with(pid, SIGKILL));
    FAILS(EINVAL, syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0));
    /* vfork, and what such a child forks. */
    pid = vfork();
    if (pid == 0) {
        int bad = pread(last, got, 20, 0) != 10 || close(last) != 0 || open(in("many"), O_RDWR) != last;
        _exit(bad);
    }
    CHECK(child_ends_with(pid, 0));
    pid = vfork();
    if (pid == 0) {
        pid_t below = fork();
        if (below == 0)
            in_child();
        _exit(!child_ends_with(below, 0));
    }
    CHECK(child_ends_with(pid, 0));
    FAILS(EMFILE, open(in("many"), O_RDONLY));
    /* As many as before, when they are free again. */
    int most = last;
    for (int fd = plain + 1; fd <= most; fd++)
        close(fd);
    fill(in("many"));
    CHECK(last == most);
}

/* A child that maps files of the pool. */
static void mapped(void) {
    int fd = file_with("mapped", "mapped");
    NEED(ftruncate(fd, 3 << 20) == 0);
    fill(in("many"));
    char *shared = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED && !memcmp(shared, "mapped", 6));
    char *private = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(private != MAP_FAILED && !memcmp(private, "mapped", 6));
    if (failures)
        return;
    shared[1 << 20] = 'x';
    private[0] = 'y';
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(shared[1 << 20] == 'x' && private[0] == 'y');
        shared[2 << 20] = 'z';
        CHECK(msync(shared, 3 << 20, MS_SYNC) == 0);
        in_child();
    }
    CHECK(child_ends_with(pid, 0));
    CHECK(shared[2 << 20] == 'z' && pread(fd, got, 1, 2 << 20) == 1 && got[0] == 'z');
    char *moved = mremap(shared, 3 << 20, 4 << 20, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved[2 << 20] == 'z');
    CHECK(msync(moved, 3 << 20, MS_SYNC) == 0 && munmap(moved, 4 << 20) == 0 && munmap(private, 3 << 20) == 0);
}

static void executed(void) {
    /* The next program has one of them. */
    int kept = file_with("kept", "kept by exec");
    fill(in("many"));
    NEED(dup2(kept, 9) == 9);
    static const char script[] = "read line <&9; [ \"$line\" = 'kept by exec' ] && exit 7";
    for (int round = 0; round < 3; round++) {
        CHECK(lseek(kept, 0, SEEK_SET) == 0 && system(script) == 0x700);
        char *argv[] = {"sh", "-c", (char *)script, NULL};
        pid_t pid;
        CHECK(lseek(kept, 0, SEEK_SET) == 0);
        CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0 && child_ends_with(pid, 0x700));
        CHECK(lseek(kept, 0, SEEK_SET) == 0);
        pid = fork();
        if (pid == 0) {
            execv("/bin/sh", argv);
            _exit(1);
        }
        CHECK(child_ends_with(pid, 0x700));
    }
    /* One that is not there: all is as before. */
    char *argv[] = {"none", NULL};
    FAILS(ENOENT, execv("/none", argv));
    pid_t pid;
    CHECK(posix_spawn(&pid, "/none", NULL, NULL, argv, environ) == ENOENT);
    CHECK(pread(last, got, 20, 0) == 10);
    FAILS(EMFILE, open(in("many"), O_RDONLY));
    /* One in the directory. */
    char *own[] = {"own", NULL};
    pid = fork();
    if (pid == 0) {
        execv(in("own"), own);
        _exit(errno);
    }
    CHECK(child_ends_with(pid, 0x500));
}

static void called(void) {
    struct stat stat_of;
    struct timespec times[2] = {{1, 0}, {2, 0}};
    int from = file_with("from", "0123456789"), to = file_with("to", ""), ends[2];
    NEED(pipe(ends) == 0 && mkdir(in("dir"), 0755) == 0 && symlink("from", in("link")) == 0);
    int at = open(in("dir"), O_RDONLY | O_DIRECTORY);
    NEED(at >= 0);
    char path[64], here[PATH_MAX];
    snprintf(path, sizeof path, "/proc/self/fd/%d", from);
    /* A way in from outside, and one that stays there. */
    char way[2][PATH_MAX];
    for (int which = 0; which < 2; which++) {
        snprintf(way[which], sizeof way[which], "%.*s/%s", (int)(strrchr(dir, '/') - dir), dir, which ? "off" : "way");
        unlink(way[which]);
        NEED(symlink(which ? "/etc" : dir, way[which]) == 0);
        strcat(way[which], which ? "/passwd" : "/from");
    }
    aio_context_t context = 0;
    struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = from, .aio_buf = (uintptr_t)got, .aio_nbytes = 4};
    struct iocb *requests[] = {&request};
    struct io_event event;
    NEED(getcwd(here, sizeof here) && syscall(SYS_io_setup, 4, &context) == 0);
    fill(in("many"));
    CHECK(stat(in("from"), &stat_of) == 0 && stat_of.st_size == 10 && lstat(in("link"), &stat_of) == 0);
    CHECK(access(in("from"), R_OK | W_OK) == 0 && readlink(in("link"), got, 20) == 4);
    /* The first that asks for the umask. */
    CHECK(mkdir(in("made"), 0777) == 0 && stat(in("made"), &stat_of) == 0 && (stat_of.st_mode & 0777) == 0755);
    CHECK(mkdirat(at, "below", 0777) == 0 && rmdir(in("made")) == 0 && unlinkat(at, "below", AT_REMOVEDIR) == 0);
    CHECK(link(in("from"), in("second")) == 0 && rename(in("second"), in("third")) == 0 && unlink(in("third")) == 0);
    CHECK(symlink("from", in("other")) == 0 && unlink(in("other")) == 0);
    CHECK(mknod(in("fifo"), S_IFIFO | 0600, 0) == 0 && unlink(in("fifo")) == 0);
    CHECK(chmod(in("from"), 0600) == 0 && chown(in("from"), -1, -1) == 0);
    CHECK(utimensat(AT_FDCWD, in("from"), times, 0) == 0 && stat(in("from"), &stat_of) == 0 && stat_of.st_mtime == 2);
    CHECK(truncate(in("from"), 9) == 0 && truncate(in("from"), 10) == 0);
    CHECK(stat(path, &stat_of) == 0 && stat_of.st_size == 10 && truncate(path, 10) == 0 && access(path, R_OK) == 0);
    CHECK(readlink(path, got, sizeof got) > 0);
    /* Outside, and in by other ways. */
    CHECK(stat("/etc/passwd", &stat_of) == 0 && access("/etc/passwd", R_OK) == 0);
    FAILS(ENOENT, stat("/etc/is-not-there", &stat_of));
    CHECK(stat(in("../mnt"), &stat_of) == stat(in("../plain/../mnt"), &stat_of));
    CHECK(stat(way[0], &stat_of) == 0 && stat_of.st_size == 10 && stat(way[1], &stat_of) == 0);
    CHECK(stat("/proc/self/fd", &stat_of) == 0 && stat("/dev/stdin", &stat_of) == 0);
    /* To and fro. */
    CHECK(chdir(in("dir")) == 0 && stat("../from", &stat_of) == 0 && chdir("..") == 0 && stat("from", &stat_of) == 0);
    CHECK(getcwd(got, sizeof got) && !strcmp(got, dir));
    CHECK(fchdir(at) == 0 && stat("../from", &stat_of) == 0 && chdir(here) == 0);
    CHECK(getcwd(got, sizeof got) && !strcmp(got, here));
    /* Contents. */
    CHECK(pwrite(to, "abc", 3, 0) == 3 && ftruncate(to, 0) == 0 && fsync(to) == 0 && fallocate(to, 0, 0, 4096) == 0);
    CHECK(ftruncate(to, 0) == 0 && copy_file_range(from, &(off_t){0}, to, NULL, 10, 0) == 10);
    CHECK(sendfile(ends[1], from, &(off_t){0}, 5) == 5 && read(ends[0], got, 10) == 5);
    CHECK(splice(from, &(off_t){0}, ends[1], NULL, 5, 0) == 5 && read(ends[0], got, 10) == 5 && !memcmp(got, "0123", 4));
    CHECK(write(ends[1], "piped", 5) == 5 && splice(ends[0], NULL, to, &(off_t){0}, 5, 0) == 5 && pread(to, got, 5, 0) == 5 && !memcmp(got, "piped", 5));
    CHECK(flock(from, LOCK_EX) == 0 && flock(from, LOCK_UN) == 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    CHECK(fcntl(from, F_SETLK, &lock) == 0);
    CHECK(lseek(at, 0, SEEK_SET) == 0 && syscall(SYS_getdents64, at, got, sizeof got) > 0);
    CHECK(syscall(SYS_io_submit, context, 1, requests) == 1 && !memcmp(got, "0123", 4));
    CHECK(syscall(SYS_io_getevents, context, 0, 1, &event, NULL) == 1 && event.res == 4);
    CHECK(mlockall(MCL_CURRENT | MCL_ONFAULT) == 0 && munlockall() == 0);
    FAILS(EMFILE, open(in("many"), O_RDONLY));
}

/* A program that the library is not loaded into has the mount's in place of ours. */
static void strange(const char *stranger) {
    int kept = file_with("kept", "0123456789");
    fill(in("many"));
    for (int round = 0; round < 2; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            NEED(lseek(kept, 2, SEEK_SET) == 2 && dup2(kept, 0) == 0 && dup2(kept, 7) == 7);
            execl(stranger, stranger, "take", "3", NULL);
            _exit(99);
        }
        CHECK(child_ends_with(pid, 0) && lseek(kept, 0, SEEK_CUR) == 5);
    }
    FAILS(EMFILE, open(in("many"), O_RDONLY));
}

/* What can't be opened is neither made nor cut. */
static void made(void) {
    struct stat stat_of;
    fill(in("many"));
    FAILS(EMFILE, open(in("new"), O_RDWR | O_CREAT, 0644));
    FAILS(ENOENT, stat(in("new"), &stat_of));
    FAILS(EMFILE, open(in("new"), O_RDWR | O_CREAT | O_EXCL, 0644));
    FAILS(ENOENT, stat(in("new"), &stat_of));
    FAILS(EMFILE, open(in("many"), O_RDWR | O_TRUNC));
    CHECK(stat(in("many"), &stat_of) == 0 && stat_of.st_size == 10);
    FAILS(EMFILE, creat(in("many"), 0644));
    CHECK(stat(in("many"), &stat_of) == 0 && stat_of.st_size == 10 && pread(last, got, 20, 0) == 10);
    FAILS(EMFILE, open(dir, O_TMPFILE | O_RDWR, 0600));
    CHECK(close(last) == 0 && open(in("new"), O_RDWR | O_CREAT | O_EXCL, 0644) == last);
    CHECK(close(last) == 0 && open(in("many"), O_RDWR | O_TRUNC) == last);
    CHECK(stat(in("many"), &stat_of) == 0 && stat_of.st_size == 0);
}

int main(int count, char **arguments) {
    if (count == 1)
        return 5;
    NEED(count >= 3);
    dir = arguments[count - 1];
    const char *what = arguments[1];
    umask(022);
    if (!strcmp(what, "low"))
        set_limit();
    plain = open("/dev/null", O_RDWR);
    int many = file_with("many", "0123456789");
    if (!strcmp(what, "exec")) {
        int own = open(in("own"), O_WRONLY | O_CREAT, 0755), self = open("/proc/self/exe", O_RDONLY);
        NEED(own >= 0 && self >= 0 && sendfile(own, self, NULL, 1 << 24) > 0 && close(own) == 0 && close(self) == 0);
    }
    set_limit();
    NEED(close(many) == 0);
    if (!strcmp(what, "fork") || !strcmp(what, "low"))
        forked();
    else if (!strcmp(what, "mapped"))
        mapped();
    else if (!strcmp(what, "exec"))
        executed();
    else if (!strcmp(what, "calls"))
        called();
    else if (!strcmp(what, "strange"))
        strange(arguments[2]);
    else if (!strcmp(what, "made"))
        made();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
