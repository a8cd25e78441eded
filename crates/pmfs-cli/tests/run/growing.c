/* A thread whose stack grows downwards by itself (MAP_GROWSDOWN), as the first thread's does: the
 * kernel keeps 256 pages below it free of what it places, and whatever stands there ends it. */
#include "check.h"

enum { FIRST = 256 << 10, DEPTH = 4 << 20, STEP = 16 << 10 };

/* Uses so much of the stack. */
static int use(int left) {
    volatile char room[STEP];
    for (int at = 0; at < STEP; at += 1024) {
        room[at] = (char)left;
    }
    return left > STEP ? use(left - STEP) + (room[0] == (char)left) : 1;
}

static void *run(void *name) {
    struct stat stat;
    /* The thread's first call of the library's. */
    CHECK(lstat(in(name), &stat) == 0);
    CHECK(use(DEPTH) == DEPTH / STEP);
    return NULL;
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    close(file_with("there", "text"));
    for (int round = 0; round < 3; round++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK;
        void *stack = mmap(NULL, FIRST, PROT_READ | PROT_WRITE, flags, -1, 0);
        NEED(stack != MAP_FAILED);
        pthread_attr_t attributes;
        pthread_t thread;
        NEED(pthread_attr_init(&attributes) == 0);
        NEED(pthread_attr_setstack(&attributes, stack, FIRST) == 0);
        NEED(pthread_create(&thread, &attributes, run, "there") == 0);
        NEED(pthread_join(thread, NULL) == 0);
    }
    say("growing: %d failures\n", failures);
    return failures != 0;
}
