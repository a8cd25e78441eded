/* Ways round the library: right, or refused loudly; never an empty file, never data
 * that are gone. */
#include "check.h"
#include <sys/epoll.h>

static long raw(long number, long a, long b, long c) {
    long answer;
    register long d __asm__("r10") = 0, e __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e) : "rcx", "r11", "memory");
    return answer;
}

static char got[100];
static int served; /* Elsewhere: there is no library, and all is right. */

/* Right, or refused so. */
#define RIGHT_OR(error, what, right)                                                                         \
    do {                                                                                                     \
        long answer = (what);                                                                                \
        if (served ? answer != -(error) : answer != (right)) {                                               \
            failures++;                                                                                      \
            say("line %d: %s: %ld\n", __LINE__, #what, answer);                                              \
        }                                                                                                    \
    } while (0)

static void *forker(void *name) {
    struct stat stat;
    for (int round = 0; round < 400; round++) {
        int fd = open(in(name), O_RDWR | O_CREAT, 0644);
        NEED(fd >= 0 && write(fd, "text", 4) == 4 && fstat(fd, &stat) == 0 && close(fd) == 0);
    }
    return NULL;
}

/* Forks while other threads are in the middle of calls: the child can do all that its
 * parent can. */
static void forks(void) {
    pthread_t threads[2];
    NEED(pthread_create(&threads[0], NULL, forker, "t1") == 0 && pthread_create(&threads[1], NULL, forker, "t2") == 0);
    int fd = file_with("file", "0123456789");
    for (int round = 0; round < 300; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            int own = open(in("own"), O_RDWR | O_CREAT, 0644);
            _exit(own < 0 || pread(fd, got, 10, 0) != 10 || pwrite(own, "x", 1, 0) != 1 || rename(in("own"), in("own2")) != 0);
        }
        NEED(child_ends_with(pid, 0));
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

/* Every system call of its own that a program could make on a descriptor of the library's. */
static void raw_calls(int fd) {
    struct iovec part = {got, 10}, text = {"x", 1};
    loff_t from = 0;
    int ends[2];
    NEED(pipe(ends) == 0);
    RIGHT_OR(EBADF, raw(SYS_read, fd, (long)got, 10), 10);
    RIGHT_OR(EBADF, raw(SYS_pread64, fd, (long)got, 10), 10);
    RIGHT_OR(EBADF, raw(SYS_readv, fd, (long)&part, 1), 0);
    RIGHT_OR(EBADF, raw(SYS_preadv, fd, (long)&part, 1), 10);
    RIGHT_OR(EBADF, raw(SYS_sendfile, ends[1], fd, (long)&from), 0);
    RIGHT_OR(EPERM, raw(SYS_write, fd, (long)"x", 1), 1);
    RIGHT_OR(EPERM, raw(SYS_pwrite64, fd, (long)"x", 1), 1);
    RIGHT_OR(EPERM, raw(SYS_writev, fd, (long)&text, 1), 1);
    RIGHT_OR(EPERM, raw(SYS_pwritev, fd, (long)&text, 1), 1);
    RIGHT_OR(EPERM, raw(SYS_ftruncate, fd, 12, 0), 0);
    RIGHT_OR(ENOTDIR, raw(SYS_getdents64, fd, (long)got, 100), -ENOTDIR);
    RIGHT_OR(ENOTDIR, raw(SYS_openat, fd, (long)"file", O_RDONLY), -ENOTDIR);
    /* A second one of it, of which the library has not been told. */
    int second = raw(SYS_dup, fd, 0, 0);
    ssize_t len = write(second, "yz", 2);
    int why = errno;
    CHECK(len == 2 || (len == -1 && (why == EPERM || why == EBADF)));
    len = pread(second, got, 10, 0);
    why = errno;
    CHECK(len == 10 || len == 12 || len == 14 || (len == -1 && (why == EBADF || why == EACCES)));
    raw(SYS_close, second, 0, 0);
    /* By its name: what is written there is not gone without a word, whoever asks. */
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int ways[] = {O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND};
    for (int way = 0; served && way < 4; way++) {
        int by_name = raw(SYS_open, (long)name, ways[way], 0);
        if (by_name >= 0) {
            CHECK(raw(SYS_write, by_name, (long)"x", 1) == -EPERM);
            raw(SYS_close, by_name, 0, 0);
        }
    }
    /* Mapped by a call of its own. */
    register long flags __asm__("r10") = MAP_SHARED, of __asm__("r8") = fd, at __asm__("r9") = 0;
    long map;
    __asm__ volatile("syscall" : "=a"(map) : "a"(SYS_mmap), "D"(0), "S"(4096), "d"(PROT_READ), "r"(flags), "r"(of), "r"(at) : "rcx", "r11", "memory");
    CHECK(served ? map == -EACCES : map > 0);
    close(ends[0]);
    close(ends[1]);
}

/* The same descriptor inherited: by a child of fork, of a raw fork, and of a raw vfork. */
static void inherited(int fd) {
    for (int way = 0; way < 2; way++) {
        pid_t pid = way ? raw(SYS_fork, 0, 0, 0) : fork();
        if (pid == 0) {
            failures = 0;
            RIGHT_OR(EBADF, raw(SYS_pread64, fd, (long)got, 4), 4);
            RIGHT_OR(EPERM, raw(SYS_pwrite64, fd, (long)"x", 1), 1);
            raw(SYS_exit_group, failures != 0, 0, 0);
        }
        CHECK(child_ends_with(pid, 0));
    }
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    if (!strcmp(arguments[1], "forks")) {
        forks();
        return failures != 0;
    }
    int fd = file_with("file", "0123456789");
    served = raw(SYS_lseek, fd, 0, SEEK_END) != 10;
    NEED(lseek(fd, 0, SEEK_SET) == 0);
    if (!strcmp(arguments[1], "raw")) {
        raw_calls(fd);
        inherited(fd);
    }
    struct epoll_event event = {.events = EPOLLIN};
    FAILS(EPERM, epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &event));
    char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map + 2, "23456789", 8) == 0);
    say("escapes: %d failures\n", failures);
    return failures != 0;
}
