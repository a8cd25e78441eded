/* Every function of libpmemkv, on every engine that there is, and calls that are wrong.
 *
 *   calls DIRECTORY   leaves a database "left" of cmap, which has one key
 */
#ifdef ORIGINAL
#include <libpmemkv.h>
#else
#include "declared.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define IS(condition)                                                                     \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition,           \
                    pmemkv_errormsg());                                                   \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define GIVES(status, call)                                                               \
    do {                                                                                  \
        int got = (call);                                                                 \
        if (got != PMEMKV_STATUS_##status) {                                              \
            fprintf(stderr, "line %d: %s gave %d, %s\n", __LINE__, #call, got,            \
                    pmemkv_errormsg());                                                   \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static char directory[2000], path[2100];

static void *second(void *pair) { return (char *)pair + 1; }
static void count_delete(void *counter) { ++*(int *)counter; }
static int by_bytes(const char *a, size_t as, const char *b, size_t bs, void *arg)
{
    (void)arg;
    int less = memcmp(a, b, as < bs ? as : bs);
    return less ? less : (as > bs) - (as < bs);
}

static void configs(void)
{
    pmemkv_config *config = pmemkv_config_new();
    uint64_t number;
    int64_t signed_number;
    const char *text;
    const void *data;
    void *object;
    size_t size;
    int deleted = 0;
    char pair[2];
    IS(config != NULL);
    GIVES(OK, pmemkv_config_put_data(config, "data", "ab", 2));
    GIVES(OK, pmemkv_config_put_object(config, "object", &deleted, count_delete));
    GIVES(OK, pmemkv_config_put_object_cb(config, "pair", pair, second, NULL));
    GIVES(OK, pmemkv_config_put_uint64(config, "u", UINT64_MAX));
    GIVES(OK, pmemkv_config_put_int64(config, "i", -1));
    GIVES(OK, pmemkv_config_put_int64(config, "both", 7));
    GIVES(OK, pmemkv_config_put_string(config, "text", "words"));
    GIVES(OK, pmemkv_config_get_data(config, "data", &data, &size));
    IS(size == 2 && memcmp(data, "ab", 2) == 0);
    GIVES(OK, pmemkv_config_get_object(config, "object", &object));
    IS(object == &deleted);
    GIVES(OK, pmemkv_config_get_object(config, "pair", &object));
    IS(object == pair + 1);
    GIVES(OK, pmemkv_config_get_uint64(config, "u", &number));
    IS(number == UINT64_MAX);
    GIVES(OK, pmemkv_config_get_uint64(config, "both", &number));
    IS(number == 7);
    GIVES(OK, pmemkv_config_get_int64(config, "i", &signed_number));
    IS(signed_number == -1);
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_int64(config, "u", &signed_number));
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_uint64(config, "i", &number));
    GIVES(OK, pmemkv_config_get_string(config, "text", &text));
    IS(strcmp(text, "words") == 0);
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_string(config, "data", &text));
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_data(config, "text", &data, &size));
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_object(config, "text", &object));
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_uint64(config, "text", &number));
    GIVES(CONFIG_TYPE_ERROR, pmemkv_config_get_int64(config, "text", &signed_number));
    GIVES(NOT_FOUND, pmemkv_config_get_string(config, "nothing", &text));
    IS(strstr(pmemkv_errormsg(), "nothing") != NULL);
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_string(NULL, "text", "words"));
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_string(config, NULL, "words"));
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_string(config, "text", NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_data(config, "data", NULL, 2));
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_object_cb(config, "pair", pair, NULL, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_comparator(config, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_config_put_oid(config, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_config_get_string(config, "text", NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_config_get_data(config, "data", NULL, &size));
    GIVES(OK, pmemkv_config_put_object(config, "object", &deleted, count_delete));
    IS(deleted == 1);
    pmemkv_config_delete(config);
    IS(deleted == 2);
    pmemkv_config_delete(NULL);
    IS(pmemkv_comparator_new(NULL, "name", NULL) == NULL);
    IS(pmemkv_comparator_new(by_bytes, NULL, NULL) == NULL);
    pmemkv_comparator_delete(pmemkv_comparator_new(by_bytes, "name", NULL));
    pmemkv_comparator_delete(NULL);
}

enum { OPEN = 0, IF_MISSING = 1, ALWAYS = 2, FORCE = 4 };

static pmemkv_config *config_of(int flags, uint64_t size)
{
    pmemkv_config *config = pmemkv_config_new();
    GIVES(OK, pmemkv_config_put_path(config, path));
    if (size != 0)
        GIVES(OK, pmemkv_config_put_size(config, size));
    GIVES(OK, pmemkv_config_put_create_if_missing(config, flags & IF_MISSING));
    GIVES(OK, pmemkv_config_put_create_or_error_if_exists(config, (flags & ALWAYS) != 0));
    if (flags & FORCE) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        GIVES(OK, pmemkv_config_put_force_create(config, true));
    }
    return config;
}

static void openings(void)
{
    PMEMoid oid;
    pmemkv_db *db = (pmemkv_db *)(void *)path;
    snprintf(path, sizeof path, "%s/opened", directory);
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(OPEN, 8 << 20), &db));
    IS(db == NULL && strstr(pmemkv_errormsg(), path) != NULL);
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(IF_MISSING, 0), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(ALWAYS, 0), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(ALWAYS, 4096), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(ALWAYS, UINT64_MAX), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(IF_MISSING | ALWAYS, 8 << 20), &db));
    GIVES(OK, pmemkv_open("cmap", config_of(FORCE, 8 << 20), &db));
    pmemkv_close(db);
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(ALWAYS, 8 << 20), &db));
    /* It has no engine of this name yet. */
    GIVES(INVALID_ARGUMENT, pmemkv_open("robinhood", config_of(OPEN, 0), &db));
    GIVES(OK, pmemkv_open("robinhood", config_of(IF_MISSING, 8 << 20), &db));
    pmemkv_close(db);
    GIVES(OK, pmemkv_open("cmap", config_of(OPEN, 0), &db));
    pmemkv_close(db);
    pmemkv_close(NULL);
    GIVES(WRONG_ENGINE_NAME, pmemkv_open("nobody", config_of(OPEN, 0), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open(NULL, config_of(OPEN, 0), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", NULL, &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config_of(OPEN, 0), NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", pmemkv_config_new(), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("vcmap", pmemkv_config_new(), &db));
    GIVES(INVALID_ARGUMENT, pmemkv_open("vcmap", config_of(OPEN, 16 << 20), &db));
    pmemkv_config *config = pmemkv_config_new();
    GIVES(OK, pmemkv_config_put_oid(config, &oid));
    GIVES(NOT_SUPPORTED, pmemkv_open("cmap", config, &db));
    config = config_of(OPEN, 0);
    GIVES(OK, pmemkv_config_put_oid(config, &oid));
    GIVES(INVALID_ARGUMENT, pmemkv_open("cmap", config, &db));
    config = pmemkv_config_new();
    GIVES(OK, pmemkv_config_put_uint64(config, "path", 7));
    GIVES(CONFIG_TYPE_ERROR, pmemkv_open("cmap", config, &db));
    /* The order of a sorted engine is that of bytes. */
    config = config_of(IF_MISSING, 8 << 20);
    pmemkv_comparator *order = pmemkv_comparator_new(by_bytes, "bytes", NULL);
    GIVES(OK, pmemkv_config_put_comparator(config, order));
    GIVES(NOT_SUPPORTED, pmemkv_open("stree", config, &db));
    IS(strstr(pmemkv_errormsg(), "comparator") != NULL);
    GIVES(INVALID_ARGUMENT, pmemkv_open("vsmap", config_of(OPEN, 16 << 20), &db));
    IS(strstr(pmemkv_errormsg(), "vsmap") != NULL);
    /* Engines are apart from each other in a file. */
    GIVES(OK, pmemkv_open("radix", config_of(IF_MISSING, 0), &db));
    pmemkv_close(db);
    GIVES(INVALID_ARGUMENT, pmemkv_open("stree", config_of(OPEN, 0), &db));
}

struct seen {
    int calls, stop_at;
    size_t bytes;
};

static void see_value(const char *value, size_t size, void *argument)
{
    struct seen *seen = (struct seen *)argument;
    seen->calls++;
    seen->bytes += size;
    IS(size != 3 || memcmp(value, "one", 3) == 0);
}

static int see_entry(const char *key, size_t key_size, const char *value, size_t size, void *argument)
{
    struct seen *seen = (struct seen *)argument;
    IS(key != NULL && value != NULL);
    seen->bytes += key_size + size;
    return ++seen->calls == seen->stop_at;
}

static void ranges(pmemkv_db *db, int is_hash)
{
    size_t count = 7;
    struct seen seen = {0, 0, 0};
    int counted = is_hash ? PMEMKV_STATUS_NOT_SUPPORTED : PMEMKV_STATUS_OK;
    int shown = is_hash ? PMEMKV_STATUS_NOT_SUPPORTED : PMEMKV_STATUS_NOT_FOUND;
    IS(pmemkv_count_above(db, "a", 1, &count) == counted);
    IS(pmemkv_count_equal_above(db, "a", 1, &count) == counted);
    IS(pmemkv_count_equal_below(db, "a", 1, &count) == counted);
    IS(pmemkv_count_below(db, "a", 1, &count) == counted);
    IS(pmemkv_count_between(db, "a", 1, "b", 1, &count) == counted);
    IS(count == (is_hash ? 7 : 0));
    IS(pmemkv_get_above(db, "a", 1, see_entry, &seen) == shown);
    IS(pmemkv_get_equal_above(db, "a", 1, see_entry, &seen) == shown);
    IS(pmemkv_get_equal_below(db, "a", 1, see_entry, &seen) == shown);
    IS(pmemkv_get_below(db, "a", 1, see_entry, &seen) == shown);
    IS(pmemkv_get_between(db, "a", 1, "b", 1, see_entry, &seen) == shown);
    IS(seen.calls == 0);
}

static void keys(pmemkv_db *db)
{
    struct seen seen = {0, 0, 0};
    char buffer[8] = "xxxxxxx";
    size_t count = 9, size;
    GIVES(OK, pmemkv_count_all(db, &count));
    IS(count == 0);
    GIVES(OK, pmemkv_get_all(db, see_entry, &seen));
    GIVES(NOT_FOUND, pmemkv_get(db, "a", 1, see_value, &seen));
    GIVES(OK, pmemkv_put(db, "a", 1, "first", 5));
    GIVES(OK, pmemkv_put(db, "a", 1, "one", 3));
    GIVES(OK, pmemkv_put(db, "a\0b", 3, NULL, 0));
    GIVES(OK, pmemkv_count_all(db, &count));
    IS(count == 2);
    GIVES(OK, pmemkv_exists(db, "a", 1));
    GIVES(NOT_FOUND, pmemkv_exists(db, "b", 1));
    IS(strcmp(pmemkv_errormsg(), "the key is not there") == 0);
    GIVES(OK, pmemkv_get(db, "a", 1, see_value, &seen));
    IS(seen.calls == 1 && seen.bytes == 3);
    GIVES(OK, pmemkv_get_copy(db, "a", 1, buffer, 3, &size));
    IS(size == 3 && memcmp(buffer, "onexxxx", 8) == 0);
    GIVES(UNKNOWN_ERROR, pmemkv_get_copy(db, "a", 1, buffer + 3, 2, &size));
    IS(size == 3 && memcmp(buffer, "onexxxx", 8) == 0);
    GIVES(OK, pmemkv_get_copy(db, "a\0b", 3, NULL, 0, NULL));
    memset(&seen, 0, sizeof seen);
    GIVES(OK, pmemkv_get_all(db, see_entry, &seen));
    IS(seen.calls == 2 && seen.bytes == 1 + 3 + 3);
    memset(&seen, 0, sizeof seen);
    seen.stop_at = 1;
    GIVES(STOPPED_BY_CB, pmemkv_get_all(db, see_entry, &seen));
    IS(seen.calls == 1);
    GIVES(OK, pmemkv_remove(db, "a\0b", 3));
    GIVES(NOT_FOUND, pmemkv_remove(db, "a\0b", 3));
    GIVES(INVALID_ARGUMENT, pmemkv_get(db, "a", 1, NULL, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_get_all(db, NULL, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_get_copy(db, "a", 1, NULL, 8, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_put(db, NULL, 1, "b", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_put(db, "a", 1, NULL, 1));
    GIVES(INVALID_ARGUMENT, pmemkv_put(db, "a", SIZE_MAX, "b", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_remove(db, NULL, 1));
    GIVES(INVALID_ARGUMENT, pmemkv_exists(db, NULL, 1));
    GIVES(INVALID_ARGUMENT, pmemkv_count_all(db, NULL));
}

static void transactions(pmemkv_db *db, int is_hash)
{
    struct seen seen = {0, 0, 0};
    size_t count;
    pmemkv_tx *tx = NULL;
    int there = is_hash ? PMEMKV_STATUS_OK : PMEMKV_STATUS_NOT_FOUND;
    GIVES(OK, pmemkv_put(db, "old", 3, "1", 1));
    GIVES(OK, pmemkv_tx_begin(db, &tx));
    GIVES(OK, pmemkv_tx_put(tx, "new", 3, "one", 3));
    GIVES(OK, pmemkv_tx_remove(tx, "old", 3));
    GIVES(OK, pmemkv_tx_remove(tx, "never", 5));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_put(tx, NULL, 1, "b", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_remove(tx, NULL, 1));
    GIVES(NOT_FOUND, pmemkv_exists(db, "new", 3));
    IS(pmemkv_exists(db, "old", 3) == there);
    GIVES(OK, pmemkv_tx_commit(tx));
    IS(pmemkv_get(db, "new", 3, see_value, &seen) == there && seen.calls == is_hash);
    GIVES(NOT_FOUND, pmemkv_exists(db, "old", 3));
    /* What is aborted or not committed has not happened. */
    GIVES(OK, pmemkv_tx_remove(tx, "new", 3));
    pmemkv_tx_abort(tx);
    GIVES(OK, pmemkv_tx_commit(tx));
    GIVES(OK, pmemkv_tx_remove(tx, "new", 3));
    pmemkv_tx_end(tx);
    IS(pmemkv_exists(db, "new", 3) == there);
    IS(pmemkv_remove(db, "new", 3) == PMEMKV_STATUS_OK);
    GIVES(OK, pmemkv_count_all(db, &count));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_begin(NULL, &tx));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_begin(db, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_put(NULL, "a", 1, "b", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_remove(NULL, "a", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_tx_commit(NULL));
    pmemkv_tx_abort(NULL);
    pmemkv_tx_end(NULL);
}

static void moves(pmemkv_iterator *it, int status)
{
    IS(pmemkv_iterator_seek_lower(it, "a", 1) == status);
    IS(pmemkv_iterator_seek_lower_eq(it, "a", 1) == status);
    IS(pmemkv_iterator_seek_higher(it, "a", 1) == status);
    IS(pmemkv_iterator_seek_higher_eq(it, "a", 1) == status);
    IS(pmemkv_iterator_seek_to_first(it) == status);
    IS(pmemkv_iterator_seek_to_last(it) == status);
    IS(pmemkv_iterator_is_next(it) == status);
    IS(pmemkv_iterator_next(it) == status);
    IS(pmemkv_iterator_prev(it) == status);
}

static void iterators(pmemkv_db *db, int is_sorted)
{
    pmemkv_iterator *it = NULL;
    pmemkv_write_iterator *write = NULL;
    const char *data;
    char *room;
    size_t size;
    GIVES(OK, pmemkv_put(db, "i", 1, "0123456789", 10));
    GIVES(OK, pmemkv_iterator_new(db, &it));
    GIVES(NOT_FOUND, pmemkv_iterator_key(it, &data, &size));
    GIVES(NOT_FOUND, pmemkv_iterator_seek(it, "none", 4));
    GIVES(OK, pmemkv_iterator_seek(it, "i", 1));
    GIVES(OK, pmemkv_iterator_key(it, &data, &size));
    IS(size == 1 && data[0] == 'i');
    GIVES(OK, pmemkv_iterator_read_range(it, 3, 2, &data, &size));
    IS(size == 2 && memcmp(data, "34", 2) == 0);
    GIVES(OK, pmemkv_iterator_read_range(it, 8, SIZE_MAX, &data, &size));
    IS(size == 2 && memcmp(data, "89", 2) == 0);
    GIVES(OK, pmemkv_iterator_read_range(it, 10, 1, &data, &size));
    IS(size == 0);
    GIVES(INVALID_ARGUMENT, pmemkv_iterator_read_range(it, 11, 0, &data, &size));
    if (!is_sorted)
        moves(it, PMEMKV_STATUS_NOT_SUPPORTED);
    pmemkv_iterator_delete(it);
    GIVES(OK, pmemkv_write_iterator_new(db, &write));
    GIVES(NOT_FOUND, pmemkv_write_iterator_write_range(write, 0, 1, &room, &size));
    GIVES(NOT_FOUND, pmemkv_write_iterator_commit(write));
    GIVES(OK, pmemkv_iterator_seek(write->iter, "i", 1));
    GIVES(OK, pmemkv_write_iterator_commit(write));
    GIVES(OK, pmemkv_write_iterator_write_range(write, 1, 2, &room, &size));
    IS(size == 2);
    memcpy(room, "xy", 2);
    pmemkv_write_iterator_abort(write);
    GIVES(OK, pmemkv_write_iterator_commit(write));
    GIVES(OK, pmemkv_write_iterator_write_range(write, 1, 2, &room, &size));
    IS(memcmp(room, "12", 2) == 0);
    memcpy(room, "ab", 2);
    GIVES(OK, pmemkv_write_iterator_write_range(write, 9, 9, &room, &size));
    IS(size == 1);
    room[0] = 'z';
    GIVES(OK, pmemkv_write_iterator_commit(write));
    char buffer[10];
    GIVES(OK, pmemkv_get_copy(db, "i", 1, buffer, 10, &size));
    IS(size == 10 && memcmp(buffer, "0ab345678z", 10) == 0);
    /* Another has changed it meanwhile. */
    GIVES(OK, pmemkv_write_iterator_write_range(write, 0, 1, &room, &size));
    GIVES(OK, pmemkv_put(db, "i", 1, "another", 7));
    GIVES(UNKNOWN_ERROR, pmemkv_write_iterator_commit(write));
    GIVES(OK, pmemkv_get_copy(db, "i", 1, buffer, 10, &size));
    IS(size == 7);
    pmemkv_write_iterator_delete(write);
    GIVES(OK, pmemkv_remove(db, "i", 1));
}

static void nobody(void)
{
    size_t size;
    const char *data;
    char *room, buffer[8];
    pmemkv_iterator *it;
    pmemkv_write_iterator *write;
    struct seen seen = {0, 0, 0};
    GIVES(INVALID_ARGUMENT, pmemkv_count_all(NULL, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_count_above(NULL, "a", 1, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_count_between(NULL, "a", 1, "b", 1, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_get_all(NULL, see_entry, &seen));
    GIVES(INVALID_ARGUMENT, pmemkv_get_below(NULL, "a", 1, see_entry, &seen));
    GIVES(INVALID_ARGUMENT, pmemkv_get_between(NULL, "a", 1, "b", 1, see_entry, &seen));
    GIVES(INVALID_ARGUMENT, pmemkv_exists(NULL, "a", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_get(NULL, "a", 1, see_value, &seen));
    GIVES(INVALID_ARGUMENT, pmemkv_get_copy(NULL, "a", 1, buffer, 8, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_put(NULL, "a", 1, "b", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_remove(NULL, "a", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_defrag(NULL, 0, 100));
    GIVES(INVALID_ARGUMENT, pmemkv_iterator_new(NULL, &it));
    GIVES(INVALID_ARGUMENT, pmemkv_write_iterator_new(NULL, &write));
    GIVES(INVALID_ARGUMENT, pmemkv_iterator_seek(NULL, "a", 1));
    moves(NULL, PMEMKV_STATUS_INVALID_ARGUMENT);
    GIVES(INVALID_ARGUMENT, pmemkv_iterator_key(NULL, &data, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_iterator_read_range(NULL, 0, 1, &data, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_write_iterator_write_range(NULL, 0, 1, &room, &size));
    GIVES(INVALID_ARGUMENT, pmemkv_write_iterator_commit(NULL));
    pmemkv_write_iterator_abort(NULL);
    pmemkv_iterator_delete(NULL);
    pmemkv_write_iterator_delete(NULL);
}

static void blackhole(void)
{
    pmemkv_db *db;
    pmemkv_iterator *it;
    struct seen seen = {0, 0, 0};
    size_t count = 7;
    GIVES(OK, pmemkv_open("blackhole", pmemkv_config_new(), &db));
    GIVES(OK, pmemkv_put(db, "a", 1, "b", 1));
    GIVES(NOT_FOUND, pmemkv_get(db, "a", 1, see_value, &seen));
    GIVES(NOT_FOUND, pmemkv_get_all(db, see_entry, &seen));
    GIVES(NOT_FOUND, pmemkv_exists(db, "a", 1));
    GIVES(OK, pmemkv_remove(db, "a", 1));
    GIVES(OK, pmemkv_count_all(db, &count));
    IS(count == 0 && seen.calls == 0);
    GIVES(NOT_SUPPORTED, pmemkv_defrag(db, 0, 100));
    ranges(db, 0);
    transactions(db, 0);
    GIVES(OK, pmemkv_iterator_new(db, &it));
    GIVES(NOT_FOUND, pmemkv_iterator_seek(it, "a", 1));
    moves(it, PMEMKV_STATUS_NOT_FOUND);
    pmemkv_iterator_delete(it);
    pmemkv_close(db);
}

static void full(void)
{
    static char value[1 << 20];
    pmemkv_db *db;
    int status, key = 0;
    snprintf(path, sizeof path, "%s", directory);
    GIVES(OK, pmemkv_open("vcmap", config_of(OPEN, 16 << 20), &db));
    while ((status = pmemkv_put(db, (char *)&key, sizeof key, value, sizeof value)) == 0)
        key++;
    IS(status == PMEMKV_STATUS_OUT_OF_MEMORY && key > 4 && key < 16);
    key = 0;
    GIVES(OK, pmemkv_exists(db, (char *)&key, sizeof key));
    pmemkv_close(db);
}

static void forked(pmemkv_db *db)
{
    size_t count;
    int status;
    pid_t child = fork();
    IS(child >= 0);
    if (child == 0) {
        GIVES(UNKNOWN_ERROR, pmemkv_put(db, "a", 1, "b", 1));
        GIVES(UNKNOWN_ERROR, pmemkv_exists(db, "a", 1));
        GIVES(UNKNOWN_ERROR, pmemkv_count_all(db, &count));
        IS(strstr(pmemkv_errormsg(), "fork") != NULL);
        _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#include "sorted.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int in_file, is_sorted;
    } engines[] = {
        {"cmap", 1, 0},  {"robinhood", 1, 0}, {"vcmap", 0, 0},      {"dram_vcmap", 0, 0},
        {"csmap", 1, 1}, {"radix", 1, 1},     {"stree", 1, 1},      {"tree3", 1, 1},
        {"vsmap", 0, 1}, {"dram_vcsmap", 0, 1},
    };
    pmemkv_db *db;
    IS(argc == 2);
    snprintf(directory, sizeof directory, "%s", argv[1]);
    configs();
    openings();
    nobody();
    blackhole();
    for (size_t at = 0; at < sizeof engines / sizeof *engines; at++) {
        int in_file = engines[at].in_file, is_sorted = engines[at].is_sorted;
        snprintf(path, sizeof path, in_file ? "%s/of_%s" : "%s", directory, engines[at].name);
        pmemkv_config *config = config_of(in_file ? IF_MISSING : OPEN, 16 << 20);
        pmemkv_comparator *order = pmemkv_comparator_new(by_bytes, "bytes", NULL);
        if (is_sorted)
            pmemkv_comparator_delete(order);
        else
            GIVES(OK, pmemkv_config_put_comparator(config, order));
        GIVES(OK, pmemkv_open(engines[at].name, config, &db));
        keys(db);
        if (!is_sorted)
            ranges(db, 1);
        transactions(db, 1);
        iterators(db, is_sorted);
        if (is_sorted)
            sorted(db);
        if (in_file) {
            GIVES(OK, pmemkv_defrag(db, 0, 100));
            GIVES(INVALID_ARGUMENT, pmemkv_defrag(db, 50, 100));
            GIVES(INVALID_ARGUMENT, pmemkv_defrag(db, 0.0 / 0.0, 1));
            forked(db);
        } else {
            GIVES(NOT_SUPPORTED, pmemkv_defrag(db, 0, 100));
        }
        pmemkv_close(db);
    }
    full();
    snprintf(path, sizeof path, "%s/left", directory);
    GIVES(OK, pmemkv_open("cmap", config_of(ALWAYS, 8 << 20), &db));
    GIVES(OK, pmemkv_put(db, "ada", 3, "1815", 4));
    pmemkv_close(db);
    GIVES(OK, pmemkv_open("cmap", config_of(OPEN, 0), &db));
    GIVES(OK, pmemkv_exists(db, "ada", 3));
    pmemkv_close(db);
    return 0;
}
