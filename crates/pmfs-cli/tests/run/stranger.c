/* A program that the library is not loaded into, by how it is built or run: it copies,
 * says, opens and looks. No more of libc than a static program may have. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char room[65536];

static int copy(int from, int to) {
    ssize_t len;
    while ((len = read(from, room, sizeof room)) > 0)
        if (write(to, room, len) != len)
            return 3;
    return len < 0 ? 4 : 0;
}

/* stranger WHAT [ARGUMENT]: several, one after the other. */
int main(int count, char **arguments) {
    for (int at = 1; at < count; at++) {
        const char *what = arguments[at], *with = at + 1 < count ? arguments[at + 1] : "";
        if (!strcmp(what, "copy")) {
            int status = copy(0, 1);
            if (status)
                return status;
        } else if (!strcmp(what, "say")) {
            if (write(1, with, strlen(with)) != (ssize_t)strlen(with))
                return 5;
            at++;
        } else if (!strcmp(what, "take")) {
            /* So many bytes. */
            ssize_t len = read(0, room, atoi(with));
            if (len < 0 || write(1, room, len) != len)
                return 6;
            at++;
        } else if (!strcmp(what, "show")) {
            int fd = open(with, O_RDONLY);
            if (fd < 0 || copy(fd, 1) || close(fd))
                return 7;
            at++;
        } else if (!strcmp(what, "make")) {
            int fd = open(with, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (fd < 0 || write(fd, "made", 4) != 4 || close(fd))
                return 8;
            at++;
        } else if (!strcmp(what, "seek")) {
            if (lseek(1, atoi(with), SEEK_SET) < 0)
                return 9;
            at++;
        } else if (!strcmp(what, "tell")) {
            /* Where the output is. */
            if (lseek(1, 0, SEEK_CUR) != atoi(with))
                return 10;
            at++;
        } else if (!strcmp(what, "closed")) {
            if (fcntl(atoi(with), F_GETFD) != -1 || errno != EBADF)
                return 11;
            at++;
        } else if (!strcmp(what, "below")) {
            /* What a directory that was handed over has. */
            int fd = openat(atoi(with), "below", O_RDONLY);
            if (fd < 0 || copy(fd, 1))
                return 12;
            at++;
        } else if (!strcmp(what, "run")) {
            execv(with, arguments + at + 1);
            return 13;
        } else if (!strcmp(what, "who")) {
            int len = snprintf(room, sizeof room, "%d %d ", getuid(), geteuid());
            if (write(1, room, len) != len)
                return 14;
        } else {
            return 15;
        }
    }
    return 0;
}
