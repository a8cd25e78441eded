/* What the sorted engines have beside the others. Part of calls.c. */

static const char *letters = "bdfhj";

struct walk {
    char seen[16];
    int calls, stop_at;
};

static int note_key(const char *key, size_t size, const char *value, size_t value_size, void *to)
{
    struct walk *walk = (struct walk *)to;
    IS(size == 1 && value_size == 2 && value[0] == key[0] && value[1] == '!');
    walk->seen[walk->calls++] = key[0];
    return walk->calls == walk->stop_at;
}

/* Each call on a range, and its count, has these keys. */
#define HAS(range, expected, ...)                                                         \
    do {                                                                                  \
        struct walk walk = {{0}, 0, 0};                                                   \
        size_t counted = 99;                                                              \
        GIVES(OK, pmemkv_get_##range(db, __VA_ARGS__, note_key, &walk));                  \
        IS(strcmp(walk.seen, expected) == 0);                                             \
        GIVES(OK, pmemkv_count_##range(db, __VA_ARGS__, &counted));                       \
        IS(counted == strlen(expected));                                                  \
    } while (0)

static void sorted_ranges(pmemkv_db *db)
{
    HAS(above, "fhj", "d", 1);
    HAS(above, "fhj", "e", 1);
    HAS(above, "bdfhj", "", 0);
    HAS(above, "", "j", 1);
    HAS(equal_above, "dfhj", "d", 1);
    HAS(equal_above, "fhj", "e", 1);
    HAS(equal_above, "fhj", "d\0", 2);
    HAS(equal_below, "bd", "d", 1);
    HAS(equal_below, "bd", "e", 1);
    HAS(equal_below, "", "", 0);
    HAS(below, "b", "d", 1);
    HAS(below, "bd", "e", 1);
    HAS(below, "bdfhj", "\xff", 1);
    HAS(below, "", "b", 1);
    HAS(between, "fh", "d", 1, "j", 1);
    HAS(between, "dfh", "c", 1, "i", 1);
    HAS(between, "", "d", 1, "f", 1);
    HAS(between, "", "d", 1, "d", 1);
    HAS(between, "", "j", 1, "b", 1);
    struct walk walk = {{0}, 0, 0};
    GIVES(OK, pmemkv_get_all(db, note_key, &walk));
    IS(strcmp(walk.seen, letters) == 0);
    struct walk stopped = {{0}, 0, 2};
    GIVES(STOPPED_BY_CB, pmemkv_get_equal_above(db, "d", 1, note_key, &stopped));
    IS(strcmp(stopped.seen, "df") == 0);
    size_t count = 7;
    GIVES(INVALID_ARGUMENT, pmemkv_count_above(db, NULL, 1, &count));
    GIVES(INVALID_ARGUMENT, pmemkv_count_above(db, "a", 1, NULL));
    GIVES(INVALID_ARGUMENT, pmemkv_count_between(db, "a", 1, NULL, 1, &count));
    GIVES(INVALID_ARGUMENT, pmemkv_get_below(db, NULL, 1, note_key, &walk));
    GIVES(INVALID_ARGUMENT, pmemkv_get_below(db, "a", 1, NULL, &walk));
    GIVES(INVALID_ARGUMENT, pmemkv_get_between(db, NULL, 1, "a", 1, note_key, &walk));
    IS(count == 7);
}

/* The key that an iterator is on; 0: on none. */
static char on(pmemkv_iterator *it)
{
    const char *key;
    size_t size;
    if (pmemkv_iterator_key(it, &key, &size) != PMEMKV_STATUS_OK)
        return 0;
    IS(size == 1);
    return key[0];
}

#define GOES(letter, call)                                                                \
    do {                                                                                  \
        GIVES(OK, call);                                                                  \
        IS(on(it) == letter);                                                             \
    } while (0)

static void sorted_iterators(pmemkv_db *db)
{
    pmemkv_iterator *it = NULL;
    pmemkv_write_iterator *write = NULL;
    char *room;
    size_t size;
    GIVES(OK, pmemkv_iterator_new(db, &it));
    GIVES(NOT_FOUND, pmemkv_iterator_is_next(it));
    GIVES(NOT_FOUND, pmemkv_iterator_next(it));
    GIVES(NOT_FOUND, pmemkv_iterator_prev(it));
    GOES('d', pmemkv_iterator_seek(it, "d", 1));
    GIVES(NOT_FOUND, pmemkv_iterator_seek(it, "e", 1));
    IS(on(it) == 0);
    GOES('b', pmemkv_iterator_seek_lower(it, "d", 1));
    GOES('d', pmemkv_iterator_seek_lower(it, "e", 1));
    GIVES(NOT_FOUND, pmemkv_iterator_seek_lower(it, "b", 1));
    IS(on(it) == 0);
    GOES('d', pmemkv_iterator_seek_lower_eq(it, "d", 1));
    GIVES(NOT_FOUND, pmemkv_iterator_seek_lower_eq(it, "a", 1));
    GOES('f', pmemkv_iterator_seek_higher(it, "d", 1));
    GIVES(NOT_FOUND, pmemkv_iterator_seek_higher(it, "j", 1));
    GOES('d', pmemkv_iterator_seek_higher_eq(it, "d", 1));
    GOES('f', pmemkv_iterator_seek_higher_eq(it, "e", 1));
    GIVES(NOT_FOUND, pmemkv_iterator_seek_higher_eq(it, "k", 1));
    GIVES(INVALID_ARGUMENT, pmemkv_iterator_seek_higher(it, NULL, 1));
    GOES('b', pmemkv_iterator_seek_to_first(it));
    GIVES(NOT_FOUND, pmemkv_iterator_prev(it));
    IS(on(it) == 'b');
    for (const char *letter = letters + 1; *letter != 0; letter++) {
        GIVES(OK, pmemkv_iterator_is_next(it));
        GOES(*letter, pmemkv_iterator_next(it));
    }
    GIVES(NOT_FOUND, pmemkv_iterator_is_next(it));
    GOES('h', pmemkv_iterator_prev(it));
    GOES('j', pmemkv_iterator_seek_to_last(it));
    GIVES(NOT_FOUND, pmemkv_iterator_next(it));
    IS(on(it) == 0);
    /* A neighbour that came meanwhile, and one that went. */
    GOES('d', pmemkv_iterator_seek(it, "d", 1));
    GIVES(OK, pmemkv_put(db, "e", 1, "e!", 2));
    GOES('e', pmemkv_iterator_next(it));
    GIVES(OK, pmemkv_remove(db, "e", 1));
    GOES('f', pmemkv_iterator_next(it));
    pmemkv_iterator_delete(it);
    /* Records that are changed on the way. */
    GIVES(OK, pmemkv_write_iterator_new(db, &write));
    it = write->iter;
    for (int status = pmemkv_iterator_seek_to_first(it); status == 0;
         status = pmemkv_iterator_next(it)) {
        GIVES(OK, pmemkv_write_iterator_write_range(write, 1, 1, &room, &size));
        room[0] = '?';
        GIVES(OK, pmemkv_write_iterator_commit(write));
    }
    pmemkv_write_iterator_delete(write);
    char value[2];
    GIVES(OK, pmemkv_get_copy(db, "j", 1, value, 2, &size));
    IS(memcmp(value, "j?", 2) == 0);
}

/* Keys enough for many leaves and chunks, against the order in which they are put. */
static void sorted_many(pmemkv_db *db)
{
    enum { KEYS = 20000 };
    char key[8], last[8] = "";
    size_t count;
    for (int at = 0; at < KEYS; at++) {
        snprintf(key, sizeof key, "%07d", (int)(at * 7919LL % KEYS));
        GIVES(OK, pmemkv_put(db, key, 7, "v", 1));
    }
    GIVES(OK, pmemkv_count_all(db, &count));
    IS(count == KEYS);
    GIVES(OK, pmemkv_count_between(db, "0004999", 7, "0015000", 7, &count));
    IS(count == 10000);
    pmemkv_iterator *it;
    GIVES(OK, pmemkv_iterator_new(db, &it));
    count = 0;
    for (int status = pmemkv_iterator_seek_to_last(it); status == 0;
         status = pmemkv_iterator_prev(it)) {
        const char *found;
        size_t size;
        GIVES(OK, pmemkv_iterator_key(it, &found, &size));
        IS(size == 7 && (count == 0 || memcmp(found, last, 7) < 0));
        memcpy(last, found, 7);
        count++;
    }
    IS(count == KEYS);
    pmemkv_iterator_delete(it);
}

static void sorted(pmemkv_db *db)
{
    size_t count = 7;
    GIVES(OK, pmemkv_remove(db, "a", 1));
    GIVES(OK, pmemkv_count_all(db, &count));
    IS(count == 0);
    GIVES(OK, pmemkv_count_above(db, "a", 1, &count));
    IS(count == 0);
    for (int at = 4; at >= 0; at--) {
        char value[2] = {letters[at], '!'};
        GIVES(OK, pmemkv_put(db, letters + at, 1, value, 2));
    }
    sorted_ranges(db);
    sorted_iterators(db);
    for (const char *letter = letters; *letter != 0; letter++)
        GIVES(OK, pmemkv_remove(db, letter, 1));
    sorted_many(db);
}
