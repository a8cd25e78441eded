/* Signals, and threads of every kind. */
#include "check.h"
#include <execinfo.h>
#include <setjmp.h>
#include <spawn.h>

extern char **environ;
static char got[4096];
static volatile sig_atomic_t handled;
static int log_fd;
/* For handlers, which may come in the middle of the making of a path. */
static char file_path[256];

static void count_it(int signal) {
    (void)signal;
    handled++;
}

static void write_it(int signal) {
    (void)signal;
    int was = errno;
    if (write(log_fd, "s", 1) != 1 || access(file_path, F_OK) != 0)
        abort();
    handled++;
    errno = was;
}

static void on(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    NEED(sigaction(signal, &action, NULL) == 0);
}

static sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, signal); }

/* A process that has the whole file for so long, by each kind of lock. */
static pid_t holder(int kind, int ms) {
    int ready[2];
    char byte;
    NEED(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(in("file"), O_RDWR);
        struct flock lock = {.l_type = F_WRLCK};
        NEED((kind ? fcntl(fd, F_SETLK, &lock) : flock(fd, LOCK_EX)) == 0 && write(ready[1], "r", 1) == 1);
        usleep(ms * 1000);
        _exit(0);
    }
    NEED(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static int take(int kind, int fd) {
    struct flock lock = {.l_type = F_WRLCK};
    return kind ? fcntl(fd, F_SETLKW, &lock) : flock(fd, LOCK_EX);
}

static void waits(void) {
    int fd = file_with("file", "locked");
    log_fd = open(in("log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int kind = 0; kind < 2; kind++) {
        struct itimerval timer = {.it_value = {0, 50000}};
        /* A handler without SA_RESTART ends the wait. */
        on(SIGALRM, write_it, 0);
        pid_t pid = holder(kind, 600);
        handled = 0;
        setitimer(ITIMER_REAL, &timer, NULL);
        FAILS(EINTR, take(kind, fd));
        CHECK(handled == 1);
        /* With it the wait goes on, and has the lock in the end. */
        on(SIGALRM, write_it, SA_RESTART);
        handled = 0;
        setitimer(ITIMER_REAL, &timer, NULL);
        CHECK(take(kind, fd) == 0 && handled == 1);
        CHECK(child_ends_with(pid, 0));
        NEED(flock(fd, LOCK_UN) == 0);
        close(fd);
        fd = open(in("file"), O_RDWR);
        /* A jump out of a handler that came during the wait. */
        pid = holder(kind, 400);
        on(SIGALRM, jump, 0);
        setitimer(ITIMER_REAL, &timer, NULL);
        if (sigsetjmp(back, 1) == 0) {
            take(kind, fd);
            CHECK(!"it does not come here");
        }
        CHECK(pread(fd, got, 6, 0) == 6 && child_ends_with(pid, 0) && take(kind, fd) == 0);
        close(fd);
        fd = open(in("file"), O_RDWR);
    }
}

/* Handlers in the middle of everything. */
static void storm(void) {
    int fd = file_with("file", "");
    log_fd = open(in("log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    on(SIGALRM, write_it, SA_RESTART);
    struct itimerval timer = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int round = 0; round < 4000; round++) {
        memset(got, 'a' + round % 26, sizeof got);
        NEED(pwrite(fd, got, sizeof got, 0) == sizeof got);
        char back_again[4096];
        NEED(pread(fd, back_again, sizeof got, 0) == sizeof got && memcmp(got, back_again, sizeof got) == 0);
        NEED(rename(in("log"), in("moved")) == 0 && rename(in("moved"), in("log")) == 0);
    }
    /* Out of them by a jump. */
    volatile int jumps = 0, begun = 0;
    if (sigsetjmp(back, 1))
        jumps++;
    if (!begun++)
        on(SIGALRM, jump, 0);
    while (jumps < 500)
        pwrite(fd, got, sizeof got, 0);
    memset(&timer, 0, sizeof timer);
    signal(SIGALRM, SIG_IGN);
    setitimer(ITIMER_REAL, &timer, NULL);
    struct stat stat;
    CHECK(fstat(log_fd, &stat) == 0 && stat.st_size == handled && handled > 0);
    CHECK(unlink(in("log")) == 0 && mkdir(in("sub"), 0755) == 0);
}

/* On an alternate stack: what stands there must not be overwritten by a second one that
 * comes in the middle of a call. */
static char alternate[64 << 10];
static int pool_fd;

static void deep(int signal) {
    (void)signal;
    volatile char frame[2000];
    memset((char *)frame, 'f', sizeof frame);
    for (int round = 0; round < 2000; round++) {
        /* A fault in the middle of our call, and signals. */
        FAILS(EFAULT, pread(pool_fd, NULL, 4, 0));
        NEED(pwrite(pool_fd, (char *)frame, sizeof frame, 0) == sizeof frame);
    }
    for (size_t at = 0; at < sizeof frame; at++)
        if (frame[at] != 'f') {
            failures++;
            break;
        }
}

static void *small(void *unused) {
    (void)unused;
    char byte;
    struct stat stat;
    int fd = open(in("small"), O_RDWR | O_CREAT, 0644);
    NEED(fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && pread(fd, &byte, 1, 0) == 1 && fstat(fd, &stat) == 0);
    FAILS(EFAULT, pread(fd, NULL, 1, 0));
    CHECK(rename(in("small"), in("smaller")) == 0 && rename(in("smaller"), in("small")) == 0 && close(fd) == 0);
    return NULL;
}

/* Threads of 16 KiB that do a little of everything, in a storm of handlers on alternate
 * stacks of 8 KiB, and start programs. */
static void *crowded(void *number) {
    char name[32], other[32];
    static char rooms[4][8192] __attribute__((aligned(16)));
    stack_t stack = {.ss_sp = rooms[(long)number], .ss_size = sizeof rooms[0]};
    NEED(sigaltstack(&stack, NULL) == 0);
    snprintf(name, sizeof name, "crowd%ld", (long)number);
    snprintf(other, sizeof other, "moved%ld", (long)number);
    for (int round = 0; round < 30; round++) {
        int fd = open(in(name), O_RDWR | O_CREAT, 0644), root = open(dir, O_RDONLY | O_DIRECTORY);
        char byte, list[600];
        struct stat stat;
        NEED(fd >= 0 && root >= 0 && ftruncate(fd, 5000) == 0 && pwrite(fd, "x", 1, 4999) == 1 && pread(fd, &byte, 1, 4999) == 1 && byte == 'x');
        NEED(syscall(SYS_getdents64, root, list, sizeof list) > 0 && fstat(fd, &stat) == 0 && stat.st_size == 5000);
        char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        NEED(map != MAP_FAILED && (map[1] = 'y') && pread(fd, &byte, 1, 1) == 1 && byte == 'y' && munmap(map, 8192) == 0);
        NEED(rename(in(name), in(other)) == 0 && link(in(other), in(name)) == 0 && unlink(in(other)) == 0);
        FAILS(EFAULT, pread(fd, NULL, 1, 0));
        if (round % 10 == 0) {
            char *words[] = {"true", NULL};
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            posix_spawn_file_actions_adddup2(&actions, fd, 0);
            posix_spawn_file_actions_addopen(&actions, 50, in(name), O_RDWR, 0);
            pid_t pid;
            NEED(posix_spawn(&pid, "/bin/true", &actions, NULL, words, environ) == 0 && child_ends_with(pid, 0));
            posix_spawn_file_actions_destroy(&actions);
        }
        NEED(close(fd) == 0 && close(root) == 0 && unlink(in(name)) == 0);
    }
    stack.ss_flags = SS_DISABLE;
    NEED(sigaltstack(&stack, NULL) == 0);
    return NULL;
}

static void crowd(void) {
    close(file_with("file", "0123"));
    log_fd = open(in("log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    on(SIGALRM, write_it, SA_ONSTACK | SA_RESTART);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    NEED(pthread_attr_setstacksize(&attributes, 16384) == 0);
    pthread_t threads[4];
    for (long at = 0; at < 4; at++)
        NEED(pthread_create(&threads[at], &attributes, crowded, (void *)at) == 0);
    for (int at = 0; at < 4; at++)
        NEED(pthread_join(threads[at], NULL) == 0);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(handled > 0);
}

static void stacks(void) {
    pool_fd = file_with("file", "0123");
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, old;
    NEED(sigaltstack(&stack, NULL) == 0);
    on(SIGUSR1, deep, SA_ONSTACK);
    on(SIGALRM, count_it, SA_ONSTACK | SA_RESTART);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    raise(SIGUSR1);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == alternate && old.ss_size == sizeof alternate && old.ss_flags == 0);
    /* The smallest that is usual. */
    stack.ss_size = 8192;
    NEED(sigaltstack(&stack, NULL) == 0);
    log_fd = open(in("log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    on(SIGUSR1, write_it, SA_ONSTACK);
    CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0 && holds("log", "ss"));
    /* Threads of the least stack that there may be. */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    NEED(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    for (int at = 0; at < 20; at++) {
        pthread_t thread;
        NEED(pthread_create(&thread, &attributes, small, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
}

static void caught(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (signal == SIGSEGV && info->si_addr == (void *)16)
        siglongjmp(back, 1);
    abort();
}

static volatile int traced;
static void trace(int signal) {
    (void)signal;
    void *frames[60];
    int count = backtrace(frames, 60);
    char **names = backtrace_symbols(frames, count);
    for (int at = 0; at < count; at++)
        if (strstr(names[at], "main"))
            traced = 1;
}

static void *kick(void *thread) {
    usleep(50000);
    pthread_kill(*(pthread_t *)thread, SIGUSR2);
    return NULL;
}

/* Faults of the program's own, and backtraces. */
static void faults(void) {
    int fd = file_with("file", "0123");
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int round = 0; round < 100; round++) {
        if (sigsetjmp(back, 1) == 0) {
            *(volatile int *)16 = 1;
            CHECK(!"it does not come here");
        }
        FAILS(EFAULT, pread(fd, (void *)16, 4, 0));
    }
    on(SIGUSR2, trace, 0);
    int ends[2];
    pthread_t me = pthread_self(), other;
    NEED(pipe(ends) == 0 && backtrace((void *[1]){0}, 1) == 1 && pthread_create(&other, NULL, kick, &me) == 0);
    FAILS(EINTR, read(ends[0], got, 1));
    CHECK(traced);
    pthread_join(other, NULL);
    /* Not caught: it ends by that signal. */
    for (int way = 0; way < 3; way++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            signal(SIGSEGV, SIG_DFL);
            if (way == 0)
                *(volatile int *)16 = 1;
            else if (way == 1)
                raise(SIGSEGV);
            else
                kill(getpid(), SIGBUS);
            _exit(0);
        }
        CHECK(child_ends_with(pid, way == 2 ? SIGBUS : SIGSEGV));
    }
    /* Once only. */
    on(SIGUSR1, count_it, SA_RESETHAND);
    struct sigaction now;
    handled = 0;
    CHECK(raise(SIGUSR1) == 0 && handled == 1 && sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    snprintf(file_path, sizeof file_path, "%s", in("file"));
    const char *what = arguments[1];
    if (!strcmp(what, "waits"))
        waits();
    else if (!strcmp(what, "storm"))
        storm();
    else if (!strcmp(what, "stacks"))
        stacks();
    else if (!strcmp(what, "crowd"))
        crowd();
    else if (!strcmp(what, "faults"))
        faults();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
