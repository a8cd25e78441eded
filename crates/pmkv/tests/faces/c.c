/* The steps through libpmkv. */
#include "steps.h"
#include <pmkv.h>

static pmkv_t *kv;

static void well(enum pmheap_code code, const char *what)
{
    need(code == PMHEAP_OK, what, pmheap_error());
}

static void face_open(const char *path, int is_tree)
{
    pmheap_t *heap = pmheap_open(path, NULL);
    need(heap != NULL, path, pmheap_error());
    struct pmkv_options options = {.kind = is_tree ? PMKV_TREE : PMKV_HASH};
    kv = pmkv_open(heap, is_tree ? "pmemkv_stree" : "pmemkv", &options);
    need(kv != NULL, path, pmheap_error());
}

static void face_put(const char *key, const void *value, size_t size)
{
    well(pmkv_put(kv, key, strlen(key), value, size), key);
}

static void face_delete(const char *key)
{
    enum pmheap_code code = pmkv_delete(kv, key, strlen(key));
    if (code != PMHEAP_E_NO_KEY)
        well(code, key);
}

static void face_batch(char keys[3][40], const void *value, size_t size)
{
    struct pmkv_change changes[3];
    memset(changes, 0, sizeof changes);
    for (int part = 0; part < 3; part++) {
        changes[part].kind = PMKV_PUT;
        changes[part].key = keys[part];
        changes[part].key_size = strlen(keys[part]);
        changes[part].value = value;
        changes[part].value_size = size;
    }
    well(pmkv_batch(kv, changes, 3), "batch");
}

static void face_count(void)
{
    char old[24], new[24];
    size_t size;
    enum pmheap_code code;
    do {
        code = pmkv_get(kv, "count", 5, old, sizeof old - 1, &size);
        int expected = PMKV_VALUE;
        if (code == PMHEAP_E_NO_KEY) {
            expected = PMKV_MISSING;
            size = 0;
        } else {
            well(code, "count");
        }
        old[size] = 0;
        int new_size = snprintf(new, sizeof new, "%llu", strtoull(old, NULL, 10) + 1);
        code = pmkv_put_if(kv, "count", 5, expected, old, size, new, (size_t)new_size);
    } while (code == PMHEAP_E_EXPECTED);
    well(code, "count");
}

static enum found face_get(const char *key, void *value, size_t *size)
{
    enum pmheap_code code = pmkv_get(kv, key, strlen(key), value, *size, size);
    if (code == PMHEAP_E_NO_KEY)
        return MISSING;
    if (code == PMHEAP_E_CORRUPT)
        return DAMAGED;
    well(code, key);
    return THERE;
}
