/* Children that share memory for a while: vfork, posix_spawn, and what is made of them. */
#include "check.h"
#include <spawn.h>
#include <sched.h>

extern char **environ;
static char got[4096];

static volatile int handled;
static void on_signal(int signal) { handled = signal; }

static int spawned(pid_t *pid, posix_spawn_file_actions_t *actions, const char *script) {
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    return posix_spawn(pid, "/bin/sh", actions, NULL, argv, environ);
}

static volatile int stop;
static void *busy(void *name) {
    char text[64];
    for (int round = 0; !stop; round++) {
        int fd = open(in(name), O_RDWR | O_CREAT, 0644);
        NEED(fd >= 0);
        int len = snprintf(text, sizeof text, "%s %d", (char *)name, round);
        NEED(pwrite(fd, text, len, 0) == len && pread(fd, text, len, 0) == len);
        NEED(close(fd) == 0);
    }
    return NULL;
}

static void spawn(void) {
    pthread_t threads[3];
    char *names[3] = {"t1", "t2", "t3"};
    for (int at = 0; at < 3; at++)
        NEED(pthread_create(&threads[at], NULL, busy, names[at]) == 0);
    signal(SIGUSR1, on_signal);
    signal(SIGCHLD, on_signal);
    int out = open(in("out"), O_RDWR | O_CREAT | O_TRUNC, 0644), keep = file_with("keep", "kept");
    int closed = open(in("keep"), O_RDONLY);
    for (int round = 0; round < 20; round++) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, in("keep"), O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, out, 1);
        posix_spawn_file_actions_addclose(&actions, closed);
        posix_spawn_file_actions_addopen(&actions, 77, in("made"), O_RDWR | O_CREAT, 0600);
        pid_t pid;
        char script[PATH_MAX + 100];
        snprintf(script, sizeof script, "cat; cat /proc/self/fd/77; /bin/echo -n . >> %s; test ! -e /proc/self/fd/%d", in("made"), closed);
        handled = 0;
        CHECK(spawned(&pid, &actions, script) == 0);
        CHECK(child_ends_with(pid, 0));
        posix_spawn_file_actions_destroy(&actions);
        /* The parent's own table and handlers are as they were. */
        FAILS(EBADF, fcntl(77, F_GETFD));
        CHECK(fcntl(closed, F_GETFD) == 0 && pread(closed, got, 10, 0) == 4);
        CHECK(pread(keep, got, 10, 0) == 4 && read(0, got, 1) == 0);
        /* A thread that was interrupted while the spawning one kept signals away has
         * it, when it runs again. */
        for (int wait = 0; handled != SIGCHLD && wait < 5000; wait++)
            usleep(1000);
        CHECK(handled == SIGCHLD);
        CHECK(raise(SIGUSR1) == 0 && handled == SIGUSR1);
        struct sigaction action;
        CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == on_signal);
    }
    CHECK(lseek(out, 0, SEEK_CUR) == 270 && pread(out, got, 100, 0) == 100 && memcmp(got, "keptkept", 8) == 0);
    CHECK(holds("made", "...................."));
    /* A program that is not there. */
    char *argv[] = {"none", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, "/none", NULL, NULL, argv, environ) == ENOENT);
    CHECK(pread(keep, got, 10, 0) == 4);
    stop = 1;
    for (int at = 0; at < 3; at++)
        pthread_join(threads[at], NULL);
    for (int at = 0; at < 10; at++) {
        FILE *from = popen("echo popen", "r");
        CHECK(from && fgets(got, 20, from) && !strcmp(got, "popen\n") && pclose(from) == 0);
        CHECK(system("exit 7") == 0x700);
    }
    CHECK(pread(keep, got, 10, 0) == 4);
}

static void vforked(void) {
    int fd = file_with("file", "0123456789"), other = open(in("file"), O_RDONLY);
    /* The child's descriptors are its own, the offsets are both's. */
    volatile int made = -1;
    pid_t pid = vfork();
    if (pid == 0) {
        close(other);
        made = open(in("file"), O_RDONLY);
        int more = dup(fd);
        char byte;
        if (made != other || read(made, &byte, 1) != 1 || read(more, &byte, 1) != 1 || dup2(made, 90) != 90)
            _exit(1);
        close(fd);
        _exit(0);
    }
    CHECK(child_ends_with(pid, 0));
    FAILS(EBADF, fcntl(90, F_GETFD));
    CHECK(lseek(other, 0, SEEK_CUR) == 0 && lseek(fd, 0, SEEK_CUR) == 1 && read(fd, got, 1) == 1 && got[0] == '1');
    CHECK(open(in("file"), O_RDONLY) == other + 1);
    /* It goes to another directory, the parent does not. */
    NEED(mkdir(in("sub"), 0755) == 0 && chdir(dir) == 0);
    pid = vfork();
    if (pid == 0)
        _exit(chdir("sub") != 0 || access("file", F_OK) == 0);
    CHECK(child_ends_with(pid, 0));
    CHECK(access("file", F_OK) == 0 && getcwd(got, sizeof got) && !strcmp(got, dir));
    /* Killed, in the middle or before: the parent goes on. */
    for (int round = 0; round < 100; round++) {
        int death[2];
        NEED(pipe(death) == 0);
        pid_t killer = fork();
        if (killer == 0) {
            pid_t victim;
            close(death[1]);
            if (read(death[0], &victim, sizeof victim) == sizeof victim) {
                struct timespec soon = {0, round * 20000};
                nanosleep(&soon, NULL);
                kill(victim, SIGKILL);
            }
            _exit(0);
        }
        pid = vfork();
        if (pid == 0) {
            pid_t me = getpid();
            write(death[1], &me, sizeof me);
            for (;;) {
                char text[3000];
                int at = open(in("file"), O_RDWR);
                pwrite(at, text, sizeof text, 100);
                close(at);
            }
        }
        close(death[0]);
        close(death[1]);
        int status;
        NEED(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && waitpid(killer, &status, 0) == killer);
        NEED(pread(fd, got, 10, 0) == 10 && got[9] == '9' && pwrite(fd, "0", 1, 0) == 1);
    }
    /* Exec that fails leaves a child of vfork as it was. */
    pid = vfork();
    if (pid == 0) {
        char *argv[] = {"none", NULL};
        execv("/none", argv);
        char byte;
        _exit(errno != ENOENT || pread(fd, &byte, 1, 0) != 1);
    }
    CHECK(child_ends_with(pid, 0));
    CHECK(pread(fd, got, 10, 0) == 10);
    /* It sets handlers: its own. */
    signal(SIGUSR1, on_signal);
    pid = vfork();
    if (pid == 0) {
        signal(SIGUSR1, SIG_DFL);
        raise(SIGUSR1);
        _exit(0);
    }
    CHECK(child_ends_with(pid, SIGUSR1));
    CHECK(raise(SIGUSR1) == 0 && handled == SIGUSR1);
}

static int on_own_stack(void *argument) {
    char byte;
    int fd = *(int *)argument;
    if (read(fd, &byte, 1) != 1 || write(fd, "c", 1) != 1)
        return 1;
    return 0;
}

/* clone(2) as containers use it: a process with memory of its own, on a stack that the
 * caller gives. */
static void cloned(void) {
    int fd = file_with("cloned", "0123456789");
    char *stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(stack != MAP_FAILED);
    for (int round = 0; round < 3; round++) {
        pid_t pid = clone(on_own_stack, stack + (1 << 16), SIGCHLD, &fd);
        CHECK(pid > 0 && child_ends_with(pid, 0));
    }
    CHECK(lseek(fd, 0, SEEK_CUR) == 6 && holds("cloned", "0c2c4c6789"));
    for (int round = 0; round < 2; round++) {
        pid_t pid = clone(on_own_stack, stack + (1 << 16), CLONE_VM | CLONE_VFORK | SIGCHLD, &fd);
        CHECK(pid > 0 && child_ends_with(pid, 0));
    }
    CHECK(holds("cloned", "0c2c4c6c8c"));
    FAILS(EINVAL, clone(on_own_stack, stack + (1 << 16), CLONE_SIGHAND | SIGCHLD, &fd));
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    const char *what = arguments[1];
    if (!strcmp(what, "spawn"))
        spawn();
    else if (!strcmp(what, "vfork"))
        vforked();
    else if (!strcmp(what, "clone"))
        cloned();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
