/* mlockall locks what is the program's: not a whole pool, and with an ordinary user's limit. */
#include "check.h"
#include <linux/capability.h>

/* VmLck, KiB. */
static long locked(void) {
    char line[200];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    NEED(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmLck: %ld", &found);
    fclose(file);
    return found;
}

/* What may be locked, KiB. */
static long locked_most(void) {
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    return limit.rlim_cur / 1024;
}

static int is_resident(char *at) {
    unsigned char there = 0;
    return mincore(at, 4096, &there) == 0 && (there & 1);
}

static char zeros[1 << 20] __attribute__((aligned(4096)));

static void one(int flags, int looks_before) {
    long most = 24 << 10;
    char *own = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(own != MAP_FAILED);
    if (looks_before)
        CHECK(holds("file", "content"));
    CHECK(mlockall(flags) == 0);
    long now = locked();
    CHECK(now < most);
    if (flags & MCL_CURRENT)
        CHECK(now >= 2048);
    if (flags == MCL_CURRENT)
        CHECK(is_resident(own + (1 << 19)) && is_resident(zeros + (1 << 19)));
    /* What comes later. */
    CHECK(holds("file", "content"));
    char *more = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED && errno == EAGAIN && now + 1024 > locked_most()) {
        /* A library that is not optimised is large, and is locked too: the limit is
         * used up, as the kernel says. */
        CHECK(munlockall() == 0 && munmap(own, 1 << 20) == 0);
        return;
    }
    CHECK(more != MAP_FAILED && (locked() - now >= 1024) == !!(flags & MCL_FUTURE) && locked() < most);
    if (flags == (MCL_CURRENT | MCL_FUTURE))
        CHECK(is_resident(more + (1 << 19)));
    int fd = open(in("file"), O_RDWR);
    char *file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED && errno == EAGAIN && locked() + 1024 > locked_most()) {
        /* As above. */
        CHECK(munlockall() == 0 && munmap(own, 1 << 20) == 0 && munmap(more, 1 << 20) == 0 && close(fd) == 0);
        return;
    }
    CHECK(file != MAP_FAILED && memcmp(file, "content", 7) == 0 && munmap(file, 4096) == 0 && close(fd) == 0);
    CHECK(munlockall() == 0 && locked() == 0);
    CHECK(munmap(own, 1 << 20) == 0 && munmap(more, 1 << 20) == 0);
}

static void alone(int flags, int looks_before) {
    pid_t pid = fork();
    if (pid == 0) {
        failures = 0;
        one(flags, looks_before);
        _exit(failures != 0);
    }
    CHECK(child_ends_with(pid, 0));
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    pid_t pid = fork();
    if (pid == 0)
        _exit(close(file_with("file", "content")) != 0);
    NEED(child_ends_with(pid, 0));
    for (int turn = 0; turn < 2; turn++) {
        for (int looks = 0; looks < 2; looks++) {
            alone(MCL_CURRENT, looks);
            alone(MCL_CURRENT | MCL_FUTURE, looks);
            alone(MCL_FUTURE, looks);
            alone(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT, looks);
        }
        FAILS(EINVAL, mlockall(0));
        FAILS(EINVAL, mlockall(MCL_ONFAULT));
        FAILS(EINVAL, mlockall(64 | MCL_CURRENT));
        /* As an ordinary user. */
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2];
        struct rlimit limit;
        NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        limit.rlim_cur = limit.rlim_max < 24 << 20 ? limit.rlim_max : 24 << 20;
        NEED(syscall(SYS_capget, &header, data) == 0);
        data[0].effective &= ~(1U << CAP_IPC_LOCK);
        NEED(syscall(SYS_capset, &header, data) == 0 && setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    }
    struct rlimit little = {8192, 8192}, none = {0, 0};
    NEED(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    FAILS(ENOMEM, mlockall(MCL_CURRENT));
    NEED(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    FAILS(EPERM, mlockall(MCL_CURRENT));
    say("locked: %d failures\n", failures);
    return failures != 0;
}
