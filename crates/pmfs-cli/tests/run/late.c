/* A daemon that has closed whatever it has inherited, and goes on when the run's first
 * program has ended: the mount has to stay for it. */
#include "check.h"

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    if (fork() != 0)
        return 0;
    NEED(setsid() > 0 && chdir("/") == 0);
    closefrom(0);
    NEED(open("/dev/null", O_RDWR) == 0 && dup(0) == 1 && dup(0) == 2);
    usleep(700000);
    char line[1000];
    int is_mounted = 0;
    FILE *mounts = fopen("/proc/self/mounts", "r");
    while (mounts && fgets(line, sizeof line, mounts))
        is_mounted |= strstr(line, dir) != NULL;
    CHECK(close(file_with("late", is_mounted ? "mounted" : "gone")) == 0);
    return failures != 0;
}
