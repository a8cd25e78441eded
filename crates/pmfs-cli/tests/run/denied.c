/* Under MDWE: a program that is started so is served by the image of libc; and, where
 * that is not mapped, by the mount. */
#include "check.h"
#include <sys/prctl.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

/* Whether this process's open files are placeholders. */
static int is_served(void) {
    char path[100], name[PATH_MAX];
    int fd = file_with("file", "text");
    snprintf(path, sizeof path, "/proc/%d/fd", getpid());
    long answer;
    snprintf(path + strlen(path), 20, "/%d", fd);
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_readlink), "D"(path), "S"(name), "d"(sizeof name) : "rcx", "r11", "memory");
    return answer > 7 && memcmp(name, "/memfd:", 7) == 0;
}

int main(int count, char **arguments) {
    NEED(count >= 3);
    dir = arguments[count - 1];
    if (!strcmp(arguments[1], "denied")) {
        int want = !strcmp(arguments[2], "served");
        CHECK(is_served() == want && holds("file", "text"));
        return failures != 0;
    }
    NEED(prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        execl(arguments[0], "denied", "denied", arguments[1], dir, NULL);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0));
    return failures != 0;
}
