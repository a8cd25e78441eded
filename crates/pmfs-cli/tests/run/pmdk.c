/* Programs for persistent memory: a file mapped by libpmem, and a pool of objects by
 * libpmemobj, opened again. */
#include "check.h"
#include <libpmem.h>
#include <libpmemobj.h>

struct root {
    unsigned long count;
    char text[100];
};

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    size_t bytes = 0;
    int is_pmem = 0;
    char *map = pmem_map_file(in("mapped"), 1 << 20, PMEM_FILE_CREATE, 0600, &bytes, &is_pmem);
    CHECK(map != NULL && bytes == 1 << 20);
    if (map) {
        memcpy(map, "stored", 6);
        CHECK(pmem_msync(map, 6) == 0 && pmem_unmap(map, bytes) == 0);
        char got[6];
        int fd = open(in("mapped"), O_RDONLY);
        CHECK(pread(fd, got, 6, 0) == 6 && !memcmp(got, "stored", 6) && close(fd) == 0);
    }
    PMEMobjpool *pool = pmemobj_create(in("objects"), "test", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        say("%s\n", pmemobj_errormsg());
    NEED(pool != NULL);
    for (int turn = 0; turn < 2; turn++) {
        PMEMoid at = pmemobj_root(pool, sizeof(struct root));
        struct root *root = pmemobj_direct(at);
        NEED(root != NULL && root->count == turn * 10UL);
        for (int step = 0; step < 10; step++) {
            TX_BEGIN(pool) {
                pmemobj_tx_add_range(at, 0, sizeof *root);
                root->count++;
                snprintf(root->text, sizeof root->text, "step %lu", root->count);
            } TX_ONABORT {
                CHECK(!"aborted");
            } TX_END
        }
        CHECK(turn == 0 ? !strcmp(root->text, "step 10") : !strcmp(root->text, "step 20"));
        pmemobj_close(pool);
        NEED(turn == 1 || (pool = pmemobj_open(in("objects"), "test")) != NULL);
    }
    CHECK(pmemobj_check(in("objects"), "test") == 1);
    say("persistent memory: %d failures\n", failures);
    return failures;
}
