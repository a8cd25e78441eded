/* splice(2) between files and pipes: offsets, what a pipe has room for, what it holds,
 * waits, flags, and what is said of ends that can't do it. */
#include "check.h"
#include <stdint.h>

static int at, file, other, null, pipes[2];
static char bytes[1 << 20];

static void told(const char *what, long answer) {
    say("%s: %ld %s\n", what, answer < 0 ? -1 : answer, answer < 0 ? strerrorname_np(errno) : "");
}
#define TOLD(what) (errno = 0, told(#what, what))

static void offsets(void) {
    say("file at %ld, other at %ld\n", (long)lseek(file, 0, SEEK_CUR), (long)lseek(other, 0, SEEK_CUR));
}

/* What stands in the pipe, as far as it is the file's from an offset on. */
static void drained(long from) {
    static char got[1 << 20];
    long len = 0, more;
    NEED(fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0);
    while ((more = read(pipes[0], got + len, sizeof got - len)) > 0)
        len += more;
    NEED(fcntl(pipes[0], F_SETFL, 0) == 0);
    say("%ld bytes in the pipe, %s\n", len, memcmp(got, bytes + from, len) ? "others" : "as in the file");
}

static void out_of_files(void) {
    loff_t place;
    NEED(lseek(file, 3, SEEK_SET) == 3);
    TOLD(splice(file, NULL, pipes[1], NULL, 5, 0));
    offsets(), drained(3);
    place = 100;
    TOLD(splice(file, &place, pipes[1], NULL, 5, SPLICE_F_MORE | SPLICE_F_MOVE));
    say("place %ld\n", (long)place), offsets(), drained(100);
    /* As much as there is room for: pages, of which an odd beginning takes one more. */
    static const long starts[] = {0, 100, 4095, 4096, 70001};
    for (size_t which = 0; which < sizeof starts / sizeof *starts; which++) {
        place = starts[which];
        TOLD(splice(file, &place, pipes[1], NULL, 1 << 20, 0));
        say("place %ld\n", (long)place);
        TOLD(splice(file, &place, pipes[1], NULL, 1, SPLICE_F_NONBLOCK));
        drained(starts[which]);
    }
    /* Room that is left. */
    NEED(write(pipes[1], bytes, 10) == 10);
    place = 10;
    TOLD(splice(file, &place, pipes[1], NULL, 1 << 20, 0));
    drained(0);
    /* A hole, the end, and behind it. */
    NEED(ftruncate(other, 300000) == 0);
    place = 100000;
    TOLD(splice(other, &place, pipes[1], NULL, 5000, 0));
    char got[5000];
    say("a hole: %s\n", read(pipes[0], got, 5000) == 5000 && !got[0] && !memcmp(got, got + 1, 4999) ? "zeros" : "something");
    place = 299990;
    TOLD(splice(other, &place, pipes[1], NULL, 5000, 0));
    TOLD(read(pipes[0], got, 5000));
    TOLD(splice(other, &place, pipes[1], NULL, 5000, 0));
    place = 1 << 30;
    TOLD(splice(other, &place, pipes[1], NULL, 5000, 0));
    say("place %ld\n", (long)place);
    NEED(ftruncate(other, 0) == 0);
    /* What has been given away stays as it was. */
    place = 0;
    TOLD(splice(file, &place, pipes[1], NULL, 5000, 0));
    NEED(pwrite(file, "changed", 7, 0) == 7 && read(pipes[0], got, 5000) == 5000 && pwrite(file, bytes, 7, 0) == 7);
}

static void into_files(void) {
    loff_t place;
    char got[20] = "";
    NEED(lseek(other, 0, SEEK_SET) == 0 && write(pipes[1], "0123456789", 10) == 10);
    TOLD(splice(pipes[0], NULL, other, NULL, 4, 0));
    offsets();
    place = 20;
    TOLD(splice(pipes[0], NULL, other, &place, 100, 0));
    say("place %ld\n", (long)place), offsets();
    NEED(pread(other, got, 20, 0) == 20);
    say("%.4s, %s, %.6s\n", got, got[4] ? "something" : "a hole", pread(other, got, 6, 20) == 6 ? got : "");
    TOLD(splice(pipes[0], NULL, other, NULL, 4, SPLICE_F_NONBLOCK));
    NEED(fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0);
    TOLD(splice(pipes[0], NULL, other, NULL, 4, 0));
    NEED(fcntl(pipes[0], F_SETFL, 0) == 0);
    /* It waits for the first byte, and for no more. */
    pid_t pid = fork();
    if (pid == 0) {
        usleep(50000);
        _exit(write(pipes[1], "late", 4) != 4);
    }
    NEED(lseek(other, 0, SEEK_SET) == 0);
    TOLD(splice(pipes[0], NULL, other, NULL, 100, 0));
    CHECK(child_ends_with(pid, 0) && pread(other, got, 4, 0) == 4 && !memcmp(got, "late", 4));
    NEED(fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20) == 1 << 20 && write(pipes[1], bytes, 500000) == 500000);
    place = 1;
    TOLD(splice(pipes[0], NULL, other, &place, 1 << 20, 0));
    static char back[500000];
    CHECK(pread(other, back, 500000, 1) == 500000 && !memcmp(back, bytes, 500000));
    struct rlimit was, limit;
    NEED(getrlimit(RLIMIT_FSIZE, &was) == 0);
    limit = was, limit.rlim_cur = 600000;
    NEED(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0 && write(pipes[1], bytes, 100) == 100);
    place = 599990;
    TOLD(splice(pipes[0], NULL, other, &place, 100, 0));
    TOLD(splice(pipes[0], NULL, other, &place, 100, 0));
    NEED(setrlimit(RLIMIT_FSIZE, &was) == 0);
    drained(10);
}

static void refused(void) {
    loff_t zero = 0, negative = -1, far = INT64_MAX;
    int append = open(in("other"), O_WRONLY | O_APPEND), reads = open(in("file"), O_RDONLY), writes = open(in("other"), O_WRONLY);
    NEED(write(pipes[1], "0123456789", 10) == 10);
    TOLD(splice(file, NULL, pipes[1], NULL, 0, 77));
    TOLD(splice(file, NULL, pipes[1], NULL, 3, 16));
    TOLD(splice(file, NULL, -1, NULL, 3, 0));
    TOLD(splice(-1, NULL, file, NULL, 3, 16));
    TOLD(splice(file, &zero, pipes[1], &zero, 3, 0));
    TOLD(splice(pipes[0], &zero, file, &zero, 3, 0));
    TOLD(splice(file, (loff_t *)8, pipes[1], NULL, 3, 0));
    TOLD(splice(file, (loff_t *)8, pipes[1], &zero, 3, 0));
    TOLD(splice(file, &negative, pipes[1], NULL, 3, 0));
    TOLD(splice(pipes[0], NULL, file, &negative, 3, 0));
    TOLD(splice(file, &far, pipes[1], NULL, 3, 0));
    TOLD(splice(pipes[0], NULL, file, &far, 3, 0));
    TOLD(splice(file, NULL, pipes[1], NULL, SIZE_MAX, 0));
    TOLD(splice(pipes[0], NULL, file, NULL, SIZE_MAX, 0));
    TOLD(splice(file, NULL, pipes[0], NULL, 3, 0));
    TOLD(splice(pipes[1], NULL, file, NULL, 3, 0));
    TOLD(splice(pipes[0], NULL, append, NULL, 3, 0));
    TOLD(splice(pipes[0], NULL, append, &zero, 3, 0));
    TOLD(splice(pipes[0], NULL, reads, NULL, 3, 0));
    TOLD(splice(writes, NULL, pipes[1], NULL, 3, 0));
    TOLD(splice(at, NULL, pipes[1], NULL, 3, 0));
    TOLD(splice(pipes[0], NULL, at, NULL, 3, 0));
    TOLD(splice(file, NULL, other, NULL, 3, 0));
    TOLD(splice(file, NULL, at, NULL, 3, 0));
    TOLD(splice(null, NULL, file, NULL, 3, 0));
    TOLD(splice(file, NULL, null, NULL, 3, 0));
    NEED(close(pipes[0]) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    TOLD(splice(file, &zero, pipes[1], NULL, 3, 0));
    close(pipes[1]);
    NEED(pipe(pipes) == 0 && close(pipes[1]) == 0);
    TOLD(splice(pipes[0], NULL, file, NULL, 3, 0));
    offsets();
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    for (size_t which = 0; which < sizeof bytes; which++)
        bytes[which] = which * 2654435761u >> 13;
    file = file_with("file", ""), other = file_with("other", ""), null = open("/dev/null", O_RDWR);
    NEED(write(file, bytes, sizeof bytes) == sizeof bytes);
    NEED((at = open(dir, O_RDONLY | O_DIRECTORY)) >= 0 && null >= 0 && pipe(pipes) == 0);
    out_of_files();
    into_files();
    refused();
    return failures;
}
