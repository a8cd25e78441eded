/* Mappings where the medium has large pages alone: whole ones are the pool's own, the
 * rest is the mount's. */
#include "check.h"

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE };
static const size_t M = 1 << 20;

/* KiB of the pages at an address, as the kernel tells it; whether the pool's file is there. */
static long kib_at(const void *at, int *pool) {
    char line[512];
    FILE *maps = fopen("/proc/self/smaps", "r");
    NEED(maps);
    long kib = 0;
    int there = 0;
    while (!kib && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            there = from <= (unsigned long)at && (unsigned long)at < to;
            if (there)
                *pool = strstr(line, "/huge/pool") != NULL;
        } else if (there)
            sscanf(line, "KernelPageSize: %ld kB", &kib);
    }
    fclose(maps);
    return kib;
}

static void whole(long page_kib, size_t bytes) {
    int fd = open(in("whole"), O_RDWR | O_CREAT | O_TRUNC, 0600), pool = 0;
    NEED(fd >= 0 && ftruncate(fd, bytes) == 0);
    size_t page = page_kib << 10;
    char *at = mmap(NULL, bytes, RW, MAP_SHARED, fd, 0), got[8];
    NEED(at != MAP_FAILED);
    CHECK(kib_at(at, &pool) == page_kib && pool);
    at[0] = 'a', at[bytes - 1] = 'z';
    CHECK(pread(fd, got, 1, 0) == 1 && got[0] == 'a' && pread(fd, got, 1, bytes - 1) == 1 && got[0] == 'z');
    CHECK(pwrite(fd, "written", 7, bytes / 2 - 3) == 7 && !memcmp(at + bytes / 2 - 3, "written", 7));
    CHECK(msync(at, bytes, MS_SYNC) == 0);
    /* No part of a page goes, and nothing is lost by the try. */
    FAILS(EINVAL, munmap(at + PAGE, PAGE));
    CHECK(mremap(at, bytes, bytes - PAGE, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mprotect(at, bytes, PROT_READ) == 0 && at[bytes - 1] == 'z' && mprotect(at, bytes, RW) == 0);
    /* A child of fork has it, too. */
    pid_t child = fork();
    if (!child) {
        at[1] = 'c';
        _exit(at[0] != 'a');
    }
    CHECK(child_ends_with(child, 0) && at[1] == 'c');
    /* What is cut off is zeros when the file gets longer again. */
    CHECK(ftruncate(fd, PAGE + 5) == 0 && at[0] == 'a' && ftruncate(fd, bytes) == 0);
    CHECK(pread(fd, got, 1, bytes - 1) == 1 && got[0] == 0 && at[bytes - 1] == 0);
    at[bytes - 1] = 'y';
    CHECK(pread(fd, got, 1, bytes - 1) == 1 && got[0] == 'y');
    if (bytes > page) {
        CHECK(munmap(at + bytes - page, page) == 0);
        CHECK(mremap(at, bytes - page, page, 0) == at && at[0] == 'a');
        bytes = page;
    }
    CHECK(munmap(at, bytes) == 0);
    close(fd);
}

/* Less than a page, and copies, are to be had all the same. */
static void parts(void) {
    int fd = file_with("part", "some text"), pool = 1;
    char *at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    NEED(at != MAP_FAILED);
    CHECK(!memcmp(at, "some text", 10) && kib_at(at, &pool) == 4 && !pool);
    CHECK(munmap(at, PAGE) == 0);
    at = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
    NEED(at != MAP_FAILED);
    at[0] = 'S';
    CHECK(msync(at, PAGE, MS_SYNC) == 0 && munmap(at, PAGE) == 0);
    close(fd);
    CHECK(holds("part", "Some text"));
}

int main(int count, char **args) {
    NEED(count == 4);
    dir = args[3];
    whole(atol(args[1]), atol(args[2]) * M);
    parts();
    return failures != 0;
}
