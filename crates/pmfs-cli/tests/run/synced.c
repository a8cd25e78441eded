/* A large shared mapping of which a little is stored to between two msyncs; as often as it is told.
 * What the file has is checked on the way; what was flushed is counted by who started this. */
#include "check.h"

enum { PAGE = 4096, PAGES = 2048, RW = PROT_READ | PROT_WRITE };

static char *map(int fd) {
    char *there = mmap(NULL, PAGES * PAGE, RW, MAP_SHARED, fd, 0);
    NEED(there != MAP_FAILED);
    return there;
}

static void sync_all(char *at) { CHECK(msync(at, PAGES * PAGE, MS_SYNC) == 0); }

static int has(int fd, off_t at, char byte) {
    char got;
    return pread(fd, &got, 1, at) == 1 && got == byte;
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    int rounds = atoi(arguments[1]);
    int fd = open(in("file"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    char *at = map(fd);
    memset(at, 1, PAGES * PAGE);
    sync_all(at);
    for (int round = 0; round < rounds; round++) {
        for (int store = 0; store < 3; store++) {
            off_t where = (off_t)(round * 7 + store * 501) % PAGES * PAGE + round % PAGE;
            at[where] = (char)(round + 2);
            CHECK(has(fd, where, (char)(round + 2)));
        }
        sync_all(at);
        sync_all(at);
    }
    /* A part of it anew, in its place: what is stored there counts, too. */
    NEED(mmap(at + 16 * PAGE, 16 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 16 * PAGE) == at + 16 * PAGE);
    at[20 * PAGE] = 'r';
    sync_all(at);
    CHECK(has(fd, 20 * PAGE, 'r'));
    /* A child stores to what it inherits. */
    pid_t pid = fork();
    if (pid == 0) {
        at[30 * PAGE] = 'c';
        _exit(msync(at, PAGES * PAGE, MS_SYNC));
    }
    CHECK(child_ends_with(pid, 0) && has(fd, 30 * PAGE, 'c'));
    at[31 * PAGE] = 'p';
    sync_all(at);
    CHECK(has(fd, 31 * PAGE, 'p') && at[30 * PAGE] == 'c');
    /* The descriptor by which it is noted is nobody's. */
    for (int number = 3; number < 1100; number++)
        if (number != fd)
            close(number);
    at[40 * PAGE] = 'd';
    sync_all(at);
    CHECK(has(fd, 40 * PAGE, 'd') && munmap(at, PAGES * PAGE) == 0);
    return failures != 0;
}
