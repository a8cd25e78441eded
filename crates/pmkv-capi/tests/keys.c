/* Every function of engines, every code that they have, and calls that are wrong in every way that
 * can be told. The heap is left with the engine "left", which has two keys. */
#include "told.h"
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pmheap_t *heap;
static pmkv_t *kv;

static int has(const char *key, const void *value, size_t size)
{
    char into[64];
    size_t found = 99;
    enum pmheap_code code = pmkv_get(kv, key, strlen(key), into, sizeof into, &found);
    return code == PMHEAP_OK && found == size && memcmp(into, value, size) == 0;
}

static uint64_t count(void)
{
    uint64_t keys = UINT64_MAX;
    OK(pmkv_count(kv, &keys));
    return keys;
}

static void puts_and_gets(void)
{
    char into[8] = "xxxxxxx";
    size_t size = 99;
    OK(pmkv_put(kv, "a", 1, "one", 3));
    IS(has("a", "one", 3));
    OK(pmkv_put(kv, "a", 1, "two", 3));
    IS(has("a", "two", 3));
    OK(pmkv_get(kv, "a", 1, into, 3, NULL));
    IS(memcmp(into, "twoxxxx", 8) == 0);
    FAILS(PMHEAP_E_SHORT, pmkv_get(kv, "a", 1, into + 3, 2, &size));
    IS(size == 3 && memcmp(into, "twoxxxx", 8) == 0);
    FAILS(PMHEAP_E_SHORT, pmkv_get(kv, "a", 1, NULL, 0, &size));
    FAILS(PMHEAP_E_NO_KEY, pmkv_get(kv, "b", 1, into, 8, &size));
    IS(size == 3);
    /* No bytes are a key, and a value; NUL is a byte like others. */
    OK(pmkv_put(kv, NULL, 0, NULL, 0));
    OK(pmkv_get(kv, NULL, 0, NULL, 0, &size));
    IS(size == 0);
    OK(pmkv_put(kv, "\0a", 2, "\0", 1));
    OK(pmkv_get(kv, "\0a", 2, into, 1, &size));
    FAILS(PMHEAP_E_NO_KEY, pmkv_get(kv, "\0b", 2, into, 1, &size));
    IS(count() == 3);
    OK(pmkv_delete(kv, "\0a", 2));
    FAILS(PMHEAP_E_NO_KEY, pmkv_delete(kv, "\0a", 2));
    OK(pmkv_delete(kv, NULL, 0));
    IS(count() == 1);
}

static void conditions(void)
{
    const int MISSING = PMKV_MISSING, PRESENT = PMKV_PRESENT, VALUE = PMKV_VALUE;
    FAILS(PMHEAP_E_EXPECTED, pmkv_put_if(kv, "c", 1, PRESENT, NULL, 0, "1", 1));
    FAILS(PMHEAP_E_EXPECTED, pmkv_put_if(kv, "c", 1, VALUE, NULL, 0, "1", 1));
    FAILS(PMHEAP_E_NO_KEY, pmkv_delete(kv, "c", 1));
    OK(pmkv_put_if(kv, "c", 1, MISSING, NULL, 0, "1", 1));
    FAILS(PMHEAP_E_EXPECTED, pmkv_put_if(kv, "c", 1, MISSING, NULL, 0, "2", 1));
    IS(has("c", "1", 1));
    OK(pmkv_put_if(kv, "c", 1, PRESENT, NULL, 0, "2", 1));
    FAILS(PMHEAP_E_EXPECTED, pmkv_put_if(kv, "c", 1, VALUE, "1", 1, "3", 1));
    FAILS(PMHEAP_E_EXPECTED, pmkv_put_if(kv, "c", 1, VALUE, "22", 2, "3", 1));
    IS(has("c", "2", 1));
    OK(pmkv_put_if(kv, "c", 1, VALUE, "2", 1, "3", 1));
    IS(has("c", "3", 1));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_put_if(kv, "c", 1, 3, "3", 1, "4", 1));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_put_if(kv, "c", 1, -1, "3", 1, "4", 1));
    IS(has("c", "3", 1));
    OK(pmkv_delete(kv, "c", 1));
}

static void expiring(void)
{
    uint64_t expires = 7, now, purged = 7;
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    now = (uint64_t)clock.tv_sec * 1000 + (uint64_t)clock.tv_nsec / 1000000;
    OK(pmkv_put_ttl(kv, "t", 1, "soon", 4, 3600 * 1000));
    OK(pmkv_expiry(kv, "t", 1, &expires));
    IS(expires >= now + 3600 * 1000 && expires <= now + 3660 * 1000);
    IS(has("t", "soon", 4));
    OK(pmkv_put_ttl(kv, "t", 1, "gone", 4, 0));
    FAILS(PMHEAP_E_NO_KEY, pmkv_expiry(kv, "t", 1, &expires));
    FAILS(PMHEAP_E_NO_KEY, pmkv_delete(kv, "t", 1));
    OK(pmkv_put_ttl(kv, "u", 1, "gone", 4, 0));
    OK(pmkv_put_ttl(kv, "v", 1, "stays", 5, UINT64_MAX));
    OK(pmkv_expiry(kv, "v", 1, &expires));
    IS(expires == UINT64_MAX);
    OK(pmkv_purge_expired(kv, &purged));
    IS(purged == 1);
    OK(pmkv_purge_expired(kv, NULL));
    OK(pmkv_put(kv, "v", 1, "stays", 5));
    OK(pmkv_expiry(kv, "v", 1, &expires));
    IS(expires == 0);
    OK(pmkv_delete(kv, "v", 1));
    FAILS(PMHEAP_E_NULL, pmkv_expiry(kv, "v", 1, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_put_ttl(kv, NULL, 1, "b", 1, 1));
    FAILS(PMHEAP_E_NULL, pmkv_put_ttl(kv, "a", 1, NULL, 1, 1));
}

static struct pmkv_change put_of(const char *key, const char *value, uint64_t expires)
{
    struct pmkv_change change = {PMKV_PUT, 0, key, strlen(key), value, strlen(value), expires};
    return change;
}

static struct pmkv_change delete_of(const char *key)
{
    struct pmkv_change change = {PMKV_DELETE, 0, key, strlen(key), NULL, 0, 0};
    return change;
}

static void batches(void)
{
    static struct pmkv_change many[65536];
    uint64_t expires = 7, before = count();
    struct pmkv_change changes[] = {put_of("x", "1", 0), put_of("y", "2", UINT64_MAX),
                                    put_of("x", "3", 0), delete_of("never"), put_of("z", "4", 1)};
    OK(pmkv_batch(kv, changes, 5));
    IS(has("x", "3", 1) && has("y", "2", 1) && count() == before + 2);
    OK(pmkv_expiry(kv, "y", 1, &expires));
    IS(expires == UINT64_MAX);
    changes[0] = delete_of("x");
    changes[1] = delete_of("y");
    /* One that is wrong, and none happens. */
    changes[2].kind = 2;
    FAILS(PMHEAP_E_ARGUMENT, pmkv_batch(kv, changes, 3));
    changes[2] = put_of("w", "1", 0);
    changes[2].reserved = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmkv_batch(kv, changes, 3));
    changes[2] = delete_of("a");
    changes[2].expires = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmkv_batch(kv, changes, 3));
    changes[2] = delete_of("a");
    changes[2].value_size = 1;
    FAILS(PMHEAP_E_NULL, pmkv_batch(kv, changes, 3));
    changes[2].value = "b";
    FAILS(PMHEAP_E_ARGUMENT, pmkv_batch(kv, changes, 3));
    changes[2] = put_of("w", "1", 0);
    changes[2].key_size = (64 << 10) + 1;
    changes[2].key = many;
    FAILS(PMHEAP_E_TOO_LARGE, pmkv_batch(kv, changes, 3));
    changes[2].key = NULL;
    FAILS(PMHEAP_E_NULL, pmkv_batch(kv, changes, 3));
    FAILS(PMHEAP_E_NULL, pmkv_batch(kv, NULL, 1));
    IS(has("x", "3", 1) && has("y", "2", 1) && count() == before + 2);
    OK(pmkv_batch(kv, changes, 2));
    IS(count() == before);
    OK(pmkv_batch(kv, NULL, 0));
    OK(pmkv_purge_expired(kv, &expires));
    IS(expires == 1);
    for (int at = 0; at < 65536; at++)
        many[at] = delete_of("never");
    OK(pmkv_batch(kv, many, 65535));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_batch(kv, many, 65536));
    IS(strstr(pmheap_error(), "65,535") != NULL);
}

struct seen {
    uint64_t keys, bytes, stop_at;
};

static int see_value(void *argument, const void *value, size_t size)
{
    struct seen *seen = (struct seen *)argument;
    IS(value != NULL);
    seen->bytes += size;
    /* Calls in a callback, also of its own kind, and to close what is in use by it. */
    if (seen->stop_at == 1) {
        seen->stop_at = 0;
        OK(pmkv_get_with(kv, "a", 1, see_value, seen));
        IS(has("a", "two", 3));
        seen->stop_at = 1;
    }
    return (int)seen->stop_at;
}

static int see_entry(void *argument, const void *key, size_t key_size, const void *value,
                     size_t value_size)
{
    struct seen *seen = (struct seen *)argument;
    IS(key != NULL && value != NULL);
    seen->keys++;
    seen->bytes += key_size + value_size;
    OK(pmkv_put(kv, key, key_size, value, value_size));
    FAILS(PMHEAP_E_IN_USE, pmkv_close(kv));
    FAILS(PMHEAP_E_IN_USE, pmheap_close(heap));
    return seen->keys == seen->stop_at ? -7 : 0;
}

static void callbacks(void)
{
    struct seen seen = {0, 0, 0};
    OK(pmkv_get_with(kv, "a", 1, see_value, &seen));
    IS(seen.bytes == 3);
    seen.stop_at = 1;
    FAILS(PMHEAP_E_STOPPED, pmkv_get_with(kv, "a", 1, see_value, &seen));
    IS(seen.bytes == 9);
    FAILS(PMHEAP_E_NO_KEY, pmkv_get_with(kv, "b", 1, see_value, &seen));
    for (int key = 0; key < 1000; key++)
        OK(pmkv_put(kv, &key, sizeof key, &key, sizeof key));
    memset(&seen, 0, sizeof seen);
    OK(pmkv_each(kv, see_entry, &seen));
    IS(seen.keys == 1001 && seen.bytes == 4 + 8 * 1000);
    memset(&seen, 0, sizeof seen);
    seen.stop_at = 5;
    FAILS(PMHEAP_E_STOPPED, pmkv_each(kv, see_entry, &seen));
    IS(seen.keys == 5);
}

struct order {
    char keys[16];
    size_t count;
};

static int append_key(void *argument, const void *key, size_t key_size, const void *value,
                      size_t value_size)
{
    struct order *order = (struct order *)argument;
    IS(key_size == 1 && value != NULL && value_size == 1);
    order->keys[order->count++] = *(const char *)key;
    return 0;
}

static int in_order(const char *from, const char *to, const char *keys)
{
    struct order order = {"", 0};
    OK(pmkv_each_between(kv, from, from ? strlen(from) : 0, to, to ? strlen(to) : 0, append_key, &order));
    return strcmp(order.keys, keys) == 0;
}

static void trees(void)
{
    struct pmkv_options options;
    pmkv_t *hash = kv;
    memset(&options, 0, sizeof options);
    options.kind = PMKV_TREE;
    FAILS(PMHEAP_E_SHAPE, pmkv_open(heap, "kv", &options));
    kv = pmkv_open(heap, "tree", &options);
    IS(kv != NULL);
    FAILS(PMHEAP_E_SHAPE, pmkv_open(heap, "tree", NULL));
    for (const char *key = "hcaegbdf"; *key != 0; key++)
        OK(pmkv_put(kv, key, 1, "v", 1));
    IS(in_order(NULL, NULL, "abcdefgh"));
    IS(in_order("c", "f", "cde"));
    IS(in_order("bb", NULL, "cdefgh"));
    IS(in_order(NULL, "b", "a"));
    IS(in_order("f", "c", "") && in_order(NULL, "", ""));
    FAILS(PMHEAP_E_NULL, pmkv_each_between(kv, NULL, 1, NULL, 0, append_key, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_each_between(kv, NULL, 0, NULL, 1, append_key, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_each_between(kv, NULL, 0, NULL, 0, NULL, NULL));
    OK(pmkv_delete(kv, "d", 1));
    IS(in_order("c", "f", "ce") && count() == 7 && has("a", "v", 1));
    OK(pmkv_clear(kv, NULL));
    OK(pmkv_close(kv));
    kv = hash;
}

static void stats_and_clear(void)
{
    struct pmkv_stats stats;
    uint64_t cleared = 0;
    OK(pmkv_stats(kv, &stats));
    IS(stats.keys == 1001 && stats.index_chunks >= 1 && stats.slots > stats.keys);
    IS(stats.record_runs >= 1 && stats.record_bytes >= stats.keys * 64);
    OK(pmkv_clear(kv, &cleared));
    IS(cleared == 1001 && count() == 0);
    OK(pmkv_clear(kv, NULL));
}

static void sizes(void)
{
    static char key[(64 << 10) + 1], value[1 << 20], back[1 << 20];
    size_t size;
    memset(key, 'k', sizeof key);
    for (size_t at = 0; at < sizeof value; at++)
        value[at] = (char)(at * 7);
    for (size_t of = 1; of <= sizeof value; of *= 4) {
        OK(pmkv_put(kv, key, 64 << 10, value, of));
        OK(pmkv_get(kv, key, 64 << 10, back, of, &size));
        IS(size == of && memcmp(value, back, of) == 0);
    }
    FAILS(PMHEAP_E_TOO_LARGE, pmkv_put(kv, key, sizeof key, value, 1));
    FAILS(PMHEAP_E_TOO_LARGE, pmkv_delete(kv, key, sizeof key));
    FAILS(PMHEAP_E_NO_KEY, pmkv_get(kv, key, sizeof key, back, 1, &size));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_put(kv, key, SIZE_MAX, value, 1));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_put(kv, key, 1, value, SIZE_MAX));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_get(kv, key, 1, back, SIZE_MAX, &size));
    OK(pmkv_delete(kv, key, 64 << 10));
}

/* The calls on an engine, all of which give the same code. */
static void all_give(enum pmheap_code code, pmkv_t *wrong)
{
    struct pmkv_stats stats;
    struct seen seen = {0, 0, 0};
    uint64_t keys;
    char into[8];
    FAILS(code, pmkv_get(wrong, "a", 1, into, 8, NULL));
    FAILS(code, pmkv_get_with(wrong, "a", 1, see_value, &seen));
    FAILS(code, pmkv_put(wrong, "a", 1, "b", 1));
    FAILS(code, pmkv_put_if(wrong, "a", 1, PMKV_MISSING, NULL, 0, "b", 1));
    FAILS(code, pmkv_delete(wrong, "a", 1));
    FAILS(code, pmkv_put_ttl(wrong, "a", 1, "b", 1, 1));
    FAILS(code, pmkv_expiry(wrong, "a", 1, &keys));
    FAILS(code, pmkv_purge_expired(wrong, NULL));
    FAILS(code, pmkv_batch(wrong, NULL, 0));
    FAILS(code, pmkv_each(wrong, see_entry, &seen));
    FAILS(code, pmkv_clear(wrong, NULL));
    FAILS(code, pmkv_count(wrong, &keys));
    FAILS(code, pmkv_stats(wrong, &stats));
}

static void wrong_calls(void)
{
    struct pmkv_options options;
    char into[8], name[257];
    memset(&options, 0, sizeof options);
    FAILS(PMHEAP_E_NULL, pmkv_put(kv, NULL, 1, "b", 1));
    FAILS(PMHEAP_E_NULL, pmkv_put(kv, "a", 1, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmkv_put_if(kv, NULL, 1, PMKV_MISSING, NULL, 0, "b", 1));
    FAILS(PMHEAP_E_NULL, pmkv_put_if(kv, "a", 1, PMKV_MISSING, NULL, 0, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmkv_put_if(kv, "a", 1, PMKV_VALUE, NULL, 1, "b", 1));
    FAILS(PMHEAP_E_NULL, pmkv_get(kv, NULL, 1, into, 8, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_get(kv, "a", 1, NULL, 8, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_get_with(kv, NULL, 1, see_value, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_get_with(kv, "a", 1, NULL, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_delete(kv, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmkv_each(kv, NULL, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_count(kv, NULL));
    FAILS(PMHEAP_E_NULL, pmkv_stats(kv, NULL));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_stats(kv, (struct pmkv_stats *)(void *)(name + 1)));
    FAILS(PMHEAP_E_NULL, pmkv_open(NULL, "kv", NULL));
    FAILS(PMHEAP_E_NULL, pmkv_open(heap, NULL, NULL));
    FAILS(PMHEAP_E_HANDLE, pmkv_open((pmheap_t *)kv, "kv", NULL));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_open(heap, "\xff", NULL));
    memset(name, 'n', sizeof name - 1);
    name[256] = 0;
    FAILS(PMHEAP_E_NAME, pmkv_open(heap, name, NULL));
    FAILS(PMHEAP_E_NAME, pmkv_open(heap, "", NULL));
    options.kind = 77;
    FAILS(PMHEAP_E_ARGUMENT, pmkv_open(heap, "kv", &options));
    options.kind = PMKV_HASH;
    options.reserved[5] = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmkv_open(heap, "kv", &options));
    options.reserved[5] = 0;
    options.must_exist = 1;
    FAILS(PMHEAP_E_NO_KEY, pmkv_open(heap, "nobody", &options));
    IS(pmheap_root(heap, "other", 16, 7) != 0);
    FAILS(PMHEAP_E_TYPE, pmkv_open(heap, "other", NULL));
    /* NULL, a pointer to something else, and a handle of another kind. */
    pmkv_t *rows[] = {NULL, (pmkv_t *)(void *)into, (pmkv_t *)(void *)heap};
    for (size_t row = 0; row < 3; row++) {
        enum pmheap_code code = row == 0 ? PMHEAP_E_NULL : PMHEAP_E_HANDLE;
        all_give(code, rows[row]);
        FAILS(code, pmkv_close(rows[row]));
    }
    /* A thread's transaction of the heap. */
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    FAILS(PMHEAP_E_NESTED, pmkv_put(kv, "a", 1, "b", 1));
    OK(pmheap_tx_abort(tx));
}

static void many(void)
{
    pmkv_t *each[256];
    int made = 0;
    while (made < 256 && (each[made] = pmkv_open(heap, "kv", NULL)) != NULL)
        made++;
    IS(made == 255 && pmheap_last_code() == PMHEAP_E_ENGINES);
    while (made-- > 0)
        OK(pmkv_close(each[made]));
}

static void forked(void)
{
    int status;
    pid_t child = fork();
    IS(child >= 0);
    if (child == 0) {
        all_give(PMHEAP_E_FORKED, kv);
        FAILS(PMHEAP_E_FORKED, pmkv_open(heap, "kv", NULL));
        OK(pmkv_close(kv));
        all_give(PMHEAP_E_HANDLE, kv);
        _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void texts(void)
{
    for (int code = -1; code < 70; code++) {
        const char *text = pmkv_strerror(code);
        IS(text != NULL && text[0] != 0);
    }
    IS(strcmp(pmkv_strerror(PMHEAP_E_NO_KEY), "the key is not there") == 0);
    IS(strcmp(pmkv_strerror(INT_MAX), "no such code") == 0);
    FAILS(PMHEAP_E_NO_KEY, pmkv_delete(kv, "b", 1));
    IS(strcmp(pmheap_error(), "the key is not there") == 0);
    FAILS(PMHEAP_E_TYPE, pmkv_open(heap, "other", NULL));
    IS(strstr(pmheap_error(), "other") != NULL);
}

/* Replaces a key until a writer has found out that a reader's time is over. */
static void readers(void)
{
    const void *value = NULL, *second = NULL;
    size_t size = 0;
    pmkv_reader_t *reader = pmkv_reader_open(kv, UINT64_MAX);
    IS(reader != NULL);
    OK(pmkv_put(kv, "read", 4, "one", 3));
    OK(pmkv_reader_get(reader, "read", 4, &value, &size));
    IS(size == 3 && memcmp(value, "one", 3) == 0);
    for (int nth = 0; nth < 5000; nth++)
        OK(pmkv_put(kv, "read", 4, &nth, sizeof nth));
    IS(memcmp(value, "one", 3) == 0);
    OK(pmkv_reader_check(reader));
    OK(pmkv_reader_get(reader, "read", 4, &second, &size));
    IS(size == sizeof(int) && second != value);
    FAILS(PMHEAP_E_NO_KEY, pmkv_reader_get(reader, "nobody", 6, &value, &size));
    FAILS(PMHEAP_E_NULL, pmkv_reader_get(reader, NULL, 4, &value, &size));
    FAILS(PMHEAP_E_NULL, pmkv_reader_get(reader, "read", 4, NULL, &size));
    FAILS(PMHEAP_E_NULL, pmkv_reader_get(reader, "read", 4, &value, NULL));
    FAILS(PMHEAP_E_IN_USE, pmkv_close(kv));
    pmkv_reader_t *short_one = pmkv_reader_open(kv, 0);
    OK(pmkv_reader_get(short_one, "read", 4, &value, &size));
    OK(pmkv_reader_close(reader));
    for (int nth = 0; pmkv_reader_check(short_one) == PMHEAP_OK; nth++) {
        IS(nth < 1000000);
        OK(pmkv_put(kv, "read", 4, &nth, sizeof nth));
    }
    FAILS(PMHEAP_E_ENDED, pmkv_reader_get(short_one, "read", 4, &value, &size));
    OK(pmkv_reader_close(short_one));
    FAILS(PMHEAP_E_HANDLE, pmkv_reader_check(short_one));
    FAILS(PMHEAP_E_HANDLE, pmkv_reader_close(reader));
    IS(pmkv_reader_open(NULL, 0) == NULL);
    OK(pmkv_delete(kv, "read", 4));
}

/* Counts entries in an int. */
static int counted(void *argument, const void *key, size_t key_size, const void *value,
                   size_t value_size)
{
    IS(key != NULL && value != NULL && key_size > 0 && value_size > 0);
    ++*(int *)argument;
    return 0;
}

/* Snapshots of a hash and a tree, beside later puts, and one whose time is over. */
static void snapshots(void)
{
    struct pmkv_options options;
    memset(&options, 0, sizeof options);
    options.kind = PMKV_TREE;
    pmkv_t *tree = pmkv_open(heap, "seen", &options);
    IS(tree != NULL);
    OK(pmkv_clear(kv, NULL));
    for (char key = 'a'; key <= 'e'; key++) {
        OK(pmkv_put(kv, &key, 1, "one", 3));
        OK(pmkv_put(tree, &key, 1, "one", 3));
    }
    pmkv_t *both[] = {tree, kv}, *twice[] = {kv, kv};
    pmkv_snapshot_t *seen[2] = {NULL, NULL};
    OK(pmkv_snapshots_open(both, 2, UINT64_MAX, seen));
    pmkv_snapshot_t *brief = pmkv_snapshot_open(kv, 0);
    IS(brief != NULL);
    for (int nth = 0; nth < 5000; nth++)
        OK(pmkv_put(kv, "b", 1, &nth, sizeof nth));
    OK(pmkv_delete(kv, "c", 1));
    OK(pmkv_delete(tree, "a", 1));
    for (int nth = 0; nth < 2; nth++) {
        char value[3];
        size_t size = 0;
        uint64_t count = 0;
        int shown = 0;
        OK(pmkv_snapshot_get(seen[nth], nth ? "b" : "a", 1, value, sizeof value, &size));
        IS(size == 3 && memcmp(value, "one", 3) == 0);
        FAILS(PMHEAP_E_NO_KEY, pmkv_snapshot_get(seen[nth], "x", 1, value, 3, &size));
        FAILS(PMHEAP_E_SHORT, pmkv_snapshot_get(seen[nth], "a", 1, value, 2, &size));
        FAILS(PMHEAP_E_NULL, pmkv_snapshot_get(seen[nth], NULL, 1, value, 2, &size));
        OK(pmkv_snapshot_count(seen[nth], &count));
        IS(count == 5);
        OK(pmkv_snapshot_each(seen[nth], counted, &shown));
        OK(pmkv_snapshot_each_between(seen[nth], "b", 1, "d", 1, counted, &shown));
        OK(pmkv_snapshot_each_between(seen[nth], "d", 1, NULL, 0, counted, &shown));
        IS(shown == 9);
        FAILS(PMHEAP_E_NULL, pmkv_snapshot_each(seen[nth], NULL, NULL));
        FAILS(PMHEAP_E_NULL, pmkv_snapshot_count(seen[nth], NULL));
    }
    FAILS(PMHEAP_E_IN_USE, pmkv_close(tree));
    FAILS(PMHEAP_E_ARGUMENT, pmkv_snapshots_open(twice, 2, 0, seen));
    FAILS(PMHEAP_E_NULL, pmkv_snapshots_open(both, 2, 0, NULL));
    OK(pmkv_snapshots_open(NULL, 0, 0, NULL));
    OK(pmkv_snapshot_close(seen[0]));
    OK(pmkv_snapshot_close(seen[1]));
    FAILS(PMHEAP_E_HANDLE, pmkv_snapshot_close(seen[0]));
    uint64_t count = 0;
    for (int nth = 0; pmkv_snapshot_count(brief, &count) == PMHEAP_OK; nth++) {
        IS(nth < 1000000);
        OK(pmkv_put(kv, "b", 1, &nth, sizeof nth));
    }
    FAILS(PMHEAP_E_ENDED, pmkv_snapshot_count(brief, &count));
    OK(pmkv_snapshot_close(brief));
    IS(pmkv_snapshot_open(NULL, 0) == NULL);
    OK(pmkv_clear(tree, NULL));
    OK(pmkv_close(tree));
    OK(pmkv_clear(kv, NULL));
}

int main(int argc, char **argv)
{
    struct pmheap_options options;
    struct pmkv_options must;
    IS(argc == 2);
    memset(&options, 0, sizeof options);
    memset(&must, 0, sizeof must);
    must.must_exist = 1;
    options.size = 4 << 20;
    heap = pmheap_create(argv[1], &options);
    kv = pmkv_open(heap, "kv", NULL);
    IS(kv != NULL);
    puts_and_gets();
    conditions();
    expiring();
    batches();
    pmkv_t *hash = kv;
    struct pmkv_options tree;
    memset(&tree, 0, sizeof tree);
    tree.kind = PMKV_TREE;
    kv = pmkv_open(heap, "a tree", &tree);
    IS(kv != NULL);
    OK(pmkv_put(kv, "a", 1, "two", 3));
    expiring();
    batches();
    OK(pmkv_close(kv));
    kv = hash;
    readers();
    callbacks();
    trees();
    stats_and_clear();
    snapshots();
    sizes();
    wrong_calls();
    many();
    forked();
    texts();
    FAILS(PMHEAP_E_IN_USE, pmheap_close(heap));
    pmkv_t *closed = kv;
    OK(pmkv_close(kv));
    all_give(PMHEAP_E_HANDLE, closed);
    FAILS(PMHEAP_E_HANDLE, pmkv_close(closed));
    kv = pmkv_open(heap, "left", NULL);
    OK(pmkv_put(kv, "ada", 3, "1815", 4));
    OK(pmkv_put(kv, "alan", 4, "1912", 4));
    OK(pmkv_close(kv));
    OK(pmheap_close(heap));
    heap = pmheap_open(argv[1], NULL);
    kv = pmkv_open(heap, "left", &must);
    IS(has("ada", "1815", 4) && count() == 2);
    OK(pmkv_close(kv));
    OK(pmheap_close(heap));
    return 0;
}
