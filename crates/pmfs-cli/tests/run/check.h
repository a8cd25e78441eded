/* What the programs of this directory share: checks that tell where they failed. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures;
static const char *dir;

/* Not by stdio: what a child has said must not be said twice. */
static inline void say(const char *form, ...) {
    char line[600];
    va_list all;
    va_start(all, form);
    int len = vsnprintf(line, sizeof line, form, all);
    va_end(all);
    if (write(1, line, len) != len)
        abort();
}

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        if (!(what)) {                                                                                       \
            int was = errno;                                                                                 \
            failures++;                                                                                      \
            say("%s:%d: %s (errno %d)\n", __FILE_NAME__, __LINE__, #what, was);                              \
        }                                                                                                    \
    } while (0)

/* It fails so. */
#define FAILS(error, what) CHECK((what) == -1 && errno == (error))

/* What must not fail for the rest to mean anything. */
#define NEED(what)                                                                                           \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        if (!(what)) {                                                                                       \
            say("%s:%d: needed: %s (errno %d)\n", __FILE_NAME__, __LINE__, #what, errno);                    \
            _exit(99);                                                                                       \
        }                                                                                                    \
    } while (0)

/* A path below the directory; four at a time. */
static inline const char *in(const char *name) {
    static __thread char room[4][256];
    static __thread int turn;
    char *path = room[turn++ % 4];
    snprintf(path, 256, "%s/%s", dir, name);
    return path;
}

/* A file with this text, open for reading and writing at its start. */
static inline int file_with(const char *name, const char *text) {
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0644);
    NEED(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static inline int holds(const char *name, const char *text) {
    char got[4096];
    int fd = open(in(name), O_RDONLY);
    ssize_t len = read(fd, got, sizeof got);
    close(fd);
    int same = len == (ssize_t)strlen(text) && memcmp(got, text, len) == 0;
    if (!same)
        say("%s holds %.*s\n", name, (int)(len > 0 ? len : 0), got);
    return same;
}

/* A child that ends well. */
static inline int child_ends_with(pid_t pid, int want) {
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != want)
        say("child: status %#x\n", status);
    return status == want;
}
