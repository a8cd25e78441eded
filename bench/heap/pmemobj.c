/*
 * The loops of `pmbench heap` by libpmemobj: pmemobj POOL MIB
 *
 * A pool with an area of MIB MiB, and as many objects of 64 bytes as it has lines, each named by a slot in a table. Asked
 * on standard input, it answers ns for each on standard output:
 *
 *   write RANGES COUNT   COUNT transactions, each of which writes over RANGES ranges of 64 bytes
 *   add RANGES COUNT     the same, each word one more than it was
 *   churn COUNT          COUNT objects freed, then as many made in their slots: two numbers
 *
 * Lines and slots are those of the same sequence that the other candidates have. `churn` goes the quickest of the library's
 * ways, as measured by `churn-by WAY COUNT`, WAY one of tx, atomic, reserve.
 */
#include <inttypes.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, POOL_OVERHEAD = 4 };

/* What the sequence goes on by: odd, so that it meets each of 2^k lines once. */
static const uint64_t STEP = UINT64_C(0x9e3779b97f4a7c15);

/* A slot has a line of its own. */
struct slot {
    PMEMoid object;
    char rest[LINE - sizeof(PMEMoid)];
};

struct root {
    PMEMoid area, table;
};

static PMEMobjpool *pool;
static char *area;
static struct slot *table;
static uint64_t lines, next_line, next_free, next_made, filled;
static char content[LINE];

static void fail(const char *what) {
    fprintf(stderr, "pmemobj: %s: %s\n", what, pmemobj_errormsg());
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t at(uint64_t number) { return number * STEP & (lines - 1); }

/* Some bytes that were not there before. */
static inline void refill(void) {
    filled++;
    for (size_t word = 0; word < LINE; word += sizeof filled)
        memcpy(content + word, &filled, sizeof filled);
}

static void *aligned(PMEMoid object) {
    uintptr_t start = (uintptr_t)pmemobj_direct(object);
    return (void *)((start + LINE - 1) & ~(uintptr_t)(LINE - 1));
}

static void make(const char *path, uint64_t mib) {
    uint64_t bytes = mib << 20;
    lines = bytes / LINE;
    /* An object of 64 bytes takes 128 here. */
    pool = pmemobj_create(path, "pmbench", (POOL_OVERHEAD * bytes) + (64 << 20), 0600);
    if (!pool)
        fail("create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof *root));
    if (pmemobj_zalloc(pool, &root->area, bytes + LINE, 1) || pmemobj_zalloc(pool, &root->table, bytes + LINE, 2))
        fail("alloc");
    area = aligned(root->area);
    table = aligned(root->table);
    for (uint64_t number = 0; number < lines; number++)
        if (pmemobj_alloc(pool, &table[at(number)].object, LINE, 3, NULL, NULL))
            fail("alloc");
}

static void change(int adds, uint64_t ranges, uint64_t count) {
    for (uint64_t done = 0; done < count; done++) {
        refill();
        if (pmemobj_tx_begin(pool, NULL, TX_PARAM_NONE))
            fail("begin");
        for (uint64_t range = 0; range < ranges; range++) {
            char *line = area + at(next_line++) * LINE;
            if (pmemobj_tx_add_range_direct(line, LINE))
                fail("add");
            if (adds)
                for (size_t word = 0; word < LINE / sizeof(uint64_t); word++)
                    ((uint64_t *)line)[word]++;
            else
                memcpy(line, content, LINE);
        }
        pmemobj_tx_commit();
        if (pmemobj_tx_end())
            fail("end");
    }
}

static int construct(PMEMobjpool *from, void *object, void *given) {
    pmemobj_memcpy_persist(from, object, given, LINE);
    return 0;
}

enum way { TX, ATOMIC, RESERVE };

static void free_one(enum way way) {
    struct slot *slot = &table[at(next_free++)];
    struct pobj_action actions[2];
    switch (way) {
    case ATOMIC:
        pmemobj_free(&slot->object);
        return;
    case RESERVE:
        pmemobj_defer_free(pool, slot->object, &actions[0]);
        pmemobj_set_value(pool, &actions[1], &slot->object.off, 0);
        if (pmemobj_publish(pool, actions, 2))
            fail("publish");
        return;
    case TX:
        if (pmemobj_tx_begin(pool, NULL, TX_PARAM_NONE) || pmemobj_tx_free(slot->object) ||
            pmemobj_tx_add_range_direct(&slot->object.off, sizeof slot->object.off))
            fail("free");
        slot->object.off = 0;
        pmemobj_tx_commit();
        if (pmemobj_tx_end())
            fail("end");
    }
}

static void make_one(enum way way) {
    struct slot *slot = &table[at(next_made++)];
    struct pobj_action actions[2];
    PMEMoid made;
    refill();
    switch (way) {
    case ATOMIC:
        if (pmemobj_alloc(pool, &slot->object, LINE, 3, construct, content))
            fail("alloc");
        return;
    case RESERVE:
        made = pmemobj_reserve(pool, &actions[0], LINE, 3);
        if (OID_IS_NULL(made))
            fail("reserve");
        pmemobj_memcpy_persist(pool, pmemobj_direct(made), content, LINE);
        pmemobj_set_value(pool, &actions[1], &slot->object.off, made.off);
        if (pmemobj_publish(pool, actions, 2))
            fail("publish");
        return;
    case TX:
        if (pmemobj_tx_begin(pool, NULL, TX_PARAM_NONE))
            fail("begin");
        made = pmemobj_tx_alloc(LINE, 3);
        if (OID_IS_NULL(made) || pmemobj_tx_add_range_direct(&slot->object, sizeof slot->object))
            fail("alloc");
        memcpy(pmemobj_direct(made), content, LINE);
        slot->object = made;
        pmemobj_tx_commit();
        if (pmemobj_tx_end())
            fail("end");
    }
}

static void churn(enum way way, uint64_t count) {
    uint64_t start = now_ns();
    for (uint64_t done = 0; done < count; done++)
        free_one(way);
    uint64_t freed = now_ns();
    for (uint64_t done = 0; done < count; done++)
        make_one(way);
    uint64_t made = now_ns();
    printf("%.2f %.2f\n", (double)(freed - start) / (double)count, (double)(made - freed) / (double)count);
}

static enum way way_of(const char *name) {
    return strcmp(name, "tx") == 0 ? TX : strcmp(name, "atomic") == 0 ? ATOMIC : RESERVE;
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: pmemobj POOL MIB\n");
        return 2;
    }
    make(words[1], strtoull(words[2], NULL, 10));
    char asked[200], name[16];
    uint64_t ranges, times;
    printf("ready\n");
    fflush(stdout);
    while (fgets(asked, sizeof asked, stdin)) {
        int adds = strncmp(asked, "add ", 4) == 0;
        if (sscanf(asked, adds ? "add %" SCNu64 " %" SCNu64 : "write %" SCNu64 " %" SCNu64, &ranges, &times) == 2) {
            uint64_t start = now_ns();
            change(adds, ranges, times);
            printf("%.2f\n", (double)(now_ns() - start) / (double)times);
        } else if (sscanf(asked, "churn-by %15s %" SCNu64, name, &times) == 2) {
            churn(way_of(name), times);
        } else if (sscanf(asked, "churn %" SCNu64, &times) == 1) {
            churn(RESERVE, times);
        } else {
            fprintf(stderr, "pmemobj: what is %s", asked);
            return 2;
        }
        fflush(stdout);
    }
    pmemobj_close(pool);
    return 0;
}
