/* A pool, a file in it, and the file again after the pool was opened anew.
 *
 *   cc hello.c -lpmfs -o hello && ./hello /dev/shm/hello.pool
 */
#include <pmfs.h>
#include <stdio.h>
#include <stdlib.h>

static void need(int well, const char *what)
{
    if (!well) {
        fprintf(stderr, "%s: %s\n", what, pmfs_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "hello.pool";
    need(pmfs_make_pool(file, 64 << 20, 0) == 0, file);

    pmfs_t *pool = pmfs_open_pool(file, 0);
    need(pool != NULL, file);
    int handle = pmfs_open(pool, "/greeting", O_CREAT | O_WRONLY, 0644);
    need(handle >= 0, "/greeting");
    /* Durable when it returns: there is no fsync to forget. */
    need(pmfs_write(pool, handle, "hello", 5) == 5, "writing");
    need(pmfs_close_pool(pool) == 0, "closing");

    pool = pmfs_open_pool(file, 0);
    need(pool != NULL, file);
    handle = pmfs_open(pool, "greeting", O_RDONLY, 0);
    need(handle >= 0, "greeting");
    char text[16];
    ssize_t length = pmfs_read(pool, handle, text, sizeof text);
    need(length >= 0, "reading");
    printf("%.*s\n", (int)length, text);
    need(pmfs_close_pool(pool) == 0, "closing");
    return 0;
}
