/* A program that leaves its parent, its session, its environment and its descriptors,
 * and goes on working. */
#include "check.h"

static char command[3 * PATH_MAX];

static void leave(void) {
    pid_t pid = fork();
    if (pid > 0)
        _exit(0);
    NEED(pid == 0 && setsid() > 0);
    pid = fork();
    if (pid > 0)
        _exit(0);
    NEED(pid == 0 && chdir("/") == 0);
    umask(027);
    closefrom(0);
    NEED(open("/dev/null", O_RDWR) == 0 && open(in("log"), O_WRONLY | O_CREAT | O_APPEND, 0666) == 1 && dup(1) == 2);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    int ended[2];
    NEED(pipe(ended) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ended[0]);
        NEED(dup2(ended[1], 100) == 100);
        int keep = dup(100);
        (void)keep;
        pid_t inner = fork();
        if (inner == 0) {
            leave();
            printf("daemon\n");
            fflush(stdout);
            /* Its parents are gone; it starts others. */
            CHECK(system("echo from a shell; cat /proc/self/fd/1 > /dev/null") == 0);
            clearenv();
            snprintf(command, sizeof command, "/bin/cat %s > %s; echo cleared", in("log"), in("copied"));
            CHECK(system(command) == 0);
            unsetenv("LD_PRELOAD");
            char *const none[] = {NULL};
            if (fork() == 0) {
                execle("/usr/bin/env", "env", "-i", "/bin/sh", "-c", "echo bare $LD_PRELOAD | sed 's, .*,,'", NULL, none);
                _exit(9);
            }
            int status;
            wait(&status);
            CHECK(status == 0);
            struct stat stat;
            CHECK(lstat(in("log"), &stat) == 0 && (stat.st_mode & 0777) == 0640);
            int done = open(in("done"), O_WRONLY | O_CREAT, 0666);
            NEED(write(done, failures ? "failed" : "done", failures ? 6 : 4) > 0);
            _exit(0);
        }
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    close(ended[1]);
    CHECK(child_ends_with(pid, 0));
    struct stat stat;
    for (int round = 0; round < 5000 && lstat(in("done"), &stat) != 0; round++)
        usleep(1000);
    usleep(10000);
    CHECK(holds("done", "done") && holds("log", "daemon\nfrom a shell\ncleared\nbare\n") && holds("copied", "daemon\nfrom a shell\n"));
    say("daemon: %d failures\n", failures);
    return failures != 0;
}
