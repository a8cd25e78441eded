/* A program that stores behind an edited range, which AddressSanitizer has to see. */
#include "told.h"
#include <string.h>

int main(int argc, char **argv)
{
    IS(argc == 2);
    pmheap_t *heap = pmheap_create(argv[1], NULL);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    uint64_t object = pmheap_tx_alloc(tx, 4096);
    OK(pmheap_tx_commit(tx));
    tx = pmheap_tx_begin(heap);
    volatile char *bytes = (volatile char *)pmheap_tx_edit(tx, object, 0, 4096);
    IS(bytes != NULL);
    bytes[4096] = 1;
    return 0;
}
