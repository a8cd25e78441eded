/* Mappings of files that are nearly all hole: memory comes with a touch, whoever touches. */
#include "check.h"
#include <linux/futex.h>
#include <setjmp.h>
#include <sys/random.h>
#include <sys/utsname.h>

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE };
static const size_t K = 1 << 10, M = 1 << 20, WHOLE = 1 << 30;

static sigjmp_buf back;

static void on_bus(int number) { siglongjmp(back, number); }

/* Whether a store to it is SIGBUS. */
static int is_bus(volatile char *at) {
    int number = sigsetjmp(back, 1);
    if (!number)
        *at = 'x';
    return number == SIGBUS;
}

static int file_of(const char *name, off_t bytes) {
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0 && ftruncate(fd, bytes) == 0);
    return fd;
}

static char *map(int fd, size_t bytes, off_t at) {
    char *there = mmap(NULL, bytes, RW, MAP_SHARED, fd, at);
    NEED(there != MAP_FAILED);
    return there;
}

static size_t taken(int fd) {
    struct stat stat;
    NEED(fstat(fd, &stat) == 0);
    return stat.st_blocks * 512;
}

static void touches(void) {
    int fd = file_of("touched", WHOLE);
    char *at = map(fd, WHOLE, 0), got[3];
    CHECK(taken(fd) < M);
    CHECK(at[500 * M] == 0);
    at[0] = 'a', at[100 * M + 5] = 'b', at[WHOLE - 1] = 'c';
    CHECK(pread(fd, got, 1, 0) == 1 && pread(fd, got + 1, 1, 100 * M + 5) == 1);
    CHECK(pread(fd, got + 2, 1, WHOLE - 1) == 1 && !memcmp(got, "abc", 3));
    CHECK(taken(fd) < 4 * M);
    /* What others write in a hole shows, and holes beside it are none the worse. */
    CHECK(pwrite(fd, "written", 7, 200 * M) == 7 && !strcmp(at + 200 * M, "written"));
    CHECK(at[200 * M + 8 * M] == 0 && at[200 * M - 1] == 0);
    memset(at + 300 * M, 's', 5 * M);
    for (size_t one = 300 * M; one < 305 * M; one += 100 * K)
        CHECK(at[one] == 's' && pread(fd, got, 1, one) == 1 && got[0] == 's');
    CHECK(msync(at, WHOLE, MS_SYNC) == 0);
    /* A part goes, another may only be read. */
    CHECK(munmap(at + 50 * M, M) == 0 && mprotect(at + 60 * M, M, PROT_READ) == 0);
    CHECK(at[60 * M] == 0 && mprotect(at + 60 * M, M, RW) == 0);
    at[60 * M + 1] = 'p';
    CHECK(at[49 * M] == 0 && at[51 * M] == 0);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * M, M) == 0 && at[100 * M + 5] == 0);
    CHECK(munmap(at, WHOLE) == 0);
    CHECK(pread(fd, got, 1, 60 * M + 1) == 1 && got[0] == 'p');
    CHECK(unlink(in("touched")) == 0 && close(fd) == 0);
}

static void the_end(void) {
    int fd = file_of("ends", 100 * M);
    char *at = map(fd, WHOLE, 0);
    at[99 * M] = 'e';
    CHECK(is_bus(at + 100 * M) && !is_bus(at + 100 * M - 1));
    CHECK(ftruncate(fd, 50 * M) == 0 && is_bus(at + 99 * M) && is_bus(at + 60 * M));
    CHECK(ftruncate(fd, WHOLE) == 0 && at[99 * M] == 0 && at[100 * M - 1] == 0);
    CHECK(!is_bus(at + 700 * M) && at[700 * M] == 'x');
    CHECK(munmap(at, WHOLE) == 0 && close(fd) == 0);
    /* What was empty when it was mapped. */
    fd = file_of("ends", 0);
    at = map(fd, WHOLE, 0);
    CHECK(is_bus(at + 600 * M) && ftruncate(fd, WHOLE) == 0 && !is_bus(at + 600 * M));
    CHECK(taken(fd) < 4 * M && munmap(at, WHOLE) == 0 && close(fd) == 0);
    CHECK(unlink(in("ends")) == 0);
}

/* A part of the hole that nobody has touched. */
static char *fresh(char *at) {
    static size_t turn;
    return at + 3 * M * ++turn + 12345;
}

static void calls(void) {
    int fd = file_of("given", WHOLE), ends[2], pair[2];
    char *at = map(fd, WHOLE, 0), text[200 * K];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i / 100 + i;
    char *to = fresh(at), *other;
    NEED(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    CHECK(write(ends[1], text, 50000) == 50000 && read(ends[0], to, 50000) == 50000);
    CHECK(!memcmp(to, text, 50000));
    to = fresh(at);
    CHECK(write(ends[1], to, 20 * K) == 20 * (ssize_t)K && read(ends[0], text + 100 * K, 20 * K) == 20 * (ssize_t)K);
    CHECK(text[100 * K] == 0 && text[120 * K - 1] == 0);
    /* A datagram comes whole or not at all. */
    to = fresh(at), other = fresh(at);
    struct iovec vectors[2] = {{to, 1000}, {other, 90000}};
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
    CHECK(send(pair[0], text, 80000, 0) == 80000 && recvmsg(pair[1], &message, 0) == 80000);
    CHECK(!memcmp(to, text, 1000) && !memcmp(other, text + 1000, 79000));
    to = fresh(at);
    CHECK(send(pair[0], text, 90000, 0) == 90000 && recv(pair[1], to, 90000, 0) == 90000 && !memcmp(to, text, 90000));
    vectors[0].iov_base = fresh(at), vectors[1].iov_base = fresh(at);
    CHECK(write(ends[1], text, 3000) == 3000 && readv(ends[0], vectors, 2) == 3000);
    CHECK(!memcmp(vectors[1].iov_base, text + 1000, 2000));
    to = fresh(at);
    CHECK(getrandom(to, 300 * K, 0) > 0);
    CHECK(uname((struct utsname *)fresh(at)) == 0 && stat("/", (struct stat *)fresh(at)) == 0);
    CHECK(getcwd(fresh(at), 4 * K) != NULL && pipe2((int *)(fresh(at) - 1), 0) == 0);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, fresh(at) - 1) == 0);
    struct timespec soon = {0, 1000000};
    FAILS(ETIMEDOUT, syscall(SYS_futex, fresh(at) - 1, FUTEX_WAIT, 0, &soon, NULL, 0));
    FAILS(ENOENT, open(fresh(at), O_RDONLY));
    /* Files of the pool, and of elsewhere. */
    to = fresh(at);
    CHECK(pwrite(fd, text, 70000, 900 * M) == 70000 && pread(fd, to, 70000, 900 * M) == 70000);
    CHECK(!memcmp(to, text, 70000) && pwrite(fd, fresh(at), 70000, 900 * M) == 70000 && at[900 * M + 60000] == 0);
    int self = open("/proc/self/exe", O_RDONLY);
    to = fresh(at);
    CHECK(pread(self, to, 8000, 0) == 8000 && !memcmp(to, "\177ELF", 4));
    /* Beyond the end of the file there is nothing to be had. */
    CHECK(ftruncate(fd, 800 * M) == 0);
    FAILS(EFAULT, read(self, at + 801 * M, 100));
    CHECK(munmap(at, WHOLE) == 0 && close(self) == 0 && close(fd) == 0);
    CHECK(unlink(in("given")) == 0);
}

static char *shared_by_all;
static pthread_barrier_t together;

static void *toucher(void *which) {
    for (size_t round = 0; round < 200; round++) {
        pthread_barrier_wait(&together);
        shared_by_all[round * 5 * M + (size_t)which] += 1;
        shared_by_all[round * 5 * M + 2 * M + (size_t)which * PAGE] = 't';
    }
    return NULL;
}

static void threads(void) {
    int fd = file_of("threads", WHOLE);
    pthread_t all[4];
    shared_by_all = map(fd, WHOLE, 0);
    pthread_barrier_init(&together, NULL, 4);
    for (size_t i = 0; i < 4; i++)
        NEED(pthread_create(&all[i], NULL, toucher, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    for (size_t round = 0; round < 200; round++)
        CHECK(!memcmp(shared_by_all + round * 5 * M, "\1\1\1\1", 5));
    CHECK(munmap(shared_by_all, WHOLE) == 0 && close(fd) == 0 && unlink(in("threads")) == 0);
}

static void moved_and_inherited(void) {
    int fd = file_of("moved", WHOLE);
    char *at = map(fd, 100 * M, 0), *other;
    at[10 * M] = 'm', at[70 * M] = 'n';
    other = mremap(at, 100 * M, WHOLE, MREMAP_MAYMOVE);
    NEED(other != MAP_FAILED);
    CHECK(other[10 * M] == 'm' && other[70 * M] == 'n' && other[900 * M] == 0 && other[71 * M] == 0);
    other[90 * M] = 'o';
    at = map(fd, 80 * M, 20 * M);
    CHECK(at[70 * M] == 'o' && at[50 * M] == 'n');
    at[30 * M] = 'q';
    CHECK(other[50 * M] == 'q');
    other = mremap(other, WHOLE, 95 * M, 0);
    CHECK(other != MAP_FAILED && other[90 * M] == 'o' && other[94 * M] == 0);
    pid_t child = fork();
    if (!child) {
        other[80 * M] = 'c';
        _exit(other[10 * M] == 'm' && other[33 * M] == 0 && at[31 * M] == 0 ? 0 : 1);
    }
    CHECK(child_ends_with(child, 0) && other[80 * M] == 'c' && other[33 * M + 1] == 0);
    CHECK(munmap(other, 95 * M) == 0 && munmap(at, 80 * M) == 0 && close(fd) == 0);
    CHECK(unlink(in("moved")) == 0);
}

static void all_at_once(void) {
    int fd = file_of("populated", 16 * M);
    char *at = mmap(NULL, 8 * M, RW, MAP_SHARED | MAP_POPULATE, fd, 0);
    NEED(at != MAP_FAILED);
    CHECK(taken(fd) >= 8 * M && munmap(at, 8 * M) == 0);
    at = map(fd, 16 * M, 0);
    CHECK(madvise(at + 9 * M, 2 * M, MADV_POPULATE_WRITE) == 0 && taken(fd) >= 10 * M);
    CHECK(mlock(at + 12 * M, 16 * K) == 0);
    CHECK(munmap(at, 16 * M) == 0 && close(fd) == 0 && unlink(in("populated")) == 0);
    /* No signal is needed where all signals are blocked. */
    sigset_t all, before;
    fd = file_of("blocked", WHOLE);
    at = map(fd, WHOLE, 0);
    sigfillset(&all);
    CHECK(sigprocmask(SIG_BLOCK, &all, &before) == 0);
    at[77 * M] = 'b';
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && at[77 * M] == 'b');
    CHECK(munmap(at, WHOLE) == 0 && close(fd) == 0 && unlink(in("blocked")) == 0);
}

/* Where there is no memory any more a touch is SIGBUS, and nothing else is the worse for it. */
static void full(void) {
    int fd = file_of("full", WHOLE);
    char *at = map(fd, WHOLE, 0);
    volatile size_t done = 0;
    while (done < 96 * M && !is_bus(at + done))
        done += 64 * K;
    CHECK(done > 16 * M);
    for (size_t one = 0; one < done; one += 64 * K)
        CHECK(at[one] == 'x');
    CHECK(munmap(at, WHOLE) == 0 && close(fd) == 0 && unlink(in("full")) == 0);
    fd = file_of("after", 0);
    CHECK(write(fd, "there is room", 13) == 13 && close(fd) == 0 && unlink(in("after")) == 0);
}

int main(int argc, char **argv) {
    NEED(argc == 3);
    dir = argv[2];
    struct sigaction action = {.sa_handler = on_bus};
    sigaction(SIGBUS, &action, NULL);
    touches();
    the_end();
    calls();
    threads();
    moved_and_inherited();
    all_at_once();
    full();
    say("holes: %d failures\n", failures);
    return failures != 0;
}
