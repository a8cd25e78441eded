/* What a program finds itself with. "launch" makes a caller of an uncommon kind, and
 * becomes the rest of its words; "say" tells all. */
#include "check.h"
#include <dirent.h>
#include <sys/prctl.h>

/* Lines of a file that begin so. */
static void lines(const char *path, const char *const *heads) {
    char line[512];
    FILE *file = fopen(path, "r");
    NEED(file);
    while (fgets(line, sizeof line, file))
        for (const char *const *head = heads; *head; head++)
            if (!strncmp(line, *head, strlen(*head)))
                say("%s", line);
    fclose(file);
}

/* Not the signals that are handled: two are the library's own. */
static const char *const facts[] = {"SigBlk", "Umask", "Groups", "NoNewPrivs", "Seccomp:", "Cpus_allowed_list", "Cap", NULL};
static const char *const all[] = {"", NULL};

/* What is ignored: not of the two signals that libc keeps for itself, which its threads
 * set anew. */
static void ignored(void) {
    enum { CANCEL = 32, SETXID = 33 };
    char line[512];
    FILE *file = fopen("/proc/self/status", "r");
    NEED(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "SigIgn:", 7))
            say("ignored %llx\n", strtoull(line + 7, NULL, 16) & ~(1ull << (CANCEL - 1) | 1ull << (SETXID - 1)));
    fclose(file);
}

/* The library keeps its own, and what it inherits for itself, up there. */
enum { OWN_FROM = 1000 };

static void descriptors(void) {
    DIR *fds = opendir("/proc/self/fd");
    NEED(fds);
    int is_open[OWN_FROM] = {0};
    for (struct dirent *entry; (entry = readdir(fds));) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && number != dirfd(fds) && number < OWN_FROM)
            is_open[number] = 1;
    }
    closedir(fds);
    for (int at = 0; at < OWN_FROM; at++) {
        char name[40], target[300];
        snprintf(name, sizeof name, "/proc/self/fd/%d", at);
        ssize_t len = is_open[at] ? readlink(name, target, sizeof target) : 0;
        if (len > 0 && at != 1)
            say("%d: %.*s, flags %o, on exec %d\n", at, (int)len, target, fcntl(at, F_GETFL), fcntl(at, F_GETFD));
        else if (is_open[at])
            say("%d\n", at);
    }
}

static void tell(void) {
    sigset_t alarm;
    lines("/proc/self/status", facts);
    ignored();
    lines("/proc/self/limits", all);
    lines("/proc/self/oom_score_adj", all);
    lines("/proc/self/cgroup", all);
    descriptors();
    errno = 0;
    pid_t group = atoi(getenv("GROUP"));
    say("nice %d, session %d, group %d\n", getpriority(PRIO_PROCESS, 0), getsid(0) == getsid(group), getpgrp() == group);
    lines("/proc/self/timerslack_ns", all);
    /* The caller has set it, and blocked the signal. */
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    say("alarm %d\n", sigtimedwait(&alarm, NULL, &(struct timespec){20, 0}));
}

static void launch(char **words) {
    struct rlimit files = {300, 300}, none = {0, 0};
    sigset_t blocked;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigaddset(&blocked, SIGWINCH);
    sigaddset(&blocked, SIGRTMIN + 3);
    NEED(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    umask(0135);
    NEED(nice(3) != -1 && setrlimit(RLIMIT_CORE, &none) == 0);
    if (!strcmp(words[0], "low"))
        NEED(setrlimit(RLIMIT_NOFILE, &files) == 0);
    int score = open("/proc/self/oom_score_adj", O_WRONLY);
    NEED(write(score, "77", 2) == 2 && close(score) == 0);
    int more = open("/dev/zero", O_RDONLY);
    NEED(dup2(more, 9) == 9 && close(more) == 0 && close(0) == 0);
    struct itimerval soon = {{0, 0}, {0, 1000}};
    NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    execvp(words[1], words + 1);
    NEED(!"started");
}

int main(int count, char **arguments) {
    NEED(count >= 3);
    if (!strcmp(arguments[1], "launch"))
        launch(arguments + 2);
    tell();
    return failures;
}
