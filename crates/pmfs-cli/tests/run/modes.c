/* What takes set-id bits away, beside a chmod to fewer bits: no bit that this one took
 * comes back. */
#include "check.h"
#include <linux/capability.h>

enum { ROUNDS = 30000, USER = 12345 };

/* From now on its writes take set-id bits away. */
static int without_fsetid(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0) {
        return -1;
    }
    data[0].effective &= ~(1u << CAP_FSETID);
    return syscall(SYS_capset, &header, data);
}

/* Writes, or changes the owner, until it is told to end. */
static pid_t beside(int fd, int owner, volatile int *ended) {
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    if (!owner && without_fsetid() != 0) {
        _exit(2);
    }
    while (!*ended) {
        if (owner ? fchown(fd, USER, -1) != 0 : pwrite(fd, "x", 1, 0) != 1) {
            _exit(1);
        }
    }
    _exit(0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    volatile int *ended = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED((void *)ended != MAP_FAILED);
    int fd = file_with("set-id", "text");
    pid_t children[] = {beside(fd, 0, ended), beside(fd, 1, ended)};
    int back = 0;
    for (int round = 0; round < ROUNDS && back == 0; round++) {
        struct stat stat;
        NEED(fchmod(fd, 06755) == 0 && fchmod(fd, 0600) == 0 && fstat(fd, &stat) == 0);
        back += (stat.st_mode & 07777) != 0600;
    }
    CHECK(back == 0);
    *ended = 1;
    for (int child = 0; child < 2; child++) {
        int status;
        CHECK(waitpid(children[child], &status, 0) == children[child] && status == 0);
    }
    say("modes: %d failures\n", failures);
    return failures != 0;
}
