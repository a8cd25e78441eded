/* Several threads copy by offsets that they share: each byte is copied once, and in
 * order where both files are the directory's. (Linux itself does not promise that.) And
 * what is asked for again and again takes no more memory each time. */
#include "check.h"
#include <grp.h>
#include <sys/fsuid.h>

enum { THREADS = 4, BYTES = 8 << 20, STEP = 3000 };

static int from, to;
static ssize_t (*copy)(void);

static ssize_t by_range(void) { return copy_file_range(from, NULL, to, NULL, STEP, 0); }
static ssize_t by_sendfile(void) { return sendfile(to, from, NULL, STEP); }

static void *copies(void *unused) {
    (void)unused;
    long all = 0;
    ssize_t done;
    while ((done = copy()) > 0)
        all += done;
    CHECK(done == 0);
    return (void *)all;
}

static long by_all(ssize_t (*how)(void)) {
    pthread_t threads[THREADS];
    long all = 0;
    copy = how;
    NEED(lseek(from, 0, SEEK_SET) == 0 && lseek(to, 0, SEEK_SET) >= -1);
    for (int at = 0; at < THREADS; at++)
        NEED(pthread_create(&threads[at], NULL, copies, NULL) == 0);
    for (int at = 0; at < THREADS; at++) {
        void *done;
        NEED(pthread_join(threads[at], &done) == 0);
        all += (long)done;
    }
    return all;
}

static int is_the_same(int one, int other) {
    static char here[1 << 16], there[1 << 16];
    for (off_t at = 0; at < BYTES; at += sizeof here)
        if (pread(one, here, sizeof here, at) != sizeof here || pread(other, there, sizeof there, at) != sizeof there || memcmp(here, there, sizeof here) != 0)
            return 0;
    return 1;
}

static int numbered(int fd) {
    static unsigned numbers[1 << 14];
    for (unsigned next = 0; next < BYTES / sizeof *numbers; next += 1 << 14) {
        for (unsigned at = 0; at < 1 << 14; at++)
            numbers[at] = next + at;
        NEED(write(fd, numbers, sizeof numbers) == sizeof numbers);
    }
    return fd;
}

/* A file elsewhere. No memfd: the kernel holds no lock over the offset of one. */
static int unnamed(void) {
    char name[] = "/tmp/pmfs-copies-XXXXXX";
    int fd = mkstemp(name);
    NEED(fd >= 0 && unlink(name) == 0);
    return fd;
}

static void shared(void) {
    int ours = numbered(open(in("from"), O_RDWR | O_CREAT | O_TRUNC, 0600)), outside = numbered(unnamed());
    from = ours;
    to = open(in("ranges"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(by_all(by_range) == BYTES && is_the_same(from, to) && close(to) == 0);
    to = open(in("sent"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(by_all(by_sendfile) == BYTES && is_the_same(from, to) && close(to) == 0);
    to = open("/dev/null", O_WRONLY);
    CHECK(by_all(by_sendfile) == BYTES && close(to) == 0);
    from = outside;
    to = open(in("received"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(by_all(by_sendfile) == BYTES);
    CHECK(lseek(to, 0, SEEK_CUR) == BYTES && lseek(from, 0, SEEK_CUR) == BYTES && close(to) == 0);
    /* A file of its own offset, and one that takes less. */
    from = ours;
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    FAILS(EINVAL, copy_file_range(from, NULL, from, NULL, 10, 0));
    to = open(in("little"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct rlimit limit = {100, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    NEED(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(sendfile(to, from, NULL, 300) == 100 && lseek(from, 0, SEEK_CUR) == 100);
    FAILS(EFBIG, sendfile(to, from, NULL, 300));
    FAILS(EFBIG, copy_file_range(from, NULL, to, NULL, 300, 0));
    CHECK(lseek(from, 0, SEEK_CUR) == 100 && lseek(to, 0, SEEK_CUR) == 100);
    NEED(setrlimit(RLIMIT_FSIZE, &none) == 0);
    /* A pipe that takes less than there is. */
    int ends[2];
    NEED(pipe2(ends, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096 && lseek(from, 0, SEEK_SET) == 0);
    ssize_t sent = sendfile(ends[1], from, NULL, 100000);
    CHECK(sent > 0 && sent <= 65536 && lseek(from, 0, SEEK_CUR) == sent);
    FAILS(EAGAIN, sendfile(ends[1], from, NULL, 100000));
    CHECK(lseek(from, 0, SEEK_CUR) == sent && close(to) == 0);
}

/* Pages of data. */
static long pages(void) {
    long all[6] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    NEED(file && fscanf(file, "%ld %ld %ld %ld %ld %ld", &all[0], &all[1], &all[2], &all[3], &all[4], &all[5]) == 6);
    fclose(file);
    return all[5];
}

static void looks(void) {
    struct stat stat;
    CHECK(lstat(in("from"), &stat) == 0 && access(in("from"), R_OK) == 0);
}

static void memory(void) {
    gid_t groups[30] = {5};
    NEED(setgroups(30, groups) == 0);
    looks();
    long before = pages();
    for (int time = 0; time < 20000; time++) {
        setfsuid(time % 2 ? 0 : 1000 + time);
        looks();
    }
    long after = pages();
    CHECK(after - before < 300);
    before = pages();
    for (int time = 0; time < 6000; time++) {
        pid_t pid = vfork();
        if (pid == 0) {
            looks();
            _exit(0);
        }
        NEED(waitpid(pid, NULL, 0) == pid);
        looks();
    }
    after = pages();
    CHECK(after - before < 150);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    NEED(chmod(dir, 0755) == 0);
    shared();
    NEED(chmod(in("from"), 0644) == 0);
    memory();
    say("copies: %d failures\n", failures);
    return failures != 0;
}
