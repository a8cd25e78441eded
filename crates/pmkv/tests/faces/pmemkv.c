/* The steps through libpmemkv, which has no put on a condition: it counts nothing. */
#include "steps.h"
#include "declared.h"

static pmemkv_db *db;

static void well(int status, const char *what)
{
    need(status == PMEMKV_STATUS_OK, what, pmemkv_errormsg());
}

static void face_open(const char *path, int is_tree)
{
    pmemkv_config *config = pmemkv_config_new();
    need(config != NULL, path, "no memory");
    well(pmemkv_config_put_path(config, path), path);
    well(pmemkv_open(is_tree ? "stree" : "cmap", config, &db), path);
}

static void face_put(const char *key, const void *value, size_t size)
{
    well(pmemkv_put(db, key, strlen(key), value, size), key);
}

static void face_delete(const char *key)
{
    int status = pmemkv_remove(db, key, strlen(key));
    if (status != PMEMKV_STATUS_NOT_FOUND)
        well(status, key);
}

static void face_batch(char keys[3][40], const void *value, size_t size)
{
    pmemkv_tx *tx;
    well(pmemkv_tx_begin(db, &tx), "begin");
    for (int part = 0; part < 3; part++)
        well(pmemkv_tx_put(tx, keys[part], strlen(keys[part]), value, size), keys[part]);
    well(pmemkv_tx_commit(tx), "commit");
    pmemkv_tx_end(tx);
}

static void face_count(void) {}

static enum found face_get(const char *key, void *value, size_t *size)
{
    int status = pmemkv_get_copy(db, key, strlen(key), value, *size, size);
    if (status == PMEMKV_STATUS_NOT_FOUND)
        return MISSING;
    if (status == PMEMKV_STATUS_UNKNOWN_ERROR)
        return DAMAGED;
    well(status, key);
    return THERE;
}
