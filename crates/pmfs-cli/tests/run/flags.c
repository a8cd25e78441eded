/* Each bit of the flags of each call, of a name that is there and of one that is not:
 * which of them a call knows, and what it says first. */
#include "check.h"
#include <linux/openat2.h>

static int at, file;
static char buffer[256];

static void told(const char *what, const char *name, int bit, long answer) {
    say("%s %s, bit %d: %s\n", what, name, bit, answer >= 0 ? "done" : strerrorname_np(errno));
}

static long opened(long fd) {
    if (fd >= 0)
        close(fd);
    return fd;
}

static void at_flags(const char *name, int bit) {
    long flag = bit < 0 ? 0 : 1L << bit;
#define TOLD(what, ...) (errno = 0, told(what, name, bit, syscall(__VA_ARGS__)))
    TOLD("fstatat", SYS_newfstatat, at, name, buffer, flag);
    TOLD("statx", SYS_statx, at, name, flag, STATX_BASIC_STATS, buffer);
    TOLD("statx mask", SYS_statx, at, name, 0, flag, buffer);
    TOLD("fchownat", SYS_fchownat, at, name, -1, -1, flag);
    TOLD("faccessat2", SYS_faccessat2, at, name, R_OK, flag);
    TOLD("access", SYS_faccessat, at, name, flag);
    struct timespec omitted[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    TOLD("utimensat", SYS_utimensat, at, name, NULL, flag);
    TOLD("utimensat omitted", SYS_utimensat, at, name, omitted, flag);
    TOLD("utimensat descriptor", SYS_utimensat, file, NULL, NULL, flag);
    TOLD("fchmodat2", 452, at, name, 0644, flag);
    TOLD("linkat", SYS_linkat, at, name, at, "fresh", flag);
    unlinkat(at, "fresh", 0);
    if (strcmp(name, "file")) {
        TOLD("unlinkat", SYS_unlinkat, at, name, flag);
        TOLD("renameat2", SYS_renameat2, at, name, at, "fresh", flag);
        TOLD("renameat2 with exchange", SYS_renameat2, at, name, at, "file", flag | 2);
    }
    if (bit < 0 || 1 << bit == O_PATH || bit > 30)
        return;
    for (int access = 0; access < 3; access++) {
        /* Told of below. */
        if (((flag | access) & O_ACCMODE) == O_ACCMODE)
            continue;
        errno = 0;
        told("open", name, bit, opened(syscall(SYS_openat, at, name, flag | access, 0600)));
        if (strcmp(name, "file"))
            unlinkat(at, name, 0);
        errno = 0;
        told("open a directory", ".", bit, opened(syscall(SYS_openat, at, ".", flag | access, 0600)));
        errno = 0;
        told("open to make", name, bit, opened(syscall(SYS_openat, at, name, flag | access | O_CREAT, 0600)));
        if (strcmp(name, "file"))
            unlinkat(at, name, 0);
    }
}

static void how_flags(const char *name, int bit) {
    struct open_how how[] = {{.flags = 1UL << bit}, {.flags = O_PATH | 1UL << bit}, {.mode = 1UL << bit}, {.flags = O_CREAT | O_RDWR, .mode = 1UL << bit}};
    for (int which = 0; which < 4; which++) {
        errno = 0;
        told(((const char *[]){"openat2", "openat2 path", "openat2 mode", "openat2 to make"})[which], name, bit,
             opened(syscall(SYS_openat2, at, name, &how[which], sizeof *how)));
        if (strcmp(name, "file"))
            unlinkat(at, name, 0);
    }
    /* Ways to resolve that a kernel knows are refused where there is no mount. */
    struct open_how way = {.flags = O_RDONLY, .resolve = 1UL << bit};
    errno = 0;
    long answer = opened(syscall(SYS_openat2, at, name, &way, sizeof way));
    if (bit >= 6)
        told("openat2 resolve", name, bit, answer);
}

static void others(void) {
    char long_how[5000] = {0};
    static const int sizes[] = {0, 8, 23, 24, 25, 32, 4096, 4097};
    for (size_t which = 0; which < sizeof sizes / sizeof *sizes; which++) {
        errno = 0;
        told("openat2 size", "file", sizes[which], opened(syscall(SYS_openat2, at, "file", long_how, sizes[which])));
        long_how[30] = 1;
        errno = 0;
        told("openat2 more", "file", sizes[which], opened(syscall(SYS_openat2, at, "file", long_how, sizes[which])));
        long_how[30] = 0;
    }
    for (int bit = 0; bit < 64; bit++) {
        const char *name = "file";
        TOLD("sync_file_range", SYS_sync_file_range, file, 0, 10, 1L << bit);
        TOLD("sync_file_range at", SYS_sync_file_range, file, 1L << bit, 1L << bit, 0);
        TOLD("fadvise", SYS_fadvise64, file, 0, 10, bit);
        TOLD("fadvise length", SYS_fadvise64, file, 0, 1L << bit, 0);
    }
    const char *name = "file";
    int bit = -1, writes = openat(at, "file", O_WRONLY);
    TOLD("readahead", SYS_readahead, file, 0, 10);
    TOLD("readahead of a directory", SYS_readahead, at, 0, 10);
    TOLD("readahead to write", SYS_readahead, writes, 0, 10);
    close(writes);
    /* Not there without a mount. */
    int neither = openat(at, "file", 3);
    errno = 0;
    int refused = neither < 0 || (read(neither, buffer, 1) < 0 && errno == EBADF && write(neither, "", 1) < 0 && errno == EBADF);
    say("access mode 3: %s\n", refused ? "neither" : "read or written");
    close(neither);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    umask(0);
    file = file_with("file", "text");
    NEED((at = open(dir, O_RDONLY | O_DIRECTORY)) >= 0);
    for (int bit = -1; bit < 32; bit++) {
        at_flags("file", bit);
        at_flags("missing", bit);
        at_flags("no/where", bit);
    }
    for (int bit = 0; bit < 64; bit++) {
        how_flags("file", bit);
        how_flags("missing", bit);
        how_flags("no/where", bit);
    }
    others();
    return failures;
}
