/* What a slash, a dot or two dots behind a name mean to each function that takes one:
 * the same as on a tmpfs, beside the pool. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pmfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pmfs_t *pool;
static int wrong;
static struct stat told;
static char text[20];

static void need(int good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, strerror(errno), pmfs_error());
    exit(1);
}

/* Both ways of each call. */
static int closed(int handle, int in_pool) {
    if (handle >= 0)
        in_pool ? pmfs_close(pool, handle) : close(handle);
    return handle < 0 ? handle : 0;
}
#define BOTH(name, ours, theirs)                                                                 \
    static int name(const char *x, int in_pool) {                                                \
        return in_pool ? (int)(ours) : (int)(theirs);                                            \
    }
#define RENAME(from, to, flags) pmfs_rename(pool, from, to, flags), syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags)
#define OPEN(flags) closed(pmfs_open(pool, x, flags, 0644), 1), closed(open(x, flags, 0644), 0)
/* So that what stands for two arguments is two. */
#define PAIR(name, ...) BOTH(name, __VA_ARGS__)
PAIR(of_stat, pmfs_stat(pool, x, &told), stat(x, &told))
PAIR(of_lstat, pmfs_lstat(pool, x, &told), lstat(x, &told))
PAIR(of_open, OPEN(O_RDONLY))
PAIR(of_open_here, OPEN(O_RDONLY | O_NOFOLLOW))
PAIR(of_create, OPEN(O_CREAT | O_RDWR))
PAIR(of_create_new, OPEN(O_CREAT | O_EXCL | O_RDWR))
PAIR(of_mkdir, pmfs_mkdir(pool, x, 0755), mkdir(x, 0755))
PAIR(of_mknod, pmfs_mknod(pool, x, S_IFREG | 0644, 0), mknod(x, S_IFREG | 0644, 0))
PAIR(of_symlink, pmfs_symlink(pool, "target", x), symlink("target", x))
PAIR(of_link_to, pmfs_link(pool, "file", x), link("file", x))
PAIR(of_link_from, pmfs_link(pool, x, "fresh"), link(x, "fresh"))
PAIR(of_unlink, pmfs_unlink(pool, x), unlink(x))
PAIR(of_rmdir, pmfs_rmdir(pool, x), rmdir(x))
PAIR(of_rename, RENAME(x, "fresh", 0))
PAIR(of_rename_slash, RENAME(x, "fresh/", 0))
PAIR(of_rename_file, RENAME("file", x, 0))
PAIR(of_rename_empty, RENAME("empty", x, 0))
PAIR(of_rename_new, RENAME("file", x, 1))
PAIR(of_rename_new_from, RENAME(x, "fresh", 1))
PAIR(of_exchange_file, RENAME(x, "file", 2))
PAIR(of_exchange_empty, RENAME("empty", x, 2))
PAIR(of_exchange_link, RENAME("to_empty/", x, 2))
PAIR(of_readlink, pmfs_readlink(pool, x, text, sizeof text), readlink(x, text, sizeof text))
PAIR(of_truncate, pmfs_truncate(pool, x, 1), truncate(x, 1))

#define ROW(name) {#name, of_##name}
static const struct {
    const char *name;
    int (*call)(const char *, int);
} rows[] = {ROW(stat), ROW(lstat), ROW(open), ROW(open_here), ROW(create), ROW(create_new), ROW(mkdir), ROW(mknod), ROW(symlink),
            ROW(link_to), ROW(link_from), ROW(unlink), ROW(rmdir), ROW(rename), ROW(rename_slash), ROW(rename_file), ROW(rename_empty),
            ROW(rename_new), ROW(rename_new_from), ROW(exchange_file), ROW(exchange_empty), ROW(exchange_link), ROW(readlink), ROW(truncate)};

static const char *const links[][2] = {{"to_file", "file"},    {"to_empty", "empty"},     {"to_full", "full"},         {"to_link", "to_full"},
                                       {"dangling", "missing"}, {"slashed", "full/"},      {"file_slashed", "file/"},   {"dangling_slashed", "missing/"},
                                       {"round", "round"},      {"dotted", "full/."}};
enum { LINKS = sizeof links / sizeof *links };
static const char *const names[] = {"file", "empty", "full", "full/in", "missing", "fresh", "target"};
enum { NAMES = sizeof names / sizeof *names };

static void make(void) {
    need(mkdir("empty", 0755) == 0 && pmfs_mkdir(pool, "empty", 0755) == 0, "empty");
    need(mkdir("full", 0755) == 0 && pmfs_mkdir(pool, "full", 0755) == 0, "full");
    for (int which = 0; which < 4; which += 3) {
        const char *name = names[which];
        need(mknod(name, S_IFREG | 0644, 0) == 0 && pmfs_mknod(pool, name, S_IFREG | 0644, 0) == 0, name);
    }
    for (int which = 0; which < LINKS; which++)
        need(symlink(links[which][1], links[which][0]) == 0 && pmfs_symlink(pool, links[which][1], links[which][0]) == 0, "a link");
}

/* All names are gone, in both. */
static void clear(void) {
    for (int which = NAMES + LINKS; which-- > 0;) {
        const char *name = which < NAMES ? names[which] : links[which - NAMES][0];
        char inner[40];
        snprintf(inner, sizeof inner, "%s/in", name);
        struct stat stat;
        if (lstat(name, &stat) == 0 && S_ISDIR(stat.st_mode))
            unlink(inner), rmdir(name);
        else
            unlink(name);
        if (pmfs_lstat(pool, name, &stat) == 0 && S_ISDIR(stat.st_mode))
            pmfs_unlink(pool, inner), pmfs_rmdir(pool, name);
        else
            pmfs_unlink(pool, name);
    }
}

static int kind(const char *name, int in_pool) {
    struct stat stat;
    int found = in_pool ? pmfs_lstat(pool, name, &stat) : lstat(name, &stat);
    return found < 0 ? 0 : (int)(stat.st_mode & S_IFMT);
}

static void try(int row, const char *x) {
    errno = 0;
    int ours = rows[row].call(x, 1), our_errno = errno;
    errno = 0;
    int theirs = rows[row].call(x, 0), their_errno = errno;
    int same = (ours < 0) == (theirs < 0) && (ours >= 0 || our_errno == their_errno);
    for (int which = 0; which < NAMES + LINKS; which++) {
        const char *name = which < NAMES ? names[which] : links[which - NAMES][0];
        same &= kind(name, 1) == kind(name, 0);
    }
    if (!same) {
        fprintf(stderr, "%s %s: %s; on a tmpfs: %s\n", rows[row].name, x, ours < 0 ? strerror(our_errno) : "done",
                theirs < 0 ? strerror(their_errno) : "done");
        wrong++;
    }
    clear();
    make();
}

int main(int argc, char **argv) {
    char plain[400];
    static const char *const ends[] = {"", "/", "//", "/.", "/.."};
    need(argc == 2 && pmfs_make_pool(argv[1], 32 << 20, 0) == 0, "a pool");
    pool = pmfs_open_pool(argv[1], 0);
    need(pool != NULL, "the pool");
    snprintf(plain, sizeof plain, "%s.plain", argv[1]);
    need(mkdir(plain, 0755) == 0 && chdir(plain) == 0, "a directory");
    umask(022);
    make();
    for (int which = 0; which < 5 + LINKS; which++) {
        const char *name = which < 5 ? names[which] : links[which - 5][0];
        for (size_t end = 0; end < sizeof ends / sizeof *ends; end++)
            for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
                char x[60];
                snprintf(x, sizeof x, "%s%s", name, ends[end]);
                try(row, x);
            }
    }
    need(pmfs_close_pool(pool) == 0, "close");
    return wrong != 0;
}
