/* What a program must not meet of what serves it: descriptors that it did not open, and
 * a pool that another user may not have. */
#include "check.h"
#include <sys/statfs.h>
#include <sys/xattr.h>

/* Every number that a program may ask for, after the pool was used: what it has opened,
 * and nothing else. */
static void numbers(int known) {
    struct stat stat;
    struct statx more;
    int file = file_with("file", "text"), before = -1;
    for (int number = 3; number < 1100; number++) {
        if (number == file || number == known)
            continue;
        const char *wrong = NULL;
        if (fstat(number, &stat) == 0)
            wrong = "fstat";
        else if (fstatat(number, "", &stat, AT_EMPTY_PATH) == 0)
            wrong = "fstatat";
        else if (statx(number, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more) == 0)
            wrong = "statx";
        else if (fstatat(number, "name", &stat, 0) == 0 || errno != EBADF)
            wrong = "a name in it";
        else if (fchownat(number, "", -1, -1, AT_EMPTY_PATH) == 0)
            wrong = "fchownat";
        else if (syscall(452, number, "", 0600, AT_EMPTY_PATH) == 0)
            wrong = "fchmodat2";
        else if (faccessat(number, "", R_OK, AT_EMPTY_PATH) == 0)
            wrong = "faccessat";
        else if (utimensat(number, "", NULL, AT_EMPTY_PATH) == 0 || futimens(number, NULL) == 0)
            wrong = "utimensat";
        else if (linkat(number, "", AT_FDCWD, in("linked"), AT_EMPTY_PATH) == 0)
            wrong = "linkat";
        else if (openat(number, "name", O_RDONLY) >= 0 || errno != EBADF)
            wrong = "openat";
        else if (fchdir(number) == 0 || dup(number) >= 0 || fcntl(number, F_GETFD) >= 0 || lseek(number, 0, SEEK_CUR) >= 0)
            wrong = "calls by it alone";
        if (wrong && number != before)
            say("%d: %s\n", number, wrong), before = number, failures++;
    }
    close(file);
}

/* The next program, as a user who may not have the pool. */
static int as_nobody(int shares_memory, const char *program) {
    pid_t pid = shares_memory ? vfork() : fork();
    if (pid == 0) {
        if (syscall(SYS_setresuid, 65534, 65534, 65534) == 0)
            execl(program, program, NULL);
        _exit(errno);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void users(void) {
    NEED(chmod(dir, 0755) == 0 && chdir(dir) == 0);
    for (int shares_memory = 0; shares_memory < 2; shares_memory++) {
        say("standing in it: %#x\n", as_nobody(shares_memory, "/bin/true"));
        int file = open(in("closed"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        say("with a file that is closed: %#x\n", as_nobody(shares_memory, "/bin/true"));
        close(file);
        say("no program: %#x\n", as_nobody(shares_memory, "/missing"));
    }
    CHECK(access("closed", F_OK) == 0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    /* What whoever started the test has left open; the library's own begin behind. */
    for (int number = 3; number < 1000 && strcmp(arguments[1], "handed"); number++)
        close(number);
    if (!strcmp(arguments[1], "users"))
        users();
    else if (strcmp(arguments[1], "next"))
        numbers(strcmp(arguments[1], "handed") ? -1 : 3);
    else {
        /* The program after this one has the pool from the start. */
        NEED(chdir(dir) == 0 && file_with("inherited", "") == 3);
        numbers(3);
        pid_t pid = fork();
        if (pid == 0)
            execl(arguments[0], arguments[0], "handed", dir, NULL);
        CHECK(child_ends_with(pid, 0));
    }
    return failures;
}
