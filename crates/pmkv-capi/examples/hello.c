/* Keys and values that outlive the process.
 *
 *   cc hello.c -lpmkv -o hello && ./hello /dev/shm/hello
 *
 * It counts how often it was started.
 */
#include <pmkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(int well)
{
    if (!well) {
        fprintf(stderr, "hello: %s\n", pmheap_error());
        exit(1);
    }
}

static int show(void *stream, const void *key, size_t key_size, const void *value,
                size_t value_size)
{
    fprintf(stream, "%.*s: %.*s\n", (int)key_size, (const char *)key, (int)value_size,
            (const char *)value);
    return 0; /* go on */
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "hello";
    int is_there = access(path, F_OK) == 0;
    pmheap_t *heap = is_there ? pmheap_open(path, NULL) : pmheap_create(path, NULL);
    need(heap != NULL);
    pmkv_t *kv = pmkv_open(heap, "kv", NULL); /* made, if it is missing */
    need(kv != NULL);

    char text[21] = "0";
    size_t size;
    enum pmheap_code code = pmkv_get(kv, "starts", 6, text, sizeof text - 1, &size);
    need(code == PMHEAP_OK || code == PMHEAP_E_NO_KEY);
    if (code == PMHEAP_OK)
        text[size] = 0;
    snprintf(text, sizeof text, "%llu", strtoull(text, NULL, 10) + 1);

    /* Durable when it returns. */
    need(pmkv_put(kv, "starts", 6, text, strlen(text)) == PMHEAP_OK);
    code = pmkv_put_if(kv, "first", 5, PMKV_MISSING, NULL, 0, "hello", 5);
    need(code == PMHEAP_OK || code == PMHEAP_E_EXPECTED);

    need(pmkv_each(kv, show, stdout) == PMHEAP_OK);
    need(pmkv_close(kv) == PMHEAP_OK);
    need(pmheap_close(heap) == PMHEAP_OK);
    return 0;
}
