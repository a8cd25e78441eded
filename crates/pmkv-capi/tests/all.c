/* Every function of pmkv.h, and what a transaction promises: in one process. */
#include "told.h"
#include <string.h>

static pmheap_t *heap;

static uint64_t word_of(uint64_t object, uint64_t start)
{
    uint64_t word = 0;
    OK(pmheap_read(heap, object, start, &word, sizeof word));
    return word;
}

static uint64_t count(void)
{
    struct pmheap_census census;
    OK(pmheap_check(heap, &census));
    struct pmheap_stat stat;
    OK(pmheap_stat(heap, &stat));
    IS(census.object_bytes + census.spare_bytes + census.free_bytes + census.own_bytes ==
       stat.bytes);
    return census.objects;
}

static uint64_t make(uint64_t size)
{
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    uint64_t object = pmheap_tx_alloc(tx, size);
    IS(object != 0);
    OK(pmheap_tx_commit(tx));
    return object;
}

static void all_or_nothing(void)
{
    uint64_t objects = count();
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    IS(tx != NULL);
    uint64_t object = pmheap_tx_alloc(tx, 100);
    IS(object != 0 && object % 16 == 0);
    IS(pmheap_tx_size_of(tx, object) == 112);
    uint64_t *words = (uint64_t *)pmheap_tx_edit(tx, object, 0, 100);
    IS(words != NULL && words[0] == 0 && words[11] == 0);
    words[1] = 7;
    OK(pmheap_tx_set_root(tx, object));
    /* Nobody sees it before. */
    IS(pmheap_root_object(heap) == 0 && pmheap_last_code() == PMHEAP_OK);
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_size_of(heap, object));
    OK(pmheap_tx_commit(tx));
    IS(pmheap_root_object(heap) == object && word_of(object, 8) == 7);
    IS(pmheap_size_of(heap, object) == 112);
    IS(count() == objects + 1);

    tx = pmheap_tx_begin(heap);
    words = (uint64_t *)pmheap_tx_edit(tx, object, 8, 8);
    words[0] = 8;
    IS(pmheap_tx_alloc(tx, 100000) != 0);
    OK(pmheap_tx_abort(tx));
    IS(word_of(object, 8) == 7 && count() == objects + 1);

    tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_set_root(tx, 0));
    OK(pmheap_tx_free(tx, object));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_tx_edit(tx, object, 0, 8));
    OK(pmheap_tx_commit(tx));
    IS(pmheap_root_object(heap) == 0 && count() == objects);
}

/* Several copies stay where they are, whatever else is asked for; reads and writes agree with them. */
static void copies(void)
{
    enum { MANY = 300 };
    uint64_t object = make(8 * MANY), large = make(1 << 20);
    unsigned char *each[MANY], byte, bytes[64];
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    for (int at = 0; at < MANY; at++) {
        each[at] = (unsigned char *)pmheap_tx_edit(tx, object, 8 * at + at % 7, 1);
        IS(each[at] != NULL);
        *each[at] = (unsigned char)(at + 1);
        if (at % 50 == 0)
            IS(pmheap_tx_alloc(tx, 5000) != 0);
    }
    /* The same range, and a part of one, are the same memory. */
    char *range = (char *)pmheap_tx_edit(tx, large, 1000, 100);
    IS(((uintptr_t)range & 15) == ((large + 1000) & 15));
    IS(pmheap_tx_edit(tx, large, 1000, 100) == range);
    IS(pmheap_tx_edit(tx, large, 1050, 50) == range + 50);
    FAILS(PMHEAP_E_OVERLAP, pmheap_tx_edit(tx, large, 1050, 51));
    FAILS(PMHEAP_E_OVERLAP, pmheap_tx_edit(tx, large, 999, 2));
    IS(pmheap_tx_edit(tx, large, 1100, 1) != NULL);
    IS(pmheap_tx_edit(tx, large, 999, 1) != NULL);
    range[99] = 5;
    OK(pmheap_tx_read(tx, large, 1098, bytes, 3));
    IS(bytes[0] == 0 && bytes[1] == 5 && bytes[2] == 0);
    OK(pmheap_tx_write(tx, large, 1090, "abcdefghijklmnop", 16));
    IS(memcmp(range + 90, "abcdefghij", 10) == 0);
    range[91] = 'B';
    OK(pmheap_tx_read(tx, large, 1090, bytes, 16));
    IS(memcmp(bytes, "aBcdefghijklmnop", 16) == 0);
    OK(pmheap_tx_commit(tx));
    for (int at = 0; at < MANY; at++) {
        OK(pmheap_read(heap, object, 8 * at + at % 7, &byte, 1));
        IS(byte == (unsigned char)(at + 1));
    }
    OK(pmheap_read(heap, large, 1090, bytes, 16));
    IS(memcmp(bytes, "aBcdefghijklmnop", 16) == 0);
    OK(pmheap_read(heap, large, 0, NULL, 0));
}

/* Two transactions that change different words of one object at once are both right. */
static void beside(void)
{
    uint64_t object = make(64);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    uint64_t *words = (uint64_t *)pmheap_tx_edit(tx, object, 0, 64);
    words[0] = 1;
    OK(pmheap_tx_nest(tx));
    OK(pmheap_tx_commit(tx));
    OK(pmheap_tx_commit(tx));
    IS(word_of(object, 0) == 1);
}

static void parts(void)
{
    uint64_t object = make(64), other = make(64), objects = count(), word;
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    uint64_t *words = (uint64_t *)pmheap_tx_edit(tx, object, 0, 64);
    words[0] = 1;
    OK(pmheap_tx_nest(tx));
    words[0] = 2;
    uint64_t *inner = (uint64_t *)pmheap_tx_edit(tx, other, 0, 8);
    *inner = 2;
    IS(pmheap_tx_alloc(tx, 64) != 0);
    OK(pmheap_tx_free(tx, object));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_tx_read(tx, object, 0, &word, 8));
    OK(pmheap_tx_abort(tx));
    /* The part has not happened, and the copy from before it is as it was then. */
    IS(words[0] == 1);
    OK(pmheap_tx_read(tx, other, 0, &word, 8));
    IS(word == 0);
    /* A copy of the aborted part counts no more, and harms nobody. */
    *inner = 3;
    words[1] = 4;
    OK(pmheap_tx_nest(tx));
    OK(pmheap_tx_nest(tx));
    words[2] = 5;
    OK(pmheap_tx_free(tx, other));
    OK(pmheap_tx_commit(tx));
    OK(pmheap_tx_abort(tx));
    IS(words[2] == 0);
    OK(pmheap_tx_nest(tx));
    words[3] = 6;
    OK(pmheap_tx_commit(tx));
    OK(pmheap_tx_commit(tx));
    IS(word_of(object, 0) == 1 && word_of(object, 8) == 4 && word_of(object, 16) == 0);
    IS(word_of(object, 24) == 6 && word_of(other, 0) == 0);
    IS(count() == objects);
}

static void locks(void)
{
    uint64_t a = make(64), b = make(64), both[] = {a, b};
    int locked = 0;
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_lock(tx, a));
    OK(pmheap_tx_lock_all(tx, both, 2));
    OK(pmheap_tx_lock_all(tx, NULL, 0));
    OK(pmheap_tx_try_lock(tx, b, &locked));
    IS(locked == 1);
    OK(pmheap_tx_commit(tx));
}

static void roots(void)
{
    const uint64_t places[] = {8, 24};
    const struct pmheap_field fields[] = {{"a", "u64", 0, 0, 0}, {"b", "u8", 0, 8, 8}};
    uint64_t one = pmheap_type_register("one", 32, places, 2);
    uint64_t other = pmheap_type_register("other", 32, places, 2);
    uint64_t three = pmheap_type_struct(fields, 2, 16);
    IS(one != 0 && other != 0 && one != other && three != 0 && three != one);
    IS(one == pmheap_type_register("one", 32, places, 2));
    IS(one != pmheap_type_register("one", 32, places, 1));
    IS(one != pmheap_type_register("one", 40, places, 2));
    uint64_t root = pmheap_root(heap, "first", 32, one);
    IS(root != 0 && word_of(root, 24) == 0);
    IS(pmheap_root(heap, "first", 32, one) == root);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    uint64_t second = pmheap_tx_root(tx, "second", 16, three);
    IS(second != 0 && second != root);
    IS(pmheap_tx_root(tx, "first", 32, one) == root);
    OK(pmheap_tx_commit(tx));
    IS(pmheap_root(heap, "second", 16, three) == second);
}

/* Space of a large object that died goes back to the file system, and is taken again. */
static void holes(int has_file)
{
    uint64_t given = 1, objects = count();
    OK(pmheap_give_back(heap, &given));
    uint64_t large = make(8 << 20);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_free(tx, large));
    OK(pmheap_tx_commit(tx));
    OK(pmheap_give_back(heap, &given));
    IS(has_file ? given >= 6 << 20 && given % (2 << 20) == 0 : given == 0);
    OK(pmheap_give_back(heap, &given));
    IS(given == 0);
    large = make(8 << 20);
    IS(word_of(large, (8 << 20) - 8) == 0 && count() == objects + 1);
}

int main(int argc, char **argv)
{
    struct pmheap_options options;
    struct pmheap_stat stat;
    IS(argc == 2);
    memset(&options, 0, sizeof options);
    options.size = 4 << 20;
    options.lanes = 5;
    options.max = 256 << 20;
    for (int round = 0; round < 2; round++) {
        options.is_private = round == 1;
        heap = pmheap_create(round ? NULL : argv[1], &options);
        IS(heap != NULL);
        OK(pmheap_stat(heap, &stat));
        IS(stat.bytes == 4 << 20 && stat.lanes == 5 && stat.spans == 1);
        IS(stat.free_bytes >= stat.largest_free_bytes && stat.largest_free_bytes > 0);
        IS(!stat.survives_power_loss);
        IS(strcmp(stat.medium, round ? "private memory" : "tmpfs") == 0);
        all_or_nothing();
        copies();
        beside();
        parts();
        locks();
        roots();
        /* It grows. */
        make(40 << 20);
        OK(pmheap_stat(heap, &stat));
        IS(stat.bytes > 40 << 20 && stat.spans == 2);
        holes(!options.is_private);
        uint64_t objects = count();
        OK(pmheap_close(heap));
        if (round == 1)
            break;
        heap = pmheap_open(argv[1], NULL);
        IS(heap != NULL && count() == objects);
        OK(pmheap_close(heap));
    }
    return 0;
}
