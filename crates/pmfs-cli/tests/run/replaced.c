/* A name under which others put new files all the time is there at all times. */
#include "check.h"

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    pid_t child;
    close(file_with("name", "old"));
    NEED((child = fork()) >= 0);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        struct stat what;
        if (!child) {
            int fd = file_with("draft", "new");
            NEED(close(fd) == 0 && rename(in("draft"), in("name")) == 0);
        } else {
            int fd = open(in("name"), O_RDWR);
            CHECK(fd >= 0 && fstat(fd, &what) == 0 && close(fd) == 0);
            CHECK(stat(in("name"), &what) == 0 && chmod(in("name"), 0600) == 0);
            CHECK(access(in("name"), R_OK) == 0 && truncate(in("name"), 1) == 0);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < 2 && failures < 5);
    if (!child)
        _exit(0);
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    say("replaced: %d failures\n", failures);
    return failures != 0;
}
