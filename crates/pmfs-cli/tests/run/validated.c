/* mmap(2) with MAP_SHARED_VALIDATE, which refuses flags that nobody knows; with
 * MAP_SYNC, which only media have that are memory for good. */
#include "check.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

static void told(const char *what, int bit, void *map, size_t bytes) {
    say("%s, bit %d: %s\n", what, bit, map == MAP_FAILED ? strerrorname_np(errno) : "mapped");
    if (map != MAP_FAILED)
        munmap(map, bytes);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    int fd = file_with("file", "0123456789");
    NEED(ftruncate(fd, 3 * 4096) == 0);
    char *map = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, fd, 0);
    NEED(map != MAP_FAILED);
    CHECK(!memcmp(map, "0123456789", 10));
    map[0] = 'm';
    map[2 * 4096] = 'n';
    CHECK(msync(map, 3 * 4096, MS_SYNC) == 0 && munmap(map, 3 * 4096) == 0);
    char got[2];
    CHECK(pread(fd, got, 1, 0) == 1 && pread(fd, got + 1, 1, 2 * 4096) == 1 && got[0] == 'm' && got[1] == 'n');
    int reads = open(in("file"), O_RDONLY);
    errno = 0;
    told("to write what is open to read", 0, mmap(NULL, 4096, PROT_WRITE, MAP_SHARED_VALIDATE, reads, 0), 4096);
    /* 4 is MAP_SHARED's place; what names an address or a kind of memory is another matter. */
    for (int bit = 4; bit < 32; bit++) {
        int flag = 1 << bit;
        if (flag == MAP_FIXED || flag == MAP_ANONYMOUS || flag == MAP_GROWSDOWN || flag == MAP_HUGETLB || flag == MAP_LOCKED)
            continue;
        errno = 0;
        told("a flag", bit, mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | flag, fd, 0), 4096);
    }
    errno = 0;
    told("synchronous and unknown", 0, mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC | 1 << 30, fd, 0), 4096);
    errno = 0;
    told("shared, and synchronous all the same", 0, mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_SYNC, fd, 0), 4096);
    return failures;
}
