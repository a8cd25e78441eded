/* Descriptors: every way to make, share and end one. */
#include "check.h"
#include <dirent.h>

static char got[4096];

static void table(void) {
    int a = file_with("a", "0123456789"), plain = open("/dev/null", O_RDWR);
    /* Duplicates share their offset. */
    int b = dup(a);
    CHECK(b > a && read(b, got, 3) == 3 && lseek(a, 0, SEEK_CUR) == 3);
    CHECK(dup2(a, a) == a && dup2(b, 50) == 50 && lseek(50, 0, SEEK_CUR) == 3);
    FAILS(EINVAL, dup3(a, a, 0));
    FAILS(EINVAL, dup3(a, 51, 0x4));
    CHECK(dup3(a, 51, O_CLOEXEC) == 51 && fcntl(51, F_GETFD) == FD_CLOEXEC && fcntl(50, F_GETFD) == 0);
    /* From ours onto others, and back. */
    CHECK(dup2(a, plain) == plain && read(plain, got, 1) == 1 && got[0] == '3');
    int null = open("/dev/null", O_RDWR);
    CHECK(dup2(null, plain) == plain && read(plain, got, 1) == 0 && write(plain, "x", 1) == 1);
    CHECK(dup2(null, 50) == 50 && read(50, got, 1) == 0);
    CHECK(dup2(a, 50) == 50 && read(50, got, 1) == 1 && got[0] == '4');
    /* An end of one number is not the end of the others. */
    CHECK(close(50) == 0 && read(a, got, 1) == 1 && got[0] == '5');
    FAILS(EBADF, read(50, got, 1));
    FAILS(EBADF, close(50));
    FAILS(EBADF, dup2(50, 52));
    FAILS(EBADF, dup2(a, -1));
    FAILS(EBADF, dup2(a, 1 << 30));
    CHECK(fcntl(a, F_DUPFD, 100) == 100 && fcntl(a, F_DUPFD, 100) == 101);
    CHECK(fcntl(a, F_DUPFD_CLOEXEC, 100) == 102 && fcntl(102, F_GETFD) == FD_CLOEXEC);
    FAILS(EINVAL, fcntl(a, F_DUPFD, -1));
    FAILS(EINVAL, fcntl(a, F_DUPFD, 1 << 30));
    /* Close-on-exec by fcntl and ioctl. */
    CHECK(fcntl(100, F_SETFD, FD_CLOEXEC) == 0 && fcntl(100, F_GETFD) == FD_CLOEXEC && fcntl(101, F_GETFD) == 0);
    /* Flags belong to the open file, not to the number. */
    CHECK((fcntl(a, F_GETFL) & O_ACCMODE) == O_RDWR && !(fcntl(a, F_GETFL) & O_APPEND));
    CHECK(fcntl(100, F_SETFL, O_APPEND | O_NONBLOCK) == 0);
    CHECK((fcntl(a, F_GETFL) & (O_APPEND | O_NONBLOCK)) == (O_APPEND | O_NONBLOCK));
    CHECK(lseek(a, 0, SEEK_SET) == 0 && write(a, "A", 1) == 1 && lseek(a, 0, SEEK_CUR) == 11);
    CHECK(fcntl(a, F_SETFL, 0) == 0 && !(fcntl(101, F_GETFL) & O_APPEND));
    CHECK(pwrite(a, "P", 1, 0) == 1 && holds("a", "P123456789A"));
    /* Ranges. */
    CHECK(close_range(100, 101, 0) == 0 && fcntl(100, F_GETFD) == -1 && fcntl(101, F_GETFD) == -1 && fcntl(102, F_GETFD) == 1);
    int c = dup2(a, 110);
    CHECK(close_range(105, 115, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(c, F_GETFD) == FD_CLOEXEC && lseek(c, 0, SEEK_CUR) == 11);
    FAILS(EINVAL, close_range(5, 4, 0));
    FAILS(EINVAL, close_range(3, 4, 0x80));
    closefrom(60);
    CHECK(fcntl(c, F_GETFD) == -1 && fcntl(102, F_GETFD) == -1 && fcntl(51, F_GETFD) == 1);
    /* stdio. */
    FILE *file = fdopen(dup(a), "r+");
    CHECK(file && fseek(file, 0, SEEK_SET) == 0 && fgetc(file) == 'P' && fgetc(file) == '1');
    CHECK(fseek(file, 0, SEEK_END) == 0 && fprintf(file, "line\n") == 5 && fflush(file) == 0 && ftell(file) == 16);
    CHECK(fclose(file) == 0 && fcntl(a, F_GETFD) == 0);
    /* Always ready, as files are. */
    struct pollfd polled = {.fd = a, .events = POLLIN | POLLOUT};
    CHECK(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLOUT));
    fd_set in_set, out_set;
    FD_ZERO(&in_set);
    FD_ZERO(&out_set);
    FD_SET(a, &in_set);
    FD_SET(a, &out_set);
    struct timeval none = {0, 0};
    CHECK(select(a + 1, &in_set, &out_set, NULL, &none) == 2);
    /* The lowest number is taken. */
    int d = open(in("a"), O_RDONLY), e = open(in("a"), O_RDONLY);
    close(d);
    CHECK(open(in("a"), O_RDONLY) == d && e > d);
    FAILS(EBADF, write(d, "x", 1));
    int w = open(in("a"), O_WRONLY);
    FAILS(EBADF, read(w, got, 1));
}

static void offsets(void) {
    int fd = open(in("turns"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    int up[2], down[2];
    NEED(pipe(up) == 0 && pipe(down) == 0);
    pid_t pid = fork();
    for (int turn = 0; turn < 50; turn++) {
        char byte;
        if (pid == 0) {
            NEED(read(down[0], &byte, 1) == 1 && write(fd, "c", 1) == 1 && write(up[1], "x", 1) == 1);
        } else {
            NEED(write(fd, "p", 1) == 1 && write(down[1], "x", 1) == 1 && read(up[0], &byte, 1) == 1);
        }
    }
    if (pid == 0)
        _exit(0);
    CHECK(child_ends_with(pid, 0));
    CHECK(lseek(fd, 0, SEEK_CUR) == 100);
    memset(got, 0, sizeof got);
    CHECK(pread(fd, got, 200, 0) == 100);
    for (int at = 0; at < 100; at++)
        CHECK(got[at] == (at % 2 ? 'c' : 'p'));
    /* Over exec: what the shell writes moves our offset, also of what it starts itself. */
    NEED(dup2(fd, 9) == 9);
    CHECK(system("printf shell >&9; (cat /dev/null; printf sub >&9); /bin/echo -n prog >&9") == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 112);
    /* A number that is closed on exec is not there. */
    NEED(dup3(fd, 8, O_CLOEXEC) == 8);
    CHECK(system("{ printf x >&8; } 2>/dev/null") != 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 112);
    /* Reading from where the parent left off. */
    int in_fd = file_with("lines", "one\ntwo\nthree\n");
    NEED(read(in_fd, got, 4) == 4 && dup2(in_fd, 7) == 7);
    FILE *out = popen("read line <&7; echo $line; cat <&7", "r");
    size_t len = fread(got, 1, sizeof got, out);
    CHECK(len == 10 && memcmp(got, "two\nthree\n", 10) == 0 && pclose(out) == 0);
    CHECK(lseek(in_fd, 0, SEEK_CUR) == 14);
    /* And writing through popen. */
    char command[PATH_MAX + 20];
    snprintf(command, sizeof command, "cat > %s", in("popen"));
    FILE *to = popen(command, "w");
    CHECK(to && fputs("through", to) >= 0 && pclose(to) == 0 && holds("popen", "through"));
}

static void unnamed(void) {
    int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    struct stat stat;
    CHECK(fd >= 0 && write(fd, "nameless", 8) == 8 && fstat(fd, &stat) == 0 && stat.st_nlink == 0);
    CHECK(linkat(fd, "", AT_FDCWD, in("named"), AT_EMPTY_PATH) == 0 && holds("named", "nameless"));
    FAILS(EEXIST, linkat(fd, "", AT_FDCWD, in("named"), AT_EMPTY_PATH));
    int other = open(dir, O_TMPFILE | O_WRONLY, 0600);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", other);
    CHECK(write(other, "by proc", 7) == 7);
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, in("by proc"), AT_SYMLINK_FOLLOW) == 0 && holds("by proc", "by proc"));
    FAILS(ENOENT, openat(AT_FDCWD, in("none"), O_TMPFILE | O_RDWR, 0600));
    /* A name below a directory's descriptor, with AT_EMPTY_PATH, is that name. */
    int here = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(linkat(here, "named", here, "second", AT_EMPTY_PATH) == 0 && holds("second", "nameless"));
    CHECK(fstatat(here, "", &stat, AT_EMPTY_PATH) == 0 && S_ISDIR(stat.st_mode));
    CHECK(faccessat(here, "", R_OK, AT_EMPTY_PATH) == 0);
    FAILS(ENOENT, faccessat(here, "", R_OK, 0));
    /* O_PATH: a place, not a file. */
    int place = open(in("named"), O_PATH);
    CHECK(place >= 0);
    FAILS(EBADF, read(place, got, 1));
    CHECK(fstat(place, &stat) == 0 && stat.st_size == 8 && stat.st_nlink == 2);
    snprintf(path, sizeof path, "/proc/self/fd/%d", place);
    int again = open(path, O_RDONLY);
    CHECK(again >= 0 && read(again, got, 10) == 8);
    int dir_place = open(dir, O_PATH | O_DIRECTORY);
    int below = openat(dir_place, "named", O_RDONLY);
    CHECK(below >= 0 && read(below, got, 10) == 8 && memcmp(got, "nameless", 8) == 0);
    CHECK(unlinkat(dir_place, "second", 0) == 0);
    FAILS(ENOENT, open(in("second"), O_RDONLY));
}

static void copies(void) {
    int from = file_with("from", "0123456789"), to = file_with("to", "");
    CHECK(copy_file_range(from, NULL, to, NULL, 4, 0) == 4 && lseek(from, 0, SEEK_CUR) == 4 && lseek(to, 0, SEEK_CUR) == 4);
    off_t at = 8, there = 20;
    CHECK(copy_file_range(from, &at, to, &there, 100, 0) == 2 && at == 10 && there == 22);
    FAILS(EINVAL, copy_file_range(from, NULL, to, NULL, 1, 1));
    CHECK(ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
    at = 2;
    CHECK(sendfile(to, from, &at, 3) == 3 && at == 5 && lseek(from, 0, SEEK_CUR) == 4 && holds("to", "234"));
    CHECK(sendfile(to, from, NULL, 100) == 6 && lseek(from, 0, SEEK_CUR) == 10 && holds("to", "234456789"));
    CHECK(sendfile(to, from, NULL, 100) == 0);
    /* To a pipe and a socket. */
    int ends[2], pair[2];
    NEED(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    at = 0;
    CHECK(sendfile(ends[1], from, &at, 5) == 5 && read(ends[0], got, 10) == 5 && memcmp(got, "01234", 5) == 0);
    CHECK(sendfile(pair[1], from, &at, 5) == 5 && read(pair[0], got, 10) == 5 && memcmp(got, "56789", 5) == 0);
    /* From outside. */
    char outside[] = "/tmp/pmfs-run-XXXXXX";
    int plain = mkstemp(outside);
    NEED(plain >= 0 && unlink(outside) == 0 && write(plain, "from outside", 12) == 12);
    at = 5;
    CHECK(sendfile(to, plain, &at, 7) == 7 && at == 12 && holds("to", "234456789outside"));
    CHECK(lseek(plain, 0, SEEK_SET) == 0 && sendfile(to, plain, NULL, 4) == 4 && lseek(plain, 0, SEEK_CUR) == 4);
    CHECK(holds("to", "234456789outsidefrom"));
    int reader = open(in("to"), O_RDONLY);
    FAILS(EBADF, sendfile(reader, from, &at, 1));
    /* Vectors with an offset, and with flags. */
    struct iovec two[2] = {{got, 2}, {got + 2, 3}};
    CHECK(preadv2(from, two, 2, 1, 0) == 5 && memcmp(got, "12345", 5) == 0);
    CHECK(lseek(from, 6, SEEK_SET) == 6 && preadv2(from, two, 2, -1, 0) == 4 && lseek(from, 0, SEEK_CUR) == 10);
    CHECK(pwritev2(from, two, 2, 3, RWF_DSYNC) == 5);
    FAILS(EOPNOTSUPP, preadv2(from, two, 2, 0, 0x4000));
    FAILS(EINVAL, preadv(from, two, 2, -1));
    FAILS(EINVAL, readv(from, two, -1));
    FAILS(EINVAL, readv(from, two, 1025));
}

/* Names that the kernel makes of descriptors lead to the file itself. */
static void names(void) {
    int fd = file_with("real", "the real content");
    NEED(read(fd, got, 4) == 4);
    char path[6][64];
    snprintf(path[0], 64, "/proc/self/fd/%d", fd);
    snprintf(path[1], 64, "/dev/fd/%d", fd);
    snprintf(path[2], 64, "/proc/%d/fd/%d", getpid(), fd);
    snprintf(path[3], 64, "/proc/thread-self/fd/%d", fd);
    snprintf(path[4], 64, "/proc//self/./fd/%d", fd);
    snprintf(path[5], 64, "/dev/../proc/self/fd/%d", fd);
    for (int way = 0; way < 6; way++) {
        int again = open(path[way], O_RDONLY);
        memset(got, 0, 20);
        /* An open of its own: from the start. */
        CHECK(again >= 0 && read(again, got, 20) == 16 && memcmp(got, "the real content", 16) == 0);
        close(again);
        struct stat one, other;
        CHECK(stat(path[way], &one) == 0 && fstat(fd, &other) == 0 && one.st_ino == other.st_ino && one.st_dev == other.st_dev);
        CHECK(one.st_size == 16 && access(path[way], R_OK) == 0);
    }
    CHECK(truncate(path[0], 8) == 0 && holds("real", "the real") && chmod(path[1], 0600) == 0);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0 && (stat.st_mode & 0777) == 0600);
    int writer = open(path[1], O_WRONLY | O_APPEND);
    CHECK(writer >= 0 && write(writer, "!", 1) == 1 && holds("real", "the real!"));
    writer = open(path[1], O_WRONLY | O_TRUNC);
    CHECK(writer >= 0 && write(writer, "anew", 4) == 4 && holds("real", "anew"));
    /* Where the name leads. */
    ssize_t len = readlink(path[0], got, sizeof got - 1);
    got[len > 0 ? len : 0] = 0;
    struct stat there;
    CHECK(len > 0 && lstat(got, &there) == 0 && there.st_ino == stat.st_ino && S_ISREG(there.st_mode));
    int at = open(dir, O_RDONLY);
    snprintf(path[2], 64, "/proc/self/fd/%d", at);
    len = readlink(path[2], got, sizeof got - 1);
    got[len > 0 ? len : 0] = 0;
    CHECK(len > 0 && strcmp(got, dir) == 0);
    snprintf(path[2], 64, "/proc/self/fd/%d/real", at);
    int below = open(path[2], O_RDONLY);
    CHECK(below >= 0 && read(below, got, 10) == 4);
    /* The three that have names. */
    NEED(dup2(fd, 0) == 0 && lseek(0, 0, SEEK_SET) == 0);
    int in_again = open("/dev/stdin", O_RDONLY);
    CHECK(in_again >= 0 && read(in_again, got, 10) == 4 && memcmp(got, "anew", 4) == 0);
    char command[7 * PATH_MAX];
    snprintf(command, sizeof command, "cat /dev/stdin < %s > %s; cat /proc/self/fd/0 < %s >> %s; cat /dev/fd/5 5< %s >> %s", in("real"),
             in("copied"), in("real"), in("copied"), in("real"), in("copied"));
    CHECK(system(command) == 0 && holds("copied", "anewanewanew"));
    int out = open(in("out"), O_RDWR | O_CREAT | O_APPEND, 0644), kept = dup(1);
    dup2(out, 1);
    int status = system("echo out >> /dev/stdout; echo more >> /dev/fd/1");
    dup2(kept, 1);
    CHECK(status == 0 && holds("out", "out\nmore\n"));
    /* A list of the descriptors shows no more than there are, and leads to the files themselves. */
    DIR *list = opendir("/proc/self/fd");
    NEED(list);
    struct dirent *entry;
    int strange = 0, met = 0;
    while ((entry = readdir(list))) {
        int number = atoi(entry->d_name);
        strange += entry->d_name[0] != '.' && fcntl(number, F_GETFD) < 0;
        met += number == fd;
    }
    CHECK(strange == 0 && met == 1);
    snprintf(path[2], 64, "%d", fd);
    below = openat(dirfd(list), path[2], O_RDONLY);
    CHECK(below >= 0 && read(below, got, 10) == 4 && memcmp(got, "anew", 4) == 0);
    CHECK(fstatat(dirfd(list), path[2], &there, 0) == 0 && there.st_ino == stat.st_ino);
    rewinddir(list);
    CHECK(readdir(list) && closedir(list) == 0);
    /* A name like those that the mount gives to files without one is any other. */
    file_with(".pmfs-inode-3", "a name");
    CHECK(holds(".pmfs-inode-3", "a name") && rename(in(".pmfs-inode-3"), in(".pmfs-inode-2")) == 0);
    CHECK(system(command) == 0 && unlink(in(".pmfs-inode-2")) == 0);
    FAILS(ENOENT, open("/proc/self/fd/777", O_RDONLY));
}

/* What the link of a descriptor says of a file that has no name any more. */
static int says(int fd, const char *name) {
    char path[64], link[PATH_MAX], want[PATH_MAX + 64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    snprintf(want, sizeof want, "%s/%s (deleted)", dir, name);
    ssize_t len = readlink(path, link, sizeof link - 1);
    link[len > 0 ? len : 0] = 0;
    if (strcmp(link, want))
        say("%s, not %s\n", link, want);
    return strcmp(link, want) == 0;
}

static void gone(void) {
    int fd = file_with("going", "one"), again = open(in("going"), O_RDONLY), more = dup(fd);
    CHECK(unlink(in("going")) == 0 && says(fd, "going") && says(again, "going") && says(more, "going"));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, got, 5) == 5 && !memcmp(got, dir, 5));
    /* Another of that name, and one that may get the number of one that is closed. */
    int other = file_with("going", "two");
    CHECK(unlink(in("going")) == 0 && says(other, "going") && says(fd, "going"));
    for (int round = 0; round < 100; round++) {
        char name[2][20];
        snprintf(name[0], 20, "a %d", round), snprintf(name[1], 20, "b %d", round);
        int a = file_with(name[0], ""), b = file_with(name[1], "");
        CHECK(unlink(in(name[0])) == 0 && unlink(in(name[1])) == 0 && says(a, name[0]) && says(b, name[1]));
        close(a);
        close(b);
    }
    CHECK(says(fd, "going") && read(fd, got, 10) == 3);
    close(fd), close(again), close(more), close(other);
    /* The name that it has got since. */
    fd = file_with("first", "");
    CHECK(rename(in("first"), in("second")) == 0 && link(in("second"), in("third")) == 0);
    CHECK(unlink(in("third")) == 0 && unlink(in("second")) == 0 && says(fd, "second"));
    /* Replaced. */
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    fd = file_with("replaced", "");
    close(file_with("new", "new"));
    CHECK(renameat(at, "new", at, "replaced") == 0 && says(fd, "replaced") && holds("replaced", "new"));
    /* Below directories, which are renamed and removed afterwards. */
    NEED(mkdir(in("up"), 0755) == 0 && mkdir(in("up/low"), 0755) == 0);
    int low = open(in("up/low"), O_RDONLY | O_DIRECTORY), below = file_with("up/low/file", "");
    CHECK(unlinkat(low, "file", 0) == 0 && says(below, "up/low/file"));
    CHECK(rename(in("up"), in("moved")) == 0 && says(below, "moved/low/file"));
    CHECK(unlinkat(at, "moved/low", AT_REMOVEDIR) == 0 && says(low, "moved/low") && says(below, "moved/low/file"));
    CHECK(rmdir(in("moved")) == 0 && says(low, "moved/low") && says(below, "moved/low/file"));
    /* A child knows them too, and removes one itself. */
    fd = file_with("both", "");
    CHECK(unlink(in("both")) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(says(fd, "both") && says(below, "moved/low/file"));
        int own = file_with("own", "");
        CHECK(unlink(in("own")) == 0 && says(own, "own"));
        _exit(failures);
    }
    CHECK(child_ends_with(pid, 0));
    fd = file_with("shared", "");
    pid = vfork();
    if (pid == 0)
        _exit(unlink(in("shared")) != 0 || !says(fd, "shared"));
    CHECK(child_ends_with(pid, 0) && says(fd, "shared"));
    /* Never named, and named at last. */
    struct stat stat;
    NEED(mkdir(in("tmp"), 0755) == 0);
    fd = open(in("tmp"), O_TMPFILE | O_RDWR, 0600);
    NEED(fd >= 0 && fstat(fd, &stat) == 0);
    char name[64];
    snprintf(name, sizeof name, "tmp/#%lu", (unsigned long)stat.st_ino);
    CHECK(says(fd, name));
    CHECK(linkat(fd, "", AT_FDCWD, in("given"), AT_EMPTY_PATH) == 0 && unlink(in("given")) == 0);
}

static void limit(void) {
    struct rlimit limit = {1024, 4096};
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    NEED(file_with("many", "many") >= 0);
    int last = -1, fd, count = 0;
    while ((fd = open(in("many"), O_RDONLY)) >= 0 && count < 5000)
        count++, last = fd;
    int why = errno;
    CHECK(why == EMFILE && count > 1000);
    if (why != EMFILE)
        say("%d open: errno %d\n", count, why);
    /* Some of the last belong to the library: nearly all are the program's. */
    CHECK(last >= 1000 && last < 1024);
    CHECK(read(last, got, 10) == 4);
    FAILS(EMFILE, dup(last));
    FAILS(EMFILE, fcntl(last, F_DUPFD, 3));
    FAILS(EMFILE, open("/dev/null", O_RDONLY));
    close(last);
    int plain = open("/dev/zero", O_RDONLY);
    CHECK(plain == last && read(plain, got, 10) == 10);
    closefrom(4);
    /* And files of others, up to the limit: each of them can be used. */
    int bad = 0;
    while ((last = open("/dev/zero", O_RDONLY)) >= 0)
        bad += read(last, got, 1) != 1;
    why = errno;
    CHECK(why == EMFILE && bad == 0);
    closefrom(4);
    limit.rlim_cur = 4096;
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    bad = count = 0;
    while ((last = open(in("many"), O_RDONLY)) >= 0)
        bad += read(last, got, 10) != 4, count++;
    why = errno;
    CHECK(why == EMFILE && bad == 0 && count > 4000);
    closefrom(4);
    CHECK(open(in("many"), O_RDONLY) == 4);
    /* Lowered below what is open. */
    limit.rlim_cur = 10;
    NEED(dup2(4, 500) == 500 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(read(500, got, 10) == 4 && lseek(500, 0, SEEK_SET) == 0);
    CHECK(open(in("many"), O_RDONLY) == 5);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    const char *what = arguments[1];
    if (!strcmp(what, "table"))
        table();
    else if (!strcmp(what, "gone"))
        gone();
    else if (!strcmp(what, "offsets"))
        offsets();
    else if (!strcmp(what, "unnamed"))
        unnamed();
    else if (!strcmp(what, "copies"))
        copies();
    else if (!strcmp(what, "names"))
        names();
    else if (!strcmp(what, "limit"))
        limit();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
