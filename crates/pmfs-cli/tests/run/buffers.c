/* Reading into memory that is not there, or may not be stored to: EFAULT, whatever the
 * file has at that place. */
#include "check.h"

enum { PAGE = 4096, LARGE = 2 << 20, MANY = 3 * LARGE };

static char *none, *fixed, *edge, *edge_of_fixed;

/* What it says of a bad buffer: nothing was read, or what came before the bad part. */
static void is_bad(const char *what, off_t at, size_t bytes, ssize_t said, int why, size_t good) {
    int right = said == -1 ? why == EFAULT : said >= 0 && (size_t)said <= good && good > 0;
    if (!right) {
        failures++;
        say("%s of %zu at %ld: %zd, errno %d\n", what, bytes, (long)at, said, why);
    }
}

static void read_all_ways(int fd, off_t at, size_t bytes, char *to, size_t good) {
    struct iovec part = {to, bytes}, two[2] = {{to, bytes / 2}, {to + bytes / 2, bytes - bytes / 2}};
    ssize_t said;
#define TRY(call) (errno = 0, said = (call), is_bad(#call, at, bytes, said, errno, good))
    TRY(pread(fd, to, bytes, at));
    TRY(preadv(fd, &part, 1, at));
    TRY(preadv(fd, two, 2, at));
    TRY(preadv2(fd, &part, 1, at, 0));
    NEED(lseek(fd, at, SEEK_SET) == at);
    TRY(read(fd, to, bytes));
    CHECK(lseek(fd, 0, SEEK_CUR) == at + (said > 0 ? said : 0) && lseek(fd, at, SEEK_SET) == at);
    TRY(readv(fd, &part, 1));
    CHECK(lseek(fd, 0, SEEK_CUR) == at + (said > 0 ? said : 0) && lseek(fd, at, SEEK_SET) == at);
    TRY(readv(fd, two, 2));
}

static void every_source(int fd, off_t size) {
    /* Data, a hole, what is allocated and not written, across them, a large hole, and
     * up to the end. */
    off_t places[] = {0, 100, PAGE, PAGE + 7, 2 * PAGE, 2 * PAGE + 100, 3 * PAGE - 50, PAGE - 50, LARGE, LARGE + 4096, size - 300};
    size_t sizes[] = {1, 8, 100, 300, PAGE, 2 * PAGE, 5 * PAGE, 1 << 20};
    char *bad[] = {NULL, (char *)8, none, fixed, (char *)0xffff800000000000};
    for (size_t place = 0; place < sizeof places / sizeof *places; place++)
        for (size_t size_at = 0; size_at < sizeof sizes / sizeof *sizes; size_at++) {
            size_t bytes = sizes[size_at];
            for (size_t way = 0; way < sizeof bad / sizeof *bad; way++)
                read_all_ways(fd, places[place], bytes, bad[way], 0);
            for (size_t good = 1; good < bytes && good <= PAGE && places[place] + (off_t)good < size; good = good * 3 + 1) {
                read_all_ways(fd, places[place], bytes, edge - good, good);
                read_all_ways(fd, places[place], bytes, edge_of_fixed - good, good);
            }
        }
    /* Behind the end nothing is touched. */
    CHECK(pread(fd, NULL, 100, size) == 0 && pread(fd, none, PAGE, size + LARGE) == 0);
    CHECK(pread(fd, NULL, 0, PAGE) == 0);
}

/* Asked for by programs that do not know how much there is. */
static void much(void) {
    static char got[PAGE];
    struct rusage before, after;
    NEED(getrusage(RUSAGE_SELF, &before) == 0);
    int fd = file_with("short", "0123456789");
    struct iovec part = {got, 1UL << 40}, parts[2] = {{got, 4}, {got + 4, 1UL << 40}};
    CHECK(read(fd, got, 1UL << 40) == 10 && memcmp(got, "0123456789", 10) == 0);
    CHECK(read(fd, got, 1UL << 40) == 0 && pread(fd, got, 1UL << 40, 3) == 7);
    CHECK(preadv(fd, &part, 1, 2) == 8 && preadv(fd, parts, 2, 0) == 10 && lseek(fd, 5, SEEK_SET) == 5);
    CHECK(readv(fd, parts, 2) == 5 && lseek(fd, 0, SEEK_CUR) == 10);
    /* It takes as much memory as there is to be read, KiB. */
    CHECK(getrusage(RUSAGE_SELF, &after) == 0 && after.ru_maxrss - before.ru_maxrss < 16 << 10);
    CHECK(close(fd) == 0);
}

static void *reads_its_part(void *number) {
    int fd = *(int *)number;
    long lines = 0;
    char line[64];
    while (read(fd, line, sizeof line) == sizeof line)
        lines += line[0] == line[63] && line[0] != 0;
    return (void *)lines;
}

/* Two threads share an offset: each line is read once. */
static void shared_offset(void) {
    int fd = open(in("lines"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    char line[64];
    long lines = 0;
    for (int at = 0; at < 4000; at++) {
        memset(line, 'a' + at % 26, sizeof line);
        NEED(write(fd, line, sizeof line) == sizeof line);
    }
    NEED(lseek(fd, 0, SEEK_SET) == 0);
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        NEED(pthread_create(&threads[at], NULL, reads_its_part, &fd) == 0);
    for (int at = 0; at < 3; at++) {
        void *count;
        pthread_join(threads[at], &count);
        lines += (long)count;
    }
    CHECK(lines == 4000 && close(fd) == 0);
}

static void all(void) {
    int fd = open(in("sources"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    static char data[PAGE];
    memset(data, 'd', PAGE);
    NEED(fd >= 0 && ftruncate(fd, MANY) == 0 && pwrite(fd, data, PAGE, 0) == PAGE && pwrite(fd, data, PAGE, 3 * PAGE) == PAGE);
    NEED(fallocate(fd, 0, 2 * PAGE, PAGE) == 0 && fallocate(fd, 0, 2 * LARGE, LARGE) == 0);
    every_source(fd, MANY);
    CHECK(pread(fd, data, PAGE, PAGE) == PAGE && data[0] == 0 && data[PAGE - 1] == 0 && close(fd) == 0);
    much();
    shared_offset();
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    char *room = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(room != MAP_FAILED);
    edge = room + PAGE, none = edge, edge_of_fixed = room + 4 * PAGE, fixed = edge_of_fixed;
    NEED(mprotect(none, PAGE, PROT_NONE) == 0 && mprotect(fixed, PAGE, PROT_READ) == 0);
    all();
    /* The same once a file is mapped through the mount: one with so many holes, by a
     * mapping of its own. */
    CHECK(close(file_with("mapped", "mapped")) == 0);
    int fd = open(in("mapped"), O_RDWR);
    CHECK(fd >= 0 && ftruncate(fd, 400L << 20) == 0);
    char *at = mmap(NULL, 400L << 20, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED && memcmp(at, "mapped", 6) == 0);
    all();
    say("buffers: %d failures\n", failures);
    return failures != 0;
}
