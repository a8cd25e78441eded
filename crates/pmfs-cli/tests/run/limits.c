/* How large a file may become: RLIMIT_FSIZE. */
#include "check.h"

static volatile int exceeded;
static void on_excess(int signal) { exceeded += signal == SIGXFSZ; }

static void set(rlim_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};
    NEED(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* It fails, and says so by the signal too. */
#define TOO_LARGE(what)                                                                                      \
    do {                                                                                                     \
        exceeded = 0;                                                                                        \
        FAILS(EFBIG, what);                                                                                  \
        CHECK(exceeded == 1);                                                                                \
    } while (0)

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    signal(SIGXFSZ, on_excess);
    static char text[4000];
    struct iovec two[2] = {{text, 1000}, {text, 1000}};
    struct stat stat;
    int fd = file_with("grows", ""), large = file_with("large", "");
    NEED(ftruncate(large, 10000) == 0);
    set(5000);
    CHECK(write(fd, text, 4000) == 4000 && write(fd, text, 4000) == 1000);
    TOO_LARGE(write(fd, text, 1));
    CHECK(write(fd, text, 0) == 0);
    CHECK(pwrite(fd, text, 4000, 3000) == 2000 && pwritev(fd, two, 2, 3500) == 1500);
    TOO_LARGE(pwrite(fd, text, 1, 5000));
    TOO_LARGE(writev(fd, two, 2));
    CHECK(fstat(fd, &stat) == 0 && stat.st_size == 5000);
    TOO_LARGE(ftruncate(fd, 5001));
    TOO_LARGE(truncate(in("grows"), 6000));
    TOO_LARGE(fallocate(fd, 0, 4000, 2000));
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, 5000) == 0);
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
    TOO_LARGE(write(fd, text, 1));
    CHECK(ftruncate(fd, 4999) == 0 && write(fd, text, 10) == 1);
    /* What is larger already may be shortened, and changed below the limit. */
    CHECK(ftruncate(large, 9000) == 0 && pwrite(large, text, 100, 4950) == 50);
    TOO_LARGE(pwrite(large, text, 100, 6000));
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && ftruncate(fd, 0) == 0 && lseek(fd, 4990, SEEK_SET) == 4990);
    off_t at = 0;
    CHECK(copy_file_range(large, &at, fd, NULL, 100, 0) == 10);
    TOO_LARGE(copy_file_range(large, &at, fd, NULL, 100, 0));
    /* Children have it too; the signal ends those that do not expect it. */
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGXFSZ, SIG_DFL);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        pwrite(fd, text, 1, 5000);
        _exit(1);
    }
    CHECK(child_ends_with(pid, SIGXFSZ));
    char command[PATH_MAX + 100];
    snprintf(command, sizeof command, "trap '' XFSZ; head -c 7000 /dev/zero > %s 2> /dev/null", in("shell"));
    CHECK(system(command) != 0 && lstat(in("shell"), &stat) == 0 && stat.st_size == 5000);
    set(RLIM_INFINITY);
    CHECK(pwrite(fd, text, 4000, 5000) == 4000);
    say("limits: %d failures\n", failures);
    return failures != 0;
}
