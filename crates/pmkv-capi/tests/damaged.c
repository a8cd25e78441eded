/* An engine with one damaged record, and one that is sound. */
#include "told.h"
#include <string.h>

static int see(void *seen, const void *key, size_t key_size, const void *value, size_t value_size)
{
    IS(key_size == 4 && memcmp(key, "good", 4) == 0 && value != NULL && value_size == 17);
    ++*(int *)seen;
    return 0;
}

int main(int argc, char **argv)
{
    char into[64];
    size_t size;
    int seen = 0;
    IS(argc == 2);
    pmheap_t *heap = pmheap_open(argv[1], NULL);
    pmkv_t *kv = pmkv_open(heap, "left", NULL);
    IS(kv != NULL);
    OK(pmkv_get(kv, "good", 4, into, sizeof into, &size));
    FAILS(PMHEAP_E_CORRUPT, pmkv_get(kv, "bad", 3, into, sizeof into, &size));
    IS(strstr(pmheap_error(), "damaged") != NULL);
    FAILS(PMHEAP_E_CORRUPT, pmkv_each(kv, see, &seen));
    IS(seen == 1);
    OK(pmkv_close(kv));
    OK(pmheap_close(heap));
    return 0;
}
