/* Maps and trees of bytes: every function of theirs, beside an array that does the same. */
#include "told.h"
#include <string.h>

enum { KEYS = 60, LEN = 300 };

static pmheap_t *heap;

/* The array: the length of each key's value, and -1 for none; a value is one byte again and again. */
static int lens[KEYS];
static unsigned char fills[KEYS];

static uint64_t state = 7;

static unsigned below(unsigned end)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % end;
}

/* Keys of 1 to 40 bytes with a 0 among them, in the order of their numbers. */
static size_t key_of(int number, unsigned char *key)
{
    size_t size = 1 + (size_t)(number * 7) % 40;
    memset(key, 0, size);
    key[0] = (unsigned char)(number + 100);
    return size;
}

static uint64_t objects(void)
{
    struct pmheap_census census;
    OK(pmheap_check(heap, &census));
    return census.objects;
}

static void is_as_noted(const struct pmheap_map *map, int number)
{
    unsigned char key[40], value[LEN];
    size_t size = 77;
    size_t key_size = key_of(number, key);
    if (lens[number] < 0) {
        FAILS(PMHEAP_E_NO_KEY, pmheap_map_get(heap, map, key, key_size, value, LEN, &size));
        IS(size == 77);
        return;
    }
    OK(pmheap_map_get(heap, map, key, key_size, value, LEN, &size));
    IS(size == (size_t)lens[number]);
    for (size_t at = 0; at < size; at++)
        IS(value[at] == fills[number]);
}

struct seen {
    int last, count, stop_at;
    int in_order;
};

static int visit(void *arg, const void *key, size_t key_size, const void *value, size_t value_size)
{
    struct seen *seen = (struct seen *)arg;
    const unsigned char *bytes = (const unsigned char *)key, *fill = (const unsigned char *)value;
    unsigned char again[40];
    int number = bytes[0] - 100;
    IS(number >= 0 && number < KEYS && key_size == key_of(number, again));
    IS(memcmp(again, bytes, key_size) == 0 && (int)value_size == lens[number]);
    IS(value_size == 0 || fill[value_size - 1] == fills[number]);
    IS(!seen->in_order || number > seen->last);
    seen->last = number;
    seen->count++;
    return seen->count == seen->stop_at;
}

static int between(int from, int to)
{
    int count = 0;
    for (int number = from; number < to; number++)
        count += lens[number] >= 0;
    return count;
}

static void random_calls(uint32_t kind, const char *name)
{
    struct pmheap_map map;
    OK(pmheap_map_root(heap, name, kind, &map));
    uint64_t before = objects(), count = 0;
    unsigned char key[40], value[LEN];
    for (int number = 0; number < KEYS; number++)
        lens[number] = -1;
    for (int round = 0; round < 1000; round++) {
        int number = (int)below(KEYS);
        size_t key_size = key_of(number, key);
        int in_tx = below(2) == 0, dropped = in_tx && below(4) == 0;
        pmheap_tx_t *tx = in_tx ? pmheap_tx_begin(heap) : NULL;
        if (below(3) != 0) {
            size_t len = below(LEN);
            unsigned char fill = (unsigned char)below(256);
            memset(value, fill, len);
            if (in_tx) {
                OK(pmheap_tx_map_put(tx, &map, key, key_size, value, len));
                unsigned char again[LEN];
                size_t size = 0;
                OK(pmheap_tx_map_get(tx, &map, key, key_size, again, LEN, &size));
                IS(size == len && memcmp(again, value, len) == 0);
            } else {
                OK(pmheap_map_put(heap, &map, key, key_size, value, len));
            }
            if (!dropped) {
                lens[number] = (int)len;
                fills[number] = fill;
            }
        } else {
            enum pmheap_code code = in_tx ? pmheap_tx_map_remove(tx, &map, key, key_size)
                                          : pmheap_map_remove(heap, &map, key, key_size);
            IS(code == (lens[number] < 0 ? PMHEAP_E_NO_KEY : PMHEAP_OK));
            if (in_tx) {
                FAILS(PMHEAP_E_NO_KEY, pmheap_tx_map_get(tx, &map, key, key_size, NULL, 0, NULL));
                OK(pmheap_tx_map_count(tx, &map, &count));
            }
            if (!dropped)
                lens[number] = -1;
        }
        if (in_tx)
            OK(dropped ? pmheap_tx_abort(tx) : pmheap_tx_commit(tx));
        is_as_noted(&map, number);
        is_as_noted(&map, (int)below(KEYS));
    }
    OK(pmheap_map_count(heap, &map, &count));
    IS(count == (uint64_t)between(0, KEYS) && count > 10);
    struct seen seen = {-1, 0, 0, kind == PMHEAP_TREE};
    OK(pmheap_map_each(heap, &map, NULL, NULL, visit, &seen));
    IS((uint64_t)seen.count == count);
    struct seen some = {-1, 0, 5, kind == PMHEAP_TREE};
    FAILS(PMHEAP_E_STOPPED, pmheap_map_each(heap, &map, NULL, NULL, visit, &some));
    IS(some.count == 5);
    unsigned char end[40];
    struct pmheap_bytes low = {key, key_of(20, key)}, high = {end, key_of(40, end)};
    if (kind == PMHEAP_TREE) {
        struct seen part = {-1, 0, 0, 1};
        OK(pmheap_map_each(heap, &map, &low, &high, visit, &part));
        IS(part.count == between(20, 40) && part.last < 40);
    } else {
        FAILS(PMHEAP_E_ARGUMENT, pmheap_map_each(heap, &map, &low, NULL, visit, &seen));
    }
    OK(pmheap_map_clear(heap, &map));
    OK(pmheap_map_count(heap, &map, &count));
    IS(count == 0 && objects() == before);
    OK(pmheap_map_put(heap, &map, "", 0, NULL, 0));
    size_t size = 77;
    OK(pmheap_map_get(heap, &map, NULL, 0, NULL, 0, &size));
    IS(size == 0);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_map_clear(tx, &map));
    OK(pmheap_tx_commit(tx));
    IS(objects() == before);
}

/* Heads in a struct of the program's, which it edits too. */
static void in_a_struct(void)
{
    struct both {
        uint64_t count;
        uint64_t map[8];
        uint64_t tree[3];
    };
    const struct pmheap_field fields[] = {
        {"count", "u64", 0, 0, 0}, {"map", "PMap", 0, 8, 0}, {"tree", "PTree", 0, 72, 0}};
    uint64_t type = pmheap_type_struct(fields, 3, sizeof(struct both));
    uint64_t object = pmheap_root(heap, "both", sizeof(struct both), type);
    IS(object != 0);
    struct pmheap_map map = {object, 8, PMHEAP_MAP, 0}, tree = {object, 72, PMHEAP_TREE, 0};
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    struct both *both = (struct both *)pmheap_tx_edit(tx, object, 0, sizeof *both);
    both->count = 2;
    OK(pmheap_tx_map_put(tx, &map, "one", 3, "first", 5));
    OK(pmheap_tx_map_put(tx, &tree, "two", 3, "second", 6));
    IS(both->count == 2 && both->map[0] == 1 && both->tree[1] == 1);
    OK(pmheap_tx_commit(tx));
    uint64_t count = 0;
    OK(pmheap_map_count(heap, &map, &count));
    IS(count == 1);
    char value[6] = "first";
    size_t size = 0;
    FAILS(PMHEAP_E_SHORT, pmheap_map_get(heap, &tree, "two", 3, value, 5, &size));
    IS(memcmp(value, "first", 5) == 0 && size == 6);
    OK(pmheap_map_get(heap, &tree, "two", 3, value, 6, NULL));
    IS(memcmp(value, "second", 6) == 0);
    OK(pmheap_read(heap, object, 0, &count, 8));
    IS(count == 2);
}

static void what_is_wrong_is_told(void)
{
    struct pmheap_map map, other;
    OK(pmheap_map_root(heap, "a map", PMHEAP_MAP, &map));
    FAILS(PMHEAP_E_TYPE, pmheap_map_root(heap, "a map", PMHEAP_TREE, &other));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_map_root(heap, "else", 3, &other));
    FAILS(PMHEAP_E_NULL, pmheap_map_root(heap, "a map", PMHEAP_MAP, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_map_root(heap, NULL, PMHEAP_MAP, &other));
    FAILS(PMHEAP_E_NULL, pmheap_map_put(heap, NULL, "a", 1, "b", 1));
    FAILS(PMHEAP_E_NULL, pmheap_map_put(heap, &map, NULL, 1, "b", 1));
    FAILS(PMHEAP_E_NULL, pmheap_map_put(heap, &map, "a", 1, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmheap_map_count(heap, &map, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_map_each(heap, &map, NULL, NULL, NULL, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_map_clear(NULL, &map));
    FAILS(PMHEAP_E_NULL, pmheap_tx_map_clear(NULL, &map));
    OK(pmheap_map_put(heap, &map, "a", 1, "b", 1));
    FAILS(PMHEAP_E_NULL, pmheap_map_get(heap, &map, "a", 1, NULL, 1, NULL));
    other = map;
    other.kind = 0;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_map_remove(heap, &other, "a", 1));
    other = map;
    other.reserved = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_map_clear(heap, &other));
    other = map;
    other.start = 4;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_map_clear(heap, &other));
    other.start = 8;
    FAILS(PMHEAP_E_RANGE, pmheap_map_clear(heap, &other));
    other.start = UINT64_MAX - 7;
    FAILS(PMHEAP_E_RANGE, pmheap_map_count(heap, &other, &other.object));
    other = map;
    other.object += 16;
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_map_put(heap, &other, "a", 1, "b", 1));
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    FAILS(PMHEAP_E_NESTED, pmheap_map_put(heap, &map, "a", 1, "b", 1));
    size_t size = 0;
    FAILS(PMHEAP_E_SHORT, pmheap_map_get(heap, &map, "a", 1, NULL, 0, &size));
    IS(size == 1);
    FAILS(PMHEAP_E_NO_KEY, pmheap_tx_map_remove(tx, &map, "c", 1));
    OK(pmheap_tx_map_remove(tx, &map, "a", 1));
    OK(pmheap_tx_commit(tx));
}

int main(int argc, char **argv)
{
    IS(argc == 2);
    heap = pmheap_create(argv[1], NULL);
    IS(heap != NULL);
    random_calls(PMHEAP_MAP, "map");
    random_calls(PMHEAP_TREE, "tree");
    in_a_struct();
    what_is_wrong_is_told();
    OK(pmheap_close(heap));
    return 0;
}
