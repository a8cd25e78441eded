/* Threads that are cancelled at any moment: nothing of the pool stays locked. */
#include "check.h"

/* Four threads each. */
#define ROUNDS 100

static void *worker(void *number) {
    char name[32], moved[32], text[600];
    snprintf(name, sizeof name, "c%ld", (long)number);
    snprintf(moved, sizeof moved, "m%ld", (long)number);
    memset(text, 'x', sizeof text);
    for (;;) {
        /* The number is not lost when the thread ends between: it is always the same. */
        int fd = 100 + (long)number, made = open(in(name), O_RDWR | O_CREAT, 0644);
        if (made >= 0) {
            dup2(made, fd);
            close(made);
        }
        write(fd, text, sizeof text);
        read(fd, text, sizeof text);
        pwrite(fd, text, 100, 10);
        flock(fd, LOCK_EX);
        ftruncate(fd, 300);
        fsync(fd);
        mkdir(in("shared"), 0755);
        rename(in(name), in(moved));
        struct stat stat;
        if (lstat(in("shared"), &stat) == 0)
            rmdir(in("shared"));
        flock(fd, LOCK_UN);
        unlink(in(moved));
    }
    return NULL;
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    unsigned seed = 1;
    const char *cancels = getenv("PMFS_CANCELS");
    int rounds = cancels ? atoi(cancels) / 4 : ROUNDS;
    for (int round = 0; round < rounds; round++) {
        pthread_t threads[4];
        for (long at = 0; at < 4; at++)
            NEED(pthread_create(&threads[at], NULL, worker, (void *)at) == 0);
        for (int at = 0; at < 4; at++) {
            struct timespec some = {0, rand_r(&seed) % 60000};
            nanosleep(&some, NULL);
            NEED(pthread_cancel(threads[at]) == 0);
        }
        for (int at = 0; at < 4; at++) {
            void *ended;
            NEED(pthread_join(threads[at], &ended) == 0 && ended == PTHREAD_CANCELED);
        }
        /* What was made and not yet moved to its number. */
        closefrom(3);
    }
    /* Another process does not wait for anybody. */
    pid_t pid = fork();
    if (pid == 0) {
        struct timespec since, now;
        clock_gettime(CLOCK_MONOTONIC, &since);
        for (int round = 0; round < 1000; round++) {
            int fd = open(in("after"), O_RDWR | O_CREAT, 0644);
            NEED(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0 && unlink(in("after")) == 0);
        }
        /* Nor for the files that they were at, by any kind of lock. */
        for (int at = 0; at < 8; at++) {
            char name[32];
            snprintf(name, sizeof name, "%c%d", at < 4 ? 'c' : 'm', at % 4);
            int fd = open(in(name), O_RDWR), why = errno;
            struct flock all = {.l_type = F_WRLCK};
            NEED(fd >= 0 || why == ENOENT);
            NEED(fd < 0 || (flock(fd, LOCK_EX | LOCK_NB) == 0 && fcntl(fd, F_SETLK, &all) == 0 && write(fd, "text", 4) == 4 &&
                            ftruncate(fd, 0) == 0 && unlink(in(name)) == 0));
            NEED(fd < 0 || close(fd) == 0);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        _exit(now.tv_sec - since.tv_sec > 3);
    }
    CHECK(child_ends_with(pid, 0));
    say("%d threads cancelled, %d failures\n", 4 * rounds, failures);
    return failures != 0;
}
