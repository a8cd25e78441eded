/* Asserting, for programs of these tests: C11 and C++. */
#ifndef TOLD_H
#define TOLD_H

#include <pmkv.h>
#include <stdio.h>
#include <stdlib.h>

#define IS(condition)                                                                     \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "line %d: not so: %s (%d, %s)\n", __LINE__, #condition,        \
                    pmheap_last_code(), pmheap_error());                                  \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define OK(call) IS((call) == PMHEAP_OK && pmheap_last_code() == PMHEAP_OK)
/* A call that answers nothing, and says why. */
#define FAILS(code, call)                                                                 \
    do {                                                                                  \
        (void)(call);                                                                     \
        if (pmheap_last_code() != (code) || pmheap_error()[0] == 0) {                     \
            fprintf(stderr, "line %d: %s gave %d, %s\n", __LINE__, #call,                  \
                    pmheap_last_code(), pmheap_error());                                  \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#endif
