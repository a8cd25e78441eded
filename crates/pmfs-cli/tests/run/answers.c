/* What calls on files, names and memory answer where something is wrong: the cases of
 * manual pages, one after the other, and what is left of them. */
#include "check.h"
#include <dirent.h>
#include <stdint.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/xattr.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

static int at, file, reads, writes;
static char name_max[256 + 1], path_max[PATH_MAX + 1], room[70000];

static void told(const char *what, long answer) {
    say("%s: %ld %s\n", what, answer < 0 ? -1 : answer, answer < 0 ? strerrorname_np(errno) : "");
}
#define TOLD(what) (errno = 0, told(#what, what))
/* Where the answer is an address or a number that may be any. */
#define DONE(what) (errno = 0, told(#what, (what) < 0 ? -1 : 0))

static long closed(int fd) {
    return fd < 0 ? fd : close(fd);
}
#define OPENED(...) (errno = 0, told("open " #__VA_ARGS__, closed(openat(at, __VA_ARGS__))))

static void opens(void) {
    OPENED("dir", O_CREAT | O_RDONLY, 0600), OPENED("dir", O_CREAT | O_EXCL, 0600), OPENED("dir", O_WRONLY), OPENED("dir", O_RDWR | O_DIRECTORY);
    OPENED("dir", O_RDONLY | O_TRUNC), OPENED("dir", O_RDONLY | O_CREAT | O_DIRECTORY, 0600), OPENED("missing", O_RDONLY | O_CREAT | O_DIRECTORY, 0600);
    OPENED("file", O_DIRECTORY), OPENED("file", O_CREAT | O_EXCL, 0600), OPENED("link", O_NOFOLLOW), OPENED("link", O_CREAT | O_EXCL, 0600);
    OPENED("link", O_NOFOLLOW | O_PATH), OPENED("link", O_NOFOLLOW | O_PATH | O_DIRECTORY), OPENED("dangling", O_RDONLY);
    OPENED("dangling", O_CREAT | O_EXCL | O_RDWR, 0600), OPENED("dangling", O_CREAT | O_NOFOLLOW | O_RDWR, 0600), OPENED("circle", O_RDONLY);
    OPENED("circle", O_CREAT | O_RDWR, 0600), OPENED("circle/file", O_RDONLY), OPENED("file/below", O_RDONLY), OPENED("file/below", O_CREAT | O_RDWR, 0600);
    OPENED("missing/below", O_CREAT | O_RDWR, 0600), OPENED("", O_RDONLY), OPENED("", O_CREAT | O_RDWR, 0600), OPENED(".", O_CREAT | O_RDWR, 0600);
    OPENED("..", O_CREAT | O_RDWR, 0600), OPENED("dir/..", O_CREAT | O_RDWR, 0600), OPENED("missing/", O_CREAT | O_RDWR, 0600), OPENED("missing/.", O_CREAT | O_RDWR, 0600);
    OPENED(name_max, O_RDONLY), OPENED(name_max, O_CREAT | O_RDWR, 0600), OPENED(path_max, O_RDONLY), OPENED(path_max + 1, O_RDONLY);
    OPENED("dir", O_TMPFILE | O_RDWR, 0600), OPENED("dir", O_TMPFILE | O_WRONLY | O_EXCL, 0600), OPENED("dir", O_TMPFILE | O_RDONLY, 0600);
    OPENED("file", O_TMPFILE | O_RDWR, 0600), OPENED("missing", O_TMPFILE | O_RDWR, 0600), OPENED("dir", O_TMPFILE | O_RDWR | O_CREAT, 0600);
    OPENED("link to dir", O_TMPFILE | O_RDWR, 0600), OPENED("link to dir", O_NOFOLLOW | O_DIRECTORY), OPENED("link to dir/", O_NOFOLLOW | O_DIRECTORY);
    /* A mode that does not let even its owner in counts from the next open on. */
    int made = openat(at, "new", O_CREAT | O_RDWR, 07000);
    struct stat stat;
    NEED(made >= 0 && write(made, "new", 3) == 3 && fstat(made, &stat) == 0);
    say("mode %o\n", stat.st_mode);
    close(made);
}

static void names(void) {
    static const char *all[] = {"file", "dir", "full", "link", "link to dir", "dangling", "circle", "missing", ".", "..", "dir/.", "full/..", "", "missing/x", "file/x"};
    for (size_t which = 0; which < sizeof all / sizeof *all; which++) {
        const char *name = all[which];
        say("- %.20s\n", name);
        TOLD(mkdirat(at, name, 0700));
        if (!strcmp(name, "missing"))
            NEED(unlinkat(at, name, AT_REMOVEDIR) == 0);
        TOLD(symlinkat("to", at, name));
        if (!strcmp(name, "missing"))
            NEED(unlinkat(at, name, 0) == 0);
        TOLD(readlinkat(at, name, room, 4));
        TOLD(mknodat(at, name, S_IFDIR | 0600, 0));
        TOLD(mknodat(at, name, S_IFLNK | 0600, 0));
        TOLD(mknodat(at, name, S_IFREG | 0600, 0));
        if (!strcmp(name, "missing"))
            NEED(unlinkat(at, name, 0) == 0);
        if (strcmp(name, "file") && strcmp(name, "link") && strcmp(name, "dangling") && strcmp(name, "circle") && strcmp(name, "link to dir"))
            TOLD(unlinkat(at, name, 0));
        if (strcmp(name, "dir"))
            TOLD(unlinkat(at, name, AT_REMOVEDIR));
        for (size_t other = 0; other < sizeof all / sizeof *all; other++) {
            const char *to = all[other];
            char what[100];
            snprintf(what, sizeof what, "rename %.20s to %.20s", name, to);
            for (int flags = 0; flags < 8; flags++) {
                /* Whiteouts are for who asks, and what succeeds is made undone: by the
                 * same again. */
                if (flags == 4 || flags == 5 || flags == 0)
                    continue;
                errno = 0;
                long answer = syscall(SYS_renameat2, at, name, at, to, flags);
                told(what, answer);
                if (answer == 0 && flags == RENAME_NOREPLACE)
                    NEED(renameat(at, to, at, name) == 0);
                if (answer == 0 && flags == RENAME_EXCHANGE)
                    NEED(syscall(SYS_renameat2, at, name, at, to, flags) == 0);
            }
            int is_kept = !strcmp(name, to) || strchr(name, '.') || strchr(to, '.') || !*name || !*to || strstr(name, "/") || strstr(to, "/");
            if (is_kept || !strcmp(to, "full") || !strcmp(name, "missing")) {
                errno = 0;
                told(what, renameat(at, name, at, to));
            }
            snprintf(what, sizeof what, "link %.20s to %.20s", name, to);
            for (int flags = 0; flags <= AT_SYMLINK_FOLLOW; flags += AT_SYMLINK_FOLLOW) {
                errno = 0;
                long answer = linkat(at, name, at, to, flags);
                told(what, answer);
                if (answer == 0)
                    NEED(unlinkat(at, to, 0) == 0);
            }
        }
    }
    TOLD(renameat(at, "full", at, "full/below/deeper"));
    TOLD(renameat(at, "full", at, "full/below"));
    TOLD(renameat(at, "full/below", at, "full"));
    TOLD(renameat(at, "full", at, "dir"));
    TOLD(renameat(at, "dir", at, "full"));
    memset(room, 'x', PATH_MAX), room[PATH_MAX] = 0;
    TOLD(symlinkat(room, at, "long"));
    room[PATH_MAX - 1] = 0;
    TOLD(symlinkat(room, at, "long"));
    TOLD(readlinkat(at, "long", room, sizeof room));
    TOLD(openat(at, "long", O_RDONLY));
    TOLD(symlinkat("", at, "empty"));
    TOLD(readlinkat(at, "link", room, 0));
    for (int type = 0; type < 16; type++) {
        say("type %d ", type);
        TOLD(mknodat(at, "node", type << 12 | 0600, 0));
        unlinkat(at, "node", 0);
    }
}

static void lengths(void) {
    static const int modes[] = {0, 1, 2, 3, 4, 5, 0x10, 0x11, 0x12, 0x30, 0x40, 0x41, 0x100};
    for (size_t which = 0; which < sizeof modes / sizeof *modes; which++) {
        say("mode %#x: ", modes[which]);
        TOLD(fallocate(file, modes[which], 0, 0));
        TOLD(fallocate(file, modes[which], -1, 10));
        TOLD(fallocate(file, modes[which], 0, -1));
        TOLD(fallocate(reads, modes[which], 0, 10));
        TOLD(fallocate(at, modes[which], 0, 10));
        TOLD(fallocate(-1, modes[which], 0, 10));
    }
    TOLD(fallocate(file, 0, LLONG_MAX, 1));
    TOLD(ftruncate(reads, 3));
    TOLD(ftruncate(at, 3));
    TOLD(truncate(dir, 3));
    TOLD(truncate(in("dangling"), 3));
    TOLD(truncate(in("file"), -1));
    static const off_t places[] = {0, 5, 10, 11, -1, LLONG_MAX};
    for (size_t which = 0; which < sizeof places / sizeof *places; which++)
        for (int whence = 0; whence < 6; whence++) {
            NEED(lseek(file, 3, SEEK_SET) == 3);
            say("to %lld by %d, ", (long long)places[which], whence);
            TOLD(lseek(file, places[which], whence));
            say("now at %lld\n", (long long)lseek(file, 0, SEEK_CUR));
        }
    TOLD(lseek(at, -1, SEEK_SET));
    struct iovec one = {room, 4}, many[2] = {{room, 2}, {room + 2, SSIZE_MAX}};
    for (int bit = -1; bit < 12; bit++) {
        int flags = bit < 0 ? 0 : 1 << bit;
        /* RWF_DONTCACHE, _ATOMIC and _NOWAIT are file systems' to have, and RWF_NOSIGNAL is new. */
        if (bit == 3 || bit == 6 || bit == 7 || bit == 8)
            continue;
        say("flag %d: ", bit);
        TOLD(preadv2(file, &one, 1, 0, flags));
        TOLD(preadv2(file, &one, 1, -2, flags));
        TOLD(preadv2(writes, &one, 1, 0, flags));
        TOLD(pwritev2(reads, &one, 1, 0, flags));
    }
    NEED(lseek(file, 4, SEEK_SET) == 4);
    TOLD(preadv2(file, &one, 1, -1, 0));
    say("now at %lld\n", (long long)lseek(file, 0, SEEK_CUR));
    TOLD(preadv(file, &one, 1, -1));
    TOLD(readv(file, many, 2));
    TOLD(writev(writes, many, 2));
    TOLD(readv(file, &one, 1025));
    TOLD(readv(file, &one, 0));
    TOLD(pread(at, room, 4, 0));
    TOLD(read(at, room, 4));
    TOLD(copy_file_range(file, &(loff_t){0}, file, &(loff_t){2}, 5, 0));
    TOLD(copy_file_range(file, &(loff_t){20}, file, &(loff_t){0}, 5, 0));
}

static void memory(void) {
    size_t page = 4096;
    DONE((long)mmap(NULL, 0, PROT_READ, MAP_SHARED, file, 0));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_SHARED, file, 1));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_SHARED, file, -page));
    DONE((long)mmap(NULL, page, PROT_READ, 0, file, 0));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_SHARED | MAP_PRIVATE | 0x8, file, 0));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_SHARED, -1, 0));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_SHARED, at, 0));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_PRIVATE, writes, 0));
    DONE((long)mmap(NULL, page, PROT_READ, MAP_SHARED, writes, 0));
    DONE((long)mmap(NULL, page, PROT_WRITE, MAP_SHARED, reads, 0));
    DONE((long)mmap(NULL, page, PROT_WRITE, MAP_SHARED, writes, 0));
    DONE((long)mmap((void *)1, page, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0));
    DONE((long)mmap(NULL, SIZE_MAX, PROT_READ, MAP_SHARED, file, 0));
    NEED(ftruncate(file, 3 * page) == 0);
    char *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *only = mmap(NULL, page, PROT_READ, MAP_SHARED, reads, 0);
    NEED(map != MAP_FAILED && only != MAP_FAILED);
    TOLD(mprotect(only, page, PROT_READ | PROT_WRITE));
    TOLD(mprotect(map + 1, page, PROT_READ));
    TOLD(mprotect(map, page, 0x1000));
    for (int flags = 0; flags < 9; flags++) {
        say("flags %d: ", flags);
        TOLD(msync(map, page, flags));
        TOLD(msync(map + 1, page, flags));
        TOLD(msync(map, 0, flags));
    }
    static const int advice[] = {0, 1, 2, 3, 4, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 26, 99};
    for (size_t which = 0; which < sizeof advice / sizeof *advice; which++) {
        /* Large pages and merging are a matter of the kernel's build and of the memory. */
        int bad = advice[which];
        say("advice %d: ", bad);
        if (bad != 12 && bad != 13 && bad != 14 && bad != 15 && bad != 8 && bad != 20 && bad != 21)
            TOLD(madvise(map, page, bad));
        TOLD(madvise(map + 1, page, bad));
        TOLD(madvise(map, SIZE_MAX, bad));
    }
    unsigned char there[3];
    TOLD(mincore(map + 1, page, there));
    TOLD(mincore(map, page, (unsigned char *)8));
    TOLD(mincore(map, 3 * page, there));
    DONE((long)mremap(map + 1, page, page, 0));
    DONE((long)mremap(map, page, 0, 0));
    DONE((long)mremap(map, page, page, 8));
    DONE((long)mremap(map, page, page, MREMAP_FIXED, map));
    DONE((long)mremap(map, page, page, MREMAP_FIXED | MREMAP_MAYMOVE, map));
    DONE((long)mremap(map, page, page, MREMAP_FIXED | MREMAP_MAYMOVE, map + 1));
    DONE((long)mremap(map, 2 * page, page, MREMAP_FIXED | MREMAP_MAYMOVE, map + page));
    NEED(munmap(map + page, page) == 0);
    TOLD(msync(map, 3 * page, MS_SYNC));
    TOLD(madvise(map, 3 * page, MADV_WILLNEED));
    TOLD(mprotect(map, 3 * page, PROT_READ));
    TOLD(mincore(map, 3 * page, there));
    TOLD(mlock(map, 3 * page));
    TOLD(munlock(map, 3 * page));
    DONE((long)mremap(map, 3 * page, 4 * page, MREMAP_MAYMOVE));
    TOLD(munmap(map + 1, page));
    TOLD(munmap(map, 0));
    TOLD(munmap(map, 3 * page));
    TOLD(munmap(map, 3 * page));
    munmap(only, page);
    NEED(ftruncate(file, 10) == 0);
}

static void attributes(void) {
    TOLD(fsetxattr(file, "user.a", "value", 5, XATTR_REPLACE));
    TOLD(fsetxattr(file, "user.a", "value", 5, 0));
    TOLD(fsetxattr(file, "user.a", "value", 5, XATTR_CREATE));
    TOLD(fsetxattr(file, "user.a", "value", 5, XATTR_CREATE | XATTR_REPLACE));
    TOLD(fsetxattr(file, "user.a", "value", 5, 4));
    TOLD(fsetxattr(file, "", "value", 5, 0));
    TOLD(fsetxattr(file, "user.", "value", 5, 0));
    TOLD(fsetxattr(file, "none.a", "value", 5, 0));
    TOLD(fsetxattr(file, name_max, "value", 5, 0));
    TOLD(fsetxattr(file, "user.b", room, 65537, 0));
    TOLD(fgetxattr(file, "user.a", room, 0));
    TOLD(fgetxattr(file, "user.a", room, 4));
    TOLD(fgetxattr(file, "user.a", room, 5));
    TOLD(fgetxattr(file, "user.b", room, 5));
    TOLD(fgetxattr(file, name_max, room, 5));
    TOLD(flistxattr(file, room, 0));
    TOLD(flistxattr(file, room, 3));
    TOLD(fremovexattr(file, "user.b"));
    TOLD(fremovexattr(file, "user.a"));
    TOLD(lsetxattr(in("link"), "user.a", "", 0, 0));
    TOLD(lgetxattr(in("link"), "user.a", room, 5));
    TOLD(setxattr(in("dangling"), "user.a", "", 0, 0));
    TOLD(setxattr(in("dir"), "user.a", "", 0, 0));
    struct timespec times[2] = {{0, 1000000000}, {0, 0}};
    TOLD(futimens(file, times));
    times[0].tv_nsec = -1;
    TOLD(futimens(file, times));
    times[0].tv_nsec = times[1].tv_nsec = UTIME_OMIT;
    TOLD(utimensat(at, "missing", times, 0));
    times[0].tv_nsec = 0, times[1].tv_nsec = 77777777777;
    TOLD(utimensat(at, "missing", times, 0));
    TOLD(faccessat(at, "file", 8, 0));
    TOLD(faccessat(at, "file", R_OK | W_OK, 0));
    TOLD(faccessat(at, "file", X_OK, 0));
    TOLD(faccessat(at, "file/", F_OK, 0));
    TOLD(fchmod(file, 0107777));
    struct stat stat;
    NEED(fstat(file, &stat) == 0);
    say("mode %o\n", stat.st_mode);
    TOLD(fchmod(file, 0644));
    TOLD(fchown(file, -1, -1));
    TOLD(chdir(in("file")));
    TOLD(chdir(in("circle")));
    TOLD(chdir(in(name_max)));
    NEED(chdir(dir) == 0);
    TOLD(syscall(SYS_getcwd, room, 0));
    TOLD(syscall(SYS_getcwd, room, 2));
    TOLD(syscall(SYS_getcwd, 8, 4096));
}

static void locks(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_len = 5};
    static const int calls[] = {F_SETLK, F_GETLK, F_OFD_SETLK, F_OFD_GETLK};
    for (int which = 0; which < 4; which++) {
        say("call %d:\n", which);
        for (int type = 0; type < 5; type++) {
            /* From Linux 6.3 on it asks for one's own locks, which is not served. */
            if (type == F_UNLCK && calls[which] == F_OFD_GETLK)
                continue;
            int all[] = {reads, writes, at};
            for (int one_of = 0; one_of < 3; one_of++) {
                struct flock one = {.l_type = type, .l_len = 5};
                TOLD(fcntl(all[one_of], calls[which], &one));
            }
        }
        for (int whence = 0; whence < 4; whence++) {
            struct flock one = {.l_type = F_RDLCK, .l_whence = whence, .l_start = -3, .l_len = -5};
            TOLD(fcntl(file, calls[which], &one));
            one = (struct flock){.l_type = F_RDLCK, .l_whence = whence, .l_start = LLONG_MAX, .l_len = 2};
            TOLD(fcntl(file, calls[which], &one));
            one = (struct flock){.l_type = F_RDLCK, .l_whence = whence, .l_start = 7, .l_len = -5};
            TOLD(fcntl(file, calls[which], &one));
        }
        lock.l_pid = 1, lock.l_type = F_UNLCK;
        TOLD(fcntl(file, calls[which], &lock));
    }
    static const int operations[] = {LOCK_SH, LOCK_EX, LOCK_UN, 0, 3, LOCK_NB, LOCK_SH | LOCK_EX, 32, 64, 16};
    for (size_t which = 0; which < sizeof operations / sizeof *operations; which++) {
        say("%d ", operations[which]);
        TOLD(flock(file, operations[which]));
    }
    TOLD(fcntl(file, F_DUPFD, -1));
    TOLD(fcntl(file, F_DUPFD, 1 << 30));
    TOLD(fcntl(file, F_SETFL, O_DIRECTORY | O_RDONLY));
    TOLD(fcntl(file, F_SETPIPE_SZ, 4096));
    TOLD(fcntl(file, F_GETOWN));
    TOLD(syscall(SYS_getdents64, file, room, sizeof room));
    TOLD(syscall(SYS_getdents64, at, room, 10));
    NEED(mkdirat(at, "gone", 0700) == 0);
    int gone = openat(at, "gone", O_RDONLY);
    NEED(gone >= 0 && unlinkat(at, "gone", AT_REMOVEDIR) == 0);
    TOLD(syscall(SYS_getdents64, gone, room, sizeof room));
    TOLD(openat(gone, "new", O_CREAT | O_RDWR, 0600));
    TOLD(mkdirat(gone, "new", 0700));
    TOLD(openat(gone, ".", O_RDONLY) < 0 ? -1 : 0);
    TOLD(openat(gone, "..", O_RDONLY) < 0 ? -1 : 0);
    TOLD(linkat(at, "file", gone, "new", 0));
    TOLD(renameat(at, "file", gone, "new"));
    TOLD(symlinkat("to", gone, "new"));
    close(gone);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    /* Not in the pool's root, which `..` leads out of where there is no mount. */
    char here[PATH_MAX];
    snprintf(here, sizeof here, "%s/here", arguments[2]);
    NEED(mkdir(here, 0700) == 0);
    dir = here;
    umask(022);
    memset(name_max, 'n', 256);
    memset(path_max, '/', PATH_MAX), path_max[1] = '.';
    file = file_with("file", "0123456789");
    reads = open(in("file"), O_RDONLY), writes = open(in("file"), O_WRONLY);
    NEED((at = open(dir, O_RDONLY | O_DIRECTORY)) >= 0 && reads >= 0 && writes >= 0);
    NEED(mkdirat(at, "dir", 0700) == 0 && mkdirat(at, "full", 0700) == 0 && mkdirat(at, "full/below", 0700) == 0);
    NEED(symlinkat("file", at, "link") == 0 && symlinkat("dir", at, "link to dir") == 0 && symlinkat("nowhere", at, "dangling") == 0);
    NEED(symlinkat("circle", at, "circle") == 0);
    opens();
    unlink(in("nowhere"));
    unlink(in("missing"));
    lengths();
    memory();
    attributes();
    locks();
    names();
    return failures;
}
