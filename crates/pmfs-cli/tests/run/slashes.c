/* What a slash, a dot or two dots behind a name mean to each call that takes one: every call,
 * on every kind of name, with every end of it. Said is the answer, and what the directory
 * holds afterwards if that has changed; the other side of the comparison is a tmpfs. */
#include "check.h"
#include <dirent.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

enum { ROOM = 4096 };
static char tree[300], before[ROOM];
/* Where names begin, and what stands before them. */
static int at = AT_FDCWD;
static char prefix[300];

static const char *there(const char *name) {
    static char room[4][400];
    static int turn;
    char *path = room[turn++ % 4];
    snprintf(path, sizeof *room, "%s%s", prefix, name);
    return path;
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Names, types, sizes of files, targets of links. */
static void list(const char *path, char *into) {
    char *names[40];
    int count = 0;
    DIR *all = opendir(path);
    NEED(all);
    for (struct dirent *entry; (entry = readdir(all)) && count < 40;)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            names[count++] = strdup(entry->d_name);
    closedir(all);
    qsort(names, count, sizeof *names, by_name);
    for (int which = 0; which < count; which++) {
        char child[700], target[100] = "";
        struct stat stat;
        snprintf(child, sizeof child, "%s/%s", path, names[which]);
        NEED(lstat(child, &stat) == 0);
        strcat(into, names[which]);
        free(names[which]);
        if (S_ISLNK(stat.st_mode)) {
            NEED(readlink(child, target, sizeof target - 1) >= 0);
            strcat(strcat(into, ">"), target);
        } else if (S_ISDIR(stat.st_mode)) {
            strcat(into, "[");
            list(child, into);
            strcat(into, "]");
        } else {
            sprintf(into + strlen(into), "=%o,%lld", stat.st_mode >> 12, (long long)stat.st_size);
        }
        strcat(into, " ");
    }
}

static void empty(const char *path) {
    DIR *all = opendir(path);
    NEED(all);
    for (struct dirent *entry; (entry = readdir(all));) {
        char child[700];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (unlink(child) != 0) {
            empty(child);
            NEED(rmdir(child) == 0);
        }
    }
    closedir(all);
}

static const char *const links[][2] = {
    {"to_file", "file"},    {"to_empty", "empty"},      {"to_full", "full"},          {"to_link", "to_full"}, {"dangling", "missing"},
    {"slashed", "full/"},   {"file_slashed", "file/"},  {"dangling_slashed", "missing/"}, {"round", "round"},   {"dotted", "full/."},
};
enum { LINKS = sizeof links / sizeof *links };

static void make(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/empty", tree);
    NEED(mkdir(path, 0755) == 0);
    snprintf(path, sizeof path, "%s/full", tree);
    NEED(mkdir(path, 0755) == 0);
    strcat(path, "/in");
    NEED(mknod(path, S_IFREG | 0644, 0) == 0);
    snprintf(path, sizeof path, "%s/file", tree);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    NEED(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    for (int which = 0; which < LINKS; which++) {
        snprintf(path, sizeof path, "%s/%s", tree, links[which][0]);
        NEED(symlink(links[which][1], path) == 0);
    }
}

/* What it was again, if a call has changed it; then it is said what it was. */
static void restore(void) {
    char after[ROOM] = "";
    list(tree, after);
    if (!strcmp(before, after))
        return;
    say("  %s\n", after);
    empty(tree);
    make();
}

static long opened(int fd) {
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : fd;
}

static long path_opened(const char *x, int flags) {
    return opened(openat(at, x, flags, 0644));
}

#define CALL(name, what)                                                                                     \
    static long name(const char *x) {                                                                        \
        return what;                                                                                         \
    }
static struct stat stat_room;
static struct statx statx_room;
static char text[100];
CALL(of_stat, fstatat(at, x, &stat_room, 0))
CALL(of_lstat, fstatat(at, x, &stat_room, AT_SYMLINK_NOFOLLOW))
CALL(of_statx, statx(at, x, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &statx_room))
CALL(of_access, faccessat(at, x, W_OK, 0))
CALL(of_open, path_opened(x, O_RDONLY))
CALL(of_open_here, path_opened(x, O_RDONLY | O_NOFOLLOW))
CALL(of_create, path_opened(x, O_RDWR | O_CREAT))
CALL(of_create_new, path_opened(x, O_RDWR | O_CREAT | O_EXCL))
CALL(of_create_here, path_opened(x, O_RDWR | O_CREAT | O_NOFOLLOW))
CALL(of_create_to_read, path_opened(x, O_RDONLY | O_CREAT))
CALL(of_cut, path_opened(x, O_WRONLY | O_TRUNC))
CALL(of_directory, path_opened(x, O_RDONLY | O_DIRECTORY))
CALL(of_directory_here, path_opened(x, O_RDONLY | O_DIRECTORY | O_NOFOLLOW))
CALL(of_path, path_opened(x, O_PATH))
CALL(of_path_here, path_opened(x, O_PATH | O_NOFOLLOW))
CALL(of_path_created, path_opened(x, O_PATH | O_CREAT))
CALL(of_unnamed, path_opened(x, O_TMPFILE | O_RDWR))
CALL(of_mkdir, mkdirat(at, x, 0755))
CALL(of_mknod, mknodat(at, x, S_IFREG | 0644, 0))
CALL(of_mkfifo, mknodat(at, x, S_IFIFO | 0644, 0))
CALL(of_symlink, symlinkat("target", at, x))
CALL(of_link_to, linkat(at, there("file"), at, x, 0))
CALL(of_link_from, linkat(at, x, at, there("fresh"), 0))
CALL(of_link_from_target, linkat(at, x, at, there("fresh"), AT_SYMLINK_FOLLOW))
CALL(of_link_slash, linkat(at, x, at, there("fresh/"), 0))
CALL(of_unlink, unlinkat(at, x, 0))
CALL(of_rmdir, unlinkat(at, x, AT_REMOVEDIR))
CALL(of_rename, renameat(at, x, at, there("fresh")))
CALL(of_rename_slash, renameat(at, x, at, there("fresh/")))
CALL(of_rename_into, renameat(at, x, at, there("full/fresh")))
CALL(of_rename_file, renameat(at, there("file"), at, x))
CALL(of_rename_empty, renameat(at, there("empty"), at, x))
CALL(of_rename_empty_slash, renameat(at, there("empty/"), at, x))
CALL(of_rename_full, renameat(at, there("full"), at, x))
CALL(of_rename_link, renameat(at, there("to_full"), at, x))
CALL(of_rename_link_slash, renameat(at, there("to_empty/"), at, x))
CALL(of_rename_missing, renameat(at, there("missing"), at, x))
CALL(of_rename_new, syscall(SYS_renameat2, at, there("file"), at, x, 1))
CALL(of_rename_new_from, syscall(SYS_renameat2, at, x, at, there("fresh"), 1))
CALL(of_exchange_file, syscall(SYS_renameat2, at, x, at, there("file"), 2))
CALL(of_exchange_with_file, syscall(SYS_renameat2, at, there("file"), at, x, 2))
CALL(of_exchange_empty, syscall(SYS_renameat2, at, there("empty"), at, x, 2))
CALL(of_exchange_slash, syscall(SYS_renameat2, at, there("empty/"), at, x, 2))
CALL(of_exchange_link, syscall(SYS_renameat2, at, there("to_empty"), at, x, 2))
CALL(of_exchange_link_slash, syscall(SYS_renameat2, at, there("to_empty/"), at, x, 2))
CALL(of_readlink, readlinkat(at, x, text, sizeof text))
CALL(of_chmod, fchmodat(at, x, 0755, 0))
CALL(of_lchown, fchownat(at, x, -1, -1, AT_SYMLINK_NOFOLLOW))
CALL(of_times, utimensat(at, x, NULL, 0))
CALL(of_times_here, utimensat(at, x, NULL, AT_SYMLINK_NOFOLLOW))
/* By path alone. */
CALL(of_truncate, truncate(x, 1))
CALL(of_chdir, chdir(x))
CALL(of_listxattr, listxattr(x, NULL, 0))
CALL(of_llistxattr, llistxattr(x, NULL, 0))
CALL(of_lsetxattr, lsetxattr(x, "trusted.a", "", 0, 0))
CALL(of_statfs, statfs(x, &(struct statfs){0}))

#define ROW(name) {#name, of_##name}
static const struct row {
    const char *name;
    long (*call)(const char *);
} rows[] = {
    ROW(stat), ROW(lstat), ROW(statx), ROW(access), ROW(open), ROW(open_here), ROW(create), ROW(create_new), ROW(create_here),
    ROW(create_to_read), ROW(cut), ROW(directory), ROW(directory_here), ROW(path), ROW(path_here), ROW(path_created), ROW(unnamed), ROW(mkdir),
    ROW(mknod), ROW(mkfifo), ROW(symlink), ROW(link_to), ROW(link_from), ROW(link_from_target), ROW(link_slash), ROW(unlink), ROW(rmdir),
    ROW(rename), ROW(rename_slash), ROW(rename_into), ROW(rename_file), ROW(rename_empty), ROW(rename_empty_slash), ROW(rename_full),
    ROW(rename_link), ROW(rename_link_slash), ROW(rename_missing), ROW(rename_new), ROW(rename_new_from), ROW(exchange_file),
    ROW(exchange_with_file), ROW(exchange_empty), ROW(exchange_slash), ROW(exchange_link), ROW(exchange_link_slash), ROW(readlink), ROW(chmod),
    ROW(lchown), ROW(times), ROW(times_here), ROW(truncate), ROW(chdir), ROW(listxattr), ROW(llistxattr), ROW(lsetxattr), ROW(statfs),
};
enum { ROWS = sizeof rows / sizeof *rows, BY_PATH = 6 };

static void all(const char *name, int count) {
    static const char *const ends[] = {"", "/", "//", "/.", "/./", "/.."};
    for (size_t end = 0; end < sizeof ends / sizeof *ends; end++) {
        char x[400];
        snprintf(x, sizeof x, "%s%s", there(name), ends[end]);
        for (int row = 0; row < count; row++) {
            errno = 0;
            long answer = rows[row].call(x);
            const char *error = answer < 0 ? strerrorname_np(errno) : "done";
            say("%s %s%s: %s\n", rows[row].name, name, ends[end], error);
            if (rows[row].call == of_chdir)
                NEED(chdir(at == AT_FDCWD && !*prefix ? tree : "/") == 0);
            restore();
        }
    }
}

static const char *const names[] = {"file", "empty", "full", "to_file", "to_empty", "to_full", "to_link", "dangling", "slashed",
                                    "file_slashed", "dangling_slashed", "round", "dotted", "missing", ".", "full/.."};

static void each(int count) {
    for (size_t which = 0; which < sizeof names / sizeof *names; which++)
        all(names[which], count);
}

/* Links elsewhere that lead into the directory: of what is looked for there, and of
 * what is not to be followed. */
static void from_outside(void) {
    char outside[] = "/tmp/pmfs-slashes-XXXXXX", target[500];
    static const int calls[] = {0, 1, 4, 5, 11, 12, 13, 14, 17, 18, 20, 25, 26, 45};
    NEED(mkdtemp(outside));
    snprintf(prefix, sizeof prefix, "%s/", outside);
    for (int which = 0; which < LINKS + 3; which++) {
        const char *name = which < LINKS ? links[which][0] : ((const char *[]){"empty", "file", "full"})[which - LINKS];
        snprintf(target, sizeof target, "%s/%s", tree, name);
        for (size_t call = 0; call < sizeof calls / sizeof *calls; call++)
            for (int slash = 0; slash < 2; slash++) {
                NEED(symlink(target, there(name)) == 0);
                char x[420];
                snprintf(x, sizeof x, "%s%s", there(name), slash ? "/" : "");
                errno = 0;
                long answer = rows[calls[call]].call(x);
                say("%s outside %s%s: %s\n", rows[calls[call]].name, name, slash ? "/" : "", answer < 0 ? strerrorname_np(errno) : "done");
                unlink(there(name));
                restore();
            }
    }
    NEED(rmdir(outside) == 0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    umask(022);
    snprintf(tree, sizeof tree, "%s/tree", dir);
    NEED(mkdir(tree, 0755) == 0);
    make();
    list(tree, before);
    if (!strcmp(arguments[1], "absolute")) {
        snprintf(prefix, sizeof prefix, "%s/", tree);
        each(ROWS);
    } else if (!strcmp(arguments[1], "relative")) {
        NEED(chdir(tree) == 0);
        each(ROWS);
    } else if (!strcmp(arguments[1], "descriptor")) {
        NEED((at = open(tree, O_RDONLY | O_DIRECTORY)) >= 0);
        each(ROWS - BY_PATH);
    } else {
        from_outside();
    }
    NEED(chdir("/") == 0);
    empty(tree);
    NEED(rmdir(tree) == 0);
    return failures;
}
