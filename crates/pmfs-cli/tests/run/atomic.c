/* Shared mappings whose stores reach the file with msync, all at once (pmfs run --atomic-msync). */
#include "check.h"
#include <setjmp.h>

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, PAGES = 64, THREADS = 4 };

static int zeros(const char *name, off_t bytes) {
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0 && ftruncate(fd, bytes) == 0);
    return fd;
}

static char *map(int fd, size_t bytes) {
    char *there = mmap(NULL, bytes, RW, MAP_SHARED, fd, 0);
    NEED(there != MAP_FAILED);
    return there;
}

/* What the file has at a place. */
static int byte(int fd, off_t at) {
    unsigned char got;
    NEED(pread(fd, &got, 1, at) == 1);
    return got;
}

static void with_msync(void) {
    int fd = zeros("file", 10 * PAGE + 100);
    char *at = map(fd, 11 * PAGE);
    at[5] = 1, at[3 * PAGE] = 2, at[10 * PAGE + 50] = 3;
    CHECK(byte(fd, 5) == 0 && byte(fd, 3 * PAGE) == 0 && byte(fd, 10 * PAGE + 50) == 0);
    CHECK(msync(at + 3 * PAGE, PAGE, MS_SYNC) == 0);
    CHECK(byte(fd, 5) == 0 && byte(fd, 3 * PAGE) == 2 && at[3 * PAGE] == 2);
    CHECK(msync(at, 11 * PAGE, MS_SYNC) == 0 && byte(fd, 5) == 1 && byte(fd, 10 * PAGE + 50) == 3);
    CHECK(at[5] == 1 && at[10 * PAGE + 50] == 3 && at[10 * PAGE + 101] == 0);
    /* What others write shows where nothing was stored, and may not come between. */
    CHECK(pwrite(fd, "w", 1, 7) == 1 && at[7] == 'w' && at[5] == 1);
    at[8] = 's';
    FAILS(EBUSY, pwrite(fd, "x", 1, 9));
    FAILS(EBUSY, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    CHECK(ftruncate(fd, 20 * PAGE) == 0 && msync(at, PAGE, MS_SYNC) == 0 && pwrite(fd, "x", 1, 9) == 1);
    CHECK(byte(fd, 8) == 's' && at[9] == 'x' && byte(fd, 19 * PAGE) == 0);
    /* One copy of a page, and one process. */
    CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
    pid_t pid = fork();
    if (pid == 0)
        _exit(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV ? 0 : 1);
    CHECK(child_ends_with(pid, 0));
    pid = fork();
    if (pid == 0)
        _exit(at[0]);
    CHECK(child_ends_with(pid, SIGSEGV));
    /* Its end is an msync. */
    at[1] = 'e';
    CHECK(munmap(at, 11 * PAGE) == 0 && byte(fd, 1) == 'e');
    at = map(fd, PAGE);
    CHECK(at[1] == 'e' && munmap(at, PAGE) == 0 && close(fd) == 0);
}

static void changes(void) {
    int fd = zeros("changes", 4 * PAGE);
    char *at = map(fd, 8 * PAGE);
    at[0] = 1, at[3 * PAGE] = 2;
    CHECK(ftruncate(fd, 8 * PAGE) == 0);
    at[7 * PAGE] = 3;
    char *moved = mremap(at, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
    NEED(moved != MAP_FAILED);
    CHECK(moved[0] == 1 && moved[3 * PAGE] == 2 && moved[7 * PAGE] == 3 && byte(fd, 0) == 0);
    CHECK(ftruncate(fd, 2 * PAGE) == 0 && msync(moved, 16 * PAGE, MS_SYNC) == 0 && byte(fd, 0) == 1);
    CHECK(ftruncate(fd, 8 * PAGE) == 0 && byte(fd, 3 * PAGE) == 0 && moved[3 * PAGE] == 0);
    moved[PAGE] = 4;
    CHECK(madvise(moved + PAGE, PAGE, MADV_REMOVE) == 0 && moved[PAGE] == 0);
    /* Stored to, and then not to be stored to any more. */
    moved[PAGE] = 5;
    CHECK(mprotect(moved, 16 * PAGE, PROT_NONE) == 0 && msync(moved, 16 * PAGE, MS_SYNC) == 0 && byte(fd, PAGE) == 5);
    CHECK(munmap(moved, 16 * PAGE) == 0 && close(fd) == 0);
}

static volatile int done;
static char *all;

/* Stores to each word once a turn, and looks whether it is there. */
static void *store(void *which) {
    enum { WORDS = 7 * PAGE / sizeof(unsigned) };
    volatile unsigned *mine = (unsigned *)(all + (long)which * 7 * PAGE);
    long lost = 0;
    for (unsigned turn = 1; !done; turn++) {
        for (int word = 0; word < WORDS; word++)
            mine[word] = turn;
        for (int word = 0; word < WORDS; word++)
            lost += mine[word] != turn;
    }
    return (void *)lost;
}

static void threads(void) {
    int fd = zeros("threads", PAGES * PAGE);
    all = map(fd, PAGES * PAGE);
    pthread_t some[THREADS];
    for (long one = 0; one < THREADS; one++)
        NEED(pthread_create(&some[one], NULL, store, (void *)one) == 0);
    for (int times = 0; times < 300; times++)
        CHECK(msync(all, PAGES * PAGE, MS_SYNC) == 0);
    done = 1;
    for (long one = 0; one < THREADS; one++) {
        void *lost;
        pthread_join(some[one], &lost);
        CHECK(lost == NULL);
    }
    static char was[PAGES * PAGE], now[PAGES * PAGE];
    memcpy(was, all, sizeof was);
    CHECK(msync(all, PAGES * PAGE, MS_SYNC) == 0 && pread(fd, now, sizeof now, 0) == sizeof now);
    CHECK(memcmp(was, now, sizeof was) == 0 && munmap(all, PAGES * PAGE) == 0 && close(fd) == 0);
}

/* Stores a number all over the file, time after time, and tells of each that has been
 * handed over. */
static void number(int fd, int out) {
    char *at = map(fd, PAGES * PAGE);
    for (unsigned turn = *(unsigned *)at + 1;; turn++) {
        for (int page = 0; page < PAGES; page += 3)
            *(unsigned *)(at + page * PAGE) = turn;
        if (msync(at, PAGES * PAGE, MS_SYNC) != 0 || write(out, &turn, sizeof turn) != sizeof turn)
            _exit(1);
    }
}

static void killed(int rounds) {
    int fd = zeros("killed", PAGES * PAGE);
    unsigned told = 0;
    for (int round = 0; round < rounds; round++) {
        int ends[2];
        NEED(pipe(ends) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(ends[0]);
            number(fd, ends[1]);
        }
        close(ends[1]);
        usleep(2000 + rand() % 20000);
        kill(pid, SIGKILL);
        CHECK(child_ends_with(pid, SIGKILL));
        while (read(ends[0], &told, sizeof told) == sizeof told)
            ;
        close(ends[0]);
        unsigned first = 0, now;
        for (int page = 0; page < PAGES; page += 3) {
            NEED(pread(fd, &now, sizeof now, page * PAGE) == sizeof now);
            if (page == 0)
                first = now;
            if (now != first) {
                CHECK(!"half of what was stored");
                break;
            }
        }
        CHECK(first == told || first == told + 1);
        /* One that was handed over and not told of is where the next one begins. */
        told = first;
    }
    CHECK(told > 0);
    close(fd);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    with_msync();
    changes();
    threads();
    killed(atoi(arguments[1]));
    say("atomic: %d failures\n", failures);
    /* One is left at the end. */
    map(zeros("left", PAGE), PAGE)[0] = 'L';
    return failures != 0;
}
