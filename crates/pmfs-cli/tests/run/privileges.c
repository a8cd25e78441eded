/* What calls take away of set-id bits and file capabilities, from whom; and what new
 * files in set-gid directories get. */
#include "check.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <sys/xattr.h>

enum { OWNER = 1001, GROUP = 2001, OTHER_GROUP = 2002 };
static const char *name;

/* Who does it: root; the owner, in the file's group by its own, by another of its groups,
 * or not; somebody else. Not for good: the library serves who may be root again. */
static const struct who {
    const char *name;
    uid_t user;
    gid_t group, more;
} whos[] = {{"root", 0, 0, 0},
            {"owner in group", OWNER, GROUP, GROUP},
            {"owner by another group", OWNER, OTHER_GROUP, GROUP},
            {"owner outside", OWNER, OTHER_GROUP, OTHER_GROUP},
            {"other in group", 1003, GROUP, GROUP},
            {"other outside", 1003, OTHER_GROUP, OTHER_GROUP}};

static void become(const struct who *who) {
    NEED(setgroups(1, &who->more) == 0 && setegid(who->group) == 0 && seteuid(who->user) == 0);
}

static void become_root(void) {
    NEED(seteuid(0) == 0 && setegid(0) == 0 && setgroups(0, NULL) == 0);
}

static long with_file(int flags, long (*body)(int)) {
    int fd = open(name, flags);
    if (fd < 0)
        return fd;
    long answer = body(fd);
    int was = errno;
    close(fd);
    errno = was;
    return answer;
}

#define ON_FILE(call, what)                                                                                  \
    static long call##_body(int fd) {                                                                        \
        return what;                                                                                         \
    }                                                                                                        \
    static long of_##call(void) {                                                                            \
        return with_file(O_RDWR, call##_body);                                                               \
    }
#define BY_NAME(call, what)                                                                                  \
    static long of_##call(void) {                                                                            \
        return what;                                                                                         \
    }

static long copied(int fd, int by_sendfile) {
    int from = open("/dev/zero", O_RDONLY);
    long answer = by_sendfile ? sendfile(fd, from, NULL, 3) : -1;
    close(from);
    loff_t out = 5;
    return by_sendfile ? answer : copy_file_range(fd, &(loff_t){0}, fd, &out, 3, 0);
}
static long stored(int fd) {
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -1;
    map[0] = 'm';
    msync(map, 4096, MS_SYNC);
    return munmap(map, 4096);
}
static long opened(int flags) {
    int fd = open(name, flags);
    return fd < 0 ? fd : close(fd);
}
static long acl_set(void) {
    static const unsigned char acl[] = {2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255};
    return setxattr(name, "system.posix_acl_access", acl, sizeof acl, 0);
}

ON_FILE(write, write(fd, "w", 1))
ON_FILE(write_nothing, write(fd, "", 0))
ON_FILE(pwrite, pwrite(fd, "w", 1, 3))
ON_FILE(append, pwrite(fd, "w", 1, 10))
ON_FILE(writev, writev(fd, &(struct iovec){"w", 1}, 1))
ON_FILE(sendfile, copied(fd, 1))
ON_FILE(copy, copied(fd, 0))
ON_FILE(ftruncate, ftruncate(fd, 5))
ON_FILE(ftruncate_same, ftruncate(fd, 10))
ON_FILE(fallocate, fallocate(fd, 0, 0, 20))
ON_FILE(fallocate_kept, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 20))
ON_FILE(punch, fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 5))
ON_FILE(mmap, stored(fd))
ON_FILE(fchown_nobody, fchown(fd, -1, -1))
BY_NAME(open, opened(O_RDWR))
BY_NAME(cut, opened(O_WRONLY | O_TRUNC))
BY_NAME(truncate, truncate(name, 5))
BY_NAME(truncate_same, truncate(name, 10))
BY_NAME(truncate_longer, truncate(name, 5000))
BY_NAME(chown_nobody, chown(name, -1, -1))
BY_NAME(chown_owner, chown(name, OWNER, -1))
BY_NAME(chown_group, chown(name, -1, GROUP))
BY_NAME(chown_other_group, chown(name, -1, OTHER_GROUP))
BY_NAME(chown_root, chown(name, 0, 0))
BY_NAME(chmod, chmod(name, 06775))
BY_NAME(chmod_less, chmod(name, 02745))
BY_NAME(acl, acl_set())
BY_NAME(link, link(name, in("linked")))
BY_NAME(rename, rename(name, name))
BY_NAME(times, utimensat(AT_FDCWD, name, NULL, 0))

#define ROW(call) {#call, of_##call}
static const struct row {
    const char *name;
    long (*call)(void);
} rows[] = {ROW(write), ROW(write_nothing), ROW(pwrite), ROW(append), ROW(writev), ROW(sendfile), ROW(copy), ROW(ftruncate), ROW(ftruncate_same),
            ROW(mmap), ROW(fchown_nobody), ROW(open), ROW(cut), ROW(truncate), ROW(truncate_same), ROW(truncate_longer),
            ROW(chown_nobody), ROW(chown_owner), ROW(chown_group), ROW(chown_other_group), ROW(chown_root), ROW(chmod), ROW(chmod_less), ROW(acl),
            ROW(link), ROW(rename), ROW(times),
            /* Where a tmpfs takes nothing away, and ext4 and XFS do: told apart below. */
            ROW(fallocate), ROW(fallocate_kept), ROW(punch)};
enum { ROWS = sizeof rows / sizeof *rows, FALLOCATES = 3 };

static const char capability[20] = {1, 0, 0, 2, 0, 4};

static void made(unsigned mode, int capable) {
    unlink(name), unlink(in("linked"));
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    NEED(fd >= 0 && write(fd, "0123456789", 10) == 10 && fchown(fd, OWNER, GROUP) == 0 && fchmod(fd, mode) == 0 && close(fd) == 0);
    NEED(!capable || setxattr(name, "security.capability", capability, sizeof capability, 0) == 0);
}

static void all(unsigned mode, int capable) {
    for (size_t which = 0; which < sizeof whos / sizeof *whos; which++)
        for (int row = 0; row < ROWS; row++) {
            struct stat stat;
            char room[20];
            made(mode, capable);
            become(&whos[which]);
            errno = 0;
            long answer = rows[row].call();
            int why = errno;
            become_root();
            NEED(lstat(name, &stat) == 0);
            int left = getxattr(name, "security.capability", room, sizeof room) > 0;
            unsigned found = stat.st_mode & 07777;
            if (row >= ROWS - FALLOCATES && answer == 0) {
                /* As for a write: the rule of file_remove_privs() in the kernel. */
                int in_group = whos[which].user == 0 || whos[which].group == GROUP || whos[which].more == GROUP;
                unsigned kept = mode;
                if (whos[which].user != 0)
                    kept &= ~(S_ISUID | (mode & S_IXGRP || !in_group ? S_ISGID : 0));
                int on_tmpfs = found == mode && left == capable;
                say("%s by %s on %o%s: %s\n", rows[row].name, whos[which].name, mode, capable ? "+" : "",
                    on_tmpfs && getenv("PMFS_LIKE_TMPFS") ? "as asked" : found == kept && !left ? "as asked" : "not as asked");
                continue;
            }
            int kept_by_mount = strstr(whos[which].name, "outside") && (mode & (S_ISGID | S_IXGRP)) == S_ISGID && strstr(rows[row].name, "chown_nobody");
            if (kept_by_mount) {
                /* The kernel tells a file system of user space nothing of it. */
                say("%s by %s on %o: %s\n", rows[row].name, whos[which].name, mode, (found | S_ISGID) == (mode & ~S_ISUID) ? "done" : "else");
                continue;
            }
            say("%s by %s on %o%s: %s %o%s %u %u\n", rows[row].name, whos[which].name, mode, capable ? "+" : "",
                answer < 0 ? strerrorname_np(why) : "done", found, left ? "+" : "", stat.st_uid, stat.st_gid);
        }
}

static void in_directory(unsigned mask, unsigned mode) {
    for (size_t which = 0; which < sizeof whos / sizeof *whos; which++) {
        static const char *const news[] = {"file", "node", "directory", "link", "unnamed", "socket"};
        become(&whos[which]);
        umask(mask);
        for (int kind = 0; kind < 6; kind++) {
            struct stat stat;
            const char *path = in("shared/new");
            int fd = kind == 4 ? open(in("shared"), O_TMPFILE | O_RDWR, mode) : -1;
            int good = kind == 0   ? close(open(path, O_WRONLY | O_CREAT | O_EXCL, mode))
                       : kind == 1 ? mknod(path, S_IFREG | mode, 0)
                       : kind == 2 ? mkdir(path, mode)
                       : kind == 3 ? symlink("target", path)
                       : kind == 4 ? -(fd < 0)
                                   : mknod(path, S_IFSOCK | mode, 0);
            NEED(good == 0 && (kind == 4 ? fstat(fd, &stat) : lstat(path, &stat)) == 0);
            say("new %s of %s, %o without %o: %o %u %u\n", news[kind], whos[which].name, mode, mask, stat.st_mode & 07777, stat.st_uid, stat.st_gid);
            close(fd);
            if (kind != 4)
                NEED((kind == 2 ? rmdir(path) : unlink(path)) == 0);
        }
        become_root();
    }
    umask(0);
}

int main(int count, char **arguments) {
    static const unsigned modes[] = {04777, 02777, 02767, 06777, 06767, 0777};
    NEED(count == 3);
    dir = arguments[2];
    umask(0);
    NEED(chmod(dir, 0777) == 0);
    name = strdup(in("file"));
    if (!strcmp(arguments[1], "lost")) {
        for (size_t which = 0; which < sizeof modes / sizeof *modes; which++)
            all(modes[which], 0);
        all(0777, 1);
        all(06767, 1);
    } else {
        NEED(mkdir(in("shared"), 0777) == 0 && chown(in("shared"), 0, GROUP) == 0 && chmod(in("shared"), 02777) == 0);
        in_directory(0, 02755);
        in_directory(0, 02745);
        in_directory(0, 06777);
        in_directory(022, 02775);
        in_directory(077, 02775);
        in_directory(0, 03775);
    }
    return failures;
}
