/* FICLONE, FICLONERANGE, FIDEDUPERANGE and copy_file_range: what is shared, what is refused and how,
 * and that a change of one file is none of the other. FIEMAP: where blocks are, and what is shared. */
#include "check.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

enum { BLOCK = 4096, BYTES = 40 * BLOCK + 100 };

static char pattern[BYTES];

static int made(const char *name, int bytes, int seed) {
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int at = 0; at < bytes; at++)
        pattern[at] = at * 31 / 7 + seed;
    NEED(fd >= 0 && write(fd, pattern, bytes) == bytes);
    return fd;
}

static int is_alike(int one, int other) {
    static char here[2 * BYTES], there[2 * BYTES];
    ssize_t bytes = pread(one, here, sizeof here, 0);
    return bytes == pread(other, there, sizeof there, 0) && memcmp(here, there, bytes) == 0;
}

static long range(int to, int from, long from_at, long len, long to_at) {
    struct file_clone_range asked = {.src_fd = from, .src_offset = from_at, .src_length = len, .dest_offset = to_at};
    return ioctl(to, FICLONERANGE, &asked);
}

static void whole(void) {
    int from = made("from", BYTES, 1), to = made("to", 100, 2), kept = made("kept", BYTES, 1);
    CHECK(ioctl(to, FICLONE, from) == 0);
    CHECK(is_alike(from, to));
    CHECK(pwrite(from, "changed", 7, 5000) == 7);
    CHECK(is_alike(to, kept));
    CHECK(ftruncate(to, 9000) == 0 && ftruncate(to, BYTES) == 0);
    CHECK(pwrite(kept, "changed", 7, 5000) == 7);
    CHECK(is_alike(from, kept));
    struct stat before, after;
    /* The clock of files has ticks. */
    usleep(20000);
    CHECK(fstat(to, &before) == 0 && ioctl(to, FICLONE, from) == 0 && fstat(to, &after) == 0);
    CHECK(after.st_mtim.tv_sec > before.st_mtim.tv_sec || after.st_mtim.tv_nsec != before.st_mtim.tv_nsec);
    CHECK(unlink(in("from")) == 0 && is_alike(to, kept));
    close(from), close(to), close(kept);
}

static void ranges(void) {
    int from = made("from", BYTES, 1), to = made("to", BYTES, 2), kept = made("kept", BYTES, 2);
    CHECK(range(to, from, 2 * BLOCK, 3 * BLOCK, 5 * BLOCK) == 0);
    char part[3 * BLOCK];
    NEED(pread(from, part, sizeof part, 2 * BLOCK) == sizeof part);
    NEED(pwrite(kept, part, sizeof part, 5 * BLOCK) == sizeof part);
    CHECK(is_alike(to, kept));
    /* Inside of a file, and its tail behind another's end. */
    CHECK(range(to, to, 5 * BLOCK, BLOCK, 0) == 0);
    NEED(pwrite(kept, part, BLOCK, 0) == BLOCK);
    CHECK(range(to, from, 40 * BLOCK, 0, 40 * BLOCK) == 0);
    NEED(pread(from, part, 100, 40 * BLOCK) == 100 && pwrite(kept, part, 100, 40 * BLOCK) == 100);
    CHECK(is_alike(to, kept));
    FAILS(EINVAL, range(to, from, 1, BLOCK, 0));
    FAILS(EINVAL, range(to, from, 0, BLOCK, 1));
    FAILS(EINVAL, range(to, from, 0, 100, 0));
    FAILS(EINVAL, range(to, from, 0, 100 * BLOCK, 0));
    FAILS(EINVAL, range(to, to, 0, 2 * BLOCK, BLOCK));
    FAILS(EINVAL, range(to, from, -BLOCK, BLOCK, 0));
    FAILS(EINVAL, range(to, from, 40 * BLOCK, 0, 0));
    CHECK(is_alike(to, kept));
    close(from), close(to), close(kept);
}

static void refused(void) {
    int from = made("from", BYTES, 1), to = made("to", BYTES, 2), null = open("/dev/null", O_RDWR);
    int reading = open(in("to"), O_RDONLY), appending = open(in("to"), O_WRONLY | O_APPEND);
    int writing = open(in("from"), O_WRONLY), at = open(dir, O_RDONLY);
    FAILS(EBADF, ioctl(reading, FICLONE, from));
    FAILS(EBADF, ioctl(appending, FICLONE, from));
    FAILS(EBADF, ioctl(to, FICLONE, writing));
    FAILS(EBADF, ioctl(to, FICLONE, -1));
    FAILS(EXDEV, ioctl(to, FICLONE, null));
    FAILS(EISDIR, ioctl(to, FICLONE, at));
    FAILS(EFAULT, ioctl(to, FICLONERANGE, NULL));
    struct rlimit limit, was;
    NEED(getrlimit(RLIMIT_FSIZE, &was) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    limit = was, limit.rlim_cur = 8 * BLOCK;
    NEED(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    FAILS(EINVAL, ioctl(to, FICLONE, from));
    FAILS(EFBIG, range(to, from, 0, BLOCK, 9 * BLOCK));
    NEED(setrlimit(RLIMIT_FSIZE, &was) == 0);
    close(from), close(to), close(null), close(reading), close(appending), close(writing), close(at);
}

static void same(void) {
    int from = made("from", BYTES, 1), to = made("to", BYTES, 1), other = made("other", BYTES, 2);
    struct {
        struct file_dedupe_range head;
        struct file_dedupe_range_info info[3];
    } asked = {.head = {.src_length = BYTES, .dest_count = 3}};
    asked.info[0].dest_fd = to, asked.info[1].dest_fd = other, asked.info[2].dest_fd = -1;
    struct stat before, after;
    CHECK(fstat(to, &before) == 0);
    CHECK(ioctl(from, FIDEDUPERANGE, &asked) == 0);
    CHECK(asked.info[0].status == FILE_DEDUPE_RANGE_SAME && asked.info[0].bytes_deduped == BYTES);
    CHECK(asked.info[1].status == FILE_DEDUPE_RANGE_DIFFERS && asked.info[1].bytes_deduped == 0);
    CHECK(asked.info[2].status == -EBADF);
    CHECK(fstat(to, &after) == 0 && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
    CHECK(is_alike(from, to));
    CHECK(pwrite(from, "x", 1, 0) == 1 && ioctl(from, FIDEDUPERANGE, &asked) == 0);
    CHECK(asked.info[0].status == FILE_DEDUPE_RANGE_DIFFERS);
    asked.head.src_offset = BLOCK, asked.head.src_length = 2 * BLOCK + 10, asked.info[0].dest_offset = BLOCK;
    CHECK(ioctl(from, FIDEDUPERANGE, &asked) == 0);
    CHECK(asked.info[0].status == 0 && asked.info[0].bytes_deduped == 2 * BLOCK);
    asked.head.src_length = BYTES;
    FAILS(EINVAL, ioctl(from, FIDEDUPERANGE, &asked));
    close(from), close(to), close(other);
}

static void copied(void) {
    int from = made("from", BYTES, 1), to = made("to", 0, 0), kept = made("kept", BYTES, 1);
    loff_t at = 0, there = 0;
    CHECK(copy_file_range(from, &at, to, &there, BYTES, 0) == BYTES);
    CHECK(is_alike(from, to) && at == BYTES && there == BYTES);
    CHECK(pwrite(from, "changed", 7, 100) == 7 && is_alike(to, kept));
    close(from), close(to), close(kept);
}

/* A file that is mapped is not shared, or it is, and is right. */
static void mapped(void) {
    int from = made("from", BYTES, 1), to = made("to", BYTES, 2), kept = made("kept", BYTES, 1);
    for (int which = 0; which < 2; which++) {
        int fd = which ? to : from;
        char *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        NEED(map != MAP_FAILED);
        map[10] = map[10];
        errno = 0;
        CHECK(ioctl(to, FICLONE, from) == 0 || errno == EBUSY);
        loff_t at = 0, there = 0;
        CHECK(copy_file_range(from, &at, to, &there, BYTES, 0) == BYTES);
        CHECK(is_alike(from, to));
        map[20] ^= 1;
        CHECK(!is_alike(from, to));
        map[20] ^= 1;
        NEED(munmap(map, BYTES) == 0);
        CHECK(ioctl(to, FICLONE, from) == 0 && is_alike(to, kept));
        /* A mapping of what is shared already. */
        map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        NEED(map != MAP_FAILED);
        map[5000] ^= 1;
        CHECK(is_alike(which ? from : to, kept) && !is_alike(fd, kept));
        map[5000] ^= 1;
        NEED(munmap(map, BYTES) == 0);
    }
    close(from), close(to), close(kept);
}

enum { EXTENTS = 64 };

static struct {
    struct fiemap head;
    struct fiemap_extent extents[EXTENTS];
} map;

/* Bytes of all extents with these flags; each but the last tells that it is not that. */
static long bytes_with(int fd, unsigned flags) {
    memset(&map, 0, sizeof map);
    map.head.fm_length = FIEMAP_MAX_OFFSET, map.head.fm_extent_count = EXTENTS, map.head.fm_flags = FIEMAP_FLAG_SYNC;
    NEED(ioctl(fd, FS_IOC_FIEMAP, &map) == 0);
    unsigned count = map.head.fm_mapped_extents;
    long bytes = 0;
    for (unsigned at = 0; at < count; at++) {
        unsigned found = map.extents[at].fe_flags;
        CHECK(!(found & FIEMAP_EXTENT_LAST) == (at + 1 < count));
        if ((found & (FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_UNWRITTEN)) == flags)
            bytes += map.extents[at].fe_length;
    }
    map.head.fm_extent_count = 0;
    CHECK(ioctl(fd, FS_IOC_FIEMAP, &map) == 0 && map.head.fm_mapped_extents == count);
    return bytes;
}

static void extents(void) {
    int from = made("from", BYTES, 1), to = made("to", 0, 0), at = open(dir, O_RDONLY);
    long all = 41 * BLOCK;
    CHECK(bytes_with(to, 0) == 0 && bytes_with(from, 0) == all && bytes_with(from, FIEMAP_EXTENT_SHARED) == 0);
    CHECK(ioctl(to, FICLONE, from) == 0);
    for (int which = 0; which < 2; which++)
        CHECK(bytes_with(which ? from : to, FIEMAP_EXTENT_SHARED) == all);
    CHECK(pwrite(to, "changed", 7, 5 * BLOCK) == 7);
    for (int which = 0; which < 2; which++)
        CHECK(bytes_with(which ? from : to, 0) == BLOCK);
    CHECK(fallocate(to, FALLOC_FL_KEEP_SIZE, 100 * BLOCK, 2 * BLOCK) == 0);
    CHECK(bytes_with(to, FIEMAP_EXTENT_UNWRITTEN) == 2 * BLOCK);
    map.head = (struct fiemap){.fm_start = 5 * BLOCK, .fm_length = 1, .fm_extent_count = 1};
    CHECK(ioctl(to, FS_IOC_FIEMAP, &map) == 0 && map.head.fm_mapped_extents == 1);
    CHECK(map.extents[0].fe_logical == 5 * BLOCK && map.extents[0].fe_length == BLOCK && !map.extents[0].fe_flags);
    map.head = (struct fiemap){.fm_length = 1, .fm_flags = FIEMAP_FLAG_XATTR | FIEMAP_FLAG_SYNC};
    FAILS(EBADR, ioctl(to, FS_IOC_FIEMAP, &map));
    CHECK(map.head.fm_flags == FIEMAP_FLAG_XATTR);
    map.head = (struct fiemap){.fm_length = 0};
    FAILS(EINVAL, ioctl(to, FS_IOC_FIEMAP, &map));
    map.head = (struct fiemap){.fm_start = -1, .fm_length = 1};
    FAILS(EFBIG, ioctl(to, FS_IOC_FIEMAP, &map));
    map.head = (struct fiemap){.fm_length = 1};
    FAILS(EOPNOTSUPP, ioctl(at, FS_IOC_FIEMAP, &map));
    FAILS(EFAULT, ioctl(to, FS_IOC_FIEMAP, NULL));
    close(from), close(to), close(at);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    whole();
    ranges();
    refused();
    same();
    copied();
    mapped();
    extents();
    say("clones: %d failures\n", failures);
    return failures != 0;
}
