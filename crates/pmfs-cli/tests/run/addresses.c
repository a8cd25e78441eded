/* Calls on addresses at which a file is mapped, that few programs make: what they do is
 * done to the file, and to nothing else. */
#include "check.h"
#include <setjmp.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, PAGES = 8, BYTES = PAGES * PAGE };

static sigjmp_buf back;
static void on_bus(int number) { siglongjmp(back, number); }

static int is_bus(volatile char *at) {
    int number = sigsetjmp(back, 1);
    if (!number)
        (void)*at;
    return number == SIGBUS;
}

/* Eight pages of a letter each. */
static int letters(const char *name) {
    char block[PAGE];
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0);
    for (int page = 0; page < PAGES; page++) {
        memset(block, 'a' + page, PAGE);
        NEED(write(fd, block, PAGE) == PAGE);
    }
    return fd;
}

static char *map(int fd, size_t bytes, int flags, off_t at) {
    char *there = mmap(NULL, bytes, RW, flags, fd, at);
    NEED(there != MAP_FAILED);
    return there;
}

static int begins(int fd, const char *text) {
    char got;
    for (int page = 0; text[page]; page++)
        if (pread(fd, &got, 1, (off_t)page * PAGE) != 1 || got != text[page]) {
            say("page %d: %c for %c\n", page, got, text[page]);
            return 0;
        }
    return 1;
}

static void other_pages(void) {
    int fd = letters("remapped");
    char *at = map(fd, 4 * PAGE, MAP_SHARED, 0), *own = map(fd, PAGE, MAP_PRIVATE, 0);
    CHECK(syscall(SYS_remap_file_pages, at, PAGE, 0, 6, 0) == 0 && at[0] == 'g' && at[PAGE] == 'b' && at[PAGE - 1] == 'g');
    at[0] = 'X';
    CHECK(begins(fd, "abcdefXh"));
    CHECK(syscall(SYS_remap_file_pages, at + 2 * PAGE, 2 * PAGE, 0, 0, 0) == 0 && at[2 * PAGE] == 'a' && at[3 * PAGE] == 'b');
    FAILS(EINVAL, syscall(SYS_remap_file_pages, at, PAGE, PROT_READ, 0, 0));
    FAILS(EINVAL, syscall(SYS_remap_file_pages, own, PAGE, 0, 1, 0));
    FAILS(EINVAL, syscall(SYS_remap_file_pages, at, 0, 0, 1, 0));
    CHECK(syscall(SYS_remap_file_pages, at, PAGE, 0, 100, 0) == 0 && is_bus(at));
    CHECK(munmap(at, 4 * PAGE) == 0 && munmap(own, PAGE) == 0 && begins(fd, "abcdefXh") && close(fd) == 0);
}

static void moved(void) {
    int fd = letters("moved");
    char *at = map(fd, 4 * PAGE, MAP_SHARED, 0);
    /* Once more, from the middle on, and longer. */
    char *more = mremap(at + PAGE, 0, 7 * PAGE, MREMAP_MAYMOVE);
    CHECK(more != MAP_FAILED && more[0] == 'b' && more[6 * PAGE] == 'h');
    more[0] = 'M';
    CHECK(at[PAGE] == 'M' && begins(fd, "aMcdefgh"));
    CHECK(mremap(at, 0, PAGE, 0) == MAP_FAILED && errno != 0);
    /* And left where it was. */
    char *stays = mremap(at, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */);
    CHECK(stays != MAP_FAILED && stays != at && stays[2 * PAGE] == 'c' && at[2 * PAGE] == 'c');
    stays[2 * PAGE] = 'S';
    CHECK(at[2 * PAGE] == 'S' && begins(fd, "aMSdefgh"));
    CHECK(mremap(at, 4 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | 4) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(at, PAGE, PAGE, 16 | MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE) == MAP_FAILED && errno == EINVAL);
    char *own = map(fd, 2 * PAGE, MAP_PRIVATE, 0);
    own[0] = 'O';
    CHECK(mremap(own, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    CHECK(munmap(at, 4 * PAGE) == 0 && munmap(more, 7 * PAGE) == 0 && munmap(stays, 4 * PAGE) == 0);
    CHECK(own[0] == 'O' && munmap(own, 2 * PAGE) == 0 && close(fd) == 0);
}

static void advised(void) {
    int fd = letters("advised");
    char *at = map(fd, BYTES, MAP_SHARED, 0), *own = map(fd, PAGE, MAP_PRIVATE, 0);
    at[0] = 'A', own[0] = 'O';
    int all[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK, MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT, MADV_HUGEPAGE, MADV_NOHUGEPAGE};
    for (size_t one = 0; one < sizeof all / sizeof *all; one++) {
        CHECK(madvise(at, BYTES, all[one]) == 0 || errno == EINVAL);
        CHECK(at[0] == 'A' && at[PAGE] == 'b');
    }
    CHECK(madvise(own, PAGE, MADV_DONTNEED) == 0 && own[0] == 'A');
    FAILS(EINVAL, madvise(at + 1, PAGE, MADV_REMOVE));
    CHECK(mlock(at, PAGE) == 0);
    FAILS(EINVAL, madvise(at, PAGE, MADV_REMOVE));
    CHECK(munlock(at, PAGE) == 0 && at[0] == 'A');
    /* By vectors, of this process: with a kernel that does not know that of its own
     * memory, nothing. */
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec parts[] = {{at + PAGE, PAGE}, {at + 3 * PAGE, 2 * PAGE}};
    ssize_t done = syscall(SYS_process_madvise, self, parts, 2, MADV_REMOVE, 0);
    if (done == 3 * PAGE)
        CHECK(at[PAGE] == 0 && at[2 * PAGE] == 'c' && at[3 * PAGE] == 0 && at[4 * PAGE] == 0 && at[5 * PAGE] == 'f');
    else
        CHECK(done == -1 && errno == EINVAL && at[PAGE] == 'b');
    CHECK(syscall(SYS_process_madvise, self, parts, 2, MADV_WILLNEED, 0) == 3 * PAGE || errno == EINVAL);
    CHECK(munmap(at, BYTES) == 0 && munmap(own, PAGE) == 0 && close(fd) == 0 && close(self) == 0);
}

/* What has gone into a pipe stays what it was when it went, as far as the file was
 * given up since. */
static void piped(void) {
    char got[PAGE];
    int fd = letters("piped"), ends[2];
    NEED(pipe2(ends, O_NONBLOCK) == 0);
    char *at = map(fd, BYTES, MAP_SHARED, 0);
    struct iovec parts[] = {{at, PAGE}, {at + 2 * PAGE, PAGE}}, into = {at + PAGE, PAGE}, many = {at, BYTES};
    CHECK(vmsplice(ends[1], parts, 2, 0) == 2 * PAGE);
    CHECK(read(ends[0], got, PAGE) == PAGE && got[0] == 'a' && got[PAGE - 1] == 'a');
    CHECK(munmap(at, BYTES) == 0 && close(fd) == 0 && unlink(in("piped")) == 0);
    for (int other = 0; other < 20; other++) {
        char name[20];
        snprintf(name, sizeof name, "other%d", other);
        CHECK(close(letters(name)) == 0);
    }
    CHECK(read(ends[0], got, PAGE) == PAGE && got[0] == 'c' && got[PAGE - 1] == 'c');
    /* Out of the pipe; and one that is full. */
    fd = letters("from pipe");
    at = map(fd, BYTES, MAP_SHARED, 0);
    into.iov_base = at + PAGE, many.iov_base = at;
    memset(got, 'P', PAGE);
    CHECK(write(ends[1], got, PAGE) == PAGE && vmsplice(ends[0], &into, 1, 0) == PAGE && begins(fd, "aPcdefgh"));
    while (vmsplice(ends[1], &many, 1, SPLICE_F_NONBLOCK) > 0)
        ;
    int full = errno;
    CHECK(full == EAGAIN && munmap(at, BYTES) == 0 && close(fd) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* Sealed, or not: never half. */
static void sealed(void) {
    int fd = letters("sealed");
    char *at = map(fd, PAGE, MAP_SHARED, 0);
    errno = 0;
    int is_sealed = syscall(SYS_mseal, at, PAGE, 0) == 0, why = errno;
    CHECK(is_sealed || why == ENOSYS);
    CHECK((munmap(at, PAGE) == 0) == !is_sealed);
    if (is_sealed)
        CHECK(at[0] == 'a');
    CHECK(close(fd) == 0);
}

static void replaced_by_a_segment(void) {
    int fd = letters("segment"), segment = shmget(IPC_PRIVATE, 2 * PAGE, 0600 | IPC_CREAT);
    char *at = map(fd, 4 * PAGE, MAP_SHARED, 0);
    NEED(segment >= 0);
    CHECK(shmat(segment, at + PAGE, SHM_REMAP) == at + PAGE);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    CHECK(at[0] == 'a' && at[PAGE] == 0 && at[2 * PAGE] == 0 && at[3 * PAGE] == 'd');
    at[PAGE] = 'T';
    /* The file is cut and grows: the segment does not follow. */
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, BYTES) == 0 && at[PAGE] == 'T' && at[0] == 0);
    CHECK(shmdt(at + PAGE) == 0 && munmap(at, 4 * PAGE) == 0 && close(fd) == 0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    signal(SIGBUS, on_bus);
    other_pages();
    moved();
    advised();
    piped();
    sealed();
    replaced_by_a_segment();
    say("addresses: %d failures\n", failures);
    return failures != 0;
}
