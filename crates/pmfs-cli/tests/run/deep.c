/* Directories that lie deeper than a path can say: gone to and worked in step by step,
 * as on any file system. */
#include "check.h"
#include <dirent.h>

enum { DEPTH = 60, NAME = 150 };

static void work(int depth) {
    struct stat here, dot;
    int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, &depth, sizeof depth) == sizeof depth && close(fd) == 0);
    CHECK(rename("file", "other") == 0 && lstat("other", &here) == 0 && here.st_size == sizeof depth && unlink("other") == 0);
    CHECK(mkdir("sub", 0700) == 0 && chdir("sub") == 0 && lstat("../sub", &here) == 0 && lstat(".", &dot) == 0);
    CHECK(here.st_ino == dot.st_ino && here.st_dev == dot.st_dev && chdir("..") == 0);
    fd = open("sub", O_RDONLY | O_DIRECTORY);
    int path = open("sub", O_PATH | O_DIRECTORY);
    CHECK(fd >= 0 && path >= 0 && fchdir(fd) == 0 && chdir("..") == 0 && lstat("sub", &dot) == 0 && dot.st_ino == here.st_ino);
    CHECK(fstat(path, &dot) == 0 && dot.st_ino == here.st_ino && close(fd) == 0 && close(path) == 0 && rmdir("sub") == 0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    char name[NAME + 1], *wanted = malloc(PATH_MAX + DEPTH * (NAME + 1)), *got = malloc(1 << 16);
    NEED(chdir(dir) == 0 && getcwd(wanted, PATH_MAX) && mkdir("deep", 0700) == 0 && chdir("deep") == 0);
    strcat(wanted, "/deep");
    for (int depth = 0; depth < DEPTH; depth++) {
        memset(name, 'a' + depth % 26, NAME);
        name[NAME] = 0;
        NEED(mkdir(name, 0700) == 0);
        CHECK(chdir(name) == 0);
        strcat(strcat(wanted, "/"), name);
        /* The kernel says that it is too long, and libc puts it together. */
        long said = syscall(SYS_getcwd, got, 1 << 16);
        int why = errno, is_long = strlen(wanted) + 1 > PATH_MAX;
        CHECK(is_long ? said == -1 && why == ENAMETOOLONG : said == (long)strlen(wanted) + 1 && !strcmp(got, wanted));
        if (is_long)
            work(depth);
    }
    char *all = getcwd(NULL, 0);
    CHECK(all && !strcmp(all, wanted));
    /* Another program finds itself there. */
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "echo there > file && test \"$(cat file)\" = there && rm file && mkdir x && rmdir x", NULL);
        _exit(99);
    }
    CHECK(child_ends_with(pid, 0));
    for (int depth = DEPTH; depth-- > 0;) {
        memset(name, 'a' + depth % 26, NAME);
        CHECK(chdir("..") == 0 && rmdir(name) == 0);
    }
    CHECK(chdir("..") == 0 && rmdir("deep") == 0 && getcwd(got, PATH_MAX) && !strcmp(got, dir));
    say("deep: %d failures\n", failures);
    return failures != 0;
}
