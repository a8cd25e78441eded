/* What the machine protects in sticky directories: files that are opened where they could be
 * made, links that are followed, and more names for others' files. */
#include "check.h"
#include <grp.h>

enum { OWNER = 1001, KEEPER = 1002, OTHER = 1003, GROUP = 2001 };

static const struct who {
    const char *name;
    uid_t user;
} whos[] = {{"root", 0},
            {"the file's owner", OWNER},
            {"the directory's owner", KEEPER},
            {"another", OTHER}};

/* Not for good: the library serves who may be root again. */
static void become(uid_t user) {
    gid_t group = user ? GROUP : 0;
    NEED(seteuid(0) == 0 && setgroups(1, &group) == 0 && setegid(group) == 0 && seteuid(user) == 0);
}

static const char *const files[] = {"file",     "keepers", "fifo",      "socket",
                                    "dangling", "to file", "to keepers"};
enum { COUNT = sizeof files / sizeof *files };

static const char *at(const char *place, const char *name) {
    static __thread char path[2][64];
    static __thread int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", place, name);
    return in(path[turn]);
}

static void fill(const char *place, mode_t mode, uid_t keeper) {
    become(0);
    NEED(mkdir(in(place), 0777) == 0 && chown(in(place), keeper, GROUP) == 0);
    NEED(chmod(in(place), mode) == 0);
    for (int file = 0; file < COUNT; file++) {
        const char *path = at(place, files[file]), *name = files[file];
        int kind = strcmp(name, "fifo") ? strcmp(name, "socket") ? S_IFREG : S_IFSOCK : S_IFIFO;
        if (!strcmp(name, "dangling"))
            NEED(symlink("not there", path) == 0);
        else if (!strncmp(name, "to ", 3))
            NEED(symlink(name + 3, path) == 0);
        else
            NEED(mknod(path, kind | 0666, 0) == 0);
        NEED(lchown(path, strcmp(name, "keepers") ? OWNER : keeper, GROUP) == 0);
    }
}

static const struct way {
    const char *name;
    int flags;
} ways[] = {{"to be made", O_CREAT | O_RDWR},
            {"to be made, for reading", O_CREAT | O_RDONLY},
            {"to be made anew", O_CREAT | O_EXCL | O_RDWR},
            {"to be made empty", O_CREAT | O_TRUNC | O_WRONLY},
            {"to be made, no link", O_CREAT | O_NOFOLLOW | O_RDWR},
            {"as it is", O_RDWR},
            {"its place", O_PATH}};

static void opened(const char *place, const char *who) {
    for (int file = 0; file < COUNT; file++)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            int fd = open(at(place, files[file]), ways[way].flags | O_NONBLOCK, 0666), why = errno;
            int is_plain = strstr(files[file], "file") || strstr(files[file], "keepers");
            const char *said = fd >= 0 ? "let in" : strerrorname_np(why);
            /* Of the others: whether it is protected. */
            if (!is_plain)
                said = fd < 0 && why == EACCES ? "refused" : "let in";
            say("%s: %s of %s, %s: %s\n", who, files[file], place, ways[way].name, said);
            close(fd);
        }
}

static void named(const char *place, const char *who) {
    for (int file = 0; file < COUNT; file++) {
        struct stat stat;
        int told[4] = {0};
        if (lstat(at(place, files[file]), &stat))
            told[0] = errno;
        if (fstatat(AT_FDCWD, at(place, files[file]), &stat, 0))
            told[1] = errno;
        if (link(at(place, files[file]), at("free", "link")))
            told[2] = errno;
        const char *from = at(place, files[file]), *to = at("free", "led");
        if (linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW))
            told[3] = errno;
        say("%s: %s of %s: looked %d, followed %d, one more name %d, of where it leads %d\n", who,
            files[file], place, told[0], told[1], told[2], told[3]);
        unlink(at("free", "link"));
        unlink(at("free", "led"));
    }
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        mode_t mode;
    } places[] = {{"shared", 01777}, {"of a group", 01775}, {"sticky", 01755}, {"open", 0777}};
    NEED(count == 3);
    dir = arguments[2];
    umask(0);
    NEED(chmod(dir, 0777) == 0 && mkdir(in("free"), 0777) == 0 && chmod(in("free"), 0777) == 0);
    for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
        fill(places[place].name, places[place].mode, KEEPER);
        for (size_t who = 0; who < sizeof whos / sizeof *whos; who++) {
            become(whos[who].user);
            opened(places[place].name, whos[who].name);
            named(places[place].name, whos[who].name);
            /* What was made by way of the link that led nowhere. */
            become(0);
            unlink(at(places[place].name, "not there"));
        }
    }
    return failures;
}
