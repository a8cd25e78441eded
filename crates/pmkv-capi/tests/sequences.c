/* Vectors and queues of bytes, logs and texts: every function of theirs, on a heap and in a
 * transaction, and what they refuse. */
#include "told.h"
#include <string.h>

static pmheap_t *heap;
static char into[64];
static size_t size;

static uint64_t objects(void)
{
    struct pmheap_census census;
    OK(pmheap_check(heap, &census));
    return census.objects;
}

static void is(const char *text)
{
    IS(size == strlen(text) && memcmp(into, text, size) == 0);
}

static const char far[] = "thirty bytes that have an object";

static void vectors(void)
{
    struct pmheap_seq vec;
    OK(pmheap_seq_root(heap, "vec", PMHEAP_VEC, &vec));
    uint64_t before = objects(), index = 9, count = 9;
    OK(pmheap_vec_push(heap, &vec, "near", 4, &index));
    IS(index == 0);
    OK(pmheap_vec_push(heap, &vec, far, strlen(far), NULL));
    OK(pmheap_vec_get(heap, &vec, 1, into, sizeof into, &size));
    is(far);
    FAILS(PMHEAP_E_NO_KEY, pmheap_vec_get(heap, &vec, 2, into, sizeof into, &size));
    FAILS(PMHEAP_E_NO_KEY, pmheap_vec_set(heap, &vec, 2, "x", 1));
    OK(pmheap_vec_set(heap, &vec, 1, "other", 5));
    /* One that does not fit stays. */
    FAILS(PMHEAP_E_SHORT, pmheap_vec_pop(heap, &vec, into, 2, &size));
    IS(size == 5);
    FAILS(PMHEAP_E_SHORT, pmheap_vec_pop(heap, &vec, NULL, 0, NULL));
    OK(pmheap_vec_pop(heap, &vec, into, sizeof into, &size));
    is("other");
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_vec_push(tx, &vec, far, strlen(far), &index));
    IS(index == 1);
    OK(pmheap_tx_vec_set(tx, &vec, 0, "set", 3));
    FAILS(PMHEAP_E_NO_KEY, pmheap_tx_vec_set(tx, &vec, 7, "set", 3));
    OK(pmheap_tx_vec_get(tx, &vec, 0, into, sizeof into, &size));
    is("set");
    FAILS(PMHEAP_E_SHORT, pmheap_tx_vec_pop(tx, &vec, into, 3, &size));
    OK(pmheap_tx_vec_count(tx, &vec, &count));
    IS(count == 2);
    OK(pmheap_tx_commit(tx));
    OK(pmheap_vec_count(heap, &vec, &count));
    IS(count == 2);
    tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_vec_pop(tx, &vec, into, sizeof into, &size));
    is(far);
    OK(pmheap_tx_vec_clear(tx, &vec));
    FAILS(PMHEAP_E_NO_KEY, pmheap_tx_vec_pop(tx, &vec, into, sizeof into, &size));
    OK(pmheap_tx_abort(tx));
    OK(pmheap_vec_count(heap, &vec, &count));
    IS(count == 2);
    OK(pmheap_vec_clear(heap, &vec));
    IS(objects() == before);
}

static void queues(void)
{
    struct pmheap_seq queue;
    OK(pmheap_seq_root(heap, "queue", PMHEAP_QUEUE, &queue));
    uint64_t before = objects(), count = 9;
    FAILS(PMHEAP_E_NO_KEY, pmheap_queue_pop(heap, &queue, into, sizeof into, &size));
    OK(pmheap_queue_push(heap, &queue, "one", 3));
    OK(pmheap_queue_push(heap, &queue, far, strlen(far)));
    OK(pmheap_queue_peek(heap, &queue, into, sizeof into, &size));
    is("one");
    FAILS(PMHEAP_E_SHORT, pmheap_queue_pop(heap, &queue, into, 1, &size));
    OK(pmheap_queue_pop(heap, &queue, into, sizeof into, &size));
    is("one");
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_queue_push(tx, &queue, "two", 3));
    OK(pmheap_tx_queue_pop(tx, &queue, into, sizeof into, &size));
    is(far);
    OK(pmheap_tx_queue_peek(tx, &queue, into, sizeof into, &size));
    is("two");
    OK(pmheap_tx_queue_count(tx, &queue, &count));
    IS(count == 1);
    OK(pmheap_tx_commit(tx));
    OK(pmheap_queue_count(heap, &queue, &count));
    IS(count == 1);
    OK(pmheap_queue_clear(heap, &queue));
    tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_queue_clear(tx, &queue));
    OK(pmheap_tx_commit(tx));
    IS(objects() == before);
}

static int seen;

static int visit(void *argument, uint64_t position, const void *record, size_t len)
{
    (void)position;
    IS(argument == &seen && len == 3 && memcmp(record, "abc", 3) == 0);
    return ++seen == 3;
}

static void logs(void)
{
    struct pmheap_seq log, ring;
    OK(pmheap_seq_root(heap, "log", PMHEAP_LOG, &log));
    OK(pmheap_seq_root(heap, "ring", PMHEAP_LOG, &ring));
    uint64_t first = 9, second = 9, front = 9, end = 9, before = objects();
    OK(pmheap_log_append(heap, &log, "abc", 3, &first));
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_log_append(tx, &log, "abc", 3, &second));
    OK(pmheap_tx_log_read(tx, &log, second, into, sizeof into, &size));
    is("abc");
    OK(pmheap_tx_log_bounds(tx, &log, &front, NULL));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_tx_log_ring(tx, &log, 300));
    OK(pmheap_tx_log_ring(tx, &ring, 300));
    OK(pmheap_tx_commit(tx));
    IS(first == 0 && second > first && front == first);
    OK(pmheap_log_each(heap, &log, 0, visit, &seen));
    IS(seen == 2);
    FAILS(PMHEAP_E_STOPPED, pmheap_log_each(heap, &log, second, visit, &seen));
    IS(seen == 3);
    FAILS(PMHEAP_E_NO_KEY, pmheap_log_read(heap, &log, second + 8, into, sizeof into, &size));
    OK(pmheap_log_trim(heap, &log, second));
    FAILS(PMHEAP_E_NO_KEY, pmheap_log_read(heap, &log, first, into, sizeof into, &size));
    FAILS(PMHEAP_E_NO_KEY, pmheap_log_trim(heap, &log, second + 8));
    OK(pmheap_log_bounds(heap, &log, &front, &end));
    IS(front == second && end > second);
    tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_log_trim(tx, &log, end));
    OK(pmheap_tx_log_clear(tx, &log));
    OK(pmheap_tx_commit(tx));
    for (int nth = 0; nth < 100; nth++)
        OK(pmheap_log_append(heap, &ring, far, strlen(far), NULL));
    OK(pmheap_log_bounds(heap, &ring, &front, &end));
    IS(front > 0 && end - front >= 300);
    OK(pmheap_log_clear(heap, &ring));
    OK(pmheap_log_clear(heap, &log));
    IS(objects() == before);
}

static void texts(void)
{
    struct pmheap_seq text;
    OK(pmheap_seq_root(heap, "text", PMHEAP_STRING, &text));
    OK(pmheap_string_set(heap, &text, "a text", 6));
    OK(pmheap_string_append(heap, &text, " of more than 15 bytes", 22));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_string_append(heap, &text, "\xff", 1));
    OK(pmheap_string_get(heap, &text, into, sizeof into, &size));
    is("a text of more than 15 bytes");
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    OK(pmheap_tx_string_set(tx, &text, "b", 1));
    OK(pmheap_tx_string_append(tx, &text, "c", 1));
    OK(pmheap_tx_string_get(tx, &text, into, sizeof into, &size));
    is("bc");
    OK(pmheap_tx_string_clear(tx, &text));
    OK(pmheap_tx_commit(tx));
    OK(pmheap_string_clear(heap, &text));
    OK(pmheap_string_get(heap, &text, into, sizeof into, &size));
    is("");
    /* A place is of one kind, begins where a head can, and is there. */
    FAILS(PMHEAP_E_ARGUMENT, pmheap_log_clear(heap, &text));
    struct pmheap_seq bad = text;
    bad.start = 4;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_string_clear(heap, &bad));
    bad = text;
    bad.reserved = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_string_clear(heap, &bad));
    FAILS(PMHEAP_E_NULL, pmheap_string_clear(heap, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_string_set(heap, &text, NULL, 4));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_seq_root(heap, "text", PMHEAP_MAP, &bad));
}

int main(int argc, char **argv)
{
    IS(argc == 2);
    heap = pmheap_create(argv[1], NULL);
    IS(heap != NULL);
    vectors();
    queues();
    logs();
    texts();
    OK(pmheap_close(heap));
    return 0;
}
