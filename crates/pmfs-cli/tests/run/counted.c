/* Threads that each write blocks durably; the one that ends the process has written nothing. */
#include "check.h"

enum { THREADS = 4, BLOCKS = 50 };

static void *writer(void *number) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/counted-%ld", dir, (long)number);
    int file = open(name, O_WRONLY | O_CREAT, 0600);
    char block[4096] = {1};
    for (int at = 0; at < BLOCKS; at++)
        if (pwrite(file, block, sizeof block, at * sizeof block) != sizeof block)
            abort();
    close(file);
    return NULL;
}

int main(int count, char **words) {
    dir = words[count - 1];
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, writer, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    return failures;
}
