/* Pointers that lead nowhere: EFAULT and nothing else, also with every signal blocked. */
#include "check.h"
#include <dirent.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <utime.h>

#define PAGE 4096
static char *edge; /* what follows it is not there */
static char got[PAGE];

/* Buffers: nothing, not mapped, the kernel's, no address at all, mapped to a half. */
static void *const bad[] = {NULL, (void *)8, (void *)0x500000000000, (void *)0xffff800000000000, (void *)-1, (void *)0x8000000000000000};
#define BAD (sizeof bad / sizeof *bad)

static void buffers(int fd, int at) {
    for (size_t way = 0; way < BAD; way++) {
        void *there = bad[way];
        FAILS(EFAULT, read(fd, there, 16));
        FAILS(EFAULT, write(fd, there, 16));
        FAILS(EFAULT, pread(fd, there, 16, 0));
        FAILS(EFAULT, pwrite(fd, there, 16, 0));
        CHECK(lseek(fd, 0, SEEK_CUR) == 0);
        struct iovec one = {there, 16}, parts[2] = {{there, 8}, {there, 8}};
        FAILS(EFAULT, readv(fd, &one, 1));
        FAILS(EFAULT, writev(fd, parts, 2));
        FAILS(EFAULT, preadv(fd, parts, 2, 0));
        FAILS(EFAULT, pwritev(fd, &one, 1, 0));
        FAILS(EFAULT, readv(fd, there, 1));
        FAILS(EFAULT, writev(fd, there, 2));
        FAILS(EFAULT, syscall(SYS_fstat, fd, there));
        FAILS(EFAULT, syscall(SYS_stat, in("file"), there));
        FAILS(EFAULT, syscall(SYS_statx, AT_FDCWD, in("file"), 0, STATX_ALL, there));
        FAILS(EFAULT, syscall(SYS_statfs, in("file"), there));
        FAILS(EFAULT, syscall(SYS_getdents64, at, there, 1000));
        FAILS(EFAULT, fcntl(fd, F_SETLK, there));
        FAILS(EFAULT, fcntl(fd, F_GETLK, there));
        FAILS(EFAULT, syscall(SYS_readlink, in("link"), there, 100));
        FAILS(EFAULT, syscall(SYS_fgetxattr, fd, "user.a", there, 100));
        FAILS(EFAULT, syscall(SYS_fsetxattr, fd, "user.a", there, 10, 0));
        if (there) {
            FAILS(EFAULT, syscall(SYS_sendfile, fd, fd, there, 10));
            FAILS(EFAULT, syscall(SYS_copy_file_range, fd, there, fd, NULL, 10, 0));
            FAILS(EFAULT, syscall(SYS_utimensat, AT_FDCWD, in("file"), there, 0));
            FAILS(EFAULT, syscall(SYS_utime, in("file"), there));
            FAILS(EFAULT, syscall(SYS_utimensat, fd, NULL, there, 0));
        }
    }
}

static void paths(void) {
    for (size_t way = 0; way < BAD; way++) {
        const char *there = bad[way];
        FAILS(EFAULT, syscall(SYS_open, there, O_RDONLY));
        FAILS(EFAULT, syscall(SYS_openat, AT_FDCWD, there, O_RDONLY));
        FAILS(EFAULT, syscall(SYS_stat, there, got));
        FAILS(EFAULT, syscall(SYS_mkdir, there, 0755));
        FAILS(EFAULT, syscall(SYS_rename, there, in("x")));
        FAILS(EFAULT, syscall(SYS_rename, in("file"), there));
        FAILS(EFAULT, syscall(SYS_link, in("file"), there));
        FAILS(EFAULT, syscall(SYS_symlink, there, in("x")));
        FAILS(EFAULT, syscall(SYS_symlink, "x", there));
        FAILS(EFAULT, syscall(SYS_unlink, there));
        FAILS(EFAULT, syscall(SYS_chdir, there));
        FAILS(EFAULT, syscall(SYS_truncate, there, 0L));
        FAILS(EFAULT, syscall(SYS_chmod, there, 0644));
        FAILS(EFAULT, syscall(SYS_getxattr, in("file"), there, got, 10));
        FAILS(EFAULT, syscall(SYS_execve, there, NULL, NULL));
    }
    /* At the end of a page: with its NUL there it is whole, without it is not. */
    const char *path = in("file");
    size_t len = strlen(path);
    char *start = memcpy(edge - len - 1, path, len + 1);
    int fd = open(start, O_RDONLY);
    CHECK(fd >= 0);
    start = memcpy(edge - len, path, len);
    FAILS(EFAULT, open(start, O_RDONLY));
    FAILS(EFAULT, unlink(start));
    struct stat stat;
    FAILS(EFAULT, lstat(start, &stat));
    close(fd);
}

static void halves(int fd) {
    /* A buffer of which half is there. */
    NEED(ftruncate(fd, 0) == 0 && pwrite(fd, "0123456789abcdef", 16, 0) == 16);
    memset(edge - 8, 'E', 8);
    /* The kernel gives or takes what it can, or nothing. */
    ssize_t read_there = pread(fd, edge - 8, 16, 0);
    int why = errno;
    CHECK(read_there == 8 || (read_there == -1 && why == EFAULT));
    ssize_t written = pwrite(fd, edge - 8, 16, 0);
    why = errno;
    CHECK(written == 8 || (written == -1 && why == EFAULT));
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0 && stat.st_size == 16);
    CHECK(pread(fd, got, 16, 0) == 16 && memcmp(got + 8, "89abcdef", 8) == 0);
    /* A first part that is good. */
    struct iovec parts[2] = {{got, 4}, {NULL, 8}};
    CHECK(preadv(fd, parts, 2, 0) == 4);
    memcpy(got, "good", 4);
    CHECK(pwritev(fd, parts, 2, 0) == 4);
    /* Nothing is asked for: nothing is touched. */
    CHECK(read(fd, NULL, 0) == 0 && write(fd, NULL, 0) == 0);
    parts[1].iov_len = 0;
    CHECK(preadv(fd, parts, 2, 0) == 4);
    /* More than there is: as far as the buffer goes it is filled. */
    CHECK(pread(fd, edge - 16, 1 << 20, 0) == 16);
    /* Memory that may be read but not written, and the other way round. */
    char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(EFAULT, pread(fd, page, 4, 0));
    CHECK(pwrite(fd, page, 4, 0) == 4);
}

/* Data of every length that the engine treats in its own way, of which only the
 * beginning is there, at every alignment. */
static void lengths(int fd) {
    static const int sizes[] = {1, 47, 49, 384, 385, 1023, 1024, 1025, 1100, 2000, 4095, 4096, 4097, 5000, 8192, 10000, 65536};
    long there = 32 * PAGE;
    char *memory = mmap(NULL, 2 * there, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(memory != MAP_FAILED && mprotect(memory + there, there, PROT_NONE) == 0);
    memset(memory, 'M', there);
    CHECK(pwrite(fd, memory, there, 0) == there);
    memset(memory, 'W', there);
    for (unsigned which = 0; which < sizeof sizes / sizeof *sizes; which++)
        for (int offset = 0; offset < 5000; offset += 713)
            for (int good = 0; good < sizes[which]; good += sizes[which] / 5 + 1)
                for (int writes = 0; writes < 2; writes++) {
                    char *at = memory + there - good;
                    ssize_t done = writes ? pwrite(fd, at, sizes[which], offset) : pread(fd, at, sizes[which], offset);
                    int why = errno;
                    CHECK((done == -1 && why == EFAULT) || (done > 0 && done <= good));
                    /* A call that fails has written nothing; one that was short is
                     * undone for the next. */
                    static char was[70000];
                    NEED(!writes || pread(fd, was, sizeof was, 0) == sizeof was);
                    for (long byte = 0; writes && byte < (long)sizeof was; byte++)
                        if (was[byte] != 'M' && (done == -1 || byte < offset || byte >= offset + done)) {
                            CHECK(!"bytes of a failed write");
                            break;
                        }
                    if (writes && done > 0) {
                        memset(was, 'M', done);
                        NEED(pwrite(fd, was, done, offset) == done);
                    }
                    if (!writes)
                        memset(memory, 'W', there);
                }
    /* And behind the end. */
    for (int size = 4096; size < 9000; size += 311)
        for (int good = 0; good < size; good += size / 7) {
            NEED(ftruncate(fd, 0) == 0);
            ssize_t done = pwrite(fd, memory + there - good, size, 0);
            int why = errno;
            CHECK((done == -1 && why == EFAULT) || (done > 0 && done <= good));
        }
    CHECK(munmap(memory, 2 * there) == 0 && ftruncate(fd, 0) == 0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(edge != MAP_FAILED && mprotect(edge + PAGE, PAGE, PROT_NONE) == 0);
    edge += PAGE;
    int fd = file_with("file", "0123456789abcdef"), at = open(dir, O_RDONLY | O_DIRECTORY);
    NEED(symlink("file", in("link")) == 0 && fsetxattr(fd, "user.a", "value", 5, 0) == 0);
    for (int blocked = 0; blocked < 2; blocked++) {
        if (blocked) {
            sigset_t all;
            sigfillset(&all);
            NEED(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0 && sigprocmask(SIG_BLOCK, &all, NULL) == 0);
        }
        buffers(fd, at);
        paths();
        halves(fd);
        lengths(fd);
        /* A file of large pages, which are written in place. */
        NEED(fallocate(fd, 0, 0, 4 << 20) == 0);
        lengths(fd);
        NEED(ftruncate(fd, 0) == 0 && pwrite(fd, "0123456789abcdef", 16, 0) == 16);
    }
    /* With the signal ignored, and with a handler of the program's, which none of this reaches. */
    signal(SIGSEGV, SIG_IGN);
    buffers(fd, at);
    signal(SIGSEGV, (void (*)(int))abort);
    signal(SIGBUS, (void (*)(int))abort);
    buffers(fd, at);
    say("pointers: %d failures\n", failures);
    return failures != 0;
}
