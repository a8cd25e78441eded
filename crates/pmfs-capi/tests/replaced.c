/* One thread puts new files under a name, another opens it. */
#include <errno.h>
#include <fcntl.h>
#include <pmfs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static pmfs_t *pool;
static volatile int ends;

static void need(int good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, strerror(errno), pmfs_error());
    exit(1);
}

static void *replace(void *unused) {
    while (!ends) {
        int file = pmfs_open(pool, "/draft", O_CREAT | O_WRONLY, 0644);
        need(file >= 0 && pmfs_close(pool, file) == 0, "draft");
        need(pmfs_rename(pool, "/draft", "/name", 0) == 0, "rename");
    }
    return unused;
}

int main(int count, char **arguments) {
    need(count == 2 && pmfs_make_pool(arguments[1], 64 << 20, 0) == 0, "pool");
    pool = pmfs_open_pool(arguments[1], 0);
    need(pool != NULL, "open pool");
    int file = pmfs_open(pool, "/name", O_CREAT | O_WRONLY, 0644);
    need(file >= 0 && pmfs_close(pool, file) == 0, "name");
    pthread_t thread;
    need(pthread_create(&thread, NULL, replace, NULL) == 0, "thread");
    for (time_t begin = time(NULL); time(NULL) - begin < 3;) {
        file = pmfs_open(pool, "/name", O_RDONLY, 0);
        need(file >= 0 && pmfs_close(pool, file) == 0, "open");
        need(pmfs_chmod(pool, "/name", 0600) == 0, "chmod");
    }
    ends = 1;
    pthread_join(thread, NULL);
    need(pmfs_close_pool(pool) == 0, "close pool");
    return 0;
}
